"""Stored bytes to pixels, in plain TensorFlow.

`load_dataset` calls these functions, and `recordmill schema` prints them: they use nothing but TensorFlow and
each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def file_pixels(encoded: tf.Tensor, dtype: Any) -> tf.Tensor:
    """The pixels of an image file: height x width x channels. Of an animation the first frame."""
    image = tf.io.decode_image(encoded, dtype=dtype, expand_animations=False)
    image.set_shape([None, None, None])
    return image


def tensor_pixels(serialized: tf.Tensor, dtype: Any) -> tf.Tensor:
    """The pixels of a serialised tensor: height x width x channels; it may have no channels."""
    image = tf.io.parse_tensor(serialized, dtype)
    return tf.reshape(image, tf.concat([tf.shape(image), [1]], 0)[:3])


def with_channels(image: tf.Tensor, channels: int) -> tf.Tensor:
    """An image with 1, 3 or 4 channels: grey is repeated, alpha is opaque where there is none."""
    found = tf.shape(image)[2]

    def converted() -> tf.Tensor:
        grey = image[..., :1]  # tf.repeat does not take 16 bits
        rgb = tf.cond(found >= 3, lambda: image[..., :3], lambda: tf.concat([grey, grey, grey], 2))
        if channels == 1:
            return tf.cond(found >= 3, lambda: tf.image.rgb_to_grayscale(rgb), lambda: grey)
        if channels == 3:
            return rgb
        opaque = tf.fill(tf.shape(grey), tf.constant(image.dtype.max, image.dtype))
        alpha = tf.cond(found % 2 == 0, lambda: image[..., -1:], lambda: opaque)
        return tf.concat([rgb, alpha], 2)

    image = tf.cond(found == channels, lambda: image, converted)
    image.set_shape([None, None, channels])
    return image


def decode_mask(stored: tf.Tensor, height: Any, width: Any, fill: int, dtype: Any) -> tf.Tensor:
    """A mask of an image, height x width x 1; where the record has none, every pixel is `fill`."""
    encoded = tf.strings.reduce_join(stored)
    mask = tf.cond(
        tf.strings.length(encoded) > 0,
        lambda: mask_pixels(encoded, height, width, dtype),
        lambda: tf.fill([height, width, 1], tf.constant(fill, dtype)),
    )
    mask.set_shape([None, None, 1])
    return mask


def mask_pixels(encoded: tf.Tensor, height: Any, width: Any, dtype: Any) -> tf.Tensor:
    """A mask that is a PNG, or a row of bytes for each row of pixels."""
    return tf.cond(
        tf.strings.substr(encoded, 0, 4) == b"\x89PNG",
        lambda: png_values(encoded, dtype),
        lambda: tf.cast(tf.reshape(tf.io.decode_raw(encoded, tf.uint8), [height, width, 1]), dtype),
    )


def png_values(encoded: tf.Tensor, dtype: Any) -> tf.Tensor:
    """The values of a grey PNG as they are stored; TensorFlow would scale 8 bits to 16."""
    if dtype == tf.uint8:
        return tf.io.decode_png(encoded, channels=1)
    return tf.cond(
        tf.strings.substr(encoded, 24, 1) == b"\x10",
        lambda: tf.io.decode_png(encoded, channels=1, dtype=tf.uint16),
        lambda: tf.cast(tf.io.decode_png(encoded, channels=1), tf.uint16),
    )


def decode_object_mask(encoded: tf.Tensor, height: Any, width: Any) -> tf.Tensor:
    """The mask of one object, height x width: 1 where the object is; an empty one has no pixel of it."""
    mask = tf.cond(
        tf.strings.length(encoded) > 0,
        lambda: tf.cast(tf.io.decode_png(encoded, channels=1) > 0, tf.uint8)[..., 0],
        lambda: tf.zeros([height, width], tf.uint8),
    )
    mask.set_shape([None, None])
    return mask


def map_each(
    decode: Callable[[Any], tf.Tensor], stored: Any, shape: Sequence[Any], empty: Any, dtype: Any
) -> Any:
    """The pixels of each, stacked, of one shape; if there are none, no pixels of the shape `empty`."""
    return tf.cond(
        tf.size(tf.nest.flatten(stored)[0]) > 0,
        lambda: tf.map_fn(decode, stored, fn_output_signature=tf.TensorSpec(shape, dtype)),
        lambda: tf.zeros([0, *empty], dtype),
    )
