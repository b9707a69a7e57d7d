"""One serialised record to one element of the dataset, and elements to batches."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args

import tensorflow as tf

from recordmill.pipelines.input.decoding import decode_mask, decode_object_mask, map_each
from recordmill.pipelines.input.images import alike_pixels, are_alike, decoded
from recordmill.pipelines.input.layout import HEIGHTS, WIDTHS, Layout, Parser
from recordmill.pipelines.input.plan import Plan, is_of_objects
from recordmill.pipelines.input.resizing import Fit, Tensors, fit_of, fitted, moved

_SMALL_PIXELS = 16 << 10
_BATCH_PIXELS = 32 << 20
Lists = Literal["ragged", "padded"]


@dataclasses.dataclass(frozen=True)
class Batching:
    """How elements are batched; see `load_dataset`."""

    batch_size: int | None
    drop_remainder: bool
    lists: Lists

    def __post_init__(self) -> None:
        if self.lists not in get_args(Lists):
            raise ValueError(f"lists is {self.lists!r}; it may be 'ragged' or 'padded'")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size!r}; it may be a number from 1, or None")
        if self.batch_size is None and self.drop_remainder:
            raise ValueError("drop_remainder is True, and there are no batches; give batch_size too")


def batched(dataset: tf.data.Dataset, batching: Batching) -> tf.data.Dataset:
    """The dataset in batches; lists ragged, or padded with -1, 0.0 and empty bytes, masks with 0."""
    if batching.batch_size is None:
        return dataset
    size, drop = batching.batch_size, batching.drop_remainder
    specs = tf.nest.flatten(dataset.element_spec)
    if all(isinstance(spec, tf.TensorSpec) and spec.shape.is_fully_defined() for spec in specs):
        return dataset.batch(size, drop)
    if batching.lists == "ragged":
        return dataset.ragged_batch(size, drop)
    dataset = dataset.map(_dense, num_parallel_calls=tf.data.AUTOTUNE)
    shapes = tf.nest.map_structure(lambda spec: spec.shape, dataset.element_spec)
    values = tf.nest.map_structure(_padding, dataset.element_spec)
    return dataset.padded_batch(size, shapes, values, drop)


def _dense(*element: Any) -> Any:
    """An element without ragged tensors."""
    found = tf.nest.map_structure(
        lambda one: one.to_tensor(_padding(one)) if isinstance(one, tf.RaggedTensor) else one, element
    )
    return found if len(found) > 1 else found[0]


def _padding(spec: Any) -> Any:
    value = {tf.int64: -1, tf.string: b""}.get(spec.dtype, 0)
    return tf.constant(value, spec.dtype)


def elements_of(records: tf.data.Dataset, plan: Plan, batching: Batching) -> tf.data.Dataset:
    """The elements of serialised records, in batches where these are asked for."""
    size = batching.batch_size
    if size is not None and _are_batches_decoded(plan, size):
        batch = tf.autograph.experimental.do_not_convert(Batches(plan, batching).__call__)
        return records.batch(size, batching.drop_remainder).map(batch, num_parallel_calls=tf.data.AUTOTUNE)
    element = tf.autograph.experimental.do_not_convert(Elements(plan).__call__)
    return batched(records.map(element, num_parallel_calls=tf.data.AUTOTUNE), batching)


def _are_batches_decoded(plan: Plan, batch_size: int) -> bool:
    """Whether images are small and alike, and records have one value of each feature."""
    layout, image = plan.layout, plan.layout.image
    if image is None or not image.head or image.sides is None or layout.feature_lists:
        return False
    pixels = image.sides[0] * image.sides[1] * image.channels
    return (
        pixels <= _SMALL_PIXELS
        and pixels * batch_size <= _BATCH_PIXELS
        and all(None not in spec.shape for spec in layout.features.values())
        and not layout.masks
    )


class Batches:
    """Makes batches of serialised records of small images: parsed and checked at once, in less time.

    Args:
        plan: of the dataset.
        batching: what is asked of batches.
    """

    def __init__(self, plan: Plan, batching: Batching) -> None:
        self._elements = Elements(plan)
        self._plan = plan
        self._batching = batching

    def __call__(self, serialized: tf.Tensor) -> Any:
        """The batch of some records; where one is not like the others each is looked at for itself."""
        image = self._plan.layout.image
        assert image is not None
        found = _parsed_batch(serialized, self._plan)

        def together() -> Any:
            return self._elements.finished({**found, image.name: alike_pixels(found[image.name], image)}, {})

        def one_by_one() -> Any:
            records = tf.data.Dataset.from_tensor_slices(serialized)
            return batched(records.map(self._elements), self._batching).get_single_element()

        return tf.cond(are_alike(found, image), together, one_by_one)


class Elements:
    """Makes elements of serialised records, as a plan says.

    Args:
        plan: of the dataset.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._layout = plan.layout

    def __call__(self, serialized: tf.Tensor) -> Any:
        """The element of a record: a dict of tensors, or a pair."""
        context, lists = _parsed(serialized, self._layout)
        if self._layout.feature_lists:
            lists = self._sequence(context, lists)
        else:
            context = self._example(context)
        return self.finished(context, lists)

    def finished(self, context: Tensors, lists: Tensors) -> Any:
        """What is kept of the features of a record, or of a batch of such that have one value of each."""
        plan = self._plan
        if plan.classes and plan.label is not None:
            is_list = self._layout.features[plan.label].shape == (None,)
            context[plan.label] = _one_hot(context[plan.label], plan.classes, is_list)
        kept = {
            (f"context/{name}" if name in lists else name): value
            for name, value in context.items()
            if name in plan.kept
        }
        kept |= {name: value for name, value in lists.items() if name in plan.kept}
        if plan.pair is None:
            return kept
        image, target = plan.pair
        if target:
            return kept[image], kept.get(f"context/{target}", kept.get(target))
        return kept[image], {name: one for name, one in kept.items() if is_of_objects(name, self._layout)}

    def _example(self, found: Tensors) -> Tensors:
        layout, asked = self._layout, self._plan.asked
        for name, sides in layout.boxes.items():
            found[name] = tf.stack([found.pop(side) for side in sides], axis=-1)
        if not asked.decode:
            return found | {name: tf.strings.reduce_join(found[name]) for name in layout.masks}
        height, width = (
            tf.cast(found[name], tf.int32) if name in found else None
            for name in (layout.scalar(*HEIGHTS), layout.scalar(*WIDTHS))
        )
        image = layout.image
        if image is not None:
            pixels = decoded(found[image.name], image, found, self._key(found))
            height, width = tf.unstack(tf.shape(pixels))[:2]
        fit = fit_of(height, width, asked) if height is not None else None
        if image is not None:
            found[image.name] = fitted(pixels, fit, asked)
        for name, fill in layout.masks.items():
            mask = decode_mask(found[name], height, width, fill, tf.uint8 if fill else tf.uint16)
            if fit is None and image is not None and image.sides is not None:
                mask.set_shape([*image.sides, 1])
            found[name] = fitted(mask, fit, asked, fill)
        if layout.object_masks is not None:
            masks = self._object_masks(found[layout.object_masks], height, width, fit)
            found[layout.object_masks] = masks
        return found if fit is None else moved(found, fit, self._plan)

    def _object_masks(self, data: tf.Tensor, height: Any, width: Any, fit: Fit | None) -> tf.Tensor:
        """Masks of objects, (n, h, w)."""
        shape: list[Any] = [None, None] if fit is None else list(fit.target)
        empty = [height, width] if fit is None else shape

        def one(png: tf.Tensor) -> tf.Tensor:
            mask = decode_object_mask(png, height, width)
            return mask if fit is None else fitted(mask[..., None], fit, self._plan.asked, fill=0)[..., 0]

        return map_each(one, data, shape, empty, tf.uint8)

    def _key(self, found: Tensors) -> tf.Tensor:
        return found.get(self._plan.key or "", tf.constant("without a name"))

    def _sequence(self, context: Tensors, lists: Tensors) -> Tensors:
        """The lists of a sequence, with frames that are decoded one by one."""
        asked, image = self._plan.asked, self._layout.image
        if image is None or image.name not in lists:
            return lists
        used = (image.name, image.height, image.width, image.depth)
        rows = {name: lists[name] for name in used if name is not None and name in lists}
        key = self._key(context)

        def one(row: Tensors) -> tf.Tensor:
            pixels = decoded(row[image.name], image, {**context, **row}, key)
            height, width = tf.unstack(tf.shape(pixels))[:2]
            return fitted(pixels, fit_of(height, width, asked), asked)

        shape = [*(asked.target or image.sides or (None, None)), image.channels or None]
        frames = map_each(one, rows, shape, [side or 0 for side in shape], image.dtype)
        return {**lists, image.name: frames}


def _one_hot(label: tf.Tensor, classes: int, is_list: bool) -> tf.Tensor:
    """The classes of a record as a vector, 1 for each."""
    vector = tf.one_hot(label, classes)
    return tf.reduce_max(tf.concat([vector, tf.zeros([1, classes])], 0), 0) if is_list else vector


def _parsed(serialized: tf.Tensor, layout: Layout) -> tuple[Tensors, Tensors]:
    """The features of a record, and its feature lists."""
    features = {name: _parser(one) for name, one in layout.parsers.items()}
    if not layout.feature_lists:
        return tf.io.parse_single_example(serialized, features), {}
    lists = {name: _parser(one) for name, one in layout.list_parsers.items()}
    found, steps = tf.io.parse_single_sequence_example(serialized, features or None, lists)
    return dict(found), dict(steps)


def _parsed_batch(serialized: tf.Tensor, plan: Plan) -> Tensors:
    """The features of a batch of records, (b,), one value of each that is needed."""
    features = {
        name: _parser(one)
        for name, one in plan.layout.parsers.items()
        if name in plan.kept or name != plan.key
    }
    found: Tensors = tf.io.parse_example(serialized, features)
    return found


def _parser(one: Parser) -> Any:
    shape = () if one.shape is None else (one.shape,)
    options = {"allow_missing": True} if one.allow_missing else {}
    return getattr(tf.io, one.kind)(*shape, tf.as_dtype(one.dtype), **options)
