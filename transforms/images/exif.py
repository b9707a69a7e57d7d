"""EXIF orientation: reading the tag, and turning pixels by it."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Before the TIFF structure in a JPEG; some programs write it in other formats too.
EXIF_MARK = b"Exif\0\0"

_ORIENTATION = 0x0112
_SHORT = 3


def read_orientation(tiff: bytes) -> int:
    """The orientation, 1 to 8, in the TIFF structure of an EXIF block (EXIF 2.32, tag 0x0112).

    1 if there is none, or the block is damaged: bad EXIF is never a reason to refuse an image.
    """
    tiff = tiff.removeprefix(EXIF_MARK)
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "I", tiff, 4)
        (count,) = struct.unpack_from(order + "H", tiff, start)
        for entry in range(start + 2, start + 2 + 12 * count, 12):
            tag, kind, _, value = struct.unpack_from(order + "HHIH", tiff, entry)
            if tag == _ORIENTATION:
                return value if kind == _SHORT and 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1


def is_transposed(orientation: int) -> bool:
    """Whether `orientation` exchanges height and width."""
    return orientation >= 5


def turned(pixels: Array, orientation: int) -> Array:
    """`pixels` (height, width, channels) upright: rows and columns moved, no value changed."""
    if is_transposed(orientation):
        pixels = pixels.swapaxes(0, 1)
    # The mirroring that remains after rows and columns are exchanged.
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)
