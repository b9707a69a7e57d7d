"""The shapes of objects: outlines, run lengths or masks, in the frame and in the stored image."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from recordmill.transforms.annotations.decoded import Read, read_ids
from recordmill.transforms.annotations.frame import Frame
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.geometry import moved_points
from recordmill.transforms.images.mask import WRONG_SIZE, moved_mask
from recordmill.transforms.records import AnnotatedObject, BadInput, Box, ImageRef, Polygons, Rle

# How far the sides of an object's mask may be from the image's in proportion: rounded, or of another image.
_ROUNDED = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class Shapes:
    """The masks and outlines of the objects of one image; relative outlines are normalised to [0, 1]."""

    frame: Frame
    relative: bool
    read: Read

    def bounds(self, one: AnnotatedObject) -> Box | None:
        """The box around the mask of an object, in pixels of the frame; None if it is empty.

        Raises:
            BadInput: a mask that cannot be read or does not fit.
        """
        if one.mask is None:
            return None
        if isinstance(one.mask, Rle | ImageRef):
            return mask_bounds(self._pixels(one.mask))
        check_polygons(one.mask)
        return polygons_bounds(self.frame.polygons(one.mask) if self.relative else one.mask)

    def stored_polygons(self, polygons: Polygons) -> Polygons:
        """Outlines in pixels of the stored image; unchanged if the image was stored unchanged.

        Raises:
            BadInput: they are not points.
        """
        check_polygons(polygons)
        if self.relative:
            polygons = self.frame.polygons(polygons)
        if self.frame.is_stored:
            return polygons
        geometry = self.frame.geometry
        return tuple(tuple(moved_points(geometry, np.array(part)).ravel().tolist()) for part in polygons)

    def stored_mask(self, mask: Polygons | Rle | ImageRef) -> Array:
        """The mask of an object in the stored image: uint8 (height, width) of 0 and 1.

        Raises:
            BadInput: a mask that cannot be read or does not fit.
        """
        if isinstance(mask, Rle | ImageRef):
            return moved_mask(self.frame.geometry, self._pixels(mask), 0)
        height, width = self.frame.geometry.height, self.frame.geometry.width
        covered = polygons_mask(self.stored_polygons(mask), height, width)
        return covered if self.frame.is_stored else covered * picture_area(self.frame)

    def filled_box(self, box: Box) -> Array:
        """The mask of an object without one: its box in the stored image, filled."""
        return box_mask(box, self.frame.geometry.height, self.frame.geometry.width)

    def _pixels(self, mask: Rle | ImageRef) -> Array:
        """Run lengths or an image as pixels of the frame."""
        size = (self.frame.height, self.frame.width)
        if isinstance(mask, ImageRef):
            return _of_size((read_ids(mask, self.read) != 0).astype(np.uint8), size)
        if (mask.height, mask.width) != size:
            raise _wrong_size((mask.height, mask.width), size)
        return rle_mask(mask)


def picture_area(frame: Frame) -> Array:
    """1 for the picture in the stored image, 0 for its padding; uint8."""
    geometry = frame.geometry
    area = np.zeros((geometry.height, geometry.width), np.uint8)
    top, left = geometry.top, geometry.left
    area[max(0, top) : top + geometry.scaled_height, max(0, left) : left + geometry.scaled_width] = 1
    return area


def _of_size(pixels: Array, size: tuple[int, int]) -> Array:
    """A mask scaled to the size of its image, as those of Open Images need: each pixel is the nearest."""
    if pixels.shape == size:
        return pixels
    (rows, columns), (height, width) = pixels.shape, size
    if abs(rows * width - columns * height) > _ROUNDED * rows * width + max(height, width, rows, columns):
        raise _wrong_size((rows, columns), size)
    y = (2 * np.arange(height, dtype=np.int64) + 1) * rows // (2 * height)
    x = (2 * np.arange(width, dtype=np.int64) + 1) * columns // (2 * width)
    resized: Array = pixels[y[:, None], x]
    return resized


def _wrong_size(found: tuple[int, int], size: tuple[int, int]) -> BadInput:
    detail = f"{found[1]}x{found[0]} on an image of {size[1]}x{size[0]}"
    return BadInput("annotations", WRONG_SIZE, detail)


_BAD_RUNS = "run lengths do not fill their mask"
_BAD_POLYGON = "polygon is not pairs of numbers"
# Pixels along an outline: pycocotools takes 20 bytes and more for each.
_LONGEST_OUTLINE = 5_000_000


def check_polygons(polygons: Polygons) -> None:
    """Refuses outlines that are not points.

    Raises:
        BadInput: an odd number of coordinates, or one that is not finite.
    """
    for part in polygons:
        if len(part) % 2 or not math.isfinite(sum(part)):
            raise BadInput("annotations", _BAD_POLYGON, f"an outline of {len(part)} coordinates")


def polygons_bounds(polygons: Polygons) -> Box | None:
    """The box around outlines; None if there are no points."""
    xs = [x for part in polygons for x in part[::2]]
    ys = [y for part in polygons for y in part[1::2]]
    return Box(min(xs), min(ys), max(xs), max(ys)) if xs else None


def polygons_mask(polygons: Polygons, height: int, width: int) -> Array:
    """A mask of outlines in its pixels, filled as pycocotools fills them: uint8 of 0 and 1.

    Outlines are clipped to the mask; parts of less than three points cover nothing.

    Raises:
        BadInput: an outline far too long for an image.
    """
    return rle_mask(polygons_rle(polygons, height, width))


def polygons_rle(polygons: Polygons, height: int, width: int) -> Rle:
    """As `polygons_mask`, in run lengths."""
    from pycocotools import mask as coco

    # pycocotools reads four numbers as a box.
    parts: list[Any] = [list(part) for part in polygons if len(part) >= 6]
    if not parts:
        return Rle(height, width, (height * width,))
    for part in parts:
        points = np.array(part, np.float64).reshape(-1, 2)
        if np.abs(points - np.roll(points, 1, axis=0)).max(axis=1).sum() > _LONGEST_OUTLINE:
            raise BadInput("annotations", "polygon far outside the image", f"in {width}x{height} pixels")
    merged = coco.merge(coco.frPyObjects(parts, height, width))
    return Rle(height, width, merged["counts"].decode("ascii"))


def mask_rle(pixels: Array) -> Rle:
    """The run lengths of the pixels that are not 0, as pycocotools compresses them."""
    from pycocotools import mask as coco

    packed = coco.encode(np.asfortranarray(pixels != 0, np.uint8))
    height, width = pixels.shape
    return Rle(height, width, packed["counts"].decode("ascii"))


def rle_mask(rle: Rle, columns: tuple[int, int] | None = None) -> Array:
    """Run lengths as pixels: uint8 (height, width) of 0 and 1; only `columns` from the first to the second.

    Raises:
        BadInput: the runs do not add up to the pixels of the mask.
    """
    counts = _uncompressed(rle.counts) if isinstance(rle.counts, str) else np.array(rle.counts, np.int64)
    total = int(counts.sum())
    if total != rle.height * rle.width or (counts < 0).any():
        kind = "compressed counts" if isinstance(rle.counts, str) else "counts"
        detail = f"{kind} of {total:,} pixels for {rle.width}x{rle.height}"
        raise BadInput("annotations", _BAD_RUNS, detail)
    values = np.zeros(len(counts), np.uint8)
    values[1::2] = 1
    first, last = columns or (0, rle.width)
    ends = np.clip(np.cumsum(counts), first * rle.height, last * rle.height)
    lengths = np.diff(ends, prepend=first * rle.height)
    pixels: Array = np.repeat(values, lengths).reshape(last - first, rle.height).T
    return pixels


def _uncompressed(text: str) -> Array:
    """Runs from pycocotools' text: digits of 5 bits, least significant first.

    From the fourth run on, each is the difference to the last but one.

    Not by pycocotools, which reads past the end of damaged text.
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
    digit = np.arange(len(digits)) - np.repeat(starts, lengths)
    runs: Array = np.add.reduceat((digits & 0x1F) << (5 * digit), starts)
    runs -= np.where(digits[ends] & 0x10, np.int64(1) << (5 * lengths), 0)
    runs[1::2] = np.cumsum(runs[1::2])
    runs[2::2] = np.cumsum(runs[2::2])
    return runs


def mask_bounds(pixels: Array) -> Box | None:
    """The box around all pixels that are not 0; None if there are none."""
    rows, columns = (np.flatnonzero(pixels.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return None
    return Box(float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1))


def box_mask(box: Box, height: int, width: int) -> Array:
    """A box within a mask, filled: the pixels whose centres are in it, and at least one."""
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
