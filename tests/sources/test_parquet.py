"""Parquet tables of images, made by pyarrow as Hugging Face datasets makes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from recordmill.transforms.records import Box, ClassNames, Failure, ImageRecord
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.source import Item
from recordmill.transforms.sources.tables.parquet import ParquetSource
from recordmill.transforms.storage.reader import ImageReader
from tests.buckets.server import BucketServer
from tests.sources.sniffing import sniff

SOURCE = ParquetSource()
IMAGE = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
PICTURES = [b"\xff\xd8\xff" + bytes([at]) * (at + 1) for at in range(40)]


def save(path: Path, columns: dict[str, Any], features: dict[str, Any] | None = None) -> None:
    table = pyarrow.table(columns)
    if features is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(table, path, row_group_size=15)


def images(data: list[bytes | None], paths: list[str | None] | None = None) -> Any:
    told = zip(data, paths or [None] * len(data), strict=True)
    return pyarrow.array([{"bytes": one, "path": path} for one, path in told], IMAGE)


def listed(place: object, scratch: object, **options: object) -> list[Item]:
    config = SourceConfig("parquet", str(place), **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return list(SOURCE.read(config, str(scratch)))


def records(items: list[Item]) -> list[ImageRecord]:
    return [item for item in items if isinstance(item, ImageRecord)]


def contents(items: list[Item]) -> list[bytes]:
    reader = ImageReader()
    return [reader.read(record.image) for record in records(items) if record.image]


@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_hugging_face(tmp_path: Path, bucket: str, bucket_server: BucketServer, place: str) -> None:
    columns = {
        "image": images(list(PICTURES)),
        "label": pyarrow.array([at % 2 for at in range(39)] + [-1]),
        "width": pyarrow.array([*range(39), None]),
        "tags": pyarrow.array([["a", "b"]] * 40),
    }
    told = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}
    save(tmp_path / "in" / "data" / "train-00000-of-00001.parquet", columns, told)
    bucket_server.upload_folder(tmp_path / "in", f"{bucket}/in")
    items = listed(f"{tmp_path if place == 'disk' else bucket}/in", tmp_path)
    assert items[0] == ClassNames({0: "cat", 1: "dog"})
    found = records(items)
    assert contents(items) == PICTURES and len(items) == 41
    assert [record.annotations.labels for record in found] == [("cat",), ("dog",)] * 19 + [("cat",), ()]
    assert found[39].key == "data/train-00000-of-00001/00000039" and found[0].split == "train"
    assert found[3].annotations.features == {"width": 3, "tags": ("a", "b")}
    assert found[39].annotations.features == {"tags": ("a", "b")}


@pytest.mark.parametrize("is_list", [False, True])
def test_objects(tmp_path: Path, is_list: bool) -> None:
    boxes = [[1.5, 2.0, 10.0, 20.25], [0.0, 0.0, 1.0, 1.0]]
    one: dict[str, list[Any]] = {"id": [7, 8], "area": [2.5, 1.0], "bbox": boxes, "category": [1, 0]}
    rows = [{name: values[at] for name, values in one.items()} for at in range(2)]
    inner = {"bbox": {}, "category": {"_type": "ClassLabel", "names": ["coat", "dress"]}}
    columns = {"image": images([PICTURES[0]]), "objects": pyarrow.array([rows if is_list else one])}
    save(tmp_path / "a.parquet", columns, {"objects": {"feature": inner, "_type": "Sequence"}})
    items = listed(tmp_path, tmp_path)
    first, second = records(items)[0].annotations.objects
    assert (first.label, first.box) == ("dress", Box(1.5, 2.0, 11.5, 22.25))
    assert (second.label, dict(first.attributes)) == ("coat", {"id": 7, "area": 2.5})
    assert items[0] == ClassNames({0: "coat", 1: "dress"})
    assert SOURCE.schemas(SourceConfig("parquet", str(tmp_path))) == ("detection",)


@pytest.mark.parametrize(
    ("values", "labels", "features"),
    [
        ([3.0, None, 11.0], [(3,), (), (11,)], [{}, {}, {}]),
        ([3.0, float("nan"), 11.0], [(3,), (), (11,)], [{}, {}, {}]),
        ([3.0, 0.5, None], [(), (), ()], [{"label": 3.0}, {"label": 0.5}, {}]),
    ],
)
def test_labels_in_a_column_of_floats(
    tmp_path: Path, values: list[float | None], labels: object, features: object
) -> None:
    save(tmp_path / "a.parquet", {"image": images(list(PICTURES[:3])), "label": pyarrow.array(values)})
    found = [record.annotations for record in records(listed(tmp_path, tmp_path))]
    assert [one.labels for one in found] == labels
    assert [one.features for one in found] == features


def test_a_late_fraction_in_a_column_of_labels_fails_its_row(tmp_path: Path) -> None:
    values = pyarrow.array([1.0] * 1024 + [0.5])
    save(tmp_path / "a.parquet", {"image": images([PICTURES[0]] * 1025), "label": values})
    *found, last = listed(tmp_path, tmp_path)
    assert {one.annotations.labels for one in found if isinstance(one, ImageRecord)} == {(1,)}
    assert isinstance(last, Failure) and last.reason == "label is neither whole number nor text"


def test_paths_stay_below_the_input(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jpg").write_bytes(PICTURES[1])
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    paths: list[str | None] = ["1.jpg", "../secret.jpg", "none.jpg", None]
    save(tmp_path / "in" / "a.parquet", {"image": images([None] * 4, paths)})
    save(tmp_path / "in" / "b.parquet", {"image": pyarrow.array(paths[:2])})
    asked: tuple[tuple[str, dict[str, str]], ...] = (("a", {}), ("b", {"image_column": "image"}))
    for place, options in asked:
        items = listed(tmp_path / "in" / f"{place}.parquet", tmp_path, **options)
        assert contents(items) == [PICTURES[1]]
        reasons = [item.reason for item in items if isinstance(item, Failure)]
        assert reasons == ["outside the input root", "not found", "no image"][: len(items) - 1]
    with pytest.raises(ValueError, match="give --image_column image"):
        listed(tmp_path / "in" / "b.parquet", tmp_path)


def test_plain_bytes_masks_and_limit(tmp_path: Path) -> None:
    columns = {"blob": pyarrow.array([b"no", b"x"]), "photo": pyarrow.array(PICTURES[:2])}
    save(
        tmp_path / "val" / "0000.parquet",
        {**columns, "mask": images([b"m", b"n"]), "more": images([b"1"] * 2)},
    )
    items = listed(tmp_path, tmp_path, include_annotations=("masks",), limit=1)
    (record,) = records(items)
    assert contents(items) == [PICTURES[0]] and record.split == "val"
    assert record.annotations.features == {"blob": b"no"}
    assert ImageReader().read(record.annotations.masks["class"].image) == b"m"
    assert [item.key for item in items if isinstance(item, Failure)] == ["val/0000:more"]


def test_features_alone(tmp_path: Path) -> None:
    save(tmp_path / "a.parquet", {"x": [1.5, 2.5], "kind": ["a", "b"]})
    found = records(listed(tmp_path, tmp_path, label_column="kind"))
    assert [(one.image, one.annotations.labels, one.annotations.features) for one in found] == [
        (None, ("a",), {"x": 1.5}),
        (None, ("b",), {"x": 2.5}),
    ]


def test_what_is_wrong(tmp_path: Path) -> None:
    save(tmp_path / "a.parquet", {"image": images([PICTURES[0]]), "label": [5]})
    (tmp_path / "b.parquet").write_bytes(b"PAR1 no")
    items = listed(tmp_path, tmp_path)
    assert [(item.key, item.reason) for item in items if isinstance(item, Failure)] == [
        ("b", "damaged Parquet file")
    ]
    assert len(records(items)) == 1
    with pytest.raises(ValueError, match="--label_column is 'no'"):
        listed(tmp_path, tmp_path, label_column="no")
    with pytest.raises(ValueError, match="not a Parquet file that can be read"):
        listed(tmp_path / "b.parquet", tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.arrow").write_bytes(b"x")
    with pytest.raises(ValueError, match="convert .arrow files to Parquet"):
        listed(tmp_path / "x", tmp_path)


def test_rows_before_damage_are_read(tmp_path: Path) -> None:
    save(tmp_path / "a.parquet", {"image": images(list(PICTURES))})
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    group = pyarrow.parquet.ParquetFile(tmp_path / "a.parquet").metadata.row_group(2).column(0)
    start = group.dictionary_page_offset or group.data_page_offset
    data[start : start + 60] = b"\xff" * 60
    (tmp_path / "a.parquet").write_bytes(data)
    items = listed(tmp_path, tmp_path)
    assert [(item.key, item.reason) for item in items if isinstance(item, Failure)] == [
        ("a", "damaged Parquet file")
    ]
    found = contents(items)
    assert found == PICTURES[: len(found)] and len(found) >= 16


def test_a_damaged_footer_fails_its_table_alone(tmp_path: Path) -> None:
    save(tmp_path / "a.parquet", {"image": images([PICTURES[0]])})
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    footer = int.from_bytes(data[-8:-4], "little")
    data[-8 - footer : -8] = b"\xff" * footer
    (tmp_path / "b.parquet").write_bytes(data)
    items = listed(tmp_path, tmp_path)
    assert contents(items) == [PICTURES[0]]
    assert [(item.key, item.reason) for item in items if isinstance(item, Failure)] == [
        ("b", "damaged Parquet file")
    ]


def test_what_arrow_says_of_a_damaged_footer_is_one_line(tmp_path: Path) -> None:
    save(tmp_path / "a.parquet", {"image": images([PICTURES[0]])})
    whole = (tmp_path / "a.parquet").read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for start in (footer, footer + 1):
        data = bytearray(whole)
        data[start : start + 20] = b"\xff" * 20
        (tmp_path / "a.parquet").write_bytes(data)
        with pytest.raises(
            ValueError, match="a.parquet' is not a Parquet file that can be read: ."
        ) as caught:
            listed(tmp_path, tmp_path)
        assert "\n" not in str(caught.value)
        scratch = tmp_path / "scratch"
        (failure,) = SOURCE.read(SourceConfig("parquet", str(tmp_path)), str(scratch))
        assert isinstance(failure, Failure) and failure.reason == "damaged Parquet file"
        assert "\n" not in failure.detail


def test_a_path_of_bytes_fails_its_row(tmp_path: Path) -> None:
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.binary())])
    rows = [{"bytes": PICTURES[0], "path": None}, {"bytes": None, "path": b"x.png"}]
    save(tmp_path / "a.parquet", {"image": pyarrow.array(rows, kind)})
    first, second = listed(tmp_path, tmp_path)
    assert isinstance(first, ImageRecord)
    assert isinstance(second, Failure) and (second.reason, second.detail) == ("path is not text", "b'x.png'")


def test_an_object_that_is_no_lists_fails_its_row(tmp_path: Path) -> None:
    boxes = [{"bbox": {"x": 1.0, "y": 2.0}, "category": 1}]
    save(tmp_path / "a.parquet", {"image": images([PICTURES[0]]), "objects": boxes})
    for item in listed(tmp_path, tmp_path):
        assert isinstance(item, ImageRecord) or item.reason == "objects are not lists of values"


def test_times_that_python_has_not_fail_their_table(tmp_path: Path) -> None:
    times = pyarrow.array([1 << 62], pyarrow.timestamp("us"))
    save(tmp_path / "a.parquet", {"image": images([PICTURES[0]]), "when": times})
    (failure,) = listed(tmp_path, tmp_path)
    assert isinstance(failure, Failure) and (failure.key, failure.reason) == ("a", "damaged Parquet file")


def test_nanoseconds_are_text(tmp_path: Path) -> None:
    times = pyarrow.array([1, None], pyarrow.timestamp("ns"))
    save(tmp_path / "a.parquet", {"image": images(list(PICTURES[:2])), "time": times})
    features = [record.annotations.features for record in records(listed(tmp_path, tmp_path))]
    assert features == [{"time": "1970-01-01T00:00:00.000000001"}, {}]


def test_lists_of_images_are_not_features(tmp_path: Path) -> None:
    lists = pyarrow.array([[{"bytes": b"x", "path": None}]])
    save(tmp_path / "a.parquet", {"image": images([PICTURES[0]]), "views": lists})
    items = listed(tmp_path, tmp_path)
    assert records(items)[0].annotations.features == {}
    assert [item.key for item in items if isinstance(item, Failure)] == ["a:views"]
    save(tmp_path / "a.parquet", {"views": lists})
    with pytest.raises(ValueError, match="'views' has lists of them; save a row"):
        listed(tmp_path, tmp_path)


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    table = pyarrow.Table.from_arrays([images([PICTURES[0]]), [1], [2]], ["image", "label", "label"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="two columns are called 'label'"):
        listed(tmp_path, tmp_path)


def test_tables_beside_tars_are_not_the_input(tmp_path: Path) -> None:
    save(tmp_path / "00000.parquet", {"url": ["a"]})
    assert sniff(ParquetSource(), SourceConfig("parquet", str(tmp_path))) is not None
    (tmp_path / "00000.tar").write_bytes(b"")
    assert sniff(ParquetSource(), SourceConfig("parquet", str(tmp_path))) is None
