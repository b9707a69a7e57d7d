"""JSON Lines manifests: every line becomes a record or a failure."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.records import (
    Annotations,
    ClassNames,
    Failure,
    FeatureValue,
    ImageRecord,
    ImageRef,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.tables.manifest_sources import JsonlSource
from recordmill.transforms.sources.tables.manifests import PEEKED
from recordmill.transforms.storage.local import version_of

SOURCE = JsonlSource()


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder with a.jpg of 1 byte and b.jpg of 2."""
    for size, name in enumerate(["a.jpg", "b.jpg"], 1):
        (tmp_path / name).write_bytes(b"x" * size)
    return tmp_path


def listed(folder: Path, text: str | bytes, **options: object) -> list[ImageRecord | Failure]:
    manifest = folder / "m.jsonl"
    manifest.write_bytes(text.encode() if isinstance(text, str) else text)
    config = SourceConfig("jsonl", str(manifest), **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return [item for item in SOURCE.read(config, "/nowhere") if not isinstance(item, ClassNames)]


def one(folder: Path, row: object, **options: object) -> ImageRecord:
    (item,) = listed(folder, json.dumps(row) + "\n", **options)
    assert isinstance(item, ImageRecord), item
    return item


def faults(items: Iterable[ImageRecord | Failure]) -> list[tuple[str, str]]:
    return [(item.key, item.reason) for item in items if isinstance(item, Failure)]


def test_a_row_in_full(images: Path) -> None:
    row = {
        "image": "b.jpg",
        "label": ["cat", 3],
        "split": "val",
        "integer": 1,
        "float": 1.5,
        "text": "ü\n",
        "yes": True,
        "nothing": None,
        "list": [1, 2],
        "empty": [],
        "inner": {"x": 1, "deeper": {"y": "z"}},
        "boxes": [[1, 2], [3]],
        "objects": [{"a": "ü"}],
        "holes": [1, None],
    }
    features: dict[str, FeatureValue] = {
        "integer": 1,
        "float": 1.5,
        "text": "ü\n",
        "yes": True,
        "list": (1, 2),
        "empty": (),
        "inner/x": 1,
        "inner/deeper/y": "z",
        "boxes": "[[1, 2], [3]]",
        "objects": '[{"a": "ü"}]',
        "holes": "[1, null]",
    }
    record = one(images, row)
    image = ImageRef(f"{images}/b.jpg", version=version_of(os.stat(images / "b.jpg")))
    assert record == ImageRecord(
        "b.jpg", image, "val", Annotations(("cat", 3), features), "m.jsonl, line 1", 2
    )
    kinds = {name: type(value) for name, value in record.annotations.features.items()}
    assert (kinds["integer"], kinds["float"], kinds["yes"]) == (int, float, bool)


@pytest.mark.parametrize(
    ("row", "options", "labels", "features"),
    [
        ({"PATH": "a.jpg", "Category": 7}, {}, (7,), {}),
        ({"image": "a.jpg", "label": None}, {}, (), {}),
        ({"image": "a.jpg", "label": ""}, {}, (), {}),
        ({"image": "a.jpg", "x": "p", "y": "q"}, {"label_column": "x,y"}, ("p", "q"), {}),
        (
            {"image": "a.jpg", "meta": {"class": "p", "n": 1}},
            {"label_column": "meta/class"},
            ("p",),
            {"meta/n": 1},
        ),
        ({"meta": {"file": "a.jpg"}}, {"image_column": "meta/file"}, (), {}),
        ({"image": "a.jpg", "label": "x"}, {"label_pattern": "(a)"}, ("a",), {"label": "x"}),
    ],
)
def test_columns(
    images: Path,
    row: object,
    options: dict[str, str],
    labels: tuple[str, ...],
    features: dict[str, FeatureValue],
) -> None:
    record = one(images, row, **options)
    assert (record.key, record.annotations.labels, record.annotations.features) == ("a.jpg", labels, features)


def test_faulty_rows_are_counted_and_the_rest_is_read(images: Path) -> None:
    deep = '{"image": "a.jpg", "x": ' + "[" * 70 + "]" * 70 + "}"
    deeper = '{"image": "a.jpg", "x": ' + '{"y":' * 100_000 + "1" + "}" * 100_000 + "}"
    lines = [
        b'\xef\xbb\xbf{"image": "a.jpg"}\r',
        b"",
        b"{broken",
        b'["a.jpg"]',
        b'{"label": "cat"}',
        b'{"image": 5}',
        b'{"image": ""}',
        b'{"image": "none.jpg"}',
        b'{"image": "../../../../../../etc/passwd"}',
        b'{"image": "a.jpg", "x": "\xff"}',
        b'{"image": "a.jpg", "x": "\\ud83d"}',
        b'{"image": "a.jpg", "label": 1.5}',
        b'{"image": "a.jpg", "label": {"a": 1}}',
        b'{"image": "a.jpg", "label": [true]}',
        b'{"image": "a.jpg", "split": "a b"}',
        b'{"image": "a.jpg", "x/y": 1, "x": {"y": 2}}',
        b'{"image": "a.jpg", "": 2}',
        deep.encode(),
        deeper.encode(),
        b'{"image": "a.jpg", "x": ' + b"1" * 5000 + b"x}",
        b'{"image": "b.jpg", "x": "\\ud83d\\ude00"}',
    ]
    items = listed(images, b"\n".join(lines))
    records = [item for item in items if isinstance(item, ImageRecord)]
    assert [(item.key, item.origin) for item in records] == [
        ("a.jpg", "m.jsonl, line 1"),
        ("a.jpg", "m.jsonl, line 15"),
        ("b.jpg", "m.jsonl, line 21"),
    ]
    assert (
        records[1].split == "a b"
    )  # --splits may replace it: the survey of the records refuses it otherwise
    assert records[2].annotations.features == {"x": "😀"}
    assert faults(items) == [
        ("m.jsonl:3", "not JSON"),
        ("m.jsonl:4", "not a JSON object"),
        ("m.jsonl:5", "no image path"),
        ("m.jsonl:6", "no image path"),
        ("m.jsonl:7", "no image path"),
        ("m.jsonl:8", "not found"),
        ("m.jsonl:9", "outside the input root"),
        ("m.jsonl:10", "row is not UTF-8"),
        ("m.jsonl:11", "row is not Unicode"),
        ("m.jsonl:12", "label is not text or an integer"),
        ("m.jsonl:13", "label is not text or an integer"),
        ("m.jsonl:14", "label is not text or an integer"),
        ("m.jsonl:16", "two values have the same name"),
        ("m.jsonl:17", "a value has no name"),
        ("m.jsonl:18", "not JSON"),
        ("m.jsonl:19", "not JSON"),
        ("m.jsonl:20", "not JSON"),
    ]


def test_records_of_features_alone(tmp_path: Path) -> None:
    items = listed(tmp_path, '{"x": 1, "label": "a"}\n\n{"x": 2.5}\n')
    assert items == [
        ImageRecord("m.jsonl:1", None, None, Annotations((), {"x": 1, "label": "a"}), "m.jsonl, line 1"),
        ImageRecord("m.jsonl:3", None, None, Annotations((), {"x": 2.5}), "m.jsonl, line 3"),
    ]
    labelled = listed(tmp_path, '{"x": 1, "label": "a"}\n', label_column="label")
    assert isinstance(labelled[0], ImageRecord) and labelled[0].annotations == Annotations(("a",), {"x": 1})


def row_after(folder: Path, first: object, *late: object, **options: object) -> list[ImageRecord | Failure]:
    """What rows come to that lie below 100 others."""
    lines = [json.dumps(first)] * 100 + [json.dumps(row) for row in late]
    return listed(folder, "\n".join(lines), **options)[100:]


@pytest.mark.parametrize(
    ("first", "late", "options", "split", "labels", "features"),
    [
        ({"image": "a.jpg"}, {"image": "b.jpg", "label": "cat"}, {}, None, ("cat",), {}),
        ({"image": "a.jpg"}, {"FILENAME": "b.jpg", "Class": 3}, {}, None, (3,), {}),
        ({"image": "a.jpg"}, {"image": "b.jpg", "split": "val"}, {}, "val", (), {}),
        ({"image": "a.jpg"}, {"image": "b.jpg", "set": "val"}, {}, None, (), {"set": "val"}),
        ({"image": "a.jpg"}, {"path": "c", "image": "b.jpg"}, {}, None, (), {"path": "c"}),
        ({"image": "a.jpg"}, {"image": "b.jpg", "label": 1, "class": 2}, {}, None, (1,), {"class": 2}),
        (
            {"image": "a.jpg", "label": 1, "class": 2},
            {"image": "b.jpg", "class": 3},
            {},
            None,
            (),
            {"class": 3},
        ),
        ({"image": "a.jpg", "class": 2}, {"image": "b.jpg", "label": 3}, {}, None, (3,), {}),
        ({"image": "a.jpg"}, {"image": "b.jpg", "x": 1}, {"label_column": "X"}, None, (1,), {}),
        ({"image": "a.jpg"}, {"image": "b.jpg", "m": {"x": 1}}, {"label_column": "m/x"}, None, (1,), {}),
        ({"image": "a.jpg", "x": 1}, {"image": "b.jpg", "X": 2}, {"label_column": "x"}, None, (2,), {}),
        (
            {"image": "a.jpg", "x": 1},
            {"image": "b.jpg", "x": 2, "y": 3, "label": 4},
            {"label_column": "x,y"},
            None,
            (2, 3),
            {"label": 4},
        ),
        ({"x": 1}, {"photo": "b.jpg"}, {"image_column": "photo"}, None, (), {}),
        ({"photo": "a.jpg"}, {"Photo": "b.jpg"}, {"image_column": "photo"}, None, (), {}),
        (
            {"image": "a.jpg"},
            {"imageGcsUri": "file:b.jpg", "image": "b.jpg"},
            {"image_column": "image"},
            None,
            (),
            {"imageGcsUri": "file:b.jpg"},
        ),
    ],
)
def test_columns_that_come_late(
    images: Path,
    first: object,
    late: object,
    options: dict[str, str],
    split: str | None,
    labels: tuple[str | int, ...],
    features: dict[str, FeatureValue],
) -> None:
    (record,) = row_after(images, first, late, **options)
    assert isinstance(record, ImageRecord), record
    assert (record.key, record.split, record.annotations) == ("b.jpg", split, Annotations(labels, features))


def test_a_row_that_would_turn_a_label_into_a_feature_is_a_failure(images: Path) -> None:
    image = {"image": "a.jpg"}
    items = row_after(
        images,
        {**image, "class": 1},
        {**image, "class": 1, "label": 2},
        {**image, "label": 2},
        {"image": "a.jpg", "path": "x"},
        {"path": "b.jpg"},
    )
    assert faults(items) == [("m.jsonl:101", "two columns of one meaning"), ("m.jsonl:104", "no image path")]
    assert isinstance(items[0], Failure) and items[0].detail == "'label', 'class'; --label_column says which"
    assert isinstance(items[3], Failure) and items[3].detail == "image is null"
    (named,) = row_after(
        images, {**image, "class": 1}, {**image, "class": 1, "label": 2}, label_column="class"
    )
    assert isinstance(named, ImageRecord) and named.annotations == Annotations((1,), {"label": 2})


def test_among_the_first_rows_the_best_column_is_that_of_all(images: Path) -> None:
    rows = [{"image": "a.jpg", "class": 1}, {"image": "a.jpg", "label": 2, "class": 3}]
    items = listed(images, "".join(json.dumps(row) + "\n" for row in rows))
    assert [item.annotations for item in items if isinstance(item, ImageRecord)] == [
        Annotations((), {"class": 1}),
        Annotations((2,), {"class": 3}),
    ]


@pytest.mark.parametrize("name", ["image", "Path", "imageGcsUri"])
def test_images_that_come_late_among_features_alone_are_failures(images: Path, name: str) -> None:
    items = row_after(images, {"x": 1}, {"x": 2, name: "a.jpg"}, {"x": 3, "label": "cat"})
    assert faults(items) == [("m.jsonl:101", "image column comes late")]
    assert isinstance(items[0], Failure) and items[0].detail.endswith(f"give --image_column {name}")
    assert isinstance(items[1], ImageRecord) and items[1].annotations == Annotations(
        (), {"x": 3, "label": "cat"}
    )
    (late,) = row_after(images, {"x": 1}, {"x": 2, name: "a.jpg"}, image_column=name)
    assert isinstance(late, ImageRecord) and (late.key, late.annotations.features) == ("a.jpg", {"x": 2})


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"set": "train"}, {"set": None}, {"set": "VAL"}], [("train", {}), (None, {}), ("val", {})]),
        ([{"set": "train"}, {"set": 3}], [(None, {"set": "train"}), (None, {"set": 3})]),
        ([{"set": "train", "split": "a"}, {"set": "val"}], [("a", {"set": "train"}), (None, {"set": "val"})]),
        ([{"Subset": "test"}, {"split": "val"}], [("test", {}), ("val", {})]),
    ],
)
def test_set_and_subset_are_splits_where_the_first_rows_name_splits(
    images: Path, rows: list[dict[str, object]], expected: list[tuple[str | None, dict[str, object]]]
) -> None:
    items = listed(images, "".join(json.dumps({"image": "a.jpg", **row}) + "\n" for row in rows))
    assert [
        (item.split, item.annotations.features) for item in items if isinstance(item, ImageRecord)
    ] == expected


USE = "aiplatform.googleapis.com/ml_use"


@pytest.mark.parametrize(
    ("row", "split", "labels", "features"),
    [
        ({"classificationAnnotation": {"displayName": "cat"}}, None, ("cat",), {}),
        (
            {
                "classificationAnnotations": [{"displayName": "cat"}, {"displayName": "dog"}],
                "dataItemResourceLabels": {USE: "training", "site": "x"},
            },
            "train",
            ("cat", "dog"),
            {"dataItemResourceLabels/site": "x"},
        ),
        ({"dataItemResourceLabels": {USE: "test"}}, "test", (), {}),
        ({"dataItemResourceLabels": {USE: "validation"}, "note": 1}, "validation", (), {"note": 1}),
    ],
)
def test_vertex_import_file(
    images: Path,
    row: dict[str, object],
    split: str | None,
    labels: tuple[str, ...],
    features: dict[str, FeatureValue],
) -> None:
    record = one(images, {"imageGcsUri": "gs://bucket/a.jpg", **row}, image_roots=(str(images),))
    assert (record.key, record.split, record.annotations) == ("a.jpg", split, Annotations(labels, features))
    assert [
        reason for _, reason in faults(listed(images, json.dumps({"imageGcsUri": "gs://bucket/a.jpg"})))
    ] == ["outside the input root"]


def vertex(**more: object) -> dict[str, object]:
    return {"imageGcsUri": "gs://bucket/a.jpg", **more}


@pytest.mark.parametrize(
    ("rows", "options", "splits"),
    [
        ([{"image": "a.jpg"}], {}, ()),
        ([{"image": "a.jpg"}, {"image": "a.jpg", "split": "val"}], {}, None),
        ([{"image": "a.jpg", "split": None}], {}, ()),
        ([{"image": "a.jpg", "Subset": "val"}], {}, None),
        ([{"image": "a.jpg", "subset": "seven"}], {}, ()),
        ([{"image": "a.jpg", "split": "x"}], {"label_column": "split"}, ()),
        ([{"number": 1}], {}, ()),
        ([{"number": 1, "split": "val"}], {}, None),
        ([{"image": "a.jpg"}, "no object", {"image": 7, "split": "val"}], {}, ()),  # rows that are failures
        ([{"image": "a.jpg"}] * PEEKED, {}, ()),
        ([{"image": "a.jpg"}] * (PEEKED + 1), {}, None),  # what comes later nobody has seen
        ([vertex()], {}, ()),
        ([vertex(), vertex(dataItemResourceLabels={USE: "test"})], {}, None),
        ([vertex(dataItemResourceLabels={USE: "unassigned"})], {}, ()),
        ([vertex(), {"image": "a.jpg", "split": "val"}], {}, None),
        ([], {}, ()),
        ([{"x": "a"}], {"image_column": "y"}, None),
    ],
)
def test_split_names(
    tmp_path: Path, rows: list[object], options: dict[str, str], splits: tuple[str, ...] | None
) -> None:
    (tmp_path / "m.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    config = SourceConfig("jsonl", f"{tmp_path}/m.jsonl", **options)  # type: ignore[arg-type]
    assert SOURCE.split_names(config) == splits


def test_opening_is_tried_again(images: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]) -> None:
    expected = one(images, {"image": "a.jpg"})
    manifest, opened, calls = str(images / "m.jsonl"), os.open, 0

    def flaky(path: str, *args: int) -> int:
        nonlocal calls
        calls += path == manifest
        if path == manifest and calls % 4:
            raise OSError(errno.ESTALE, "Stale file handle", path)
        return opened(path, *args)

    monkeypatch.setattr(os, "open", flaky)
    assert list(SOURCE.read(SourceConfig("jsonl", manifest), "/nowhere")) == [expected]
    assert (calls % 4, len(waits)) == (0, calls * 3 // 4)


def test_vertex_rows_of_other_tasks(images: Path) -> None:
    masks = json.dumps({"imageGcsUri": "a.jpg", "segmentationAnnotation": {}})
    with pytest.raises(ValueError, match="an import file for another task"):
        listed(images, masks + "\n")
    plain = json.dumps({"imageGcsUri": "a.jpg"})
    items = listed(images, f"{plain}\n" * 100 + masks)
    assert faults(items) == [("m.jsonl:101", "annotation not supported")]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "which is empty"),
        ('[{"image": "a.jpg"}]', {}, "not JSON objects, one on each line"),
        ('{\n  "image": "a.jpg"\n}', {}, "not JSON objects, one on each line"),
        ("image,label\na.jpg,cat\n", {}, "not JSON objects, one on each line"),
        ('{"x": 1}', {"image_column": "photo"}, "--image_column is 'photo'; .* has the columns x"),
        ('{"x": 1}', {"label_column": "y"}, "--label_column is 'y'; .* has the columns x"),
        ('{"x": 1}', {"image_roots": (".",)}, "no column is named like one of image paths"),
        (
            '{"m": {"x": "a.jpg"}}',
            {},
            "the column 'm/x' has images by name, such as 'a.jpg'; give --image_column m/x",
        ),
        (
            '{"imageGcsUri": "gs://b/a.jpg"}',
            {"label_column": "imageGcsUri"},
            "give --image_column imageGcsUri",
        ),
        ('{"x": 1}\n' * 150, {"label_column": "y"}, "--label_column is 'y'; .* has the columns x"),
    ],
)
def test_bad_calls(tmp_path: Path, text: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        listed(tmp_path, text, **options)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=4), min_size=1, max_size=4))
def test_any_objects_are_records_or_failures(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]]
) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    items = listed(tmp_path_factory.mktemp("jsonl"), text)
    assert [item.key for item in items] == [f"m.jsonl:{number}" for number in range(1, len(rows) + 1)]
    for row, item in zip(rows, items, strict=True):
        if isinstance(item, ImageRecord) and "split" not in row:
            scalars = {name: value for name, value in row.items() if isinstance(value, str | int | float)}
            features = item.annotations.features
            assert {name: features[name] for name in scalars if name in features} == scalars


def test_labels_that_are_whole_floats_are_integers(images: Path) -> None:
    values = ("3.0", "NaN", "null", "[1.0, 2]", "0.5")
    items = listed(images, "".join(f'{{"image": "a.jpg", "label": {value}}}\n' for value in values))
    labels = [item.annotations.labels for item in items if isinstance(item, ImageRecord)]
    assert labels == [(3,), (), (), (1, 2)]
    assert [item.detail for item in items if isinstance(item, Failure)] == ["0.5"]


def test_labels_of_boxes_that_are_whole_floats_are_integers(images: Path) -> None:
    row = {"image": "a.jpg", "xmin": 1, "ymin": 1, "xmax": 2, "ymax": 2, "label": 3.0}
    (item,) = listed(images, json.dumps(row))
    assert isinstance(item, ImageRecord)
    assert [one.label for one in item.annotations.objects] == [3]
