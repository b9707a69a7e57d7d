"""The coordinates of annotations: pixels of the file, or of the upright picture."""

from __future__ import annotations

import dataclasses

from recordmill.transforms.images.geometry import file_size, is_identity
from recordmill.transforms.images.mask import WRONG_SIZE
from recordmill.transforms.records import Annotations, BadInput, Box, Geometry, Polygons, StoredImage

_OTHER_SIZE = "image of another size than its annotations"


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """The pixels in which coordinates are measured, and their transformation into the stored image.

    Attributes:
        geometry: from these pixels to those stored.
        is_stored: whether these are the stored pixels: nothing was turned, scaled, padded or cropped.
        file: from the file's own pixels to those stored.
    """

    height: int
    width: int
    geometry: Geometry
    is_stored: bool
    file: Geometry

    def box(self, box: Box) -> Box:
        """A box normalised to [0, 1], in pixels."""
        xmin, ymin, xmax, ymax = box
        return Box(xmin * self.width, ymin * self.height, xmax * self.width, ymax * self.height)

    def polygons(self, polygons: Polygons) -> Polygons:
        """Outlines normalised to [0, 1], in pixels."""
        sides = (self.width, self.height)
        return tuple(tuple(value * sides[i % 2] for i, value in enumerate(part)) for part in polygons)

    def geometry_of(self, size: tuple[int, int]) -> Geometry:
        """The transformation into the stored image of a mask of `size`: (height, width).

        A mask of another size may have the size of the file's pixels or of the upright picture.

        Raises:
            BadInput: it has neither.
        """
        if size == (self.height, self.width):
            return self.geometry
        if size == file_size(self.file):
            return self.file
        if size == (self.file.upright_height, self.file.upright_width):
            return dataclasses.replace(self.file, orientation=1)
        detail = f"{size[1]}x{size[0]} on an image of {self.width}x{self.height}"
        raise BadInput("annotations", WRONG_SIZE, detail)


def frame_of(annotations: Annotations, image: StoredImage) -> Frame:
    """The frame of the annotations of an image.

    Raises:
        BadInput: they declare a size that neither the file nor the upright picture has.
    """
    size = (image.height, image.width)
    file = image.geometry
    if file is None:
        if annotations.size is not None and annotations.size != size:
            raise _other_size(annotations.size, size)
        geometry = Geometry(1, *size, *size, 0, 0, *size)
        return Frame(*size, geometry, True, geometry)
    raw, upright = file_size(file), (file.upright_height, file.upright_width)
    is_upright = annotations.upright
    if annotations.size is not None:
        fits = (annotations.size == raw, annotations.size == upright)
        if not any(fits):
            raise _other_size(annotations.size, raw)
        is_upright = is_upright if all(fits) else fits[1]
    if is_upright:
        geometry = dataclasses.replace(file, orientation=1)
        return Frame(*upright, geometry, is_identity(geometry), file)
    return Frame(*raw, file, is_identity(file), file)


def _other_size(declared: tuple[int, int], size: tuple[int, int]) -> BadInput:
    detail = f"the annotations declare {declared[1]}x{declared[0]}, the image has {size[1]}x{size[0]}"
    return BadInput("annotations", _OTHER_SIZE, detail)
