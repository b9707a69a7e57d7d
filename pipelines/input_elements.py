"""One serialised record to one element of the dataset."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from recordmill.pipelines.input_annotations import moved, object_masks
from recordmill.pipelines.input_batching import Batching, batched
from recordmill.pipelines.input_images import Fit, alike_pixels, are_alike, decoded, fit_of, fitted, mask_of
from recordmill.pipelines.input_parsing import Tensors, parsed, parsed_batch
from recordmill.pipelines.input_plan import MASK_FILLS, OBJECT_MASKS, OBJECTS, Plan

_SMALL_PIXELS = 16 << 10
_BATCH_PIXELS = 32 << 20


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
    image = plan.image
    if image is None or not image.head or image.sides is None or plan.specs.feature_lists:
        return False
    pixels = image.sides[0] * image.sides[1] * image.channels
    return (
        pixels <= _SMALL_PIXELS
        and pixels * batch_size <= _BATCH_PIXELS
        and all(None not in spec.shape for spec in plan.specs.features.values())
        and not any(plan.name(name) in (*MASK_FILLS, OBJECT_MASKS) for name in plan.specs.features)
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
        image = self._plan.image
        assert image is not None
        found = parsed_batch(serialized, self._plan)

        def together() -> Any:
            return self._elements.finished({**found, image.name: alike_pixels(found[image.name], image)}, {})

        def one_by_one() -> Any:
            records = tf.data.Dataset.from_tensor_slices(serialized)
            return batched(records.map(self._elements.__call__), self._batching).get_single_element()

        return tf.cond(are_alike(found, image), together, one_by_one)


class Elements:
    """Makes elements of serialised records, as a plan says.

    Args:
        plan: of the dataset.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __call__(self, serialized: tf.Tensor) -> Any:
        """The element of a record: a dict of tensors, or a pair."""
        plan = self._plan
        context, lists = parsed(serialized, plan)
        if lists:
            context, lists = self._sequence(context, lists)
        else:
            context = self._example(context)
        return self.finished(context, lists)

    def finished(self, context: Tensors, lists: Tensors) -> Any:
        """What is kept of the features of a record, or of a batch of such that have one value of each."""
        plan = self._plan
        if plan.classes and plan.label is not None:
            is_list = plan.specs.features[plan.label].shape == (None,)
            context[plan.label] = _one_hot(context[plan.label], plan.classes, is_list)
        found = {(f"context/{name}" if name in lists else name): value for name, value in context.items()}
        kept = {name: value for name, value in found.items() if name.removeprefix("context/") in plan.kept}
        kept |= {name: value for name, value in lists.items() if name in plan.kept}
        return kept if plan.pair is None else self._supervised(kept)

    def _supervised(self, found: Tensors) -> tuple[Any, Any]:
        plan = self._plan
        assert plan.pair is not None
        image, target = plan.pair
        if not target:
            return found[image], {
                name: one for name, one in found.items() if plan.name(name).startswith(OBJECTS)
            }
        return found[image], found.get(f"context/{target}", found.get(target))

    def _example(self, found: Tensors) -> Tensors:
        plan = self._plan
        if not plan.asked.decode:
            return {name: self._as_stored(name, value) for name, value in found.items()}
        height, width = self._sides(found)
        image = plan.image
        if image is not None:
            pixels = decoded(found[image.name], image, found, self._key(found))
            height, width = tf.unstack(tf.shape(pixels))[:2]
        fit = fit_of(height, width, plan.asked) if height is not None else None
        if image is not None:
            found[image.name] = fitted(pixels, fit, plan.asked)
        for name, value in list(found.items()):
            ours = plan.name(name)
            if ours in MASK_FILLS and name in plan.kept:
                fill = MASK_FILLS[ours]
                found[name] = self._mask(value, height, width, fit, fill)
            elif ours == OBJECT_MASKS and name in plan.kept:
                found[name] = object_masks(value, height, width, fit, plan)
        return found if fit is None else moved(found, fit, plan)

    def _as_stored(self, name: str, value: tf.Tensor) -> tf.Tensor:
        """A feature without decoding; of a mask that is absent no bytes."""
        return tf.strings.reduce_join(value) if self._plan.name(name) in MASK_FILLS else value

    def _mask(self, value: tf.Tensor, height: Any, width: Any, fit: Fit | None, fill: int) -> tf.Tensor:
        mask = mask_of(value, height, width, fill)
        image = self._plan.image
        if fit is None and image is not None and image.sides is not None:
            mask.set_shape([*image.sides, 1])
        return fitted(mask, fit, self._plan.asked, fill)

    def _sides(self, found: Tensors) -> tuple[Any, Any]:
        """Height and width as stored; None where they are not parsed."""
        plan = self._plan
        names = plan.stored("image/height", "height"), plan.stored("image/width", "width")
        height, width = (tf.cast(found[name], tf.int32) if name in found else None for name in names)
        return height, width

    def _key(self, found: Tensors) -> tf.Tensor:
        return found.get(self._plan.key or "", tf.constant("without a name"))

    def _sequence(self, context: Tensors, lists: Tensors) -> tuple[Tensors, Tensors]:
        """A sequence, its frames decoded one by one."""
        plan = self._plan
        image = plan.image
        if image is None or image.name not in lists:
            return context, lists
        told = {name for name in (image.name, image.height, image.width, image.depth) if name in lists}
        rows = {name: lists[name] for name in told}
        common = {name: value for name, value in context.items() if name not in told}
        key = self._key(context)

        def one(row: Tensors) -> tf.Tensor:
            pixels = decoded(row[image.name], image, {**common, **row}, key)
            height, width = tf.unstack(tf.shape(pixels))[:2]
            return fitted(pixels, fit_of(height, width, plan.asked), plan.asked)

        sides = list(plan.asked.target or image.sides or (None, None))
        shape = [*sides, image.channels or None]
        frames = tf.cond(
            tf.size(rows[image.name]) > 0,
            lambda: tf.map_fn(one, rows, fn_output_signature=tf.TensorSpec(shape, image.dtype)),
            lambda: tf.zeros([0, *(side or 0 for side in shape)], image.dtype),
        )
        frames.set_shape([None, *shape])
        return context, {**lists, image.name: frames}


def _one_hot(label: tf.Tensor, classes: int, is_list: bool) -> tf.Tensor:
    """The classes of a record as a vector, 1 for each."""
    vector = tf.one_hot(label, classes)
    return tf.reduce_max(tf.concat([vector, tf.zeros([1, classes])], 0), 0) if is_list else vector
