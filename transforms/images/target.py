"""Finds the smallest JPEG that is similar enough to its source."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import simplejpeg

from recordmill.transforms.images import compare, jpeg

# 63 qualities: six steps of a bisection find any.
QUALITIES = (*range(20, 57, 2), *range(57, 101))


@dataclasses.dataclass(frozen=True, slots=True)
class TargetJpeg:
    """A JPEG, and the similarity of its luma to the source's."""

    data: bytes
    quality: int
    ssim: float


def encode_to_target(pixels: npt.NDArray[Any], target: float, subsampling: str) -> TargetJpeg | None:
    """The JPEG of the least quality whose luma has a structural similarity to `pixels` of at least `target`.

    A bisection over QUALITIES, with at most six encodes. Similarity does not always rise with quality: the
    result was measured to reach the target, but a lower quality might reach it too. None if no quality that
    was tried, up to 100, reaches it.

    Raises:
        BadInput: larger than a JPEG may be.
    """
    source = compare.luma(pixels)
    best = None
    low, high = 0, len(QUALITIES)
    while low < high:
        middle = (low + high) // 2
        encoded = _measured(pixels, source, QUALITIES[middle], subsampling)
        if encoded.ssim >= target:
            best, high = encoded, middle
        else:
            low = middle + 1
    return best


def _measured(
    pixels: npt.NDArray[Any], source: npt.NDArray[np.uint8], quality: int, subsampling: str
) -> TargetJpeg:
    data = jpeg.encode(pixels, quality, subsampling)
    # Not the JPEG's own luma: saturated colours are clipped when they are converted to RGB.
    decoded = simplejpeg.decode_jpeg(data, "GRAY" if pixels.shape[2] == 1 else "RGB")
    return TargetJpeg(data, quality, compare.ssim(source, compare.luma(decoded)))
