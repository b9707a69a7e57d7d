"""Boxes in JSON rows: columns of one, or lists of those of an image; and Vertex AI's annotations.

`objects` with lists `bbox` (x, y, width, height) and `categories` beside each other is what Hugging Face's
image folders have in metadata.jsonl (https://huggingface.co/docs/datasets/image_dataset#object-detection).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from recordmill.transforms.records import AnnotatedObject, BadInput, Box, FeatureValue, Scalar
from recordmill.transforms.sources.tables.box_columns import (
    BoxColumns,
    attributes_of,
    box_label,
    box_of,
    check_unit,
    is_empty,
    look_relative,
    size_of,
)
from recordmill.transforms.sources.tables.json_columns import flat, take
from recordmill.transforms.sources.tables.rows import LABEL_COLUMNS, usual_name

VERTEX_BOXES = "boundingBoxAnnotations"
_CORNER_LISTS = ("boxes", "bboxes")
_SIDE_LISTS = "objects"
_SIDES = "bbox"
_SIZE = ("height", "width")


class Boxes(NamedTuple):
    """What a row tells of boxes.

    Attributes:
        objects: in its order.
        labels: of the image: that of a row whose box is empty.
        size: (height, width) of the image.
    """

    objects: tuple[AnnotatedObject, ...]
    labels: tuple[str | int, ...] = ()
    size: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class BoxLists:
    """How the lists of boxes in the rows of a manifest are read.

    Attributes:
        found: the first rows have some.
        relative: coordinates are shares of the image's sides.
    """

    found: bool
    relative: bool


def list_of_boxes(item: Mapping[str, Any]) -> tuple[list[Any], bool] | None:
    """The boxes of an image, and whether they are given by their sides; None where the row has no list."""
    inner = item.get(_SIDE_LISTS)
    if isinstance(inner, dict) and isinstance(inner.get(_SIDES), list):
        return inner[_SIDES], True
    for name in _CORNER_LISTS:
        value = item.get(name)
        if not isinstance(value, list) or not all(isinstance(part, list) for part in value):
            continue
        if not value or any(len(part) == 4 for part in value):
            return value, False
    return None


def find_box_lists(first: Sequence[Mapping[str, Any]]) -> BoxLists:
    """How lists of boxes are read, as the first rows tell."""
    boxes: list[Box] = []
    found = is_sized = False
    for row in first:
        listed = list_of_boxes(row)
        if listed is None:
            continue
        found = True
        try:
            is_sized = is_sized or size_of(*(row.get(name) for name in _SIZE)) is not None
            boxes += [box for values in listed[0] if (box := _box(values, listed[1])) is not None]
        except BadInput:
            continue
    return BoxLists(found, not is_sized and look_relative(boxes))


def take_lists(item: dict[str, Any], label: str | None, relative: bool) -> Boxes:
    """Takes lists of boxes, and what goes with each, out of a row that has them.

    Args:
        item: the row.
        label: its list of labels, beside a list of corners.
        relative: coordinates are shares of the image's sides.

    Raises:
        BadInput: stage `annotations`.
    """
    listed = list_of_boxes(item)
    if listed is None:
        raise ValueError("the row has no list of boxes")
    boxes, sides = listed
    if sides:
        inner = item[_SIDE_LISTS]
        label = usual_name(("categories", *LABEL_COLUMNS), list(inner))
        del inner[_SIDES]
    else:
        inner = {}
        label = label or usual_name(LABEL_COLUMNS, list(item))
        del item[next(name for name in _CORNER_LISTS if item.get(name) is boxes)]
    labels = None if label is None else take(inner if sides else item, label)
    label = None if labels is None else label
    size = size_of(*(item.pop(name, None) for name in _SIZE))
    if labels is not None and not (isinstance(labels, list) and len(labels) == len(boxes)):
        count = len(labels) if isinstance(labels, list) else json.dumps(labels)[:100]
        raise BadInput("annotations", "boxes and labels differ in number", f"{len(boxes)} and {count}")
    columns = [name for name, value in inner.items() if isinstance(value, list) and len(value) == len(boxes)]
    lists = {name: inner.pop(name) for name in columns}
    objects = []
    for at, values in enumerate(boxes):
        box = _box(values, sides)
        check_unit(box, relative)
        named = box_label(labels and labels[at], label)
        objects.append(AnnotatedObject(named, box, attributes=_attributes(lists, at)))
    return Boxes(tuple(objects), (), size)


def _attributes(lists: Mapping[str, list[Any]], at: int) -> dict[str, Scalar]:
    return attributes_of(scalars(flat({name: values[at] for name, values in lists.items()})).items())


def _box(values: Any, sides: bool) -> Box:
    box = box_of(values, sides) if isinstance(values, list) else None
    if box is None:
        raise BadInput("annotations", "box is not four numbers", json.dumps(values)[:100])
    return box


def take_box(item: dict[str, Any], columns: BoxColumns, label: str | None) -> Boxes:
    """Takes the columns of a box, and all that is left in the row as its attributes.

    Args:
        item: a row, without the image's path and split.
        columns: of the manifest.
        label: the column of the label in this row; None where it is that of the manifest.

    Raises:
        BadInput: stage `annotations`.
    """
    label = label or columns.label
    value = None if label is None else take(item, label)
    size = None if columns.size is None else size_of(*(take(item, name) for name in columns.size))
    box = box_of(columns.values({name: take(item, name) for name in columns.box}), columns.sides)
    if box is None:
        item.clear()
        labels = () if is_empty(value) else (box_label(value, label),)
        return Boxes((), labels, size)
    check_unit(box, columns.relative)
    attributes = attributes_of(scalars(flat(item)).items())
    item.clear()
    return Boxes((AnnotatedObject(box_label(value, label), box, attributes=attributes),), (), size)


def take_vertex_boxes(item: dict[str, Any]) -> tuple[AnnotatedObject, ...]:
    """Takes the boxes out of a row of Vertex AI's file for object detection.

    Raises:
        BadInput: stage `annotations`.
    """
    found = item.pop(VERTEX_BOXES, None) or []
    if not isinstance(found, list):
        raise BadInput("annotations", "boxes are not a list", f"{VERTEX_BOXES} is {json.dumps(found)[:100]}")
    objects = []
    for part in found:
        if not isinstance(part, dict):
            raise BadInput("annotations", "box is not four numbers", json.dumps(part)[:100])
        box = _box([part.pop(name, None) for name in ("xMin", "yMin", "xMax", "yMax")], sides=False)
        check_unit(box, relative=True)
        label = box_label(part.pop("displayName", None), "displayName")
        objects.append(AnnotatedObject(label, box, attributes=attributes_of(scalars(flat(part)).items())))
    return tuple(objects)


def scalars(features: Mapping[str, FeatureValue]) -> dict[str, Scalar]:
    """Values of an object by name, lists as their JSON text."""
    return {
        name: json.dumps(value, ensure_ascii=False) if isinstance(value, tuple) else value
        for name, value in features.items()
    }
