"""How like two pictures are: what is compared is what people see."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from recordmill.transforms.images import compare
from recordmill.transforms.images.encoded import Encoded
from recordmill.transforms.images.paint import painted
from recordmill.transforms.images.picture import Array
from recordmill.transforms.images.policy import ImagePolicy


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """A picture as people see it.

    Attributes:
        pixels: uint8 (height, width, 1 or 3): upright, in sRGB, on the background.
        dtype: that the pixels had.
    """

    pixels: Array
    dtype: str


@dataclasses.dataclass(frozen=True, slots=True)
class Likeness:
    """How like its source a stored image is.

    Attributes:
        ssim: of luma.
        psnr: dB over all channels; infinite where no pixel differs.
        identical: every pixel is the source's.
    """

    ssim: float
    psnr: float
    identical: bool


def seen_image(image: Encoded, orientation: int, seen: ImagePolicy) -> Seen:
    """An image as it is compared.

    Args:
        image: its header read.
        orientation: EXIF, 1 to 8, that it is turned by.
        seen: makes the pixels that are compared: its format is a lossy one, and its alpha is flattened.

    Raises:
        BadInput: it cannot be decoded.
    """
    picture = image.decode()
    work = painted(dataclasses.replace(image, decode=lambda: picture), orientation, seen)
    return Seen(work.picture.pixels, picture.pixels.dtype.name)


def likeness(source: Seen, stored: Seen) -> Likeness | None:
    """How like two pictures are; None where they have not the same size."""
    one, other = source.pixels, stored.pixels
    if one.shape[:2] != other.shape[:2]:
        return None
    if one.shape[2] != other.shape[2]:  # greys are three equal channels
        one, other = (np.broadcast_to(pixels, (*pixels.shape[:2], 3)) for pixels in (one, other))
    if np.array_equal(one, other):
        return Likeness(1.0, math.inf, source.dtype == stored.dtype)
    ssim = compare.ssim(compare.luma(source.pixels), compare.luma(stored.pixels))
    return Likeness(ssim, compare.psnr(one, other), identical=False)
