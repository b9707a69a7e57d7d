"""The part of an image that a setting has changed most, at every setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from recordmill.transforms.images import compare
from recordmill.transforms.images.likeness import Seen
from recordmill.transforms.images.picture import Array, encode_png
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import BadInput
from recordmill.transforms.sweeping.measure import Original, seen_as_stored, seen_of
from recordmill.transforms.sweeping.results import Crop, Setting

CROP_SIDE = 160
"""Pixels of the longest side of a crop."""

Box = tuple[int, int, int, int]


class Worst(NamedTuple):
    """An image whose likeness to its source is low; the lowest sorts first, and then the first key.

    Attributes:
        ssim: the lowest of all settings.
        key: of the image.
        setting: place of the setting that has it.
        reference: where the image is, packed.
        ssims: at each setting; None where it was not compared.
    """

    ssim: float
    key: str
    setting: int
    reference: bytes
    ssims: tuple[float | None, ...]


def crops_of(worst: Worst, original: Original, settings: Sequence[Setting], seen: ImagePolicy) -> list[Crop]:
    """The same part of an image, where its worst setting has changed it most, at every setting.

    Args:
        worst: what was found of it.
        original: the image.
        settings: of the sweep; those that could not be compared are left out.
        seen: makes the pixels that are shown.

    Raises:
        BadInput: the image cannot be decoded any more.
    """
    source = seen_of(original, seen)
    changed, _ = seen_as_stored(original.stored(settings[worst.setting].policy), seen)
    if changed.pixels.shape[:2] != source.pixels.shape[:2]:
        return []  # the file is another one by now
    box = most_changed(compare.luma(source.pixels), compare.luma(changed.pixels), CROP_SIDE)
    source_png = cut(source, box)
    crops = []
    for setting, ssim in zip(settings, worst.ssims, strict=True):
        if ssim is None:
            continue
        try:
            with internal_errors("encode"):
                stored = original.stored(setting.policy)
                pixels, _ = seen_as_stored(stored, seen)
        except BadInput:
            continue
        png = cut(pixels, box)
        crops.append(Crop(worst.key, setting.name, ssim, png, source_png, box, len(stored.data)))
    return crops


def most_changed(one: Array, other: Array, side: int) -> Box:
    """The window of at most `side` pixels a side in which two pictures differ most; the first of equals.

    Args:
        one: uint8 (height, width).
        other: the same size.
        side: of the window.

    Returns:
        Top, left, height and width.
    """
    height, width = min(side, one.shape[0]), min(side, one.shape[1])
    # Column sums of the rows in the window, moved down row by row: memory does not grow with the picture.
    columns = np.zeros(one.shape[1], np.int64)
    best, top, left = -1, 0, 0
    for row in range(one.shape[0]):
        columns += np.abs(one[row].astype(np.int16) - other[row])
        if row >= height:
            columns -= np.abs(one[row - height].astype(np.int16) - other[row - height])
        if row >= height - 1:
            sums = np.concatenate(([0], np.cumsum(columns)))
            windows = sums[width:] - sums[:-width]
            column = int(windows.argmax())
            if windows[column] > best:
                best, top, left = int(windows[column]), row - height + 1, column
    return top, left, height, width


def cut(seen: Seen, box: Box) -> bytes:
    """A part of a picture, as a PNG."""
    top, left, height, width = box
    return encode_png(np.ascontiguousarray(seen.pixels[top : top + height, left : left + width]))
