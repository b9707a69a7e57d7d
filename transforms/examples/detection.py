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
from recordmill.transforms.examples.columns import Column, ColumnKind
from recordmill.transforms.examples.features import Feature, bytes_feature
from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.records import AnnotatedObject, BadInput, ImageRecord, Mapped, StoredImage

_OBJECT = "image/object/"
_KEYPOINT = _OBJECT + "keypoint/"
_PART = _OBJECT + "part/"
# The Object Detection API reads these as float32 only, even if all values are integers.
_FLOATS = frozenset({"area", "weight"})
_ABSENT: dict[ColumnKind, Any] = {"int64": 0, "float32": 0.0, "bytes": b""}
_ABSENT_KEYPOINT = (0.0, 0.0, 0)


class Detection:
    """An image and its objects: boxes, classes (ids from 1), masks, key points, parts; captions.

    Boxes and key points are normalised to [0, 1]. All objects of a record have as many key points as the
    one that has most; missing ones are 0, 0, 0. An attribute of objects that one of them lacks
    is 0 or empty. Pixels (formats `raw` and `tensor`) have image/channels and image/dtype too.
    """

    name = "detection"
    first_id = 1

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        """Objects and their masks, if there are any; see `Schema.needs`."""
        return annotated & {"objects", "object_masks"}

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        """The features of one record; see `Schema.features`."""
        stored = s.stored_image(record, image, self.name)
        annotations, labels = record.annotations, settings.labels
        features = s.image_features(record, stored)
        features["image/source_id"] = bytes_feature(annotations.source_id or record.key)
        features["image/key/sha256"] = s.text(hashlib.sha256(stored.data).hexdigest())
        if "labels" in settings.annotated:
            features["image/class/label"] = s.label_ids(record, labels)
            features["image/class/text"] = s.label_texts(record, labels)
        features.update(s.box_features(_OBJECT + "bbox", s.object_boxes(mapped.objects), stored))
        features.update(_class_features(mapped.objects, labels))
        features.update(_attribute_features(mapped.objects, settings.attributes))
        if "object_masks" in settings.annotated:
            features[_OBJECT + "mask"] = Feature("bytes_list", mapped.object_masks)
        if "keypoints" in settings.annotated:
            features.update(_keypoint_features(mapped.objects, stored))
        if "parts" in settings.annotated:
            features.update(_part_features(mapped.objects, stored))
        if "captions" in settings.annotated:
            features["image/caption"] = s.texts(annotations.captions)
        return features | s.further_features(record, stored, settings)

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        """The specs of a dataset; see `Schema.specs`.

        Raises:
            ValueError: an attribute has the name of a feature of the schema.
        """
        specs = {
            **s.image_specs(),
            "image/source_id": s.FeatureSpec("string"),
            "image/key/sha256": s.FeatureSpec("string"),
            **_label_specs(summary),
            **s.box_specs(_OBJECT + "bbox"),
            _OBJECT + "class/text": s.FeatureSpec("string", (None,)),
            _OBJECT + "class/label": s.FeatureSpec("int64", (None,), role="object_label"),
            **_annotation_specs(summary.annotated),
            **s.pixel_specs(summary),
            **s.quality_specs(summary, "image/jpeg_quality"),
        }
        attributes = _attribute_specs(summary.attributes)
        s.check_own(self, specs, {name: name.removeprefix(_OBJECT) for name in attributes})
        return specs | attributes | s.column_specs(summary.columns)


def _class_features(objects: Sequence[AnnotatedObject], labels: LabelMap) -> dict[str, Feature]:
    return {
        _OBJECT + "class/text": s.texts(labels.text_of(one.label) for one in objects),
        _OBJECT + "class/label": Feature("int64_list", [labels.id_of(one.label) for one in objects]),
    }


def _attribute_features(
    objects: Sequence[AnnotatedObject], attributes: Mapping[str, Column]
) -> dict[str, Feature]:
    features = {}
    for name, attribute in attributes.items():
        column = _stored_as(name, attribute)
        values: list[Any] = []
        for one in objects:
            values.append(_attribute(column, name, one))
        features[_OBJECT + name] = Feature(s.KIND[column.kind], values)
    return features


def _attribute(column: Column, name: str, one: AnnotatedObject) -> Any:
    """The value of one object, 0 or empty if it has none."""
    value = one.attributes.get(name)
    if value is None or (column.cells and value == ""):
        return _ABSENT[column.kind]
    values = column.cast(value)
    if len(values) != 1:
        detail = f"attribute {name!r} of an object is {value!r}; each object has one value"
        raise BadInput("build", "value does not fit its column", detail)
    return values[0]


def _stored_as(name: str, column: Column) -> Column:
    """The column of an attribute, as its readers want it."""
    if name in _FLOATS and column.kind == "int64":
        return dataclasses.replace(column, kind="float32")
    return column


def _attribute_specs(attributes: Mapping[str, Column]) -> dict[str, s.FeatureSpec]:
    return {
        _OBJECT + name: dataclasses.replace(s.column_spec(_stored_as(name, column)), shape=(None,))
        for name, column in attributes.items()
    }


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


def _label_specs(summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
    """Of the labels of images."""
    if "labels" not in summary.annotated:
        return {}
    shape = s.label_shape(summary)
    return {
        "image/class/label": s.FeatureSpec("int64", shape, role="label"),
        "image/class/text": s.FeatureSpec("string", shape),
    }


def _annotation_specs(annotated: frozenset[str]) -> dict[str, s.FeatureSpec]:
    """Of annotations that only some datasets have."""
    specs = {}
    if "object_masks" in annotated:
        specs[_OBJECT + "mask"] = s.FeatureSpec("string", (None,), role="object_mask")
    if "keypoints" in annotated:
        specs[_KEYPOINT + "x"] = s.FeatureSpec("float32", (None,))
        specs[_KEYPOINT + "y"] = s.FeatureSpec("float32", (None,))
        specs[_KEYPOINT + "visibility"] = s.FeatureSpec("int64", (None,))
    if "parts" in annotated:
        specs[_PART + "text"] = s.FeatureSpec("string", (None,))
        specs |= s.box_specs(_PART + "bbox")
        specs[_PART + "object"] = s.FeatureSpec("int64", (None,))
    if "captions" in annotated:
        specs["image/caption"] = s.FeatureSpec("string", (None,))
    return specs


DETECTION = Detection()
