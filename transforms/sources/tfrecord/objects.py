"""Objects of one TFRecord, by the keys of the TF Object Detection API."""

from __future__ import annotations

import math
from typing import Any

from recordmill.transforms.records import AnnotatedObject, BadInput, Box, ImageRef, Scalar
from recordmill.transforms.sources.tfrecord.features import UNEVEN, Fields, named

SIDES = ("xmin", "ymin", "xmax", "ymax")
BOX_KEYS = tuple(f"image/object/bbox/{side}" for side in SIDES)

_PREFIX = "image/object/"
_LABELS = ("image/object/class/label", "image/object/bbox/label")
_TEXTS = "image/object/class/text"
_MASK = "image/object/mask"
_KEYPOINT = tuple(f"image/object/keypoint/{name}" for name in ("x", "y", "visibility"))
_SEEN = 2
# Shares of width and height: what lies further out was never meant as one.
_FARTHEST = 10.0


def objects_of(
    fields: Fields, labels: tuple[str | int, ...], included: frozenset[str]
) -> tuple[tuple[AnnotatedObject, ...], dict[int, str]]:
    """The objects of a record.

    Args:
        fields: of the record.
        labels: of the whole image: a lone one is that of objects without any.
        included: any of `masks` and `keypoints`.

    Returns:
        The objects, and names of their classes by id as this record tells them.

    Raises:
        BadInput: stage `annotations`: lists do not fit each other, or objects have no class.
    """
    boxes = _boxes(fields)
    count = len(boxes)
    classes, names = _classes(fields, count, labels)
    masks = _masks(fields, count, "masks" in included)
    keypoints = _keypoints(fields, count, "keypoints" in included)
    attributes = _attributes(fields, count)
    return tuple(
        AnnotatedObject(classes[at], boxes[at], masks[at], keypoints[at], attributes=attributes[at])
        for at in range(count)
    ), names


def _boxes(fields: Fields) -> list[Box]:
    sides = [fields.numbers(key) for key in BOX_KEYS]
    if len(set(map(len, sides))) > 1:
        lengths = ", ".join(f"{len(side)} {key}" for side, key in zip(sides, SIDES, strict=True))
        raise BadInput("annotations", UNEVEN, f"image/object/bbox has {lengths}")
    boxes = [Box(*map(float, box)) for box in zip(*sides, strict=True)]
    for box in boxes:
        if any(math.isfinite(side) and abs(side) > _FARTHEST for side in box):
            detail = f"{tuple(box)}; boxes of TFRecords are shares of width and height, 0 to 1"
            raise BadInput("annotations", "box in pixels", detail)
    return boxes


def _classes(
    fields: Fields, count: int, labels: tuple[str | int, ...]
) -> tuple[tuple[str | int, ...], dict[int, str]]:
    texts = fields.texts(_TEXTS)
    found = [fields.integers(key) for key in _LABELS]
    ids = found[0] or found[1]
    for name, values in (("labels", ids), ("class/text", texts)):
        if len(values) not in (0, count):
            raise BadInput("annotations", UNEVEN, f"{count} boxes and {len(values)} {name} of objects")
    if ids:
        return ids, named(ids, texts)
    if len(texts) == count and all(texts):
        return texts, {}
    if len(labels) == 1:
        return labels * count, {}
    raise BadInput("annotations", "object without a class", f"there is neither {_LABELS[0]} nor {_TEXTS}")


def _masks(fields: Fields, count: int, included: bool) -> list[ImageRef | None]:
    spans = fields.take(_MASK).spans
    if not included or not spans:
        return [None] * count
    if len(spans) != count:
        raise BadInput("annotations", UNEVEN, f"{count} boxes and {len(spans)} {_MASK}")
    return [fields.refer(span, None) if span.stop > span.start else None for span in spans]


def _keypoints(fields: Fields, count: int, included: bool) -> list[tuple[tuple[float, float, int], ...]]:
    x, y, seen = (fields.numbers(key) for key in _KEYPOINT)
    fields.use(name for name in fields.features if name.startswith("image/object/keypoint/"))
    if not included or not count or not x:
        return [()] * count
    if len(x) != len(y) or len(seen) not in (0, len(x)) or len(x) % count:
        detail = f"{count} boxes, and {len(x)} x, {len(y)} y and {len(seen)} visibility of keypoints"
        raise BadInput("annotations", UNEVEN, detail)
    visibility = [int(number) for number in seen] or [_SEEN] * len(x)
    points = list(zip(map(float, x), map(float, y), visibility, strict=True))
    each = len(x) // count
    return [tuple(points[at * each : (at + 1) * each]) for at in range(count)]


def _attributes(fields: Fields, count: int) -> list[dict[str, Scalar]]:
    """What else is known of each object: lists of one value an object, by name."""
    known = {*BOX_KEYS, *_LABELS, _TEXTS, _MASK, *_KEYPOINT}
    attributes: list[dict[str, Any]] = [{} for _ in range(count)]
    for key in sorted(fields.features):
        if not key.startswith(_PREFIX) or key in known or key.startswith("image/object/keypoint/"):
            continue
        values, name = fields.values(fields.features[key]), key[len(_PREFIX) :]
        if len(values) not in (0, count):
            if "/" in name:
                continue  # a list of something else: it is a free feature
            raise BadInput("annotations", UNEVEN, f"{count} boxes and {len(values)} {key}")
        fields.use((key,))
        for attribute, value in zip(attributes, values, strict=False):
            attribute[name] = value
    return attributes
