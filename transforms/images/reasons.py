"""Why an image fails: the fixed vocabulary that failures are counted by, and the size limit."""

from __future__ import annotations

from recordmill.transforms.records import BadInput

EMPTY = "empty file"
NOT_AN_IMAGE = "not an image"
TRUNCATED = "truncated"
CORRUPT = "corrupt"
TOO_MANY_PIXELS = "too many pixels"
NOT_SUPPORTED = "not supported"
WRONG_LENGTH = "wrong number of bytes"

# Twice Pillow's default MAX_IMAGE_PIXELS: what Pillow itself takes for a decompression bomb.
MAX_PIXELS = 178_956_970
# tf.io.decode_image refuses a JPEG of this many samples or more (pixels times components).
TENSORFLOW_SAMPLES = 1 << 29
# libpng's limit, which TensorFlow does not change; what is not stored as it is becomes a PNG.
MAX_SIDE = 1_000_000


def undecodable(reason: str, detail: str = "") -> BadInput:
    """The error of an image that cannot be decoded."""
    return BadInput("decode", reason, detail)


def check_pixels(width: int, height: int, samples: int = 3) -> None:
    """Refuses an image by its header's claim, before anything is allocated.

    Args:
        width: pixels.
        height: pixels.
        samples: per pixel.

    Raises:
        BadInput: no pixels at all, or more than may be decoded.
    """
    if width < 1 or height < 1:
        raise undecodable(CORRUPT, f"its header claims {width}x{height} pixels")
    if width * height > MAX_PIXELS or width * height * samples >= TENSORFLOW_SAMPLES:
        limit = min(MAX_PIXELS, (TENSORFLOW_SAMPLES - 1) // samples)
        raise undecodable(
            TOO_MANY_PIXELS,
            f"its header claims {width}x{height} pixels; at most {limit:,} are decoded",
        )
    if max(width, height) > MAX_SIDE:
        detail = f"its header claims {width}x{height} pixels; at most {MAX_SIDE:,} a side are decoded"
        raise undecodable(TOO_MANY_PIXELS, detail)
