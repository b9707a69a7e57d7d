"""The schemas: exact keys and values, read back by TensorFlow."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
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
    Schema,
    apply_rename,
    check_names,
)
from recordmill.transforms.examples.schemas import FEATURES_ALONE
from recordmill.transforms.records import Annotations, BadInput, ImageRecord, ImageRef, Mapped, StoredImage
from tests.lazy import tf

COLUMNS = {"age": Column("int64", ()), "note": Column("bytes", (None,))}
PIXELS = np.arange(2 * 3 * 3, dtype=np.uint8).tobytes()


def _record(*labels: str | int, image: bool = True, **features: Any) -> ImageRecord:
    return ImageRecord("a/é 1.jpg", ImageRef("/x") if image else None, None, Annotations(labels, features))


def _image(image_format: str = "jpeg", data: bytes = b"\xff\xd8") -> StoredImage:
    return StoredImage(data, image_format, 2, 3, 3, "uint8", "RGB", ())


def _features(
    schema: Schema,
    record: ImageRecord,
    image: StoredImage | None,
    labels: LabelMap | None = None,
    columns: Mapping[str, Column] | None = None,
) -> dict[str, Any]:
    """Of a record with labels and free features alone."""
    settings = FeatureSettings(LabelMap.build([]) if labels is None else labels, columns or {})
    return schema.features(record, image, Mapped(), settings)


def _read(features: dict[str, Any]) -> dict[str, tuple[str, list[Any]]]:
    message = tf.train.Example.FromString(build_example(features))
    kinds = {name: item.WhichOneof("kind") for name, item in message.features.feature.items()}
    return {
        name: (kind, list(getattr(message.features.feature[name], kind).value))
        for name, kind in kinds.items()
    }


def _b(*values: bytes) -> tuple[str, list[bytes]]:
    return "bytes_list", list(values)


def _i(*values: int) -> tuple[str, list[int]]:
    return "int64_list", list(values)


KEY = "a/é 1.jpg".encode()
SHA = hashlib.sha256(b"\xff\xd8").hexdigest().encode()
CLASSIFICATION = {
    "image/encoded": _b(b"\xff\xd8"),
    "image/format": _b(b"jpeg"),
    "image/height": _i(2),
    "image/width": _i(3),
    "image/class/label": _i(1),
    "image/class/text": _b(b"dog"),
    "image/filename": _b(KEY),
    "image/key/sha256": _b(SHA),
}
IMAGENET = {
    "image/encoded": _b(b"\xff\xd8"),
    "image/format": _b(b"JPEG"),
    "image/height": _i(2),
    "image/width": _i(3),
    "image/colorspace": _b(b"RGB"),
    "image/channels": _i(3),
    "image/filename": _b(KEY),
    "image/class/label": _i(2),
    "image/class/synset": _b(b"dog"),
    "image/class/text": _b(b"dog"),
    "image/object/bbox/xmin": ("float_list", []),
    "image/object/bbox/xmax": ("float_list", []),
    "image/object/bbox/ymin": ("float_list", []),
    "image/object/bbox/ymax": ("float_list", []),
    "image/object/bbox/label": _i(),
}
PLAIN = {
    "image_raw": _b(b"\xff\xd8"),
    "height": _i(2),
    "width": _i(3),
    "depth": _i(3),
    "dtype": _b(b"uint8"),
    "label": _i(1),
}
EXPECTED = {"classification": CLASSIFICATION, "imagenet": IMAGENET, "plain": PLAIN}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_record_of_each_schema(name: str) -> None:
    schema = SCHEMAS[name]
    labels = LabelMap.build(["dog", "cat"], first_id=schema.first_id)
    assert _read(_features(schema, _record("dog"), _image(), labels, {})) == EXPECTED[name]
    with_columns = _read(_features(schema, _record("dog", age=5), _image(), labels, COLUMNS))
    assert with_columns == EXPECTED[name] | {"age": _i(5), "note": _b()}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("labels", [(), ("cat", "dog")])
def test_no_label_and_several(name: str, labels: tuple[str, ...]) -> None:
    label_map = LabelMap.build(["dog", "cat"])
    read = _read(_features(SCHEMAS[name], _record(*labels), _image(), label_map, {}))
    keys = {"classification": "image/class/", "imagenet": "image/class/", "plain": ""}[name]
    assert read[f"{keys}label"] == _i(*range(len(labels)))
    assert set(read) == set(EXPECTED[name])
    if name != "plain":
        assert read["image/class/text"] == _b(*(label.encode() for label in labels))


@pytest.mark.parametrize("image_format", ["raw", "tensor"])
@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("classification", {"image/channels": _i(3), "image/dtype": _b(b"uint8")}),
        ("imagenet", {"image/channels": _i(3), "image/dtype": _b(b"uint8")}),
        ("plain", {"depth": _i(3), "dtype": _b(b"uint8")}),
    ],
)
def test_pixels_have_their_shape_beside_them(name: str, beside: dict[str, Any], image_format: str) -> None:
    read = _read(_features(SCHEMAS[name], _record(), _image(image_format, PIXELS), LabelMap.build([]), {}))
    assert read["image_raw" if name == "plain" else "image/encoded"] == _b(PIXELS)
    assert beside.items() <= read.items()
    if name != "plain":
        assert read["image/format"] == _b(image_format.encode())


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("quality", [0, 87])
def test_the_quality_that_was_chosen_is_beside_the_image(name: str, quality: int) -> None:
    image = msgspec.structs.replace(_image(), jpeg_quality=quality)
    read = _read(_features(SCHEMAS[name], _record(), image, LabelMap.build([]), {}))
    key = "jpeg_quality" if name == "plain" else "image/jpeg_quality"
    assert read[key] == _i(quality)
    summary = DatasetSummary(True, (0, 0), {}, formats=frozenset({"jpeg"}), chose_qualities=True)
    assert set(SCHEMAS[name].specs(summary)) == set(read)


def test_imagenet_tells_the_true_format() -> None:
    features = _features(SCHEMAS["imagenet"], _record(), _image("png"), LabelMap.build([]), {})
    assert _read(features)["image/format"] == _b(b"png")


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("image_format", ["jpeg", "raw"])
@pytest.mark.parametrize("labels", [(), ("dog",), ("cat", "dog")])
def test_specs_parse_the_records(name: str, image_format: str, labels: tuple[str, ...]) -> None:
    schema = SCHEMAS[name]
    record = _record(*labels, age=5, note=("a", "b"))
    features = _features(schema, record, _image(image_format), LabelMap.build(["dog", "cat"]), COLUMNS)
    summary = DatasetSummary(True, (len(labels), len(labels)), COLUMNS, formats=frozenset({image_format}))
    specs = schema.specs(summary)
    assert set(specs) == set(features)
    assert {spec.role for spec in specs.values()} == {"value", "image", "label"}
    parsed = tf.io.parse_single_example(build_example(features), _parsing_spec(specs))
    label = parsed[next(key for key, spec in specs.items() if spec.role == "label")]
    if len(labels) == 1:
        assert int(label) == 1
    else:
        assert tf.sparse.to_dense(label).numpy().tolist() == list(range(len(labels)))
    assert int(parsed["age"]) == 5
    assert tf.sparse.to_dense(parsed["note"]).numpy().tolist() == [b"a", b"b"]


def _parsing_spec(specs: dict[str, FeatureSpec]) -> dict[str, Any]:
    return {
        name: tf.io.VarLenFeature(spec.dtype)
        if spec.shape == (None,)
        else tf.io.FixedLenFeature(spec.shape, spec.dtype)
        for name, spec in specs.items()
    }


def test_features_alone() -> None:
    record = _record("dog", image=False, age=5)
    features = _features(FEATURES_ALONE, record, None, LabelMap.build(["dog", "cat"]), COLUMNS)
    assert _read(features) == {"age": _i(5), "note": _b(), "label": _i(1), "label/text": _b(b"dog")}
    specs = FEATURES_ALONE.specs(DatasetSummary(False, (1, 1), COLUMNS))
    assert specs["label"] == FeatureSpec("int64", (), "label")
    assert set(specs) == set(features)


def test_features_alone_without_labels() -> None:
    features = _features(FEATURES_ALONE, _record(image=False, age=5), None, LabelMap.build([]), COLUMNS)
    assert _read(features) == {"age": _i(5), "note": _b()}
    assert set(FEATURES_ALONE.specs(DatasetSummary(False, (0, 0), COLUMNS))) == {"age", "note"}


def test_an_unlabelled_record_among_labelled_ones() -> None:
    labels = LabelMap.build(["dog"])
    features = _features(FEATURES_ALONE, _record(image=False, age=5), None, labels, COLUMNS)
    assert (_read(features)["label"], _read(features)["label/text"]) == (_i(), _b())
    assert FEATURES_ALONE.specs(DatasetSummary(False, (0, 1), COLUMNS))["label"].shape == (None,)


@pytest.mark.parametrize("name", [*EXPECTED, "features"])
def test_bad_labels_fail_the_record(name: str) -> None:
    schema, image = (FEATURES_ALONE, None) if name == "features" else (SCHEMAS[name], _image())
    with pytest.raises(BadInput, match="unknown label"):
        _features(schema, _record("owl"), image, LabelMap.build(["dog"]), {})


@pytest.mark.parametrize("schema", [*SCHEMAS.values(), FEATURES_ALONE], ids=lambda schema: schema.name)
def test_bad_columns_fail_the_record(schema: Schema) -> None:
    image = None if schema in (FEATURES_ALONE, SCHEMAS["sequence"]) else _image()
    with pytest.raises(BadInput, match="wrong kind"):
        _features(schema, _record(age="old"), image, LabelMap.build([]), COLUMNS)


@pytest.mark.parametrize("name", [name for name in SCHEMAS if name != "sequence"])
def test_an_image_must_be_there(name: str) -> None:
    with pytest.raises(BadInput, match=f"no image \\(schema '{name}' needs an image in each record"):
        _features(SCHEMAS[name], _record(), None, LabelMap.build([]), {})


def test_features_alone_drop_no_image() -> None:
    with pytest.raises(ValueError, match="would drop"):
        _features(FEATURES_ALONE, _record(), _image(), LabelMap.build([]), {})


def test_choose_schema() -> None:
    assert choose_schema("auto", True).name == "classification"
    assert choose_schema("plain", True) is SCHEMAS["plain"]
    assert choose_schema("auto", False) is FEATURES_ALONE
    with pytest.raises(
        ValueError,
        match="^--schema is 'plain', which needs images, and the input has none; leave it at auto$",
    ):
        choose_schema("plain", False)
    with pytest.raises(
        ValueError,
        match="^--schema is 'x'; it may be auto, classification, imagenet, detection, segmentation, "
        "panoptic, plain or sequence$",
    ):
        choose_schema("x", True)


def test_schemas_pickle() -> None:
    for schema in (*SCHEMAS.values(), FEATURES_ALONE):
        assert pickle.loads(pickle.dumps(schema)).name == schema.name


def test_clashing_columns_are_refused_by_name() -> None:
    def named(schema: Schema, columns: dict[str, Column], *formats: str) -> None:
        check_names(schema, DatasetSummary(True, (0, 0), columns, formats=frozenset(formats)))

    named(SCHEMAS["plain"], COLUMNS)
    columns = {"label": Column("int64", ()), "dtype": Column("bytes", ()), "age": Column("int64", ())}
    with pytest.raises(ValueError, match="columns 'dtype', 'label': the schema 'plain' .* another --schema"):
        named(SCHEMAS["plain"], columns)
    with pytest.raises(ValueError, match="columns 'image/dtype'"):
        named(SCHEMAS["classification"], {"image/dtype": Column("int64", ())}, "raw")
    named(SCHEMAS["classification"], {"image/dtype": Column("int64", ())}, "keep")
    named(FEATURES_ALONE, {"label": Column("int64", ())})
    with pytest.raises(ValueError, match="blank name"):
        named(SCHEMAS["plain"], {" ": Column("int64", ())})


def test_rename() -> None:
    items = {"a": 1, "b": 2, "c": 3}
    assert apply_rename(items, {}) == items
    assert apply_rename(items, {"a": "x"}) == {"x": 1, "b": 2, "c": 3}
    assert apply_rename(items, {"a": "b", "b": "a"}) == {"b": 1, "a": 2, "c": 3}
    assert apply_rename(items, {"a": "a"}) == items


@pytest.mark.parametrize(
    ("renames", "message"),
    [
        ({"x": "y"}, "--rename x=y: there is no feature 'x'; they are a, b, c"),
        ({"a": "b"}, "--rename a=b: another feature has that name"),
        ({"c": "b"}, "--rename c=b: another feature has that name"),
        ({"a": "x", "b": "x"}, "--rename b=x: another feature has that name"),
        ({"a": "b", "b": "b"}, "--rename b=b: another feature has that name"),
        ({"a": " "}, "--rename a= : the new name is blank"),
    ],
)
def test_bad_renames(renames: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        apply_rename({"a": 1, "b": 2, "c": 3}, renames)
