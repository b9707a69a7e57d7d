"""What an object covers: its outlines, run lengths or mask, in the frame and in the stored image."""

from __future__ import annotations

import dataclasses

import numpy as np

from recordmill.transforms.annotations.decoded import Read, read_ids
from recordmill.transforms.annotations.frame import Frame
from recordmill.transforms.annotations.rasterise import (
    box_mask,
    check_polygons,
    mask_bounds,
    polygons_bounds,
    polygons_mask,
    rle_mask,
)
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.geometry import moved_points
from recordmill.transforms.images.mask import WRONG_SIZE, moved_mask
from recordmill.transforms.records import AnnotatedObject, BadInput, Box, ImageRef, Polygons, Rle

# How far the sides of an object's mask may be from the image's in proportion: rounded, or of another image.
_ROUNDED = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class Shapes:
    """What objects of one image cover.

    Attributes:
        frame: what they are measured in.
        relative: outlines are shares of width and height.
        read: the bytes of a mask.
    """

    frame: Frame
    relative: bool
    read: Read

    def bounds(self, one: AnnotatedObject) -> Box | None:
        """The box around what an object covers, in pixels of the frame; None where that is nothing.

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
        """Outlines in pixels of the stored image; as they are where nothing moves them.

        Raises:
            BadInput: they are no points.
        """
        check_polygons(polygons)
        if self.relative:
            polygons = self.frame.polygons(polygons)
        if self.frame.is_stored:
            return polygons
        geometry = self.frame.geometry
        return tuple(tuple(moved_points(geometry, np.array(part)).ravel().tolist()) for part in polygons)

    def stored_mask(self, mask: Polygons | Rle | ImageRef) -> Array:
        """What an object covers of the stored image.

        Returns:
            uint8 (height, width) of 0 and 1.

        Raises:
            BadInput: a mask that cannot be read or does not fit.
        """
        if isinstance(mask, Rle | ImageRef):
            return moved_mask(self.frame.geometry, self._pixels(mask), 0)
        height, width = self.frame.geometry.height, self.frame.geometry.width
        covered = polygons_mask(self.stored_polygons(mask), height, width)
        return covered if self.frame.is_stored else covered * picture_area(self.frame)

    def filled_box(self, box: Box) -> Array:
        """A box of the stored image as the mask of what has no other."""
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
    """Where the picture is in the stored image: 1, and 0 where that is padded; uint8."""
    geometry = frame.geometry
    area = np.zeros((geometry.height, geometry.width), np.uint8)
    top, left = geometry.top, geometry.left
    area[max(0, top) : top + geometry.scaled_height, max(0, left) : left + geometry.scaled_width] = 1
    return area


def _of_size(pixels: Array, size: tuple[int, int]) -> Array:
    """A mask of another size than its image, as Open Images has them: each pixel the nearest."""
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
