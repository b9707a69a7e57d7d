"""Masks of images as schemas store them: classes, instances and panoptic segments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from recordmill.transforms.annotations.decoded import Read, read_colors, read_ids
from recordmill.transforms.annotations.frame import Frame
from recordmill.transforms.annotations.shapes import Shapes, picture_area
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.mask import moved_mask
from recordmill.transforms.records import IGNORE, Annotations, BadInput, MaskImage

_NO_COLOR = "colour without a class"
_NO_SEGMENT = "panoptic id without a segment"
_TOO_LARGE = "class id too large for a mask"


class ClassIds(Protocol):
    """The ids under which classes are stored."""

    def id_of(self, label: str | int) -> int:
        """Of a label; raises BadInput if it is not a class."""

    def mask_id(self, value: int) -> int:
        """Of a mask's pixel value, never called with 255; raises BadInput if it is not a class."""

    def in_masks(self, number: int) -> int:
        """The id in masks of a label's id: another one if its class is merged, 255 if it is ignored."""


@dataclasses.dataclass(frozen=True, slots=True)
class MaskBuilder:
    """Builds the masks of one image, whose annotations have coordinates in `frame`."""

    annotations: Annotations
    frame: Frame
    shapes: Shapes
    read: Read
    ids: ClassIds

    def classes(self) -> Array:
        """The class of each pixel of the stored image, `IGNORE` in the padding.

        From the mask of classes; else from the panoptic one, whose pixels of no segment are `IGNORE`; else
        the objects drawn in their order on a background of 0, crowds first. An image that was annotated
        (its size is declared) without an object is background. `ids` merges and ignores classes. uint8,
        or uint16 where an id needs it.

        Raises:
            BadInput: there is no mask, it does not fit, or a pixel is of no class.
        """
        masks = self.annotations.masks
        if "class" in masks:
            return self._moved(self._class_ids(masks["class"]), IGNORE)
        if "panoptic" in masks:
            return self.panoptic()[0]
        masked = any(one.mask is not None for one in self.annotations.objects)
        empty = not self.annotations.objects and self.annotations.size is not None
        if not masked and not empty:
            raise BadInput("annotations", "no mask", "the schema stores one of each image")
        return self._drawn()

    def instances(self) -> Array | None:
        """The number of the object at each pixel, as the source has it, 255 in the padding."""
        mask = self.annotations.masks.get("instance")
        return None if mask is None else self._moved(class_values(mask, self.read), IGNORE)

    def panoptic(self) -> tuple[Array, Array]:
        """The class of each pixel, `IGNORE` if it has no segment; and the number of its thing, from 1.

        A merged segment remains a thing of its own; an ignored one has no number.

        Raises:
            BadInput: there is no panoptic mask, it does not fit, or a pixel is of no segment.
        """
        mask = self.annotations.masks.get("panoptic")
        if mask is None:
            raise BadInput("annotations", "no panoptic mask", "the schema stores one of each image")
        codes = segment_ids(mask, self.read)
        segments = mask.segments
        classes = self._ids_of(one.label for one in segments)
        numbers = [
            number if one.is_thing and class_id != IGNORE else 0
            for number, (one, class_id) in enumerate(zip(segments, classes, strict=True), 1)
        ]
        keys = [one.id for one in segments]
        if 0 not in keys:
            keys, classes, numbers = [*keys, 0], [*classes, IGNORE], [*numbers, 0]
        at = _looked_up(codes, keys, _NO_SEGMENT, lambda code, x, y: f"{code} at {x},{y}")
        category = self._moved(_narrow(classes)[at], IGNORE)
        return category, self._moved(_narrow(numbers)[at], 0)

    def _class_ids(self, mask: MaskImage) -> Array:
        """The stored ids of a mask of classes, in the source's pixels."""
        values = class_values(mask, self.read)
        present = np.flatnonzero(np.bincount(values.ravel())).tolist()
        table = np.zeros(present[-1] + 1, np.int64)
        table[present] = _checked([self._stored_id(value) for value in present], mapped=True)
        return _narrow(table.tolist())[values]

    def _stored_id(self, value: int) -> int:
        return IGNORE if value == IGNORE else self.ids.mask_id(value)

    def _ids_of(self, labels: Iterable[str | int]) -> list[int]:
        """The ids of labels in masks. Refuses a class that has the id `IGNORE` itself."""
        found = [self.ids.id_of(label) for label in labels]
        stored = [self.ids.in_masks(one) for one in found]
        _checked([one for one, new in zip(found, stored, strict=True) if one == new])
        return stored

    def _drawn(self) -> Array:
        """The objects that have a mask, later ones on top."""
        objects = [one for one in self.annotations.objects if one.mask is not None]
        objects.sort(key=lambda one: not one.attributes.get("is_crowd"))
        ids, background = self._ids_of(one.label for one in objects), self.ids.in_masks(0)
        area = picture_area(self.frame)
        stored = np.where(area, background, IGNORE).astype(_narrow([*ids, background]).dtype)
        for one, number in zip(objects, ids, strict=True):
            if one.mask is not None:
                stored[self.shapes.stored_mask(one.mask) != 0] = number
        return stored

    def _moved(self, pixels: Array, fill: int) -> Array:
        height, width = pixels.shape
        return moved_mask(self.frame.geometry_of((height, width)), pixels, fill)


def class_values(mask: MaskImage, read: Read) -> Array:
    """The class, or the object, of each pixel of a mask, as the source numbers them: uint8 or uint16.

    Raises:
        BadInput: it cannot be read, or has a colour of no class.
    """
    if not mask.colors:
        return read_ids(mask.image, read)
    return _narrow(_checked([value for _, value in mask.colors], mapped=True))[_colors_at(mask, read)]


def segment_ids(mask: MaskImage, read: Read) -> Array:
    """The id of the segment at each pixel of a panoptic mask, uint32.

    Raises:
        BadInput: it cannot be read, or is not in colour.
    """
    codes = read_colors(mask.image, read, with_gray=False)
    # In the PNG red is the least significant.
    ids: Array = codes >> 16 | codes & 0xFF00 | (codes & 0xFF) << 16
    return ids


def _colors_at(mask: MaskImage, read: Read) -> Array:
    """The index, in the table of colours, of the colour at each pixel."""
    codes, colors = read_colors(mask.image, read), [color for color, _ in mask.colors]
    return _looked_up(codes, colors, _NO_COLOR, lambda code, x, y: f"#{code:06x} at {x},{y}")


def _looked_up(codes: Array, keys: list[int], reason: str, describe: Callable[[int, int, int], str]) -> Array:
    """For each pixel the index of its code among the keys; refuses a code that is none of them."""
    order = np.argsort(np.array(keys, np.uint32), kind="stable")
    sorted_keys = np.array(keys, np.uint32)[order]
    at = np.minimum(np.searchsorted(sorted_keys, codes), len(sorted_keys) - 1)
    unmatched = sorted_keys[at] != codes
    if unmatched.any():
        y, x = np.unravel_index(int(unmatched.argmax()), codes.shape)
        raise BadInput("annotations", reason, describe(int(codes[y, x]), int(x), int(y)))
    found: Array = order[at]
    return found


def _checked(ids: list[int], mapped: bool = False) -> list[int]:
    """Refuses ids that a mask cannot hold; `IGNORE` is allowed where ids are mapped from a mask's values."""
    for one in ids:
        if not 0 <= one <= 65_535:
            raise BadInput("annotations", _TOO_LARGE, f"class id {one}; a mask holds 0 to 65535")
        if one == IGNORE and not mapped:
            detail = f"class id {one}: give the classes other ids, as by --label_file"
            raise BadInput("annotations", "class id that means ignored pixels", detail)
    return ids


def _narrow(values: list[int]) -> Array:
    return np.array(values, np.uint16 if max(values, default=0) > 255 else np.uint8)
