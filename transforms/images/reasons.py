"""The reasons of failed images, and the size limits."""

from __future__ import annotations

import re

from recordmill.transforms.records import BadInput

EMPTY = "empty file"
NOT_AN_IMAGE = "not an image"
TRUNCATED = "truncated"
CORRUPT = "corrupt"
TOO_MANY_PIXELS = "too many pixels"
NOT_SUPPORTED = "not supported"
WRONG_LENGTH = "wrong number of bytes"

# Twice Pillow's default MAX_IMAGE_PIXELS: above this, Pillow itself assumes a decompression bomb.
MAX_PIXELS = 178_956_970
# tf.io.decode_image refuses a JPEG of this many samples or more (pixels times components).
TENSORFLOW_SAMPLES = 1 << 29
# libpng's limit, also in TensorFlow; images that are not kept become PNGs.
MAX_SIDE = 1_000_000

_ADDRESS = re.compile(r" <\S+ object at 0x[0-9a-f]+>")


def undecodable(reason: str, detail: str = "") -> BadInput:
    """The error of an image that cannot be decoded; `detail` loses the address of Pillow's file object."""
    return BadInput("decode", reason, _ADDRESS.sub("", detail))


def check_pixels(width: int, height: int, samples: int = 3) -> None:
    """Checks the size that a header claims, and its samples a pixel, before anything is allocated.

    Raises:
        BadInput: no pixels, or too many.
    """
    if width < 1 or height < 1:
        raise undecodable(CORRUPT, f"its header claims {width}x{height} pixels")
    if width * height > MAX_PIXELS or width * height * samples >= TENSORFLOW_SAMPLES:
        limit = min(MAX_PIXELS, (TENSORFLOW_SAMPLES - 1) // samples)
        raise undecodable(
            TOO_MANY_PIXELS, f"its header claims {width}x{height} pixels; at most {limit:,} are decoded"
        )
    if max(width, height) > MAX_SIDE:
        detail = f"its header claims {width}x{height} pixels; at most {MAX_SIDE:,} a side are decoded"
        raise undecodable(TOO_MANY_PIXELS, detail)
