"""The similarity of two images, as they are displayed: upright, in sRGB, on a background."""

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
    """An image as it is displayed.

    Attributes:
        pixels: uint8 (height, width, 1 or 3): upright, in sRGB, on the background.
        dtype: of the original pixels.
    """

    pixels: Array
    dtype: str


@dataclasses.dataclass(frozen=True, slots=True)
class Likeness:
    """The similarity of a stored image to its source.

    Attributes:
        ssim: of luma.
        psnr: dB over all channels; infinite if no pixel differs.
        identical: whether every pixel equals the source's.
    """

    ssim: float
    psnr: float
    identical: bool


def seen_image(image: Encoded, orientation: int, seen: ImagePolicy) -> Seen:
    """The pixels of an image that are compared.

    Args:
        image: the opened file.
        orientation: EXIF, 1 to 8.
        seen: the policy for these pixels, with a lossy format and flattened alpha.

    Raises:
        BadInput: it cannot be decoded.
    """
    picture = image.decode()
    work = painted(dataclasses.replace(image, decode=lambda: picture), orientation, seen)
    return Seen(work.picture.pixels, picture.pixels.dtype.name)


def likeness(source: Seen, stored: Seen) -> Likeness | None:
    """The similarity of two images; None if their sizes differ."""
    one, other = source.pixels, stored.pixels
    if one.shape[:2] != other.shape[:2]:
        return None
    if one.shape[2] != other.shape[2]:  # greys are three equal channels
        one, other = (np.broadcast_to(pixels, (*pixels.shape[:2], 3)) for pixels in (one, other))
    if np.array_equal(one, other):
        return Likeness(1.0, math.inf, source.dtype == stored.dtype)
    ssim = compare.ssim(compare.luma(source.pixels), compare.luma(stored.pixels))
    return Likeness(ssim, compare.psnr(one, other), identical=False)
