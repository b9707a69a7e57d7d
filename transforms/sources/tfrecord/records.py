"""Reads one TFRecord, an Example or a SequenceExample, as an ImageRecord."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from recordmill.transforms.examples.record_view import (
    BOX_KEYS,
    FILENAME,
    IMAGE_KEYS,
    LABEL_KEYS,
    NO_FEATURE,
    OUR_IMAGE_KEYS,
    PIXELS_UNKNOWN,
    SIDES,
    SOURCE_ID,
    SYNSET,
    TEXT,
    RecordView,
    Shape,
    image_within,
    is_encoded,
)
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Box,
    ClassNames,
    FeatureValue,
    ImageRecord,
    ImageRef,
    MaskImage,
    Steps,
)

_Labels = tuple[str | int, ...]

_SEQUENCE_KEY = "sequence/key"
_CAPTIONS = ("image/caption", "image/captions")
_MASKS = {
    "image/segmentation/class/encoded": "class",
    "mask_raw": "class",
    "image/panoptic/instance/encoded": "instance",
    "image/panoptic/category/encoded": "class",  # equals the class mask, if there is one
}
MASK_KEYS = frozenset(_MASKS)
_OBJECT = "image/object/"
_OBJECT_LABELS = ("image/object/class/label", "image/object/bbox/label")
_OBJECT_TEXTS = "image/object/class/text"
_OBJECT_MASK = "image/object/mask"
_KEYPOINT = "image/object/keypoint/"
_VISIBLE = 2
_FARTHEST = 10.0  # sides of boxes are shares of width and height; larger numbers must be pixels
_REMEDY = "--input_features OLD=image/height,… tells what features are the shape, or the image"
_UNEVEN = "lists of different lengths"


def read_record(
    fields: RecordView,
    origin: str,
    split: str | None = None,
    is_ours: bool = True,
    include: Collection[str] = (),
) -> tuple[ImageRecord, ClassNames]:
    """The record that features describe, and the names of the classes that it contains.

    Args:
        origin: the key of a record that has none of its own; `is_ours` allows `image/filename` as one.
        include: those of `masks`, `keypoints` and `captions` that are read.

    Raises:
        BadInput: it cannot be used.
    """
    name_key = _SEQUENCE_KEY if fields.lists else FILENAME
    filename = fields.text(name_key)
    key = (is_ours and filename) or origin
    shape = fields.shape()
    names: dict[int, str] = {}
    texts: dict[str, str] = {}
    image, masks, steps = None, {}, None
    objects: tuple[AnnotatedObject, ...] = ()
    captions: tuple[str, ...] = ()
    if fields.lists:
        labels = _labels(fields, names, texts)
        steps = _steps(fields, shape, names, texts)
    else:
        image, masks = _image(fields, shape), _masks(fields, shape)
        labels = _labels(fields, names, texts)
        objects = _objects(fields, labels, names, include)
        captions = tuple(caption for name in _CAPTIONS for caption in fields.texts(name))
    source_ids = [str(one) for one in fields.values(fields.take(SOURCE_ID)) if not isinstance(one, bytes)]
    for name in _CAPTIONS:
        fields.take(name)
    free: dict[str, FeatureValue] = {}
    for name in fields.free_names(bool(image or (steps and steps.frames))):
        values = fields.values(fields.features[name])
        free[name] = values[0] if len(values) == 1 else values
    if filename not in ("", key):
        free["source_filename"] = filename
    size = (shape.height or 0, shape.width or 0)
    annotations = Annotations(
        labels=labels,
        features=free,
        objects=objects,
        captions=captions if "captions" in include else (),
        masks=masks,
        size=size if (objects or masks) and min(size) > 0 else None,
        relative=bool(objects),
        source_id="".join(one for one in source_ids[:1] if one != key),
        steps=steps,
    )
    stored = (image.length or 0) if image else 0
    record = ImageRecord(key, image, split, annotations, origin, stored)
    return record, ClassNames(names, texts, optional=True)


def _steps(context: RecordView, shape: Shape, names: dict[int, str], texts: dict[str, str]) -> Steps:
    steps = context.steps()
    images = [_image(step, step.shape(shape)) for step in steps]
    frames = tuple(image for image in images if image is not None)
    if 0 < len(frames) < len(images):
        detail = f"{len(images)} steps, of which {len(frames)} have an image"
        raise BadInput("manifest", "step without an image", detail)
    labels = tuple(_labels(step, names, texts) for step in steps)
    lists: dict[str, tuple[FeatureValue, ...]] = {}
    free = {name for step in steps for name in step.free_names(bool(frames))}
    for name in sorted(free - {LABEL_KEYS[0]}):
        values = [context.values(feature) for feature in context.lists[name]]
        single = all(len(value) == 1 for value in values)
        lists[name] = tuple(value[0] if single else value for value in values)
    return Steps(frames, labels if any(labels) else (), lists)


def _image(fields: RecordView, shape: Shape) -> ImageRef | None:
    fault: BadInput | None = None
    for name in IMAGE_KEYS:
        spans = fields.features.get(name, NO_FEATURE).spans
        if len(spans) != 1:
            continue
        if spans[0].start == spans[0].stop:
            fault = fault or BadInput("manifest", "empty image", f"the feature {name!r} has no bytes")
            continue
        try:
            found, pixels = image_within(fields.record, spans[0], shape)
        except BadInput as error:
            # text under another name than these is a path or a caption, and a free feature
            if fault is None and (name in OUR_IMAGE_KEYS or not _is_text(fields.scalar(spans[0]))):
                detail = f"the feature {name!r}: {error.detail}"
                if error.reason == PIXELS_UNKNOWN:
                    detail += f"; features: {', '.join(sorted(fields.features))}; {_REMEDY}"
                fault = BadInput(error.stage, error.reason, detail)
            continue
        fields.take(name)
        return fields.refer(found, pixels)
    if fault is not None:
        raise fault
    return None


def _is_text(value: str | bytes) -> bool:
    return isinstance(value, str) and all(letter.isprintable() or letter in "\t\n\r" for letter in value)


def _masks(fields: RecordView, shape: Shape) -> dict[str, MaskImage]:
    found: dict[str, MaskImage] = {}
    for name, kind in _MASKS.items():
        spans = fields.take(name).spans
        if len(spans) != 1 or spans[0].start == spans[0].stop:
            continue
        start, stop = spans[0]
        pixels = None
        if not is_encoded(fields.record[start : min(stop, start + 16)]):
            pixels = shape._replace(channels=1).pixels(stop - start)
            if pixels is None:
                detail = (
                    f"the feature {name!r} has {stop - start} bytes; a PNG is read, or height x width bytes"
                )
                raise BadInput("annotations", "mask of no known format", detail)
        found.setdefault(kind, MaskImage(fields.refer(spans[0], pixels)))
    return found


def _labels(fields: RecordView, names: dict[int, str], texts: dict[str, str]) -> _Labels:
    """The labels of a record or step; adds class names by id and display texts by synset."""
    found, synsets = fields.texts(TEXT), fields.texts(SYNSET)
    features = {name: fields.features.get(name, NO_FEATURE) for name in LABEL_KEYS}
    for name in (name for name, feature in features.items() if not feature):
        fields.take(name)
    name = next((name for name, feature in features.items() if feature and feature.kind != "float"), "")
    ids = fields.integers(name) if name else ()
    if name and not ids:
        found = fields.texts(name)
    codes = synsets if len(synsets) == len(found) and all(synsets) else ()
    texts.update((code, text) for code, text in zip(codes, found, strict=False) if text not in ("", code))
    if not ids:
        return tuple(text for text in codes or found if text)
    names.update(_names_by_id(ids, codes or found))
    return ids


def _names_by_id(ids: Sequence[int], texts: Sequence[str]) -> dict[int, str]:
    """Names by id, where there is one text for each. Raises BadInput if one id has two names."""
    names: dict[int, str] = {}
    for number, text in zip(ids, texts, strict=True) if len(ids) == len(texts) else ():
        if text and number >= 0 and names.setdefault(number, text) != text:
            detail = f"{number}: {names[number]!r} and {text!r}"
            raise BadInput("annotations", "a class has two names", detail)
    return names


def _objects(
    fields: RecordView, labels: _Labels, names: dict[int, str], include: Collection[str]
) -> tuple[AnnotatedObject, ...]:
    """The objects; a single label of the image is also theirs. Adds class names by id that `names` lacks."""
    if not any(name.startswith(_OBJECT) for name in fields.features):
        return ()
    boxes = _boxes(fields)
    count = len(boxes)
    texts = fields.texts(_OBJECT_TEXTS)
    ids, others = map(fields.integers, _OBJECT_LABELS)
    ids = ids or others
    _check_count(count, ids, "labels of objects")
    _check_count(count, texts, "class/text of objects")
    classes: _Labels = ids or (texts if all(texts) else ()) or (labels * count if len(labels) == 1 else ())
    if len(classes) != count:
        detail = f"there is neither {_OBJECT_LABELS[0]} nor {_OBJECT_TEXTS}"
        raise BadInput("annotations", "object without a class", detail)
    names.update({**_names_by_id(ids, texts), **names})
    spans = fields.take(_OBJECT_MASK).spans
    masks: list[ImageRef | None] = [None] * count
    if "masks" in include and spans:
        _check_count(count, spans, _OBJECT_MASK)
        masks = [fields.refer(span, None) if span.stop > span.start else None for span in spans]
    keypoints = _keypoints(fields, count, "keypoints" in include)
    objects = zip(classes, boxes, masks, keypoints, _attributes(fields, count), strict=True)
    return tuple(
        AnnotatedObject(label, box, mask, points, attributes=values)
        for label, box, mask, points, values in objects
    )


def _check_count(boxes: int, values: Sequence[object], name: str) -> None:
    if len(values) not in (0, boxes):
        raise BadInput("annotations", _UNEVEN, f"{boxes} boxes and {len(values)} {name}")


def _boxes(fields: RecordView) -> list[Box]:
    sides = [fields.take(key).numbers for key in BOX_KEYS]
    if len(set(map(len, sides))) > 1:
        lengths = ", ".join(f"{len(side)} {key}" for side, key in zip(sides, SIDES, strict=True))
        raise BadInput("annotations", _UNEVEN, f"image/object/bbox has {lengths}")
    boxes = [Box(*map(float, box)) for box in zip(*sides, strict=True)]
    for box in boxes:
        if any(math.isfinite(side) and abs(side) > _FARTHEST for side in box):
            detail = f"{tuple(box)}; boxes of TFRecords are shares of width and height, 0 to 1"
            raise BadInput("annotations", "box in pixels", detail)
    return boxes


def _keypoints(fields: RecordView, count: int, included: bool) -> list[tuple[tuple[float, float, int], ...]]:
    x, y, seen = (fields.take(f"{_KEYPOINT}{name}").numbers for name in ("x", "y", "visibility"))
    for name in fields.features:
        if name.startswith(_KEYPOINT):
            fields.take(name)
    if not included or not count or not x:
        return [()] * count
    if len(x) != len(y) or len(seen) not in (0, len(x)) or len(x) % count:
        detail = f"{count} boxes, and {len(x)} x, {len(y)} y and {len(seen)} visibility of keypoints"
        raise BadInput("annotations", _UNEVEN, detail)
    if not all(map(math.isfinite, seen)):
        raise BadInput("annotations", "visibility of a keypoint is not a number", f"{seen}"[:100])
    points = list(zip(map(float, x), map(float, y), map(int, seen or [_VISIBLE] * len(x)), strict=True))
    each = len(x) // count
    return [tuple(points[at * each : (at + 1) * each]) for at in range(count)]


def _attributes(fields: RecordView, count: int) -> list[dict[str, Any]]:
    """Other lists of one value an object, by name."""
    attributes: list[dict[str, Any]] = [{} for _ in range(count)]
    for key in fields.free_names(False):
        if not key.startswith(_OBJECT):
            continue
        values, name = fields.values(fields.features[key]), key[len(_OBJECT) :]
        if len(values) not in (0, count) and "/" in name:
            continue  # a list of something else is a free feature
        _check_count(count, values, key)
        fields.take(key)
        for attribute, value in zip(attributes, values, strict=False):
            attribute[name] = value
    return attributes
