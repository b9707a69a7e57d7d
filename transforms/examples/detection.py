"""Schema `detection`: the keys of the TensorFlow Object Detection API.

Source of the keys: object_detection/data_decoders/tf_example_decoder.py and dataset_tools of
tensorflow/models.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.transforms.examples import schema as s
from recordmill.transforms.examples.columns import KIND, Column, ColumnKind
from recordmill.transforms.examples.features import Feature, bytes_feature
from recordmill.transforms.records import AnnotatedObject, BadInput, ImageRecord, Mapped, StoredImage

_OBJECT = "image/object/"
_KEYPOINT = _OBJECT + "keypoint/"
_PART = _OBJECT + "part/"
# The Object Detection API reads these as float32 only, even if all values are integers.
_FLOATS = frozenset({"area", "weight"})
_LABEL = (_OBJECT + "class/label", _OBJECT + "class/text")
_ABSENT: dict[ColumnKind, Any] = {"int64": 0, "float32": 0.0, "bytes": b""}
_ABSENT_KEYPOINT = (0.0, 0.0, 0)


class Detection(s.ImageSchema):
    """An image and its objects: boxes, classes (ids from 1), masks, key points, parts; captions.

    Boxes and key points are normalised to [0, 1]. All objects of a record have as many key points as the
    one that has most; missing ones are 0, 0, 0. An attribute of objects that one of them lacks
    is 0 or empty.
    """

    name = "detection"
    first_id = 1

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        return annotated & {"objects", "object_masks"}

    def own_features(
        self, record: ImageRecord, image: StoredImage, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        annotations, labels, objects = record.annotations, settings.labels, mapped.objects
        features = {
            "image/source_id": bytes_feature(annotations.source_id or record.key),
            "image/key/sha256": s.text(hashlib.sha256(image.data).hexdigest()),
            **s.box_features(_OBJECT + "bbox", s.object_boxes(objects), image),
            **s.label_features((one.label for one in objects), labels, _LABEL),
            **_attribute_features(objects, settings.attributes),
        }
        if "labels" in settings.annotated:
            features |= s.label_features(annotations.labels, labels)
        if "object_masks" in settings.annotated:
            features[_OBJECT + "mask"] = Feature("bytes_list", mapped.object_masks)
        if "keypoints" in settings.annotated:
            features |= _keypoint_features(objects, image)
        if "parts" in settings.annotated:
            features |= _part_features(objects, image)
        if "captions" in settings.annotated:
            features["image/caption"] = s.texts(annotations.captions)
        return features

    def own_specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        texts, floats = s.FeatureSpec("string", (None,)), s.FeatureSpec("float32", (None,))
        integers = s.FeatureSpec("int64", (None,))
        specs = {
            "image/source_id": s.FeatureSpec("string"),
            "image/key/sha256": s.FeatureSpec("string"),
            **s.box_specs(_OBJECT + "bbox"),
            _OBJECT + "class/text": texts,
            _OBJECT + "class/label": s.FeatureSpec("int64", (None,), role="object_label"),
        }
        if "labels" in summary.annotated:
            specs |= s.label_specs(summary)
        if "object_masks" in summary.annotated:
            specs[_OBJECT + "mask"] = s.FeatureSpec("string", (None,), role="object_mask")
        if "keypoints" in summary.annotated:
            specs |= {_KEYPOINT + "x": floats, _KEYPOINT + "y": floats, _KEYPOINT + "visibility": integers}
        if "parts" in summary.annotated:
            specs |= {_PART + "text": texts, **s.box_specs(_PART + "bbox"), _PART + "object": integers}
        if "captions" in summary.annotated:
            specs["image/caption"] = texts
        attributes = {
            _OBJECT + name: dataclasses.replace(spec, shape=(None,))
            for name, spec in s.column_specs(
                {name: _stored_as(name, column) for name, column in summary.attributes.items()}
            ).items()
        }
        s.check_taken(self, "attributes", specs, {_OBJECT + name: name for name in summary.attributes})
        return specs | attributes


def _attribute_features(
    objects: Sequence[AnnotatedObject], attributes: Mapping[str, Column]
) -> dict[str, Feature]:
    features = {}
    for name, attribute in attributes.items():
        column = _stored_as(name, attribute)
        values = [_attribute(column, name, one) for one in objects]
        features[_OBJECT + name] = Feature(KIND[column.kind], values)
    return features


def _attribute(column: Column, name: str, one: AnnotatedObject) -> Any:
    """The value of one object, 0 or empty if it has none."""
    value = one.attributes.get(name)
    if value is None or (column.cells and value == ""):
        return _ABSENT[column.kind]
    values = column.feature(value).values
    if len(values) != 1:
        detail = f"attribute {name!r} of an object is {value!r}; each object has one value"
        raise BadInput("build", "value does not fit its column", detail)
    return values[0]


def _stored_as(name: str, column: Column) -> Column:
    """The column of an attribute, as its readers want it."""
    if name in _FLOATS and column.kind == "int64":
        return dataclasses.replace(column, kind="float32")
    return column


def _keypoint_features(objects: Sequence[AnnotatedObject], image: StoredImage) -> dict[str, Feature]:
    most = max((len(one.keypoints) for one in objects), default=0)
    points = [
        point
        for one in objects
        for point in (*one.keypoints, *[_ABSENT_KEYPOINT] * (most - len(one.keypoints)))
    ]
    return {
        _KEYPOINT + "x": Feature("float_list", [x / image.width for x, _, _ in points]),
        _KEYPOINT + "y": Feature("float_list", [y / image.height for _, y, _ in points]),
        _KEYPOINT + "visibility": Feature("int64_list", [visibility for _, _, visibility in points]),
    }


def _part_features(objects: Sequence[AnnotatedObject], image: StoredImage) -> dict[str, Feature]:
    """Parts of all objects in one list; each with the index of its object, from 0."""
    parts = [(number, part) for number, one in enumerate(objects) for part in one.parts]
    return {
        _PART + "text": s.texts(part.name for _, part in parts),
        **s.box_features(_PART + "bbox", [part.box for _, part in parts], image),
        _PART + "object": Feature("int64_list", [number for number, _ in parts]),
    }


DETECTION = Detection()
