"""COCO's annotations of one image: objects, masks, key points, captions; and the categories they refer to.

The format is https://cocodataset.org/#format-data; panoptic ones follow
https://github.com/cocodataset/panopticapi. Functions raise BadInput for a value that does not conform.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import msgspec

from recordmill.transforms.records import (
    AnnotatedObject,
    BadInput,
    Box,
    ClassNames,
    JobError,
    Polygons,
    Rle,
    Scalar,
    Segment,
)
from recordmill.transforms.sources.names import clipped, is_unicode

_LARGEST = 1 << 62  # with --label_offset it still is an int64


class CocoClasses:
    """The classes of a dataset; all files have to agree on them."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[str, str]] = {}  # name, and the first file that has it
        self._stuff: set[int] = set()
        self._repeated = False

    def add(self, category: Any, file: str) -> None:
        """Adds an entry of `categories`. Raises JobError if it is invalid, or contradicts another file."""
        found = category if isinstance(category, dict) else {}
        number, name = found.get("id"), found.get("name")
        if not _is_category(number):
            raise JobError(f"{file!r} has a category without an id of 0 to 2**62: {str(category)[:100]}")
        if not isinstance(name, str) or not name or not is_unicode(name):
            raise JobError(f"{file!r} has no name for the category {number}")
        first, other = self._found.setdefault(number, (name, file))
        if first != name:
            raise JobError(
                f"the category {number} is {first!r} in {other!r} and {name!r} in {file!r}: "
                "correct one of them, or convert them one by one with --annotations"
            )
        if found.get("isthing") in (0, False):
            self._stuff.add(number)

    def names(self) -> ClassNames | None:
        """The names by id; None if no file has categories. Call it after all of `add`, before `label`."""
        names = {number: name for number, (name, _) in sorted(self._found.items())}
        self._repeated = len(set(names.values())) < len(names)
        return ClassNames(names) if names else None

    def label(self, category: object) -> str | int:
        """The name of a category; its id if two categories share a name, or no file has categories."""
        if not _is_category(category):
            raise BadInput("annotations", "no category", f"category_id is {category!r}")
        if not self._found:
            return category
        if category not in self._found:
            raise BadInput("annotations", "category is not listed", f"category_id is {category}")
        return category if self._repeated else self._found[category][0]

    def is_thing(self, category: int) -> bool:
        """Whether a category is of things: no file marks it as stuff."""
        return category not in self._stuff


def object_of(annotation: Mapping[str, Any], classes: CocoClasses, taken: Sequence[str]) -> AnnotatedObject:
    """The object of an annotation of instances, stuff or key points; without a box, its mask is read."""
    box = _box(annotation.get("bbox"))
    mask = _mask(annotation.get("segmentation")) if box is None or "masks" in taken else None
    keypoints = _keypoints(annotation.get("keypoints")) if "keypoints" in taken else ()
    if box is None and mask is None and not keypoints:
        raise _bad("object without box and mask", annotation.get("bbox"))
    label = classes.label(annotation.get("category_id"))
    return AnnotatedObject(label, box, mask, keypoints, attributes=_attributes(annotation))


def merged(one: AnnotatedObject, other: AnnotatedObject) -> AnnotatedObject:
    """One object from the descriptions in two files: the second fills in what the first lacks."""
    return msgspec.structs.replace(
        one,
        mask=other.mask if one.mask is None else one.mask,
        keypoints=one.keypoints or other.keypoints,
        attributes={**other.attributes, **one.attributes},
    )


def caption_of(annotation: Mapping[str, Any]) -> str:
    if not isinstance(caption := annotation["caption"], str) or not is_unicode(caption):
        raise _bad("caption is not text", caption)
    return caption


def segments_of(annotation: Mapping[str, Any], classes: CocoClasses) -> tuple[Segment, ...]:
    segments = annotation["segments_info"]
    if not isinstance(segments, list):
        raise _bad("segments are not a list", segments)
    found: dict[int, Segment] = {}
    for segment in segments:
        number = segment.get("id") if isinstance(segment, dict) else None
        if type(number) is not int or not 0 < number < 1 << 24:
            raise _bad("segment without an id of a colour", segment)
        if number in found:
            raise _bad("segment id twice", number)
        category = segment.get("category_id")
        found[number] = Segment(number, classes.label(category), classes.is_thing(category))
    return tuple(found.values())


def _box(box: object) -> Box | None:
    if box is None or box == []:
        return None
    reason = "bounding box is not four numbers"
    numbers = _numbers(box, reason)
    if len(numbers) != 4:
        raise _bad(reason, box)
    x, y, width, height = numbers
    return Box(x, y, x + width, y + height)


def _mask(segmentation: object) -> Polygons | Rle | None:
    if not segmentation:
        return None
    if isinstance(segmentation, dict):
        return _rle(segmentation)
    if not isinstance(segmentation, list):
        raise _bad("segmentation is neither polygons nor run lengths", segmentation)
    # some tools write the one polygon of an object without the list around it
    outlines = segmentation if isinstance(segmentation[0], list) else [segmentation]
    polygons = [_numbers(outline, "polygon is not pairs of numbers", 2) for outline in outlines]
    return tuple(filter(None, polygons)) or None


def _rle(segmentation: Mapping[str, Any]) -> Rle:
    size, counts = segmentation.get("size"), segmentation.get("counts")
    if not isinstance(size, list) or len(size) != 2 or not all(_is_count(side) and side for side in size):
        raise _bad("run lengths without a size", size)
    height, width = size
    if isinstance(counts, str) and counts and counts.isascii():
        return Rle(height, width, counts)
    if not isinstance(counts, list) or not all(map(_is_count, counts)):
        raise _bad("run lengths are not numbers", counts)
    if sum(counts) != height * width:
        detail = f"they cover {sum(counts)} pixels of {height} x {width}"
        raise BadInput("annotations", "run lengths do not fill the mask", detail)
    return Rle(height, width, tuple(counts))


def _keypoints(values: object) -> tuple[tuple[float, float, int], ...]:
    if not values:
        return ()
    numbers = _numbers(values, "key points are not x, y and visibility", 3)
    points = []
    for x, y, visibility in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
        if visibility not in (0, 1, 2):
            raise _bad("visibility of a key point is not 0, 1 or 2", visibility)
        points.append((x, y, int(visibility)) if visibility else (0.0, 0.0, 0))
    return tuple(points)


def _attributes(annotation: Mapping[str, Any]) -> dict[str, Scalar]:
    attributes: dict[str, Scalar] = {}
    if (crowd := annotation.get("iscrowd")) is not None:
        if crowd not in (0, 1):
            raise _bad("iscrowd is not 0 or 1", crowd)
        attributes["is_crowd"] = int(crowd)
    if (area := annotation.get("area")) is not None:
        (attributes["area"],) = _numbers([area], "area is not a number")
    others = annotation.get("attributes")  # of CVAT and Datumaro
    for name, value in others.items() if isinstance(others, dict) else ():
        if isinstance(value, str | int | float) and name.strip():
            if not is_unicode(f"{name}{value}"):
                raise _bad("attribute is not text", name)
            attributes.setdefault(name, value)
    return attributes


def _numbers(values: object, reason: str, multiple: int = 1) -> tuple[float, ...]:
    """The finite numbers in a list whose length is a multiple of `multiple`. Raises BadInput otherwise."""
    if isinstance(values, list) and not len(values) % multiple and set(map(type, values)) <= {int, float}:
        with contextlib.suppress(OverflowError):  # an integer too large for a float
            numbers = tuple(map(float, values))
            if all(map(math.isfinite, numbers)):
                return numbers
    raise _bad(reason, values)


def _is_category(number: object) -> TypeGuard[int]:
    return type(number) is int and 0 <= number <= _LARGEST


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _bad(reason: str, value: object) -> BadInput:
    return BadInput("annotations", reason, clipped(repr(value), 100))
