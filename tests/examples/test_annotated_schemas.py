"""The schemas of objects, masks and sequences: exact keys and values, read back by TensorFlow."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import msgspec
import numpy as np
import pytest

from recordmill.transforms.examples.columns import Column
from recordmill.transforms.examples.features import build_example
from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.examples.registry import SCHEMAS, choose_schema
from recordmill.transforms.examples.schema import (
    DatasetSummary,
    FeatureSettings,
    FeatureSpec,
    check_names,
)
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Box,
    ImageRecord,
    ImageRef,
    Mapped,
    Part,
    StoredImage,
)
from tests.lazy import tf

PNG = b"\x89PNG picture"
IMAGE = StoredImage(PNG, "png", 100, 200, 3, "uint8", "RGB", ())
LABELS = LabelMap.build(["cat", "dog"], classes={1: "cat", 18: "dog"}, first_id=1)
OBJECTS = (
    AnnotatedObject(
        "dog",
        Box(20.0, 10.0, 60.0, 30.0),
        keypoints=((20.0, 10.0, 2), (0.0, 0.0, 0)),
        parts=(Part("head", Box(20.0, 10.0, 40.0, 20.0)), Part("foot", Box(50.0, 25.0, 60.0, 30.0))),
        attributes={"is_crowd": 1, "area": 7, "view": "Left"},
    ),
    AnnotatedObject("cat", Box(0.0, 0.0, 200.0, 100.0), keypoints=((100.0, 50.0, 1),)),
)
ATTRIBUTES = {
    "area": Column("int64", (None,)),
    "is_crowd": Column("int64", (None,)),
    "view": Column("bytes", (None,)),
}
EVERYTHING = frozenset(
    {"objects", "object_masks", "keypoints", "parts", "captions", "labels", "class", "instance", "panoptic"}
)
PLACED = Mapped(
    OBJECTS,
    {
        "class_png": b"class",
        "class_raw": b"\0" * 20000,
        "instance_png": b"instance",
        "panoptic_category_png": b"category",
        "panoptic_instance_png": b"number",
    },
    (b"mask 0", b"mask 1"),
)
RECORD = ImageRecord("a/1.png", ImageRef("/x"), None, Annotations(("dog",), captions=("A dog.", "é")))


def _settings(annotated: frozenset[str] = frozenset(), **others: Any) -> FeatureSettings:
    return FeatureSettings(LABELS, annotated=annotated, **others)


def _values(payload: bytes) -> dict[str, list[Any]]:
    """Of a serialised Example, as TensorFlow's own message reads it; every feature has a kind."""
    message = tf.train.Example.FromString(payload)
    kinds = {name: item.WhichOneof("kind") for name, item in message.features.feature.items()}
    return {
        name: list(getattr(message.features.feature[name], kind).value)
        for name, kind in kinds.items()
        if kind
    }


def _parsing_spec(specs: dict[str, FeatureSpec]) -> dict[str, Any]:
    return {
        name: tf.io.VarLenFeature(spec.dtype)
        if spec.shape == (None,)
        else tf.io.FixedLenFeature(spec.shape, spec.dtype)
        for name, spec in specs.items()
    }


def _floats(*values: float) -> list[float]:
    """As a TFRecord holds them."""
    return list(map(float, np.array(values, np.float32)))


BASICS: dict[str, list[Any]] = {
    "image/encoded": [PNG],
    "image/format": [b"png"],
    "image/height": [100],
    "image/width": [200],
    "image/filename": [b"a/1.png"],
}
SHA = hashlib.sha256(PNG).hexdigest().encode()
DETECTION: dict[str, list[Any]] = BASICS | {
    "image/source_id": [b"a/1.png"],
    "image/key/sha256": [SHA],
    "image/object/bbox/xmin": _floats(0.1, 0.0),
    "image/object/bbox/xmax": _floats(0.3, 1.0),
    "image/object/bbox/ymin": _floats(0.1, 0.0),
    "image/object/bbox/ymax": _floats(0.3, 1.0),
    "image/object/class/text": [b"dog", b"cat"],
    "image/object/class/label": [18, 1],
}
EVERY_DETECTION: dict[str, list[Any]] = DETECTION | {
    "image/class/label": [18],
    "image/class/text": [b"dog"],
    "image/object/area": [7.0, 0.0],
    "image/object/is_crowd": [1, 0],
    "image/object/view": [b"Left", b""],
    "image/object/mask": [b"mask 0", b"mask 1"],
    # Of two objects the second has one key point: the other is padded.
    "image/object/keypoint/x": _floats(0.1, 0, 0.5, 0),
    "image/object/keypoint/y": _floats(0.1, 0, 0.5, 0),
    "image/object/keypoint/visibility": [2, 0, 1, 0],
    "image/object/part/text": [b"head", b"foot"],
    "image/object/part/bbox/xmin": _floats(0.1, 0.25),
    "image/object/part/bbox/xmax": _floats(0.2, 0.3),
    "image/object/part/bbox/ymin": _floats(0.1, 0.25),
    "image/object/part/bbox/ymax": _floats(0.2, 0.3),
    "image/object/part/object": [0, 0],
    "image/caption": [b"A dog.", "é".encode()],
}
SEGMENTATION: dict[str, list[Any]] = BASICS | {
    "image/channels": [3],
    "image/segmentation/class/encoded": [b"class"],
    "image/segmentation/class/format": [b"png"],
}
INSTANCES: dict[str, list[Any]] = {
    "image/segmentation/instance/encoded": [b"instance"],
    "image/segmentation/instance/format": [b"png"],
}
PANOPTIC: dict[str, list[Any]] = BASICS | {
    "image/panoptic/category/encoded": [b"category"],
    "image/panoptic/category/format": [b"png"],
    "image/panoptic/instance/encoded": [b"number"],
    "image/panoptic/instance/format": [b"png"],
}
CASES: list[tuple[str, frozenset[str], dict[str, list[Any]]]] = [
    ("detection", frozenset({"objects"}), DETECTION),
    ("detection", EVERYTHING, EVERY_DETECTION),
    ("segmentation", frozenset({"class"}), SEGMENTATION),
    ("segmentation", EVERYTHING, SEGMENTATION | INSTANCES),
    ("panoptic", frozenset({"panoptic"}), PANOPTIC),
    ("detection,segmentation,panoptic", EVERYTHING, EVERY_DETECTION | SEGMENTATION | INSTANCES | PANOPTIC),
    ("classification,detection", EVERYTHING, EVERY_DETECTION),
]


@pytest.mark.parametrize(("name", "annotated", "expected"), CASES)
def test_a_record_has_exactly_these_keys_and_its_specs_parse_it(
    name: str, annotated: frozenset[str], expected: dict[str, list[Any]]
) -> None:
    schema = choose_schema(name, True, annotated)
    assert schema.name == name
    attributes = ATTRIBUTES if annotated == EVERYTHING else {}
    columns = {"age": Column("int64", ())}
    record = msgspec.structs.replace(
        RECORD, annotations=msgspec.structs.replace(RECORD.annotations, features={"age": 5})
    )
    settings = _settings(annotated, attributes=attributes, columns=columns)
    payload = build_example(schema.features(record, IMAGE, PLACED, settings))
    assert _values(payload) == expected | {"age": [5]}
    summary = DatasetSummary(True, (1, 1), columns, attributes=attributes, annotated=annotated)
    check_names(schema, summary)
    specs = schema.specs(summary)
    assert specs.keys() == expected.keys() | {"age"}
    parsed = tf.io.parse_single_example(payload, _parsing_spec(specs))
    for key, values in expected.items():
        item = parsed[key]
        flat = (item.values if isinstance(item, tf.SparseTensor) else tf.reshape(item, [-1])).numpy().tolist()
        assert flat == values


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("classification", "63fbc5ab660aca8c"),
        ("imagenet", "7ae045a8a2dbca02"),
        ("detection", "b372d7d87dc1dc0a"),
        ("segmentation", "23306f1b44b5ae84"),
        ("panoptic", "ca807a2e75b4c40d"),
        ("plain", "b95b82d63647c128"),
    ],
)
def test_golden_bytes(name: str, digest: str) -> None:
    settings = _settings(EVERYTHING, attributes=ATTRIBUTES)
    payload = build_example(SCHEMAS[name].features(RECORD, IMAGE, PLACED, settings))
    message = tf.train.Example.FromString(payload)
    assert message.SerializeToString(deterministic=True) == payload
    assert hashlib.sha256(payload).hexdigest()[:16] == digest


def test_a_record_without_objects_has_every_key() -> None:
    settings = _settings(EVERYTHING, attributes=ATTRIBUTES)
    record = ImageRecord("a/2.png", ImageRef("/x"))
    values = _values(build_example(SCHEMAS["detection"].features(record, IMAGE, Mapped(), settings)))
    assert values.keys() == EVERY_DETECTION.keys()
    filled = {key for key, value in values.items() if value}
    assert filled == BASICS.keys() | {"image/source_id", "image/key/sha256"}


def test_source_id_is_the_source_s_own() -> None:
    record = ImageRecord("a/2.png", ImageRef("/x"), annotations=Annotations(source_id="397133"))
    values = _values(build_example(SCHEMAS["detection"].features(record, IMAGE, Mapped(), _settings())))
    assert values["image/source_id"] == [b"397133"]


@pytest.mark.parametrize("image_format", ["raw", "tensor"])
@pytest.mark.parametrize("name", ["detection", "segmentation", "panoptic", "detection,panoptic"])
def test_pixels_have_their_shape_and_a_chosen_quality_is_told(name: str, image_format: str) -> None:
    schema = choose_schema(name, True, EVERYTHING)
    image = msgspec.structs.replace(IMAGE, image_format=image_format, dtype="uint16", jpeg_quality=87)
    values = _values(build_example(schema.features(RECORD, image, PLACED, _settings())))
    assert (values["image/channels"], values["image/dtype"]) == ([3], [b"uint16"])
    assert values["image/jpeg_quality"] == [87]
    summary = DatasetSummary(True, (0, 0), formats=frozenset({image_format}), chose_qualities=True)
    assert schema.specs(summary).keys() == values.keys()


def test_attributes_from_cells() -> None:
    cells = {"depth": Column("float32", (None,), cells=True), "note": Column("bytes", (), cells=True)}
    objects = [
        AnnotatedObject("dog", Box(0, 0, 1, 1), attributes={"depth": "0.5", "note": ""}),
        AnnotatedObject("dog", Box(0, 0, 1, 1), attributes={"depth": "", "note": "x"}),
        AnnotatedObject("dog", Box(0, 0, 1, 1)),
    ]
    settings = _settings(attributes=cells)
    values = _values(
        build_example(SCHEMAS["detection"].features(RECORD, IMAGE, Mapped(tuple(objects)), settings))
    )
    assert values["image/object/depth"] == [0.5, 0.0, 0.0]
    assert values["image/object/note"] == [b"", b"x", b""]


def test_an_attribute_of_several_values_fails_the_record() -> None:
    objects = (AnnotatedObject("dog", Box(0, 0, 1, 1), attributes={"depth": "[1, 2]"}),)
    settings = _settings(attributes={"depth": Column("int64", (None,), cells=True)})
    with pytest.raises(BadInput, match="value does not fit its column.*'depth'"):
        SCHEMAS["detection"].features(RECORD, IMAGE, Mapped(objects), settings)


def test_attributes_under_names_of_the_schema_are_refused() -> None:
    number = Column("int64", (None,))
    taken = {"bbox/xmin": number, "class/text": number, "mask": number, "view": number}
    summary = DatasetSummary(True, (0, 0), attributes=taken, annotated=frozenset({"object_masks"}))
    with pytest.raises(ValueError, match="^attributes 'bbox/xmin', 'class/text', 'mask': the schema 'detec"):
        check_names(SCHEMAS["detection"], summary)
    without = dataclasses.replace(summary, attributes={"mask": number}, annotated=frozenset())
    check_names(SCHEMAS["detection"], without)
    clash = dataclasses.replace(without, columns={"image/object/mask": number})
    with pytest.raises(ValueError, match="columns 'image/object/mask': the schema 'detection'"):
        check_names(SCHEMAS["detection"], clash)


def test_the_object_detection_api_reads_it() -> None:
    """As TfExampleDecoder's keys_to_features has it."""
    published = {
        "image/encoded": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/format": tf.io.FixedLenFeature((), tf.string, default_value="jpeg"),
        "image/filename": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/key/sha256": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/source_id": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/height": tf.io.FixedLenFeature((), tf.int64, default_value=1),
        "image/width": tf.io.FixedLenFeature((), tf.int64, default_value=1),
        "image/class/text": tf.io.VarLenFeature(tf.string),
        "image/class/label": tf.io.VarLenFeature(tf.int64),
        **{
            f"image/object/bbox/{side}": tf.io.VarLenFeature(tf.float32)
            for side in ("xmin", "xmax", "ymin", "ymax")
        },
        "image/object/class/label": tf.io.VarLenFeature(tf.int64),
        "image/object/class/text": tf.io.VarLenFeature(tf.string),
        "image/object/area": tf.io.VarLenFeature(tf.float32),
        "image/object/is_crowd": tf.io.VarLenFeature(tf.int64),
        "image/object/difficult": tf.io.VarLenFeature(tf.int64),
        "image/object/truncated": tf.io.VarLenFeature(tf.int64),
        "image/object/group_of": tf.io.VarLenFeature(tf.int64),
        "image/object/weight": tf.io.VarLenFeature(tf.float32),
        "image/object/keypoint/x": tf.io.VarLenFeature(tf.float32),
        "image/object/keypoint/y": tf.io.VarLenFeature(tf.float32),
        "image/object/keypoint/visibility": tf.io.VarLenFeature(tf.int64),
        "image/object/mask": tf.io.VarLenFeature(tf.string),
    }
    integers = ("area", "weight", "is_crowd", "difficult", "truncated", "group_of")
    objects = tuple(
        msgspec.structs.replace(one, attributes=dict.fromkeys(integers, number))
        for number, one in enumerate(OBJECTS)
    )
    settings = _settings(EVERYTHING, attributes=dict.fromkeys(integers, Column("int64", (None,))))
    mapped = Mapped(objects, {}, (b"mask 0", b"mask 1"))
    payload = build_example(SCHEMAS["detection"].features(RECORD, IMAGE, mapped, settings))
    parsed = tf.io.parse_single_example(payload, published)
    assert parsed["image/encoded"] == PNG
    assert (int(parsed["image/height"]), int(parsed["image/width"])) == (100, 200)
    assert (parsed["image/source_id"], parsed["image/key/sha256"]) == (b"a/1.png", SHA)
    for name in integers:
        assert parsed[f"image/object/{name}"].values.numpy().tolist() == [0, 1]
    assert parsed["image/object/class/label"].values.numpy().tolist() == [18, 1]
    np.testing.assert_array_equal(parsed["image/object/bbox/xmax"].values, _floats(0.3, 1.0))
    # As _reshape_keypoints has it.
    points = np.stack([parsed["image/object/keypoint/y"].values, parsed["image/object/keypoint/x"].values], 1)
    assert len(points.reshape(-1, 2, 2)) == len(parsed["image/object/bbox/xmax"].values)


def test_deeplab_reads_it() -> None:
    """As data_generator.py's features has it."""
    published = {
        "image/encoded": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/filename": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/format": tf.io.FixedLenFeature((), tf.string, default_value="jpeg"),
        "image/height": tf.io.FixedLenFeature((), tf.int64, default_value=0),
        "image/width": tf.io.FixedLenFeature((), tf.int64, default_value=0),
        "image/segmentation/class/encoded": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/segmentation/class/format": tf.io.FixedLenFeature((), tf.string, default_value="png"),
    }
    settings = _settings(frozenset({"class"}))
    payload = build_example(SCHEMAS["segmentation"].features(RECORD, IMAGE, PLACED, settings))
    parsed = tf.io.parse_single_example(payload, published)
    assert {key: value.numpy() for key, value in parsed.items()} == {
        key: SEGMENTATION[key][0] for key in published
    }


def test_plain_has_the_mask_s_pixels() -> None:
    settings = _settings(frozenset({"class"}))
    values = _values(build_example(SCHEMAS["plain"].features(RECORD, IMAGE, PLACED, settings)))
    assert values["mask_raw"] == [b"\0" * 20000]
    specs = SCHEMAS["plain"].specs(DatasetSummary(True, (1, 1), annotated=frozenset({"class"})))
    assert specs.keys() == values.keys()
    assert SCHEMAS["plain"].needs(frozenset({"class", "objects"})) == {"class_raw"}


def test_imagenet_has_boxes_and_words() -> None:
    labels = LabelMap.build([], classes={0: "n01", 1: "n02"}, texts={"n02": "tench, Tinca tinca"}, first_id=1)
    record = ImageRecord("n02/1.JPEG", ImageRef("/x"), None, Annotations(("n02",)))
    objects = (AnnotatedObject("n02", Box(20.0, 10.0, 60.0, 30.0)),)
    settings = FeatureSettings(labels, annotated=frozenset({"objects"}))
    values = _values(build_example(SCHEMAS["imagenet"].features(record, IMAGE, Mapped(objects), settings)))
    assert (values["image/class/label"], values["image/object/bbox/label"]) == ([2], [2])
    assert values["image/class/synset"] == [b"n02"]
    assert values["image/class/text"] == [b"tench, Tinca tinca"]
    sides = [values[f"image/object/bbox/{side}"] for side in ("xmin", "xmax", "ymin", "ymax")]
    assert sides == [_floats(0.1), _floats(0.3), _floats(0.1), _floats(0.3)]
    assert SCHEMAS["imagenet"].needs(EVERYTHING) == {"objects"}


NEEDS = {
    "classification": set(),
    "detection": {"objects", "object_masks"},
    "segmentation": {"class_png", "instance_png"},
    "panoptic": {"panoptic_category_png", "panoptic_instance_png"},
    "sequence": set(),
    "detection,panoptic": {
        "objects",
        "object_masks",
        "panoptic_category_png",
        "panoptic_instance_png",
    },
}


@pytest.mark.parametrize("name", NEEDS)
def test_needs(name: str) -> None:
    annotated = EVERYTHING | {"steps"} if name == "sequence" else EVERYTHING
    assert choose_schema(name, True, annotated).needs(EVERYTHING) == NEEDS[name]


def test_needs_no_more_than_there_is() -> None:
    assert SCHEMAS["detection"].needs(frozenset({"captions"})) == set()
    assert SCHEMAS["segmentation"].needs(frozenset({"class"})) == {"class_png"}


def test_a_combined_record_may_lack_a_mask() -> None:
    annotated = frozenset({"objects", "class", "instance"})
    schema = choose_schema("auto", True, annotated)
    payload = build_example(schema.features(RECORD, IMAGE, Mapped(OBJECTS), _settings(annotated)))
    specs = schema.specs(DatasetSummary(True, (1, 1), annotated=annotated))
    parsed = tf.io.parse_single_example(payload, _parsing_spec(specs))
    assert parsed["image/segmentation/class/encoded"].values.numpy().tolist() == []
    assert parsed["image/segmentation/instance/encoded"].values.numpy().tolist() == []
