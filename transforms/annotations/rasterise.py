"""Shapes as pixels: outlines, run lengths and boxes become masks of 0 and 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from recordmill.transforms.images.exif import Array
from recordmill.transforms.records import BadInput, Box, Polygons, Rle

_BAD_RUNS = "run lengths do not fill their mask"
_BAD_POLYGON = "polygon is not pairs of numbers"
# Pixels along an outline: pycocotools takes 20 bytes and more for each.
_LONGEST_OUTLINE = 5_000_000


def check_polygons(polygons: Polygons) -> None:
    """Refuses outlines that are no points.

    Raises:
        BadInput: an odd number of coordinates, or one that is not finite.
    """
    for part in polygons:
        if len(part) % 2 or not math.isfinite(sum(part)):
            raise BadInput("annotations", _BAD_POLYGON, f"an outline of {len(part)} coordinates")


def polygons_bounds(polygons: Polygons) -> Box | None:
    """The box around outlines; None where there are no points."""
    xs = [x for part in polygons for x in part[::2]]
    ys = [y for part in polygons for y in part[1::2]]
    return Box(min(xs), min(ys), max(xs), max(ys)) if xs else None


def polygons_mask(polygons: Polygons, height: int, width: int) -> Array:
    """Outlines filled as pycocotools fills them; parts of less than three points cover nothing.

    Args:
        polygons: in pixels of the mask; what lies outside is cut.
        height: of the mask.
        width: of the mask.

    Returns:
        uint8 (height, width) of 0 and 1.

    Raises:
        BadInput: an outline so long that it is no outline of anything in an image.
    """
    from pycocotools import mask as coco

    # Four numbers alone would be taken for a box.
    parts: list[Any] = [list(part) for part in polygons if len(part) >= 6]
    if not parts:
        return np.zeros((height, width), np.uint8)
    for part in parts:
        points = np.array(part, np.float64).reshape(-1, 2)
        if np.abs(points - np.roll(points, 1, axis=0)).max(axis=1).sum() > _LONGEST_OUTLINE:
            raise BadInput("annotations", "polygon far outside the image", f"in {width}x{height} pixels")
    merged = coco.merge(coco.frPyObjects(parts, height, width))
    return rle_mask(Rle(height, width, merged["counts"].decode("ascii")))


def rle_mask(rle: Rle) -> Array:
    """Run lengths as pixels.

    Returns:
        uint8 (height, width) of 0 and 1.

    Raises:
        BadInput: the runs are not as many pixels as the mask has.
    """
    compressed = isinstance(rle.counts, str)
    counts = _uncompressed(rle.counts) if isinstance(rle.counts, str) else np.array(rle.counts, np.int64)
    total = int(counts.sum()) if len(counts) else 0
    if total != rle.height * rle.width or (counts < 0).any():
        kind = "compressed counts" if compressed else "counts"
        detail = f"{kind} of {total:,} pixels for {rle.width}x{rle.height}"
        raise BadInput("annotations", _BAD_RUNS, detail)
    values = np.zeros(len(counts), np.uint8)
    values[1::2] = 1
    pixels: Array = np.repeat(values, counts).reshape(rle.width, rle.height).T
    return pixels


def _uncompressed(text: str) -> Array:
    """Runs from pycocotools' text: digits of 5 bits, least first, from the fourth on less the last but one.

    Read here since pycocotools trusts its text, and reads on past its end where that is damaged.
    """
    try:
        digits = np.frombuffer(text.encode("ascii"), np.uint8).astype(np.int64) - 48
    except UnicodeEncodeError as error:
        raise BadInput("annotations", _BAD_RUNS, "compressed counts that are not ASCII") from error
    last = digits & 0x20 == 0
    if not len(digits) or not last[-1] or (digits < 0).any() or (digits > 63).any():
        raise BadInput("annotations", _BAD_RUNS, "compressed counts that are damaged")
    ends = np.flatnonzero(last)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > 7:
        raise BadInput("annotations", _BAD_RUNS, "compressed counts that are damaged")
    place = np.arange(len(digits)) - np.repeat(starts, lengths)
    runs: Array = np.add.reduceat((digits & 0x1F) << (5 * place), starts)
    runs -= np.where(digits[ends] & 0x10, np.int64(1) << (5 * lengths), 0)
    runs[1::2] = np.cumsum(runs[1::2])
    runs[2::2] = np.cumsum(runs[2::2])
    return runs


def mask_bounds(pixels: Array) -> Box | None:
    """The box around all that is not 0; None where nothing is."""
    rows, columns = (np.flatnonzero(pixels.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return None
    return Box(float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1))


def box_mask(box: Box, height: int, width: int) -> Array:
    """A box filled: the pixels whose centres lie in it, and at least one.

    Args:
        box: in pixels of the mask, and within it.
        height: of the mask.
        width: of the mask.
    """
    left, right = _covered(box.xmin, box.xmax, width)
    top, bottom = _covered(box.ymin, box.ymax, height)
    pixels = np.zeros((height, width), np.uint8)
    pixels[top:bottom, left:right] = 1
    return pixels


def _covered(start: float, end: float, side: int) -> tuple[int, int]:
    first, last = math.ceil(start - 0.5), math.ceil(end - 0.5)
    if first < last:
        return first, last
    under = min(math.floor((start + end) / 2), side - 1)
    return under, under + 1
