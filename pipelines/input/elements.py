"""One serialised record to one element of the dataset, with its images checked, and elements to batches."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal, get_args

import tensorflow as tf

from recordmill.pipelines.input.decoding import (
    decode_mask,
    decode_object_mask,
    file_pixels,
    map_each,
    tensor_pixels,
    with_channels,
)
from recordmill.pipelines.input.layout import HEIGHTS, WIDTHS, ImageLayout, Layout, Parser
from recordmill.pipelines.input.plan import HEAD_BYTES, Plan, is_of_objects
from recordmill.pipelines.input.resizing import Tensors, fit_of, fitted, moved

_SMALL_PIXELS = 16 << 10
_BATCH_PIXELS = 32 << 20
_PNG = b"\x89PNG"
_SIXTEEN_BITS = b"\x10"
_JPEG_END, _PNG_END = b"\xff\xd9", b"\xaeB`\x82"
_SMALL_BYTES = 16_384
_ALLOWED = {1: (1,), 3: (1, 3), 4: (1, 2, 3, 4)}
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
    """The elements of serialised records, in batches if `batching` has a size."""
    size = batching.batch_size
    plain = tf.autograph.experimental.do_not_convert
    if size is not None and _are_batches_decoded(plan, size):
        batch = plain(functools.partial(_batch, plan=plan, batching=batching))
        return records.batch(size, batching.drop_remainder).map(batch, num_parallel_calls=tf.data.AUTOTUNE)
    element = plain(functools.partial(_element, plan=plan))
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


def _batch(serialized: tf.Tensor, plan: Plan, batching: Batching) -> Any:
    """The batch of some records of small images: parsed and checked at once, if they are alike."""
    image = plan.layout.image
    assert image is not None
    found = _parsed_batch(serialized, plan)

    def together() -> Any:
        return _finished({**found, image.name: alike_pixels(found[image.name], image)}, {}, plan)

    def one_by_one() -> Any:
        records = tf.data.Dataset.from_tensor_slices(serialized)
        return batched(records.map(functools.partial(_element, plan=plan)), batching).get_single_element()

    return tf.cond(are_alike(found, image), together, one_by_one)


def _element(serialized: tf.Tensor, plan: Plan) -> Any:
    """The element of a record: a dict of tensors, or a pair."""
    context, lists = _parsed(serialized, plan.layout)
    if plan.layout.feature_lists:
        lists = _sequence(context, lists, plan)
    else:
        context = _example(context, plan)
    return _finished(context, lists, plan)


def _finished(context: Tensors, lists: Tensors, plan: Plan) -> Any:
    """The kept features of a record, or of a batch of records with one value of each."""
    if plan.classes and plan.label is not None:
        is_list = plan.layout.features[plan.label].shape == (None,)
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
    return kept[image], {name: one for name, one in kept.items() if is_of_objects(name, plan.layout)}


def _example(found: Tensors, plan: Plan) -> Tensors:
    layout, asked = plan.layout, plan.asked
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
        pixels = decoded(found[image.name], image, found, _key(found, plan))
        height, width = tf.unstack(tf.shape(pixels))[:2]
    fit = fit_of(height, width, asked) if height is not None else None
    if image is not None:
        found[image.name] = fitted(pixels, fit, asked)
    for name, fill in layout.masks.items():
        mask = decode_mask(found[name], height, width, fill, tf.uint8 if fill else tf.uint16)
        if fit is None and image is not None and image.sides is not None:
            mask.set_shape([*image.sides, 1])
        found[name] = fitted(mask, fit, asked, fill)

    def object_mask(png: tf.Tensor) -> tf.Tensor:
        return fitted(decode_object_mask(png, height, width)[..., None], fit, asked, fill=0)[..., 0]

    if layout.object_masks is not None:
        shape: list[Any] = [None, None] if fit is None else list(fit.target)
        empty = [height, width] if fit is None else shape
        found[layout.object_masks] = map_each(object_mask, found[layout.object_masks], shape, empty, tf.uint8)
    return found if fit is None else moved(found, fit, plan)


def _key(found: Tensors, plan: Plan) -> tf.Tensor:
    return found.get(plan.key or "", tf.constant("without a name"))


def _sequence(context: Tensors, lists: Tensors, plan: Plan) -> Tensors:
    """The lists of a sequence, with frames that are decoded one by one."""
    asked, image = plan.asked, plan.layout.image
    if image is None or image.name not in lists:
        return lists
    used = (image.name, image.height, image.width, image.depth)
    rows = {name: lists[name] for name in used if name is not None and name in lists}
    key = _key(context, plan)

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


def decoded(data: tf.Tensor, layout: ImageLayout, stored: dict[str, tf.Tensor], key: tf.Tensor) -> tf.Tensor:
    """The pixels of an image, (h, w, channels)."""
    sides = [stored[name] for name in (layout.height, layout.width) if name is not None and name in stored]
    if layout.codec == "raw":
        image = _raw_pixels(data, layout, [*sides, *(stored[name] for name in (layout.depth,) if name)], key)
    elif layout.codec == "tensor":
        image = tensor_pixels(data, layout.dtype)
    else:
        image = tf.cond(
            _looks_complete(data, layout), lambda: _pixels(data, layout), lambda: _tried(data, layout, key)
        )
    with tf.control_dependencies(_checked(data, image, layout, sides, key)):
        image = _converted(image, layout)
    image.set_shape([*(layout.sides or (None, None)), layout.channels or None])
    return image


def _pixels(data: tf.Tensor, layout: ImageLayout) -> tf.Tensor:
    """The pixels of a file; an error does not name the record."""
    return tf.io.decode_jpeg(data, channels=3) if layout.is_plain_jpeg else file_pixels(data, layout.dtype)


def _looks_complete(data: tf.Tensor, layout: ImageLayout) -> tf.Tensor:
    """Whether a file has its end, and decoding it takes less time than trying to."""
    size = tf.strings.length(data)
    is_jpeg = _end(data, size, 2) == _JPEG_END
    if layout.formats == {"jpeg"}:
        return is_jpeg
    is_png = tf.logical_and(_end(data, size, 4) == _PNG_END, size < _SMALL_BYTES)
    return is_png if layout.formats == {"png"} else tf.logical_or(is_jpeg, is_png)


def _end(data: tf.Tensor, size: tf.Tensor, length: int) -> tf.Tensor:
    """The last bytes of a file, or of each of some."""
    return tf.strings.substr(data, tf.maximum(size - length, 0), tf.fill(tf.shape(size), length))


def _tried(data: tf.Tensor, layout: ImageLayout, key: tf.Tensor) -> tf.Tensor:
    """The pixels of a file that may be damaged: the error names its record.

    In a graph, only a dataset, here of one element, can continue after an error.
    """

    def fail(file: tf.Tensor) -> tf.Tensor:
        fault = ("has", tf.strings.length(file), "bytes that TensorFlow cannot decode; give decode=False")
        with tf.control_dependencies(_fail_unless([(tf.constant(False), fault)], key)):
            return _pixels(file, layout)

    file = tf.data.Dataset.from_tensors(data)
    found = file.map(lambda one: _pixels(one, layout)).ignore_errors()
    return found.concatenate(file.map(fail)).take(1).get_single_element()


def are_alike(found: dict[str, tf.Tensor], layout: ImageLayout) -> tf.Tensor:
    """Whether files are PNGs with the layout's head that look complete and have the stored sides."""
    assert layout.sides is not None
    data = found[layout.name]
    size = tf.strings.length(data)
    checks = [tf.strings.substr(data, 0, HEAD_BYTES) == layout.head, _end(data, size, 4) == _PNG_END]
    for name, side in zip((layout.height, layout.width), layout.sides, strict=True):
        if name in found:
            checks.append(found[name] == side)
    return tf.reduce_all(tf.stack(checks))


def alike_pixels(data: tf.Tensor, layout: ImageLayout) -> tf.Tensor:
    """The pixels of a batch of files that are alike, (b, h, w, channels)."""
    assert layout.sides is not None
    spec = tf.TensorSpec([*layout.sides, layout.channels], tf.uint8)
    channels = 0 if layout.is_strict else layout.channels

    def one(file: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.io.decode_png(file, channels), spec.shape)

    return tf.map_fn(one, data, fn_output_signature=spec)


def _raw_pixels(data: tf.Tensor, layout: ImageLayout, shape: list[tf.Tensor], key: tf.Tensor) -> tf.Tensor:
    pixels = tf.io.decode_raw(data, layout.dtype)
    held = tf.size(pixels, tf.int64)
    if len(shape) == 2:
        shape = [*shape, held // tf.maximum(shape[0] * shape[1], 1)]
    check = ("has", held, "values; stored are height, width, channels", tf.stack(shape))
    with tf.control_dependencies(_fail_unless([(held == tf.reduce_prod(shape), check)], key)):
        return tf.reshape(pixels, shape)


_Check = tuple[tf.Tensor, tuple[Any, ...]]


def _checked(
    data: tf.Tensor, image: tf.Tensor, layout: ImageLayout, sides: list[tf.Tensor], key: tf.Tensor
) -> list[tf.Operation]:
    """Fails unless an image has the shape in its record, and the kind of the other images."""
    shape = tf.shape(image, tf.int64)
    checks = _shape_checks(shape, layout, sides)
    if (
        layout.keeps_bits
        and layout.dtype == "uint8"
        and (not layout.formats or "png" in layout.formats)
        and layout.codec == "image"
    ):
        deep = "is a PNG of 16 bits, others are of 8; give dtype='uint16' or 'uint8'"
        with tf.control_dependencies([image]):  # what is decoded has more bytes than that
            is_deep = tf.strings.substr(data, 24, 1) == _SIXTEEN_BITS
        if layout.formats != {"png"}:
            is_deep = tf.logical_and(tf.strings.substr(data, 0, 4) == _PNG, is_deep)
        checks.append((tf.logical_not(is_deep), (deep,)))
    return _fail_unless(checks, key)


def _shape_checks(shape: tf.Tensor, layout: ImageLayout, sides: list[tf.Tensor]) -> list[_Check]:
    stored = tf.stack(sides) if len(sides) == 2 else None
    if stored is not None and layout.sides is not None and layout.channels == 1 and layout.is_strict:
        # all in one comparison, since images like these are many and small
        same = tf.concat([shape, stored], 0) == tf.constant([*layout.sides, 1, *layout.sides], tf.int64)
        height, width = layout.sides
        others = f"; others are of {height}, {width}, 1; give size=(height, width) or channels=3"
        message = ("decodes to height, width, channels", shape, "; stored are", stored, others)
        return [(tf.reduce_all(same), message)]
    checks: list[_Check] = []
    if stored is not None:
        differs = ("decodes to height, width, channels", shape, "; stored are", stored)
        checks.append((tf.reduce_all(shape[:2] == stored), differs))
    if layout.sides is not None:
        height, width = layout.sides
        others = f"; others are of {height}, {width}; batches need one size: give size=(height, width)"
        same = tf.reduce_all(shape[:2] == tf.constant(layout.sides, tf.int64))
        checks.append((same, ("is of height, width, channels", shape, others)))
    if layout.is_strict and layout.channels and not layout.is_plain_jpeg:
        wanted = f"channels; others have {layout.channels}. Give channels=1, 3, 4 or 0"
        allowed = tf.constant(_ALLOWED[layout.channels], tf.int64)
        checks.append((tf.reduce_any(shape[2] == allowed), ("has", shape[2], wanted)))
    return checks


def _fail_unless(checks: Sequence[_Check], key: tf.Tensor) -> list[tf.Operation]:
    """Raises InvalidArgumentError while reading, naming the record.

    tf.debugging.Assert would put a branch around each, a third of the time of a small image.
    """
    asserted = []
    for ok, fault in checks:
        data = [tf.convert_to_tensor(one) for one in ("the image of record", key, *fault)]
        asserted.append(tf.raw_ops.Assert(condition=ok, data=data, summarize=4))
    return asserted


def _converted(image: tf.Tensor, layout: ImageLayout) -> tf.Tensor:
    if layout.channels == 0 or layout.is_plain_jpeg or (layout.channels == 1 and layout.is_strict):
        return tf.identity(image)
    return with_channels(image, layout.channels)
