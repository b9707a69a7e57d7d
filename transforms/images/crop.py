"""The part of an image that its encoding has changed most."""

from __future__ import annotations

import numpy as np

from recordmill.transforms.images.likeness import Seen
from recordmill.transforms.images.picture import Array, encode_png

CROP_SIDE = 160
"""Pixels of the longest side of a crop."""

Box = tuple[int, int, int, int]


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
