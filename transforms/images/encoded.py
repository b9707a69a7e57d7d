"""An encoded image whose header has been read: what its bytes would be stored as, and how to decode them."""

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
        kind: as `sniff.image_kind` tells it; `pixels` for bytes that are pixels already.
        data: the whole file.
        kept: this image stored by its own bytes; None where tf.io.decode_image does not decode them, or
            not to the right picture.
        orientation: EXIF, 1 to 8.
        check: decodes all of it, and raises BadInput where it is damaged.
        decode: the pixels; raises BadInput where they are damaged.
        pixels: height times width, by the header.
        decode_scaled: the pixels scaled down while decoding, to a height and a width at least as large as
            asked for, not yet turned; None where the format cannot.
        inks: uint8 (height, width, 4) of CMYK, 255 for all ink; None where the image is not in CMYK.
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
