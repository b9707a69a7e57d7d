"""Sample: an image as a function of the user sees it, with its annotations in its own pixels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from recordmill.transforms.annotations.boxes import BoxRule, cut_box
from recordmill.transforms.annotations.decoded import Read, read_ids
from recordmill.transforms.annotations.frame import Frame, frame_of
from recordmill.transforms.annotations.masks import class_values, segment_ids
from recordmill.transforms.annotations.objects import Kept, ObjectMapper
from recordmill.transforms.annotations.shapes import Shapes, mask_rle, polygons_rle, rle_mask
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.geometry import is_identity
from recordmill.transforms.images.mask import moved_mask
from recordmill.transforms.images.render import Rendered
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    Box,
    ImageRecord,
    ImageRef,
    MaskImage,
    Part,
    Polygons,
    Rle,
    StoredImage,
)

MASKS = ("class", "instance", "panoptic")
"""The kinds of `Sample.masks`."""

_NO_FILE = ImageRef("")


@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """An image and its annotations before they are stored: argument and result of a `map_image` function.

    Attributes:
        key: of the record.
        split: of the record.
        pixels: uint8 or uint16 (height, width, 1 to 4): grey, grey and alpha, RGB or RGBA; upright. They are
            read-only: change a copy.
        annotations: in pixels of this image. Boxes are within it. Masks of objects are polygons or `Rle`.
            `annotations.masks` has the segments of a panoptic mask, and no files.
        masks: the pixels of each mask of the image, (height, width), by kind: `class` holds the classes as
            the source numbers them, 255 is ignored; `instance` the number of the object, 0 is none;
            `panoptic` the id of the segment, uint32.
        suffix: of the key of this record, if one image becomes several records.
    """

    key: str
    split: str
    pixels: Array
    annotations: Annotations = Annotations()
    masks: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    suffix: str = ""

    def with_pixels(self, pixels: Array) -> Sample:
        """The same with other pixels of the same size."""
        return dataclasses.replace(self, pixels=pixels)

    def with_annotations(self, **changes: object) -> Sample:
        """The same with other `Annotations` in the named fields, such as `labels=("cat",)`."""
        return dataclasses.replace(self, annotations=replace(self.annotations, **changes))

    def crop(self, xmin: float, ymin: float, xmax: float, ymax: float, suffix: str = "") -> Sample:
        """The part of the image between two corners, rounded outwards to full pixels and cut to the image.

        Boxes, parts and masks are cut; key points outside become unlabelled. An object is left out if its
        box has no area in the part, or its mask no pixel. Labels and features of the image stay, and so does
        the attribute `area`.

        Args:
            xmin, ymin, xmax, ymax: in pixels.
            suffix: of the key of the record.

        Raises:
            ValueError: no pixel is between the corners.
        """
        height, width = self.pixels.shape[:2]
        left, top = max(math.floor(xmin), 0), max(math.floor(ymin), 0)
        right, bottom = min(math.ceil(xmax), width), min(math.ceil(ymax), height)
        if left >= right or top >= bottom:
            corners = ", ".join(f"{side:g}" for side in (xmin, ymin, xmax, ymax))
            raise ValueError(f"no pixel of the image, {width}x{height}, is in the crop {corners}")
        window = _Window(left, top, right, bottom, height, width)
        annotations = self.annotations
        objects = (window.object(one) for one in annotations.objects)
        size = None if annotations.size is None else (bottom - top, right - left)
        rows, columns = slice(top, bottom), slice(left, right)
        return dataclasses.replace(
            self,
            pixels=self.pixels[rows, columns],
            annotations=replace(
                annotations, objects=tuple(one for one in objects if one is not None), size=size
            ),
            masks={kind: mask[rows, columns] for kind, mask in self.masks.items()},
            suffix=suffix or self.suffix,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Window:
    """A part of an image of `height` and `width`."""

    left: int
    top: int
    right: int
    bottom: int
    height: int
    width: int

    def object(self, one: AnnotatedObject) -> AnnotatedObject | None:
        """An object in the pixels of the window; None if it is outside."""
        box = None if one.box is None else self._box(one.box)
        mask = one.mask
        if one.box is not None and box is None:
            return None
        if isinstance(mask, ImageRef):
            raise ValueError("the mask of an object is a file; give polygons or an Rle")
        if mask is not None and (mask := self._mask(mask)) is None:
            return None
        points = tuple(self._point(*point) for point in one.keypoints)
        parts = ((part.name, self._box(part.box)) for part in one.parts)
        kept = tuple(Part(name, cut) for name, cut in parts if cut is not None)
        return AnnotatedObject(one.label, box, mask, points, kept, one.attributes)

    def _box(self, box: Box) -> Box | None:
        """The part of a box that is in the window; None if it has no area."""
        moved = Box(box[0] - self.left, box[1] - self.top, box[2] - self.left, box[3] - self.top)
        return cut_box(moved, self.right - self.left, self.bottom - self.top)

    def _point(self, x: float, y: float, visibility: int) -> tuple[float, float, int]:
        inside = self.left <= x <= self.right and self.top <= y <= self.bottom
        is_labelled = (x, y, visibility) != (0, 0, 0)
        return (x - self.left, y - self.top, visibility) if inside and is_labelled else (0.0, 0.0, 0)

    def _mask(self, mask: Polygons | Rle) -> Polygons | Rle | None:
        """A mask in the window, with exactly the pixels that it has there; None if it has none.

        Outlines stay outlines if they cover the same pixels once they are moved.
        """
        rle = mask if isinstance(mask, Rle) else polygons_rle(mask, self.height, self.width)
        covered = rle_mask(rle, (self.left, self.right))[self.top : self.bottom]
        if not covered.any():
            return None
        if not isinstance(mask, Rle):
            offsets = (self.left, self.top)
            moved = tuple(tuple(value - offsets[i % 2] for i, value in enumerate(part)) for part in mask)
            if np.array_equal(rle_mask(polygons_rle(moved, *covered.shape)), covered):
                return moved
        return mask_rle(covered)


def sample_of(
    record: ImageRecord, work: Rendered, boxes: str, read: Read
) -> tuple[Sample, list[tuple[str, str]]]:
    """The image of a record with its annotations, and the notes of those that were clipped or dropped.

    Args:
        record: as the source has it.
        work: its picture, as `upright_colors` returns it.
        boxes: one of `BOXES`.
        read: reads the bytes of a mask.

    Raises:
        BadInput: an annotation is invalid, or a mask cannot be read.
    """
    pixels, annotations = work.picture.pixels, record.annotations
    height, width, channels = pixels.shape
    geometry = None if is_identity(work.geometry) else work.geometry
    picture = StoredImage(b"", "raw", height, width, channels, pixels.dtype.name, "", (), geometry)
    frame = frame_of(annotations, picture)
    shapes = Shapes(frame, annotations.relative, read)
    notes: list[tuple[str, str]] = []
    kept = ObjectMapper(BoxRule(boxes, frame, notes), shapes).mapped(annotations.objects)
    # Without a declared size, an image without annotations stays unannotated, and is not background.
    is_annotated = annotations.size is not None or annotations.objects or annotations.masks
    own = replace(
        annotations,
        objects=tuple(_with_mask(one, shapes) for one in kept),
        masks={kind: MaskImage(_NO_FILE, segments=mask.segments) for kind, mask in annotations.masks.items()},
        size=(height, width) if is_annotated else None,
        relative=False,
        upright=True,
    )
    masks = {kind: _upright(kind, mask, frame, read) for kind, mask in annotations.masks.items()}
    return Sample(record.key, str(record.split), _read_only(pixels), own, masks), notes


def _with_mask(kept: Kept, shapes: Shapes) -> AnnotatedObject:
    """The object in the picture, with its mask as outlines or run lengths."""
    source, one = kept
    if source.mask is None or one.mask is not None and not isinstance(one.mask, ImageRef | Rle):
        return one
    return replace(one, mask=mask_rle(shapes.stored_mask(source.mask)))


def _upright(kind: str, mask: MaskImage, frame: Frame, read: Read) -> Array:
    """The values of a mask at the pixels of the picture."""
    if kind == "class":
        values = class_values(mask, read)
    elif kind == "panoptic":
        values = segment_ids(mask, read)
    else:
        values = read_ids(mask.image, read)
    height, width = values.shape
    return _read_only(moved_mask(frame.geometry_of((height, width)), values, 0))


def _read_only(pixels: Array) -> Array:
    view: Array = pixels.view()
    view.flags.writeable = False
    return view


def check_sample(sample: Sample) -> None:
    """Checks what a function has returned.

    Raises:
        ValueError: pixels that cannot be stored, annotations or masks that do not fit them.
    """
    pixels, annotations = sample.pixels, sample.annotations
    if not isinstance(pixels, np.ndarray) or pixels.dtype not in (np.uint8, np.uint16):
        found = f"of {pixels.dtype}" if isinstance(pixels, np.ndarray) else f"of type {type(pixels).__name__}"
        raise ValueError(f"pixels {found}; they may be an array of uint8 or uint16")
    if pixels.ndim != 3 or not pixels.size or not 1 <= pixels.shape[2] <= 4:
        raise ValueError(f"pixels of shape {pixels.shape}; it may be (height, width, 1 to 4)")
    if not isinstance(sample.suffix, str):
        raise ValueError(f"a suffix of type {type(sample.suffix).__name__}; it may be a text")
    size = pixels.shape[:2]
    if not isinstance(annotations, Annotations):
        raise ValueError(f"annotations of type {type(annotations).__name__}; they may be Annotations")
    if annotations.relative or annotations.steps is not None:
        raise ValueError("annotations that are relative, or of a sequence; they may be in pixels")
    if annotations.size not in (None, size):
        raise ValueError(f"annotations of size {annotations.size} for pixels of size {size}")
    for one in annotations.objects:
        if not isinstance(one, AnnotatedObject):
            raise ValueError(f"an object of type {type(one).__name__}; it may be an AnnotatedObject")
        if isinstance(one.mask, ImageRef):
            raise ValueError("an object whose mask is a file; it may be polygons or an Rle")
        if isinstance(one.mask, Rle) and (one.mask.height, one.mask.width) != size:
            raise ValueError(f"an Rle of size {(one.mask.height, one.mask.width)} for pixels of size {size}")
    for kind, mask in sample.masks.items():
        _check_mask(kind, mask, size)


def _check_mask(kind: str, mask: object, size: tuple[int, ...]) -> None:
    if kind not in MASKS:
        raise ValueError(f"a mask {kind!r}; it may be {', '.join(MASKS)}")
    if not isinstance(mask, np.ndarray) or mask.dtype.kind not in "ui" or mask.shape != size:
        found = f"{mask.dtype.name} {mask.shape}" if isinstance(mask, np.ndarray) else type(mask).__name__
        raise ValueError(f"a mask {kind!r} that is {found}; it may be an array of integers {size}")
    most = (1 << 24) - 1 if kind == "panoptic" else (1 << 16) - 1
    if mask.min() < 0 or mask.max() > most:
        raise ValueError(f"a mask {kind!r} with values {mask.min()} to {mask.max()}; it may have 0 to {most}")
