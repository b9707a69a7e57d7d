"""WebP, lossy (RFC 9649)."""

from __future__ import annotations

import io

from PIL import Image

from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.reasons import NOT_SUPPORTED
from recordmill.transforms.records import BadInput

_LONGEST_SIDE = 16_383
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def encode(pixels: Array, quality: int) -> bytes:
    """A lossy WebP, colour at 4:2:0, alpha without loss.

    Args:
        pixels: uint8 (height, width, 1 to 4); greys become RGB.
        quality: 1 to 100, of libwebp, whose scale is not JPEG's.

    Raises:
        BadInput: larger than a WebP may be.
    """
    height, width, channels = pixels.shape
    if max(height, width) > _LONGEST_SIDE:
        detail = f"{width}x{height} is too large for a WebP: use --image_format=png or keep, or --max_side"
        raise BadInput("encode", NOT_SUPPORTED, detail)
    image = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels, _MODES[channels])
    out = io.BytesIO()
    image.convert("RGBA" if channels in (2, 4) else "RGB").save(out, "WEBP", quality=quality)
    return out.getvalue()
