"""LabelMe's JSON (https://github.com/wkentaro/labelme): shapes drawn on an image, a file an image."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import AnnotatedObject, BadInput, Box, Polygons, Rle, Scalar
from recordmill.transforms.sources.labelme.mask import mask_of, union
from recordmill.transforms.sources.names import is_unicode
from recordmill.transforms.sources.voc.xml import box_around

IGNORED = "__ignore__"
_CIRCLE_POINTS = 64
_OUTLINES = ("polygon", "rectangle", "circle", "oriented_rectangle")
_WITHOUT_AREA = ("point", "points", "line", "linestrip")
_RESERVED = frozenset(
    ("area", "bbox", "class", "depiction", "keypoint", "label", "mask", "text", "view", "weight")
)


@dataclasses.dataclass(frozen=True, slots=True)
class LabelmeAnnotation:
    """What a JSON file says.

    Attributes:
        image_path: of the image, from the folder of the file; may be empty.
        image_data: the image itself, base64; or None.
        size: (height, width), or None where it is not told.
        labels: the flags of the image that are set.
        objects: those of shapes that have an area.
        left: (number, reason, detail) of each shape that is no object.
    """

    image_path: str
    image_data: str | None
    size: tuple[int, int] | None
    labels: tuple[str, ...]
    objects: tuple[AnnotatedObject, ...]
    left: tuple[tuple[int, str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Shape:
    """A shape with an area: an outline, or a mask."""

    label: str
    group: object
    box: Box
    outline: tuple[float, ...]
    mask: Rle | None
    is_mask: bool
    attributes: Mapping[str, Scalar]


@internal_errors("annotations")
def read_labelme_json(data: bytes, with_masks: bool) -> LabelmeAnnotation:
    """Reads a JSON file.

    Args:
        data: its bytes.
        with_masks: objects have masks, not their boxes alone.

    Raises:
        BadInput: stage `annotations`, `not LabelMe JSON`, and what is wrong.
    """
    try:
        found = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise _not_labelme(str(error)) from error
    shapes = found.get("shapes") if isinstance(found, dict) else None
    if not isinstance(shapes, list):
        raise _not_labelme("it has no list of shapes")
    size = _size(found.get("imageHeight"), found.get("imageWidth"))
    kept, left = [], []
    for number, shape in enumerate(shapes):
        read = _shape(shape, f"shape {number}", size, with_masks)
        if isinstance(read, _Shape):
            kept.append(read)
        else:
            left.append((number, *read))
    flags = _mapping(found.get("flags"), "flags")
    image_data = found.get("imageData")
    return LabelmeAnnotation(
        image_path=_text(found.get("imagePath") or "", "imagePath"),
        image_data=image_data if isinstance(image_data, str) and image_data else None,
        size=size,
        labels=tuple(_text(name, "a flag") for name, is_set in flags.items() if is_set is True),
        objects=tuple(_objects(kept, with_masks)),
        left=tuple(left),
    )


def decoded(text: str) -> bytes:
    """The bytes of base64. Raises BadInput where it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _not_labelme(f"what should be base64 is not: {error}") from error


def _shape(
    shape: Any, where: str, size: tuple[int, int] | None, with_masks: bool
) -> _Shape | tuple[str, str]:
    """A shape; or why it is no object: reason, detail."""
    if not isinstance(shape, dict):
        raise _not_labelme(f"{where} is no object")
    label = _text(shape.get("label"), f"{where}: label").strip()
    if not label:
        raise _not_labelme(f"{where} has no label")
    kind = shape.get("shape_type") or "polygon"
    points = _points(shape.get("points"), where)
    if label == IGNORED:
        return "labelled __ignore__", f"a {kind}"
    needed = 3 if kind in ("polygon", "oriented_rectangle") else 2
    if kind in _WITHOUT_AREA or (kind in _OUTLINES and len(points) < needed):
        return "shape without an area", f"a {kind} of {len(points)} points, labelled {label!r}"
    attributes: dict[str, Scalar] = {
        name: int(is_set)
        for name, is_set in _mapping(shape.get("flags"), f"{where}: flags").items()
        if isinstance(is_set, bool) and name not in _RESERVED and "/" not in name and is_unicode(name)
    }
    group = shape.get("group_id")
    if kind == "mask" and len(points) >= 2:
        (x0, y0), (x1, y1) = points[:2]
        box = Box(min(x0, x1), min(y0, y1), max(x0, x1) + 1, max(y0, y1) + 1)
        text = _text(shape.get("mask") or "", f"{where}: mask")
        rle = mask_of(decoded(text), box, size, where) if with_masks else None
        return _Shape(label, group, box, (), rle, True, attributes)
    if kind not in _OUTLINES:
        raise _not_labelme(f"{where} is a {kind!r}, which is not known")
    outline = _outline(kind, points)
    return _Shape(label, group, box_around((outline,)), outline, None, False, attributes)


def _outline(kind: str, points: list[tuple[float, float]]) -> tuple[float, ...]:
    if kind == "rectangle":
        xs, ys = zip(*points, strict=True)
        left, top, right, bottom = min(xs), min(ys), max(xs), max(ys)
        return (left, top, right, top, right, bottom, left, bottom)
    if kind == "circle":
        (x, y), (other_x, other_y) = points[:2]
        radius = math.hypot(other_x - x, other_y - y)
        # exact at the four ends, so that the box around is
        turns = [(math.cos(angle), math.sin(angle)) for angle in map(_angle, range(_CIRCLE_POINTS))]
        return tuple(value for cos, sin in turns for value in (x + radius * cos, y + radius * sin))
    return tuple(value for point in points for value in point)


def _angle(number: int) -> float:
    return 2 * math.pi * number / _CIRCLE_POINTS


def _objects(shapes: Iterable[_Shape], with_masks: bool) -> Iterable[AnnotatedObject]:
    """One object of each shape, or of each group of shapes of one label."""
    groups: dict[object, list[_Shape]] = {}
    for number, shape in enumerate(shapes):
        own = ("alone", number) if shape.group is None else ("group", repr(shape.group))
        groups.setdefault((own, shape.label, shape.is_mask), []).append(shape)
    for group in groups.values():
        first = group[0]
        attributes = {name: value for shape in reversed(group) for name, value in shape.attributes.items()}
        if not with_masks:
            box = box_around(tuple(tuple(shape.box) for shape in group))
            yield AnnotatedObject(first.label, box, attributes=attributes)
        elif first.is_mask:
            mask = union([shape.mask for shape in group if shape.mask is not None])
            yield AnnotatedObject(first.label, mask=mask, attributes=attributes)
        else:
            outlines: Polygons = tuple(shape.outline for shape in group)
            yield AnnotatedObject(first.label, mask=outlines, attributes=attributes)


def _points(points: Any, where: str) -> list[tuple[float, float]]:
    if not isinstance(points, list):
        raise _not_labelme(f"{where} has no points")
    return [_point(point, where) for point in points]


def _point(point: Any, where: str) -> tuple[float, float]:
    if not (isinstance(point, list) and len(point) == 2 and all(map(_is_number, point))):
        raise _not_labelme(f"{where} has a point that is not two numbers")
    return float(point[0]), float(point[1])


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e15  # not so infinity and not-a-number


def _size(height: Any, width: Any) -> tuple[int, int] | None:
    def is_count(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31

    return (height, width) if is_count(height) and is_count(width) else None


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise _not_labelme(f"{where} is not a mapping of names")
    return value or {}


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not is_unicode(value):
        raise _not_labelme(f"{where} is not text")
    return value


def _not_labelme(detail: str) -> BadInput:
    return BadInput("annotations", "not LabelMe JSON", detail)
