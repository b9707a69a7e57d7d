"""Images of records: decoded, and compared with their records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from recordmill.pipelines.input.decoding import file_pixels, tensor_pixels, with_channels
from recordmill.pipelines.input.layout import ImageLayout
from recordmill.pipelines.input.plan import HEAD_BYTES

_PNG = b"\x89PNG"
_SIXTEEN_BITS = b"\x10"
_JPEG_END, _PNG_END = b"\xff\xd9", b"\xaeB`\x82"
_SMALL_BYTES = 16_384
_ALLOWED = {1: (1,), 3: (1, 3), 4: (1, 2, 3, 4)}


def decoded(data: tf.Tensor, layout: ImageLayout, stored: dict[str, tf.Tensor], key: tf.Tensor) -> tf.Tensor:
    """The pixels of an image, (h, w, channels).

    Args:
        data: bytes.
        layout: how they are decoded.
        stored: the features of its record, or of its step, by name.
        key: of its record.
    """
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
    """Whether a file ends as it should, and is decoded in less time than it takes to try."""
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

    A dataset of one element is the only way that a graph has to go on after an error.
    """

    def fail(file: tf.Tensor) -> tf.Tensor:
        told = ("has", tf.strings.length(file), "bytes that TensorFlow cannot decode; give decode=False")
        with tf.control_dependencies(_fail_unless([(tf.constant(False), told)], key)):
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
    """Rows of pixels, whose number is compared with the stored shape."""
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
    """Fails unless an image is what its record says, and what others are."""
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
    told = tf.stack(sides) if len(sides) == 2 else None
    if told is not None and layout.sides is not None and layout.channels == 1 and layout.is_strict:
        # all in one comparison, since images like these are many and small
        same = tf.concat([shape, told], 0) == tf.constant([*layout.sides, 1, *layout.sides], tf.int64)
        height, width = layout.sides
        others = f"; others are of {height}, {width}, 1; give size=(height, width) or channels=3"
        message = ("decodes to height, width, channels", shape, "; stored are", told, others)
        return [(tf.reduce_all(same), message)]
    checks: list[_Check] = []
    if told is not None:
        differs = ("decodes to height, width, channels", shape, "; stored are", told)
        checks.append((tf.reduce_all(shape[:2] == told), differs))
    if layout.sides is not None:
        checks.append(_same_size(shape, layout.sides))
    if layout.is_strict and layout.channels and not layout.is_plain_jpeg:
        wanted = f"channels; others have {layout.channels}. Give channels=1, 3, 4 or 0"
        allowed = tf.constant(_ALLOWED[layout.channels], tf.int64)
        checks.append((tf.reduce_any(shape[2] == allowed), ("has", shape[2], wanted)))
    return checks


def _same_size(shape: tf.Tensor, sides: tuple[int, int]) -> _Check:
    others = f"; others are of {sides[0]}, {sides[1]}; batches need one size: give size=(height, width)"
    return tf.reduce_all(shape[:2] == tf.constant(sides, tf.int64)), (
        "is of height, width, channels",
        shape,
        others,
    )


def _fail_unless(checks: Sequence[_Check], key: tf.Tensor) -> list[tf.Operation]:
    """Raises InvalidArgumentError while reading, naming the record.

    tf.debugging.Assert would put a branch around each, a third of the time of a small image.
    """
    asserted = []
    for ok, told in checks:
        data = [tf.convert_to_tensor(one) for one in ("the image of record", key, *told)]
        asserted.append(tf.raw_ops.Assert(condition=ok, data=data, summarize=4))
    return asserted


def _converted(image: tf.Tensor, layout: ImageLayout) -> tf.Tensor:
    """The image with the channels that are wanted."""
    if layout.channels == 0 or layout.is_plain_jpeg or (layout.channels == 1 and layout.is_strict):
        return tf.identity(image)
    return with_channels(image, layout.channels)
