"""Structural similarity of luma, and peak signal-to-noise ratio, of two images.

Uses numpy only, in 32-bit floating point: 5 times as fast as scikit-image, which writer processes do not
need. The value is the same on every machine, because sums in no fixed order are of integers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]

# Wang, Bovik, Sheikh, Simoncelli: Image quality assessment (IEEE Trans. Image Processing 13, 2004), part III.
_SIGMA, _RADIUS = 1.5, 5
_C1, _C2 = np.float32((0.01 * 255) ** 2), np.float32((0.03 * 255) ** 2)
# Values processed at a time, so that the arrays fit into the cache of a core.
_BAND = 1 << 14
# Similarities are added as multiples of 2**-24, the step between 32-bit floats below 1.
_STEPS = 1 << 24


def _half_kernel() -> list[np.float32]:
    """Half of the Gaussian, from its middle outwards."""
    weights = [math.exp(-0.5 * (offset / _SIGMA) ** 2) for offset in range(_RADIUS + 1)]
    total = 2 * math.fsum(weights) - weights[0]
    return [np.float32(weight / total) for weight in weights]


_KERNEL = _half_kernel()


def luma(pixels: Array) -> Array:
    """The Y of a JPEG, (height, width): BT.601 in full range (JFIF 1.02), rounded as libjpeg rounds it."""
    if pixels.shape[2] == 1:
        return pixels[:, :, 0]
    # Pillow's fixed-point weights are libjpeg's: (19595 R + 38470 G + 7471 B + 32768) >> 16.
    plane: Array = np.asarray(Image.fromarray(pixels).convert("L"))
    return plane


def ssim(one: Array, other: Array) -> float:
    """Mean structural similarity, over all positions of the 11x11 Gaussian window within the image.

    That is scikit-image's structural_similarity(gaussian_weights=True, sigma=1.5,
    use_sample_covariance=False, data_range=255): within 1e-6 for an image and its JPEG, within 2e-4 for any
    two. If a side is smaller than the window, the images are mirrored at their edges, and the window is
    placed on every pixel. 1 for equal images, less for others; below 0 if one resembles the negative of the
    other.

    Raises:
        ValueError: the shapes differ, or a dtype is not uint8.
    """
    _check_comparable(one, other, ("uint8",))
    if min(one.shape) <= 2 * _RADIUS:
        one, other = (np.pad(image, _RADIUS, mode="symmetric") for image in (one, other))
    height, width = one.shape[0] - 2 * _RADIUS, one.shape[1] - 2 * _RADIUS
    rows = max(2 * _RADIUS, _BAND // width)
    total = 0
    for top in range(0, height, rows):
        bottom = min(top + rows, height) + 2 * _RADIUS
        steps = _similarities(one[top:bottom], other[top:bottom]) * np.float32(_STEPS)
        total += int(steps.astype(np.int32).sum(dtype=np.int64))
    mean: float = total / (_STEPS * height * width)
    return mean


def psnr(one: Array, other: Array) -> float:
    """Peak signal-to-noise ratio over all channels, in dB; infinite if the images are equal.

    Raises:
        ValueError: shapes or dtypes differ, or the dtype is neither uint8 nor uint16.
    """
    _check_comparable(one, other, ("uint8", "uint16"))
    rows = max(1, _BAND // (one.size // len(one)))
    total = 0
    for top in range(0, len(one), rows):
        error = np.subtract(one[top : top + rows], other[top : top + rows], dtype=np.int64).ravel()
        total += int(np.dot(error, error))
    if total == 0:
        return math.inf
    peak = int(np.iinfo(one.dtype).max)
    return 10 * math.log10(peak * peak * one.size / total)


def _check_comparable(one: Array, other: Array, dtypes: tuple[str, ...]) -> None:
    if one.shape != other.shape or one.dtype != other.dtype or one.dtype.name not in dtypes:
        raise ValueError(
            f"{one.dtype} {one.shape} and {other.dtype} {other.shape} cannot be compared; "
            f"both must be {' or '.join(dtypes)}, of one shape"
        )


def _similarities(one: Array, other: Array) -> Floats:
    """The similarity around each pixel that is no nearer to an edge than the window's radius.

    It is computed from sum and difference of the images, which is equivalent to the paper's terms and loses
    few digits if the images are nearly equal:
    (2 mx my + C1) / (mx^2 + my^2 + C1) = 1 - md^2 / ((ms^2 + md^2) / 2 + C1) for the means,
    (2 cov + C2) / (vx + vy + C2) = 1 - vd / ((vs + vd) / 2 + C2) for the variances.
    """
    width = one.shape[1]
    maps = np.empty((4, one.size), np.float32)
    first, second = (image.astype(np.float32).ravel() for image in (one, other))
    np.add(first, second, out=maps[0])
    maps[0] -= 255  # Variances do not change, and lose fewer digits near zero.
    np.subtract(first, second, out=maps[1])
    np.multiply(maps[:2], maps[:2], out=maps[2:])
    smooth = _smoothed(_smoothed(maps, width), 1)
    smooth[2:] -= smooth[:2] * smooth[:2]
    smooth[0] += 255
    smooth[:2] *= smooth[:2]
    mean_sum, mean_difference, variance_sum, variance_difference = smooth
    mean_sum += mean_difference
    variance_sum += variance_difference
    half = np.float32(0.5)
    result = (1 - mean_difference / (mean_sum * half + _C1)) * (
        1 - variance_difference / (variance_sum * half + _C2)
    )
    # Row after row, each but the last followed by the values that lie across two rows.
    framed = np.empty((one.shape[0] - 2 * _RADIUS, width), np.float32)
    framed.reshape(-1)[: result.size] = result
    return framed[:, : width - 2 * _RADIUS]


def _smoothed(maps: Floats, step: int) -> Floats:
    """Each row of `maps` under the Gaussian, whose neighbouring weights are for values `step` apart.

    Returns:
        Shorter by ten steps: only positions at which the Gaussian fits.
    """
    middle = _RADIUS * step
    size = maps.shape[1] - 2 * middle
    result = maps[:, middle : middle + size] * _KERNEL[0]
    pair = np.empty_like(result)
    for offset, weight in zip(range(step, middle + 1, step), _KERNEL[1:], strict=True):
        before, after = middle - offset, middle + offset
        np.add(maps[:, before : before + size], maps[:, after : after + size], out=pair)
        pair *= weight
        result += pair
    return result
