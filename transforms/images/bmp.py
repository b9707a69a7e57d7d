"""BMP, of which TensorFlow reads only the simplest kinds.

See DecodeBmpV2 in tensorflow/core/kernels/image/decode_image_op.cc.
"""

from __future__ import annotations

import functools
import struct

from recordmill.transforms.images.encoded import Encoded
from recordmill.transforms.images.raster import decode_raster
from recordmill.transforms.images.reasons import TRUNCATED, check_pixels, undecodable
from recordmill.transforms.records import StoredImage

_GRAYS = b"".join(bytes((i, i, i)) for i in range(256))


def open_bmp(data: bytes) -> Encoded:
    """Reads the header.

    A BMP is kept if it is uncompressed, has 24 bits, or 8 bits and a palette of the greys 0 to 255, and its
    size is exactly that of header and rows. TensorFlow reads palette indices as greys, compressed data as
    uncompressed, and the unused fourth byte of 32 bits as alpha.

    Raises:
        BadInput: truncated, or too many pixels.
    """
    if len(data) < 30:
        raise undecodable(TRUNCATED, "the BMP ends within its header")
    channels = _channels(data)
    kept = None
    width, height = _size(data)
    if channels:
        check_pixels(width, abs(height))
        start = int.from_bytes(data[10:14], "little")
        if len(data) == start + (channels * width + 3) // 4 * 4 * abs(height):
            colorspace = "RGB" if channels == 3 else "Grayscale"
            kept = StoredImage(data, "bmp", abs(height), width, channels, "uint8", colorspace, ("kept",))
    decode = functools.partial(decode_raster, data, "bmp")
    return Encoded("bmp", data, kept, 1, decode, decode, abs(width * height))


def _size(data: bytes) -> tuple[int, int]:
    """Width and height; the height is negative if the rows begin at the top."""
    (size,) = struct.unpack_from("<I", data, 14)
    width, height = struct.unpack_from("<HH" if size == 12 else "<ii", data, 18)
    return width, height


def _channels(data: bytes) -> int:
    """3 or 1 for a BMP that TensorFlow reads correctly, else 0."""
    (size,) = struct.unpack_from("<I", data, 14)
    if size < 40 or len(data) < 14 + size:
        return 0
    bits, compression = struct.unpack_from("<HI", data, 28)
    if compression != 0:
        return 0
    if bits == 24:
        return 3
    start = int.from_bytes(data[10:14], "little")
    palette = data[14 + size : start]
    grey = (
        len(palette) == 1024
        and int.from_bytes(data[46:50], "little") in (0, 256)
        and b"".join(palette[i : i + 3] for i in range(0, 1024, 4)) == _GRAYS
    )
    return 1 if bits == 8 and grey else 0
