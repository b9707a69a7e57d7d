"""The metadata read by the real TFDS, over shards written here."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.examples.columns import Column, ColumnTypes
from recordmill.transforms.examples.features import build_example
from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.examples.registry import SCHEMAS, choose_schema
from recordmill.transforms.examples.schema import (
    DatasetSummary,
    FeatureSettings,
    FeatureSpec,
    Schema,
    apply_rename,
)
from recordmill.transforms.examples.tfds import (
    SplitInfo,
    dataset_info,
    dataset_name,
    features_json,
    label_files,
    supervised_keys,
)
from recordmill.transforms.examples.tfrecord import RecordWriter
from recordmill.transforms.images.mask import encode_mask
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    Box,
    ImageRecord,
    ImageRef,
    Mapped,
    StoredImage,
)
from tests.lazy import tfds

RNG = np.random.default_rng(0)
LABELLED = [SCHEMAS[name] for name in ("classification", "imagenet", "plain")]
DRAWN: dict[str, Any] = {
    "L": RNG.integers(0, 256, (6, 5), dtype=np.uint8),
    "LA": RNG.integers(0, 256, (6, 5, 2), dtype=np.uint8),
    "RGB": RNG.integers(0, 256, (6, 5, 3), dtype=np.uint8),
    "RGBA": RNG.integers(0, 256, (6, 5, 4), dtype=np.uint8),
    "I;16": RNG.integers(0, 65536, (6, 5), dtype=np.uint16),
}


def _stored(mode: str, image_format: str = "png") -> StoredImage:
    pixels = DRAWN[mode]
    file = io.BytesIO()
    options = {"lossless": True} if image_format == "webp" else {}
    if image_format != "raw":
        Image.fromarray(pixels).save(file, image_format, **options)
    data = file.getvalue() or pixels.tobytes()
    channels = (
        3
        if image_format in ("gif", "webp") and mode == "RGB"
        else (1 if pixels.ndim == 2 else pixels.shape[2])
    )
    return StoredImage(data, image_format, 6, 5, channels, str(pixels.dtype), "RGB", ())


def _write(
    out: Path,
    records: Sequence[tuple[ImageRecord, StoredImage | None]],
    schema: Schema,
    label_map: LabelMap | None = None,
    shard_lengths: tuple[int, ...] | None = None,
    renames: Mapping[str, str] | None = None,
    name: str = "tiny",
) -> dict[str, FeatureSpec]:
    """A whole dataset as the job writes one; returns its specs."""
    label_map = label_map or LabelMap.build(
        label for record, _ in records for label in record.annotations.labels
    )
    types = ColumnTypes()
    for record, _ in records:
        types.observe(record.annotations.features)
    columns = types.resolve(len(records))
    images = [image for _, image in records if image]
    counts = [len(record.annotations.labels) for record, _ in records]
    summary = DatasetSummary(
        bool(images),
        (min(counts), max(counts)),
        columns,
        frozenset(image.channels for image in images),
        frozenset(image.dtype for image in images),
        frozenset(image.image_format for image in images),
        label_map.class_names(),
    )
    payloads = iter(
        build_example(
            apply_rename(
                schema.features(record, image, Mapped(), FeatureSettings(label_map, columns)), renames or {}
            )
        )
        for record, image in records
    )
    lengths = shard_lengths or (len(records),)
    num_bytes = 0
    for number, length in enumerate(lengths):
        with (out / f"train-{number:05d}-of-{len(lengths):05d}.tfrecord").open("wb") as file:
            writer = RecordWriter(file)
            for _ in range(length):
                writer.write(next(payloads))
            num_bytes += writer.bytes_written
    specs = apply_rename(schema.specs(summary), renames or {})
    splits = {"train": SplitInfo(lengths, num_bytes)}
    (out / "dataset_info.json").write_text(dataset_info(name, "1.0.0", splits, supervised_keys(specs)))
    (out / "features.json").write_text(features_json(specs, summary))
    for file_name, text in label_files(specs, summary.class_names).items():
        (out / file_name).write_text(text)
    return specs


def _records(
    images: Sequence[StoredImage | None], labels: Sequence[tuple[Any, ...]]
) -> list[tuple[ImageRecord, Any]]:
    return [
        (ImageRecord(f"{number}.png", ImageRef("/x") if image else None, None, Annotations(label)), image)
        for number, (image, label) in enumerate(zip(images, labels, strict=True))
    ]


def _examples(out: Path, split: str = "train", **options: Any) -> list[Any]:
    return list(tfds.as_numpy(tfds.builder_from_directory(str(out)).as_dataset(split=split, **options)))


@pytest.mark.parametrize("schema", LABELLED, ids=lambda schema: schema.name)
def test_class_names_slices_and_supervised_pairs(tmp_path: Path, schema: Schema) -> None:
    records = _records([_stored("RGB")] * 5, [(label,) for label in ("dog", "cat", "dog", "owl", "dog")])
    label_map = LabelMap.build(["dog", "cat", "owl"], first_id=schema.first_id)
    # An empty shard among the others.
    specs = _write(tmp_path, records, schema, label_map, shard_lengths=(2, 0, 3))
    info = tfds.builder_from_directory(str(tmp_path)).info
    label_key = next(name for name, spec in specs.items() if spec.role == "label")
    offset = schema.first_id
    assert info.features[label_key].names == ["unused_0"][:offset] + ["cat", "dog", "owl"]
    assert (info.name, str(info.version), info.splits["train"].num_examples) == ("tiny", "1.0.0", 5)
    assert info.splits["train"].shard_lengths == [2, 0, 3]
    assert info.splits["train"].num_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.tfrecord"))
    pairs = _examples(tmp_path, as_supervised=True)
    assert sorted(int(label) for _, label in pairs) == [
        offset,
        offset + 1,
        offset + 1,
        offset + 1,
        offset + 2,
    ]
    for image, _ in pairs:
        np.testing.assert_array_equal(image, DRAWN["RGB"])
    assert len(_examples(tmp_path, "train[3:]")) == 2
    assert len(_examples(tmp_path, "train[:60%]")) == 3


def test_every_feature_is_read(tmp_path: Path) -> None:
    _write(tmp_path, _records([_stored("RGB")], [("dog",)]), SCHEMAS["imagenet"])
    (example,) = _examples(tmp_path)
    assert example["image/filename"] == b"0.png"
    assert (example["image/height"], example["image/width"], example["image/channels"]) == (6, 5, 3)
    assert (example["image/class/synset"], example["image/format"]) == (b"dog", b"png")
    assert example["image/object/bbox/xmin"].tolist() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("images", "shape", "dtype"),
    [
        ([("RGB", "png"), ("RGB", "bmp")], (None, None, 3), "uint8"),
        ([("L", "png")], (None, None, 1), "uint8"),
        ([("L", "bmp"), ("L", "png")], (None, None, None), "uint8"),
        ([("L", "png"), ("RGB", "png")], (None, None, 3), "uint8"),
        ([("L", "bmp"), ("RGB", "png")], (None, None, 3), "uint8"),
        ([("RGBA", "png"), ("RGBA", "bmp")], (None, None, 4), "uint8"),
        ([("RGBA", "png"), ("RGB", "png"), ("L", "png")], (None, None, None), "uint8"),
        ([("LA", "png")], (None, None, None), "uint8"),
        ([("I;16", "png")], (None, None, 1), "uint16"),
        ([("I;16", "png"), ("L", "png")], (None, None, 1), "uint16"),
        ([("RGB", "gif")], (None, None, None, 3), "uint8"),
        ([("RGB", "webp"), ("RGBA", "webp")], (None, None, None, None), "uint8"),
    ],
)
def test_images_keep_colours_alpha_and_depth(
    tmp_path: Path, images: list[tuple[str, str]], shape: Any, dtype: str
) -> None:
    records = _records([_stored(*image) for image in images], [("a",)] * len(images))
    _write(tmp_path, records, SCHEMAS["classification"])
    feature = tfds.builder_from_directory(str(tmp_path)).info.features["image/encoded"]
    assert (feature.shape, feature.dtype) == (shape, np.dtype(dtype))
    examples = {example["image/filename"]: example["image/encoded"] for example in _examples(tmp_path)}
    for number, (mode, image_format) in enumerate(images):
        pixels = DRAWN[mode].reshape(6, 5, -1)
        decoded = examples[f"{number}.png".encode()]
        if decoded.ndim == 4:
            assert decoded.shape[0] == 1
            decoded = decoded[0]
        assert decoded.dtype == np.dtype(dtype)
        if image_format == "gif":  # a palette of its own, so no exact pixels
            assert decoded.shape == (6, 5, 3)
        elif dtype == "uint16" and pixels.dtype == np.uint8:
            np.testing.assert_array_equal(decoded, pixels.astype(np.uint16) * 257)
        else:
            np.testing.assert_array_equal(decoded, np.broadcast_to(pixels, decoded.shape))
            assert decoded.shape[2] == (shape[-1] or pixels.shape[2])


@pytest.mark.parametrize("formats", [("raw",), ("gif", "png")])
@pytest.mark.parametrize("name", ["classification", "plain"])
def test_what_tfds_cannot_decode_alike_is_left_as_bytes(
    tmp_path: Path, name: str, formats: tuple[str, ...]
) -> None:
    stored = [_stored("RGB", image_format) for image_format in formats]
    _write(tmp_path, _records(stored, [("a",)] * len(stored)), SCHEMAS[name])
    key = "image_raw" if name == "plain" else "image/encoded"
    examples = _examples(tmp_path)
    assert {example[key] for example in examples} == {image.data for image in stored}
    if formats == ("raw",):
        (example,) = examples
        keys = (
            ("height", "width", "depth")
            if name == "plain"
            else ("image/height", "image/width", "image/channels")
        )
        pixels = np.frombuffer(example[key], np.uint8).reshape([example[side] for side in keys])
        np.testing.assert_array_equal(pixels, DRAWN["RGB"])


@pytest.mark.parametrize(
    "labels",
    [
        [("dog", "cat"), ("cat",)],
        pytest.param([("dog",), ()], marks=pytest.mark.slow),
        pytest.param([(), ()], marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("schema", LABELLED, ids=lambda schema: schema.name)
def test_several_labels_and_none(tmp_path: Path, schema: Schema, labels: list[tuple[str, ...]]) -> None:
    specs = _write(tmp_path, _records([_stored("RGB")] * 2, labels), schema)
    key = next(name for name, spec in specs.items() if spec.role == "label")
    classes = sorted({label for item in labels for label in item})
    assert sorted(example[key].tolist() for example in _examples(tmp_path)) == sorted(
        [classes.index(label) for label in item] for item in labels
    )
    if classes:
        assert tfds.builder_from_directory(str(tmp_path)).info.features[key].feature.names == classes
    assert len(_examples(tmp_path, as_supervised=True)) == 2


def test_ids_keep_their_place(tmp_path: Path) -> None:
    records = _records([_stored("L")] * 2, [(4,), (1,)])
    _write(tmp_path, records, SCHEMAS["classification"], LabelMap.build([4, 1]))
    label = tfds.builder_from_directory(str(tmp_path)).info.features["image/class/label"]
    assert label.names == ["unused_0", "1", "unused_2", "unused_3", "4"]
    assert sorted(int(example["image/class/label"]) for example in _examples(tmp_path)) == [1, 4]


def test_ids_without_class_names(tmp_path: Path) -> None:
    _write(tmp_path, _records([_stored("L")], [(10**12,)]), SCHEMAS["classification"])
    assert not list(tmp_path.glob("*.labels.txt"))
    assert [int(example["image/class/label"]) for example in _examples(tmp_path)] == [10**12]


def test_free_features_of_every_type_and_shape(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "i": 1,
            "f": 0.5,
            "t": "é",
            "i2": (1, 2),
            "f*": (0.5,),
            "t*": ("a", "b"),
            "t2": ("a", "b"),
            "a/b": 1,
            "a": 2,
        },
        {"i": 2, "f": 1.5, "t": "", "i2": (3, 4), "f*": (), "t*": (), "t2": ("c", "d"), "a/b": 3, "a": 4},
    ]
    records = [
        (ImageRecord(str(number), None, None, Annotations((), row)), None) for number, row in enumerate(rows)
    ]
    _write(tmp_path, records, choose_schema("auto", has_images=False))
    examples = sorted(_examples(tmp_path), key=lambda example: int(example["i"]))
    assert [set(example) for example in examples] == [set(rows[0])] * 2
    for example, row in zip(examples, rows, strict=True):
        for name, value in row.items():
            stored = np.asarray(example[name]).tolist()
            expected = list(value) if isinstance(value, tuple) else value
            texts = (
                [item.decode() for item in stored] if isinstance(stored, list) and name[0] == "t" else stored
            )
            assert (texts.decode() if isinstance(texts, bytes) else texts) == expected


def test_features_alone_with_labels(tmp_path: Path) -> None:
    records = [
        (ImageRecord(str(number), None, None, Annotations((label,), {"x": 0.5})), None)
        for number, label in enumerate(["b", "a"])
    ]
    _write(tmp_path, records, choose_schema("auto", has_images=False))
    features = tfds.builder_from_directory(str(tmp_path)).info.features
    assert features["label"].names == ["a", "b"]
    assert sorted((int(e["label"]), e["label/text"]) for e in _examples(tmp_path)) == [(0, b"a"), (1, b"b")]


def test_renamed_features(tmp_path: Path) -> None:
    renames = {"image/encoded": "image", "image/class/label": "label"}
    _write(tmp_path, _records([_stored("RGB")], [("dog",)]), SCHEMAS["classification"], renames=renames)
    assert tfds.builder_from_directory(str(tmp_path)).info.features["label"].names == ["dog"]
    ((image, label),) = _examples(tmp_path, as_supervised=True)
    np.testing.assert_array_equal(image, DRAWN["RGB"])
    assert label == 0


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("photos", "photos"),
        ("My Photos (2)", "my_photos_2"),
        ("2024-cats", "dataset_2024_cats"),
        ("été", "t"),
        ("", "dataset"),
        ("写真", "dataset"),
        ("../out/", "out"),
    ],
)
def test_dataset_name(tmp_path: Path, text: str, name: str) -> None:
    assert dataset_name(text) == name
    assert tfds.core.naming.is_valid_dataset_and_class_name(name)
    assert json.loads(dataset_info(name, "1.0.0", {}))["name"] == name


def test_what_tfds_would_refuse_is_refused() -> None:
    with pytest.raises(ValueError, match="dataset name is 'my-photos'"):
        dataset_info("my-photos", "1.0.0", {})
    for version in ("1.0", "1.0.x", "01.0.0"):
        with pytest.raises(ValueError, match=f"dataset version is '{version}'"):
            dataset_info("photos", version, {})


def test_files_without_what_there_is_not() -> None:
    info = json.loads(dataset_info("photos", "1.2.3", {"train": SplitInfo((3, 4), 99)}))
    assert info == {
        "name": "photos",
        "version": "1.2.3",
        "fileFormat": "tfrecord",
        "splits": [
            {
                "name": "train",
                "filepathTemplate": "{SPLIT}-{SHARD_X_OF_Y}.{FILEFORMAT}",
                "shardLengths": ["3", "4"],
                "numBytes": "99",
            }
        ],
    }
    assert supervised_keys({"x": FeatureSpec("int64")}) is None
    assert label_files({"x": FeatureSpec("int64", role="label")}, None) == {}
    assert label_files({"a/x": FeatureSpec("int64", role="label")}, ("b", "c")) == {
        "a.x.labels.txt": "b\nc\n"
    }


BOXED = frozenset({"objects", "object_masks", "captions", "class"})


@pytest.mark.parametrize("name", ["detection", "detection,segmentation"])
def test_objects_are_read_with_their_class_names(tmp_path: Path, name: str) -> None:
    labels = LabelMap.build([], classes={1: "person", 3: "car"}, first_id=1)
    objects = (
        AnnotatedObject("car", Box(0.0, 0.0, 5.0, 3.0), attributes={"area": 15}),
        AnnotatedObject("person", Box(1.0, 1.5, 5.0, 6.0), attributes={"area": 18}),
    )
    attributes = {"area": Column("int64", (None,))}
    schema = choose_schema(name, True, BOXED)
    settings = FeatureSettings(labels, attributes=attributes, annotated=BOXED)
    drawn = [np.full((6, 5, 1), value, np.uint8) for value in (0, 1)]
    mapped = Mapped(objects, {"class_png": b"class"}, tuple(map(encode_mask, drawn)))
    with (tmp_path / "train-00000-of-00001.tfrecord").open("wb") as file:
        writer = RecordWriter(file)
        for key, found in (("0.png", mapped), ("1.png", Mapped())):
            annotations = Annotations(captions=("A car.",) if found is mapped else ())
            record = ImageRecord(key, ImageRef("/x"), None, annotations)
            writer.write(build_example(schema.features(record, _stored("RGB"), found, settings)))
        size = writer.bytes_written
    summary = DatasetSummary(
        True,
        (0, 0),
        channels=frozenset({3}),
        dtypes=frozenset({"uint8"}),
        formats=frozenset({"png"}),
        class_names=labels.class_names(),
        attributes=attributes,
        annotated=BOXED,
    )
    specs = schema.specs(summary)
    mask_key = "image/segmentation/class/encoded"
    assert supervised_keys(specs) == (None if name == "detection" else ("image/encoded", mask_key))
    files = label_files(specs, summary.class_names)
    assert files == {"image.object.class.label.labels.txt": "unused_0\nperson\nunused_2\ncar\n"}
    files["dataset_info.json"] = dataset_info("tiny", "1.0.0", {"train": SplitInfo((2,), size)})
    files["features.json"] = features_json(specs, summary)
    for file_name, text in files.items():
        (tmp_path / file_name).write_text(text)
    features = tfds.builder_from_directory(str(tmp_path)).info.features
    names = features["image/object/class/label"].feature.names
    first, second = sorted(_examples(tmp_path), key=lambda example: bytes(example["image/filename"]))
    assert [names[number] for number in first["image/object/class/label"]] == ["car", "person"]
    np.testing.assert_array_equal(first["image/encoded"], DRAWN["RGB"])
    np.testing.assert_array_equal(first["image/object/bbox/xmin"], np.array([0.0, 0.2], np.float32))
    np.testing.assert_array_equal(first["image/object/bbox/ymin"], np.array([0.0, 0.25], np.float32))
    np.testing.assert_array_equal(first["image/object/mask"], drawn)
    assert first["image/object/area"].tolist() == [15.0, 18.0]
    assert first["image/caption"].tolist() == [b"A car."]
    assert len(second["image/object/class/label"]) == len(second["image/object/mask"]) == 0
    if name != "detection":
        assert (first[mask_key].tolist(), second[mask_key].tolist()) == ([b"class"], [])


@pytest.mark.parametrize(("name", "mask"), [("segmentation", "class"), ("panoptic", "panoptic_category")])
def test_masks_of_unknown_types_are_read_as_their_bytes(tmp_path: Path, name: str, mask: str) -> None:
    annotated = frozenset({"class", "panoptic"})
    schema = SCHEMAS[name]
    masks = {f"{layer}_png": layer.encode() for layer in ("class", "panoptic_category", "panoptic_instance")}
    record = ImageRecord("0.png", ImageRef("/x"))
    settings = FeatureSettings(LabelMap.build([]), annotated=annotated)
    with (tmp_path / "train-00000-of-00001.tfrecord").open("wb") as file:
        writer = RecordWriter(file)
        writer.write(build_example(schema.features(record, _stored("RGB"), Mapped((), masks), settings)))
    summary = DatasetSummary(True, (0, 0), annotated=annotated)
    specs = schema.specs(summary)
    key = {"class": "image/segmentation/class/encoded"}.get(mask, "image/panoptic/category/encoded")
    assert supervised_keys(specs) == ("image/encoded", key)
    splits = {"train": SplitInfo((1,), writer.bytes_written)}
    (tmp_path / "dataset_info.json").write_text(dataset_info("tiny", "1.0.0", splits))
    (tmp_path / "features.json").write_text(features_json(specs, summary))
    (example,) = _examples(tmp_path)
    assert example[key] == mask.encode()
    np.testing.assert_array_equal(example["image/encoded"], DRAWN["RGB"])
