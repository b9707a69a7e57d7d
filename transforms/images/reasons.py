"""The reasons of failed images, and the size limits."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

from recordmill.transforms.records import BadInput, without_addresses

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
# The most pixels of an image that a function cuts into smaller ones: 23,170 x 23,170.
_MOST_CUT = 1 << 29
# libpng's limit, also in TensorFlow; images that are not kept become PNGs.
MAX_SIDE = 1_000_000


def undecodable(reason: str, detail: str = "") -> BadInput:
    """The error of an image that cannot be decoded; `detail` loses addresses in memory."""
    return BadInput("decode", reason, without_addresses(detail))


_may_be_cut: contextvars.ContextVar[bool] = contextvars.ContextVar("may_be_cut", default=False)


@contextlib.contextmanager
def larger_images() -> Iterator[None]:
    """Within the block, images may have more pixels than stored images: a function may cut them."""
    from PIL import Image

    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = _MOST_CUT
    token = _may_be_cut.set(True)
    try:
        yield
    finally:
        _may_be_cut.reset(token)
        Image.MAX_IMAGE_PIXELS = before


def check_pixels(width: int, height: int, samples: int = 3) -> None:
    """Checks the size that a header claims, and its samples a pixel, before anything is allocated.

    Raises:
        BadInput: no pixels, or too many.
    """
    if width < 1 or height < 1:
        raise undecodable(CORRUPT, f"its header claims {width}x{height} pixels")
    limit = min(MAX_PIXELS, (TENSORFLOW_SAMPLES - 1) // samples)
    if _may_be_cut.get():
        limit = _MOST_CUT
    if width * height > limit:
        raise undecodable(
            TOO_MANY_PIXELS, f"its header claims {width}x{height} pixels; at most {limit:,} are decoded"
        )
    if max(width, height) > MAX_SIDE:
        detail = f"its header claims {width}x{height} pixels; at most {MAX_SIDE:,} a side are decoded"
        raise undecodable(TOO_MANY_PIXELS, detail)
