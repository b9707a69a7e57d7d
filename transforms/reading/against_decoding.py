"""Pixels of stored images, by another library than wrote them wherever there is one."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from PIL import Image

from recordmill.transforms.examples.wire import Span, read_tensor
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.jpeg_header import read_header
from recordmill.transforms.images.jpeg_quality import estimated_quality
from recordmill.transforms.images.picture import OpenedImage, Picture
from recordmill.transforms.images.pillow import DECODER_ERRORS, named
from recordmill.transforms.images.reasons import CORRUPT, undecodable

# Qualities that Pillow encodes; simplejpeg encodes all others (see `images.jpeg.encode`).
_WRITTEN_BY_PILLOW = range(91, 96)
# DataType numbers of tensorflow/core/framework/types.proto.
_DTYPES: dict[int, np.dtype[Any]] = {4: np.dtype("<u1"), 17: np.dtype("<u2")}


def decoded_otherwise(image: OpenedImage) -> Picture:
    """The pixels of a stored image: of a JPEG that simplejpeg may have written by Pillow, else as usual.

    Raises:
        BadInput: truncated or damaged.
    """
    if image.kind != "jpeg":
        return image.decode()
    header = read_header(image.data)
    # What Pillow makes of CMYK is not what TensorFlow does.
    if len(header.components) == 4 or estimated_quality(image.data, header) in _WRITTEN_BY_PILLOW:
        return image.decode()
    try:
        with Image.open(io.BytesIO(image.data), formats=("JPEG",)) as opened:
            pixels: Array = np.asarray(opened)
    except DECODER_ERRORS as error:
        raise named(error) from error
    return Picture(pixels[:, :, None] if pixels.ndim == 2 else pixels)


def tensor_pixels(data: bytes) -> Array:
    """The pixels of a serialised tensor, as tf.io.parse_tensor reads it.

    Raises:
        BadInput: it is none of uint8 or uint16.
    """
    number, shape, content = read_tensor(data, Span(0, len(data)))
    dtype = _DTYPES.get(number)
    size = math.prod(shape) if shape else 0
    if dtype is None or not size or size * dtype.itemsize != content.stop - content.start:
        raise undecodable(CORRUPT, f"a tensor of DataType {number}, shape {shape}")
    pixels: Array = np.frombuffer(data, dtype, size, content.start).reshape(shape)
    return pixels
