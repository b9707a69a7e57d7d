"""Images and masks of records: decoded, checked, and made to fit a size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from recordmill.pipelines.input_plan import HEAD_BYTES, Asked, ImagePlan

_PNG = b"\x89PNG"
_SIXTEEN_BITS = b"\x10"
_JPEG_END, _PNG_END = b"\xff\xd9", b"\xaeB`\x82"
_SMALL_BYTES = 16_384
_ALLOWED = {1: (1,), 3: (1, 3), 4: (1, 2, 3, 4)}


class Fit(NamedTuple):
    """Where an image comes to lie in one of another size.

    Attributes:
        content: height and width that the image is scaled to.
        offset: rows and columns before it; negative where it is cropped.
        target: height and width of the result.
    """

    content: tuple[Any, Any]
    offset: tuple[Any, Any]
    target: tuple[int, int]


def fit_of(height: Any, width: Any, asked: Asked) -> Fit | None:
    """The fit of an image of a size; None where it stays as it is."""
    target = asked.target
    if target is None:
        return None
    if asked.resize == "stretch":
        return Fit(target, (0, 0), target)
    if asked.resize == "crop_or_pad":
        # as tf.image.resize_with_crop_or_pad has it
        offsets = [_half(goal - side) for goal, side in zip(target, (height, width), strict=True)]
        return Fit((height, width), (offsets[0], offsets[1]), target)
    # as tf.image.resize_with_pad has it, rounding included
    sides = [tf.cast(side, tf.float32) for side in (height, width)]
    ratio = tf.maximum(sides[1] / float(target[1]), sides[0] / float(target[0]))
    scaled = [side / ratio for side in sides]
    content = [tf.maximum(tf.cast(tf.floor(side), tf.int32), 1) for side in scaled]
    offsets = [
        tf.maximum(0, tf.cast(tf.floor((float(goal) - side) / 2), tf.int32))
        for goal, side in zip(target, scaled, strict=True)
    ]
    return Fit((content[0], content[1]), (offsets[0], offsets[1]), target)


def _half(room: Any) -> Any:
    """Half of what is to be added, or of what is to be cut off, negative; rounded as TensorFlow does."""
    return tf.where(room >= 0, room // 2, -(-room // 2))


def fitted(image: tf.Tensor, fit: Fit | None, asked: Asked, fill: int | None = None) -> tf.Tensor:
    """An image (h, w, channels) in its new size; a mask where `fill` says what its padding has."""
    if fit is None:
        return image
    channels = image.shape[-1]
    if asked.resize != "crop_or_pad":
        if fill is not None:
            image = tf.image.resize(image, fit.content, "nearest")
        else:
            scaled = tf.image.resize(image, fit.content, antialias=asked.antialias)
            image = tf.saturate_cast(tf.round(scaled), image.dtype)
    if asked.resize != "stretch":
        image = _placed(image, fit, fill or 0)
    image.set_shape([*fit.target, channels])
    return image


def _placed(image: tf.Tensor, fit: Fit, fill: int) -> tf.Tensor:
    cropped = [tf.maximum(0, -offset) for offset in fit.offset]
    image = image[cropped[0] :, cropped[1] :][: fit.target[0], : fit.target[1]]
    before = [tf.maximum(0, offset) for offset in fit.offset]
    after = [
        goal - side - offset
        for goal, side, offset in zip(fit.target, tf.unstack(tf.shape(image))[:2], before, strict=True)
    ]
    pads = [[before[0], after[0]], [before[1], after[1]], [0, 0]]
    return tf.pad(image, pads, constant_values=tf.cast(fill, image.dtype))


def decoded(data: tf.Tensor, plan: ImagePlan, stored: dict[str, tf.Tensor], key: tf.Tensor) -> tf.Tensor:
    """The pixels of an image, (h, w, channels).

    Args:
        data: bytes.
        plan: how they are decoded.
        stored: the features that tell of the image, by name.
        key: of its record.
    """
    sides = [stored[name] for name in (plan.height, plan.width) if name is not None and name in stored]
    if plan.codec == "raw":
        return _raw_pixels(data, plan, stored, sides, key)
    if plan.codec == "tensor":
        image = tf.io.parse_tensor(data, plan.dtype)
        image = tf.reshape(image, tf.concat([tf.shape(image), [1]], 0)[:3])
    else:
        image = tf.cond(
            _looks_whole(data, plan), lambda: _file_pixels(data, plan), lambda: _tried(data, plan, key)
        )
    with tf.control_dependencies(_checked(data, image, plan, sides, key)):
        image = _converted(image, plan)
    image.set_shape([*(plan.sides or (None, None)), plan.channels or None])
    return image


def _file_pixels(data: tf.Tensor, plan: ImagePlan) -> tf.Tensor:
    """The pixels of a file, (h, w, channels); its errors do not tell of which record it is."""
    if _is_plain_jpeg(plan):
        return tf.io.decode_jpeg(data, channels=3)
    image = tf.io.decode_image(data, dtype=plan.dtype, expand_animations=False)
    image.set_shape([None, None, None])
    return image


def _looks_whole(data: tf.Tensor, plan: ImagePlan) -> tf.Tensor:
    """Whether a file ends as it should, and is such as is decoded in less time than it takes to try."""
    size = tf.strings.length(data)
    is_jpeg = _end(data, size, 2) == _JPEG_END
    if plan.jpeg_only:
        return is_jpeg
    is_png = tf.logical_and(_end(data, size, 4) == _PNG_END, size < _SMALL_BYTES)
    return is_png if plan.png_only else tf.logical_or(is_jpeg, is_png)


def _end(data: tf.Tensor, size: tf.Tensor, length: int) -> tf.Tensor:
    """The last bytes of a file, or of each of some."""
    return tf.strings.substr(data, tf.maximum(size - length, 0), tf.fill(tf.shape(size), length))


def _tried(data: tf.Tensor, plan: ImagePlan, key: tf.Tensor) -> tf.Tensor:
    """The pixels of a file that may be damaged: the error names its record.

    A dataset of one element is the only way that a graph has to go on after an error.
    """

    def fail(file: tf.Tensor) -> tf.Tensor:
        told = ("has", tf.strings.length(file), "bytes that TensorFlow cannot decode; give decode=False")
        with tf.control_dependencies(_fail_unless([(tf.constant(False), told)], key)):
            return _file_pixels(file, plan)

    file = tf.data.Dataset.from_tensors(data)
    found = file.map(lambda one: _file_pixels(one, plan)).ignore_errors()
    return found.concatenate(file.map(fail)).take(1).get_single_element()


def are_alike(found: dict[str, tf.Tensor], plan: ImagePlan) -> tf.Tensor:
    """Whether files are PNGs with the plan's head that look whole and are of the stored sides."""
    assert plan.sides is not None
    data = found[plan.name]
    size = tf.strings.length(data)
    checks = [tf.strings.substr(data, 0, HEAD_BYTES) == plan.head, _end(data, size, 4) == _PNG_END]
    for name, side in zip((plan.height, plan.width), plan.sides, strict=True):
        if name in found:
            checks.append(found[name] == side)
    return tf.reduce_all(tf.stack(checks))


def alike_pixels(data: tf.Tensor, plan: ImagePlan) -> tf.Tensor:
    """The pixels of a batch of files that are alike, (b, h, w, channels)."""
    assert plan.sides is not None
    spec = tf.TensorSpec([*plan.sides, plan.channels], tf.uint8)
    channels = 0 if plan.is_strict else plan.channels

    def one(file: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.io.decode_png(file, channels), spec.shape)

    return tf.map_fn(one, data, fn_output_signature=spec)


def _raw_pixels(
    data: tf.Tensor, plan: ImagePlan, stored: dict[str, tf.Tensor], sides: list[tf.Tensor], key: tf.Tensor
) -> tf.Tensor:
    """Rows of pixels, whose number is compared with the stored shape."""
    pixels = tf.io.decode_raw(data, plan.dtype)
    held = tf.size(pixels, tf.int64)
    if plan.depth is not None and plan.depth in stored:
        depth = stored[plan.depth]
    else:
        depth = held // tf.maximum(sides[0] * sides[1], 1)
    told = tf.stack([*sides, depth])
    checks: list[_Check] = [
        (held == tf.reduce_prod(told), ("has", held, "values; stored are height, width, channels", told))
    ]
    if plan.sides is not None:
        checks.append(_same_size(told, plan.sides))
    with tf.control_dependencies(_fail_unless(checks, key)):
        image = tf.reshape(pixels, told)
    image = _converted(image, plan)
    image.set_shape([*(plan.sides or (None, None)), plan.channels or None])
    return image


_Check = tuple[tf.Tensor, tuple[Any, ...]]


def _checked(
    data: tf.Tensor, image: tf.Tensor, plan: ImagePlan, sides: list[tf.Tensor], key: tf.Tensor
) -> list[tf.Operation]:
    """Fails unless an image is what its record says, and what others are."""
    shape = tf.shape(image, tf.int64)
    checks = _shape_checks(shape, plan, sides)
    if plan.keeps_bits and plan.dtype == "uint8" and plan.may_be_png and plan.codec == "image":
        deep = "is a PNG of 16 bits, others are of 8; give dtype='uint16' or 'uint8'"
        with tf.control_dependencies([image]):  # what is decoded has more bytes than that
            is_deep = tf.strings.substr(data, 24, 1) == _SIXTEEN_BITS
        if not plan.png_only:
            is_deep = tf.logical_and(tf.strings.substr(data, 0, 4) == _PNG, is_deep)
        checks.append((tf.logical_not(is_deep), (deep,)))
    return _fail_unless(checks, key)


def _shape_checks(shape: tf.Tensor, plan: ImagePlan, sides: list[tf.Tensor]) -> list[_Check]:
    told = tf.stack(sides) if len(sides) == 2 else None
    if told is not None and plan.sides is not None and plan.channels == 1 and plan.is_strict:
        # all in one comparison, since images like these are many and small
        same = tf.concat([shape, told], 0) == tf.constant([*plan.sides, 1, *plan.sides], tf.int64)
        others = (
            f"; others are of {plan.sides[0]}, {plan.sides[1]}, 1; give size=(height, width) or channels=3"
        )
        message = ("decodes to height, width, channels", shape, "; stored are", told, others)
        return [(tf.reduce_all(same), message)]
    checks: list[_Check] = []
    if told is not None:
        differs = ("decodes to height, width, channels", shape, "; stored are", told)
        checks.append((tf.reduce_all(shape[:2] == told), differs))
    if plan.sides is not None:
        checks.append(_same_size(shape, plan.sides))
    if plan.is_strict and plan.channels and not _is_plain_jpeg(plan):
        wanted = f"channels; others have {plan.channels}. Give channels=1, 3, 4 or 0"
        allowed = tf.constant(_ALLOWED[plan.channels], tf.int64)
        checks.append((tf.reduce_any(shape[2] == allowed), ("has", shape[2], wanted)))
    return checks


def _same_size(shape: tf.Tensor, sides: tuple[int, int]) -> _Check:
    others = f"; others are of {sides[0]}, {sides[1]}; batches need one size: give size=(height, width)"
    return tf.reduce_all(shape[:2] == tf.constant(sides, tf.int64)), (
        "is of height, width, channels",
        shape,
        others,
    )


def _is_plain_jpeg(plan: ImagePlan) -> bool:
    """Whether every image is a JPEG that is decoded to three channels."""
    return plan.jpeg_only and plan.channels == 3 and plan.dtype == "uint8"


def _fail_unless(checks: Sequence[_Check], key: tf.Tensor) -> list[tf.Operation]:
    """Raises InvalidArgumentError while reading, naming the record.

    tf.debugging.Assert would put a branch around each, a third of the time of a small image.
    """
    asserted = []
    for ok, told in checks:
        data = [tf.convert_to_tensor(one) for one in ("the image of record", key, *told)]
        asserted.append(tf.raw_ops.Assert(condition=ok, data=data, summarize=4))
    return asserted


def _byte(data: tf.Tensor, at: int) -> tf.Tensor:
    """One byte of a text, which may be shorter."""
    return tf.strings.substr(data, tf.minimum(at, tf.strings.length(data)), 1)


def _converted(image: tf.Tensor, plan: ImagePlan) -> tf.Tensor:
    """The image with the channels that are wanted."""
    if plan.channels == 0 or _is_plain_jpeg(plan) or (plan.channels == 1 and plan.is_strict):
        return tf.identity(image)
    found = tf.shape(image)[2]
    return tf.cond(found == plan.channels, lambda: image, lambda: _with_channels(image, found, plan.channels))


def _with_channels(image: tf.Tensor, found: tf.Tensor, wanted: int) -> tf.Tensor:
    rgb = tf.cond(found >= 3, lambda: image[..., :3], lambda: tf.repeat(image[..., :1], 3, axis=2))
    if wanted == 1:
        return tf.cond(found >= 3, lambda: tf.image.rgb_to_grayscale(rgb), lambda: image[..., :1])
    if wanted == 3:
        return rgb
    opaque = tf.fill(tf.shape(image[..., :1]), tf.constant(image.dtype.max, image.dtype))
    alpha = tf.cond(found % 2 == 0, lambda: image[..., -1:], lambda: opaque)
    return tf.concat([rgb, alpha], 2)


def mask_of(data: tf.Tensor, height: Any, width: Any, fill: int) -> tf.Tensor:
    """A mask of a whole image, (h, w, 1): a PNG, or rows of bytes.

    Args:
        data: (1,), or (0,) where the record has no mask: it is `fill` then.
        height: pixels of the image.
        width: likewise.
        fill: 255 of masks of classes, uint8; 0 of those of instances, uint16.
    """
    dtype = tf.uint8 if fill else tf.uint16
    there = tf.logical_and(tf.size(data) > 0, tf.strings.length(tf.strings.reduce_join(data)) > 0)
    mask = tf.cond(
        there,
        lambda: _mask_pixels(data[0], height, width, dtype),
        lambda: tf.fill([height, width, 1], tf.constant(fill, dtype)),
    )
    mask.set_shape([None, None, 1])
    return mask


def _mask_pixels(data: tf.Tensor, height: Any, width: Any, dtype: Any) -> tf.Tensor:
    is_png = tf.strings.substr(data, 0, 4) == _PNG
    return tf.cond(
        is_png,
        lambda: png_values(data, dtype),
        lambda: tf.cast(tf.reshape(tf.io.decode_raw(data, tf.uint8), [height, width, 1]), dtype),
    )


def png_values(data: tf.Tensor, dtype: Any) -> tf.Tensor:
    """The values of a grey PNG as they are; TensorFlow would scale those of 8 bits up to 16."""
    if dtype == tf.uint8:
        return tf.io.decode_png(data, channels=1)
    return tf.cond(
        _byte(data, 24) == _SIXTEEN_BITS,
        lambda: tf.io.decode_png(data, channels=1, dtype=tf.uint16),
        lambda: tf.cast(tf.io.decode_png(data, channels=1), tf.uint16),
    )
