"""An image file whose header has been read: how it can be stored, and how it is decoded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from recordmill.transforms.images.picture import Picture
from recordmill.transforms.records import StoredImage


@dataclasses.dataclass(frozen=True, slots=True)
class Encoded:
    """An image before its pixels are decoded.

    Attributes:
        kind: as `sniff.image_kind` returns it; `pixels` for raw pixels.
        data: the file.
        kept: the record's image if the file is stored unchanged; None if tf.io.decode_image does not decode
            it correctly.
        orientation: EXIF, 1 to 8.
        check: decodes all of it; raises BadInput if it is damaged.
        decode: returns the pixels; raises BadInput if they are damaged.
        pixels: height times width, from the header.
        decode_scaled: scales down while decoding, to at least the given height and width, in the file's
            orientation; None if the format cannot.
        inks: uint8 (height, width, 4) of CMYK, 255 is full ink; None if the image is not in CMYK.
    """

    kind: str
    data: bytes
    kept: StoredImage | None
    orientation: int
    check: Callable[[], object]
    decode: Callable[[], Picture]
    pixels: int
    decode_scaled: Callable[[int, int], Picture] | None = None
    inks: Callable[[], npt.NDArray[np.uint8]] | None = None
