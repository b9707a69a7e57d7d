"""Flattens transparency on a background, and converts between grey and RGB."""

from __future__ import annotations

import re

import numpy as np
from PIL import ImageColor

from recordmill.transforms.images.exif import Array

_HEX = re.compile(r"#(?:[0-9a-f]{3}){1,2}")


def parse_color(text: str) -> tuple[int, int, int]:
    """RGB, 0 to 255, of a CSS name, `#rgb` or `#rrggbb`, in upper or lower case.

    Raises:
        ValueError: anything else, such as a colour with alpha.
    """
    name = text.strip().lower()
    if name not in ImageColor.colormap and not _HEX.fullmatch(name):
        raise ValueError(
            f"{text!r} is no colour; it may be a CSS name (white, black, slategray, …), #rgb or #rrggbb"
        )
    red, green, blue = ImageColor.getrgb(name)[:3]
    return red, green, blue


def flattened(pixels: Array, background: tuple[int, int, int]) -> Array:
    """Pixels composited onto a background: for each sample the nearest integer to (c·a + bg·(max−a)) / max.

    Args:
        pixels: uint8 or uint16 (height, width, 2 or 4), alpha last and not premultiplied.
        background: RGB, 0 to 255. Grey pixels become RGB if it is not grey.
    """
    if pixels.shape[2] == 2 and len(set(background)) > 1:
        pixels = as_rgb(pixels)
    top = int(np.iinfo(pixels.dtype).max)
    # Twice the bits hold max·max + max/2; max is odd, so no quotient is midway between integers.
    wide = np.uint16 if pixels.dtype == np.uint8 else np.uint32
    alpha = pixels[:, :, -1].astype(wide)
    background_share = top - alpha
    colors = np.empty((*alpha.shape, pixels.shape[2] - 1), pixels.dtype)
    # A channel at a time: numpy is slow along an axis of three.
    for channel, level in enumerate(background[: colors.shape[2]]):
        mixed = background_share * wide(level * (top // 255))
        mixed += pixels[:, :, channel] * alpha
        mixed += wide(top // 2)
        mixed //= wide(top)
        colors[:, :, channel] = mixed
    return colors


def as_gray(pixels: Array) -> Array:
    """Luma: 0.299 R + 0.587 G + 0.114 B to the nearest integer, as in JPEG (ITU-R BT.601; T.871, clause 7).

    Alpha stays; grey pixels are unchanged.
    """
    if pixels.shape[2] <= 2:
        return pixels
    luma = pixels[:, :, 0] * np.uint32(299)
    luma += pixels[:, :, 1] * np.uint32(587)
    luma += pixels[:, :, 2] * np.uint32(114)
    luma += np.uint32(500)
    luma //= np.uint32(1000)
    return np.concatenate([luma.astype(pixels.dtype)[:, :, None], pixels[:, :, 3:]], axis=2)


def as_rgb(pixels: Array) -> Array:
    """RGB of equal samples. Alpha stays; RGB pixels are unchanged."""
    height, width, channels = pixels.shape
    if channels >= 3:
        return pixels
    colors = np.empty((height, width, channels + 2), pixels.dtype)
    for channel in range(channels + 2):
        colors[:, :, channel] = pixels[:, :, max(channel - 2, 0)]
    return colors
