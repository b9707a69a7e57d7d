"""A row a box, in CSV and JSON Lines: one record an image, wherever its rows stand."""

from __future__ import annotations

import csv
import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest
from defusedxml import ElementTree

from recordmill.transforms.records import AnnotatedObject, Box, Failure, ImageRecord
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.selection import EXCLUDED
from recordmill.transforms.sources.source import Item, Source
from recordmill.transforms.sources.tables.manifest_sources import CsvSource, JsonlSource
from tests.buckets.server import BucketServer
from tests.sources.sniffing import sniff

HEADER = "filename,width,height,class,xmin,ymin,xmax,ymax"
SOURCES: dict[str, Source] = {"csv": CsvSource(), "jsonl": JsonlSource()}
USE = "aiplatform.googleapis.com/ml_use"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder with a.jpg, b.jpg and sub/c.jpg."""
    (tmp_path / "sub").mkdir()
    for name in ("a.jpg", "b.jpg", "sub/c.jpg"):
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


def read(kind: str, place: Path | str, **options: object) -> list[Item]:
    config = SourceConfig(kind, str(place), **options)  # type: ignore[arg-type]
    SOURCES[kind].check(config)
    return list(SOURCES[kind].read(config, "/nowhere"))


def read_csv(folder: Path, text: str, **options: object) -> list[Item]:
    (folder / "m.csv").write_text(text)
    return read("csv", folder / "m.csv", **options)


def read_jsonl(folder: Path, rows: Iterable[object], **options: object) -> list[Item]:
    (folder / "m.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return read("jsonl", folder / "m.jsonl", **options)


def boxes(items: Iterable[Item]) -> dict[str, list[tuple[str | int, Box | None]]]:
    return {
        item.key: [(part.label, part.box) for part in item.annotations.objects]
        for item in items
        if isinstance(item, ImageRecord)
    }


def only(items: list[Item]) -> ImageRecord:
    (item,) = items
    assert isinstance(item, ImageRecord), item
    return item


def faults(items: Iterable[Item]) -> list[tuple[str, str, str]]:
    return [(item.key, item.reason, item.detail) for item in items if isinstance(item, Failure)]


def test_rows_of_an_image_need_not_be_together(images: Path) -> None:
    text = (
        f"{HEADER}\nb.jpg,640,480,dog,1,2.5,3,4e1\na.jpg,10,20,cat,0,0,10,20\n"
        "b.jpg,640,480,cat,-5,6,700,8\nsub/c.jpg,,,,,,,\n./b.jpg,,,dog,0.1,0.2,0.3,0.7\n"
    )
    items = read_csv(images, text)
    assert boxes(items) == {
        "b.jpg": [
            ("dog", Box(1, 2.5, 3, 40)),
            ("cat", Box(-5, 6, 700, 8)),
            ("dog", Box(0.1, 0.2, 0.3, 0.7)),
        ],
        "a.jpg": [("cat", Box(0, 0, 10, 20))],
        "sub/c.jpg": [],
    }
    told = [
        (r.annotations.size, r.annotations.relative, r.origin) for r in items if isinstance(r, ImageRecord)
    ]
    assert told == [
        ((480, 640), False, "m.csv, line 2"),
        ((20, 10), False, "m.csv, line 3"),
        (None, False, "m.csv, line 5"),
    ]
    assert SOURCES["csv"].schemas(SourceConfig("csv", f"{images}/m.csv")) == ("detection",)


@pytest.mark.parametrize(
    ("header", "row", "box"),
    [
        ("image,XMin,YMin,XMax,YMax", "a.jpg,1,2,3,4", Box(1, 2, 3, 4)),
        ("image,ymax,xmax,ymin,xmin", "a.jpg,4,3,2,1", Box(1, 2, 3, 4)),
        ("image,x_min,y_min,x_max,y_max", "a.jpg,1,2,3,4", Box(1, 2, 3, 4)),
        ("image,x1,y1,x2,y2", "a.jpg,1,2,3,4", Box(1, 2, 3, 4)),
        ("image,x0,y0,x1,y1", "a.jpg,1,2,3,4", Box(1, 2, 3, 4)),
        ("image,left,top,right,bottom", "a.jpg,1,2,3,4", Box(1, 2, 3, 4)),
        ("image,bbox_xmin,bbox_ymin,bbox_xmax,bbox_ymax", "a.jpg,1,2,3,4", Box(1, 2, 3, 4)),
        ("image,bbox_x,bbox_y,bbox_width,bbox_height", "a.jpg,1,2,3,4", Box(1, 2, 4, 6)),
    ],
)
def test_names_of_columns(images: Path, header: str, row: str, box: Box) -> None:
    assert boxes(read_csv(images, f"{header}\n{row}\n")) == {"a.jpg": [("object", box)]}
    item: dict[str, object] = {
        name: cell if name == "image" else int(cell)
        for name, cell in zip(header.split(","), row.split(","), strict=True)
    }
    assert boxes(read_jsonl(images, [item])) == {"a.jpg": [("object", box)]}


@pytest.mark.parametrize(
    "header", ["image,x,y,width,height", "image,xmin,ymin,xmax,z", "image,left,right,w,h"]
)
def test_other_columns_are_features_as_ever(images: Path, header: str) -> None:
    record = only(read_csv(images, f"{header}\na.jpg,1,2,3,4\n"))
    assert record.annotations.objects == () and len(record.annotations.features) == 4
    assert SOURCES["csv"].schemas(SourceConfig("csv", f"{images}/m.csv")) == ()


def test_other_columns_are_attributes_of_the_object(images: Path) -> None:
    text = (
        "image,label,xmin,ymin,xmax,ymax,iscrowd,pose,difficult,note\n"
        "a.jpg,x,1,2,3,4,1,Left,0,\na.jpg,y,1,2,3,4,0,,1,é\n"
    )
    record = only(read_csv(images, text))
    assert [dict(part.attributes) for part in record.annotations.objects] == [
        {"is_crowd": "1", "view": "Left", "difficult": "0"},
        {"is_crowd": "0", "difficult": "1", "note": "é"},
    ]
    assert dict(record.annotations.features) == {}
    row = {"image": "a.jpg", "label": 7, "xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}
    record = only(read_jsonl(images, [{**row, "area": 4.5, "iscrowd": 1, "tags": ["p", 1], "note": None}]))
    assert record.annotations.objects == (
        AnnotatedObject(7, Box(1, 2, 3, 4), attributes={"area": 4.5, "is_crowd": 1, "tags": '["p", 1]'}),
    )


@pytest.mark.parametrize(
    ("rows", "reason", "detail"),
    [
        ("a.jpg,9,9,cat,1,2,3,\n", "box is not four numbers", "m.csv, line 3: 1, 2, 3, "),
        ("a.jpg,9,9,cat,1,2,3,x\n", "box is not four numbers", "m.csv, line 3: 1, 2, 3, x"),
        ("a.jpg,9,9,cat,1,2,3,nan\n", "box is not four numbers", "m.csv, line 3: 1, 2, 3, nan"),
        ("a.jpg,9,9,,1,2,3,4\n", "box without a label", "m.csv, line 3: class is empty"),
        ("a.jpg,9,8,cat,1,2,3,4\n", "image has two sizes", "m.csv, line 3: (8, 9), and (9, 9) before it"),
        ("a.jpg,9.5,9,cat,1,2,3,4\n", "size is not two whole numbers", "m.csv, line 3: height 9, width 9.5"),
    ],
)
def test_a_bad_row_fails_its_image_and_no_other(images: Path, rows: str, reason: str, detail: str) -> None:
    text = f"{HEADER}\na.jpg,9,9,cat,1,2,3,4\n{rows}b.jpg,9,9,cat,1,2,3,4\na.jpg,9,9,cat,1,2,3,4\n"
    items = read_csv(images, text)
    assert [found[:2] for found in faults(items)] == [("a.jpg", reason)]
    assert detail in faults(items)[0][2]
    assert list(boxes(items)) == ["b.jpg"]


def test_an_image_in_two_splits_fails(images: Path) -> None:
    text = "image,split,xmin,ymin,xmax,ymax\na.jpg,train,1,2,3,4\nb.jpg,val,1,2,3,4\na.jpg,val,1,2,3,4\n"
    items = read_csv(images, text)
    ((key, reason, detail),) = faults(items)
    assert (key, reason) == ("a.jpg", "image is in two splits")
    assert "m.csv, line 4" in detail and "m.csv, line 2" in detail
    assert [(item.key, item.split) for item in items if isinstance(item, ImageRecord)] == [("b.jpg", "val")]


def test_images_that_are_not_there_are_told_once(images: Path) -> None:
    names = ("none.jpg", "a.jpg", "none.jpg", "../x.jpg")
    rows = "".join(f"{name},,,cat,1,2,3,4\n" for name in names)
    items = read_csv(images, f"{HEADER}\n{rows},,,cat\n")
    assert [found[:2] for found in faults(items)] == [
        ("m.csv:2", "not found"),
        ("m.csv:5", "outside the input root"),
        ("m.csv:6", "wrong number of cells"),
    ]
    assert list(boxes(items)) == ["a.jpg"]


def test_selection_limit_and_labels_of_images(images: Path) -> None:
    text = f"{HEADER}\na.jpg,,,cat,1,2,3,4\nb.jpg,,,cat,1,2,3,4\nsub/c.jpg,,,none,,,,\na.jpg,,,dog,1,2,3,4\n"
    items = read_csv(images, text, exclude=("a*",))
    assert [found[:2] for found in faults(items)] == [("a.jpg", "excluded by --include/--exclude")]
    assert list(boxes(items)) == ["b.jpg", "sub/c.jpg"]
    assert list(boxes(read_csv(images, text, limit=1))) == ["a.jpg"]
    negative = read_csv(images, text)[2]
    assert isinstance(negative, ImageRecord)
    assert (negative.annotations.labels, negative.annotations.objects) == (("none",), ())
    patterned = read_csv(images, text, label_pattern="([abc])[.]jpg")[0]
    assert isinstance(patterned, ImageRecord) and patterned.annotations.labels == ("a",)
    assert [part.label for part in patterned.annotations.objects] == ["cat", "dog"]
    other = read_csv(images, "image,class,kind,xmin,ymin,xmax,ymax\na.jpg,x,y,1,2,3,4\n", label_column="kind")
    assert boxes(other) == {"a.jpg": [("y", Box(1, 2, 3, 4))]}


@pytest.mark.parametrize(
    ("header", "rows", "relative"),
    [
        ("image,xmin,ymin,xmax,ymax", "a.jpg,0.1,0,1,0.5\n", True),
        ("image,xmin,ymin,xmax,ymax", "a.jpg,0,0,1,1\n", False),
        ("image,xmin,ymin,xmax,ymax", "a.jpg,0.1,0,1,0.5\na.jpg,0,0,1,1.5\n", False),
        ("image,xmin,ymin,xmax,ymax,width,height", "a.jpg,0.1,0,1,0.5,640,480\n", False),
        ("image,xmin,ymin,xmax,ymax,width,height", "a.jpg,0.1,0,1,0.5,,\n", True),
    ],
)
def test_shares_of_the_image_are_known_by_the_first_rows(
    images: Path, header: str, rows: str, relative: bool
) -> None:
    record = only(read_csv(images, f"{header}\n{rows}"))
    assert record.annotations.relative is relative
    why = sniff(SOURCES["csv"], SourceConfig("auto", f"{images}/m.csv"))
    assert why is not None and "each row is a box: xmin, ymin, xmax, ymax" in why
    assert ("normalised to [0, 1]" in why) is relative


def test_pixels_among_shares_fail(images: Path) -> None:
    rows = "a.jpg,0.1,0,1,0.5\n" * 100 + "a.jpg,0,0,1.01,1\nb.jpg,1,1,300,200\n"
    items = read_csv(images, f"image,xmin,ymin,xmax,ymax\n{rows}")
    assert [found[:2] for found in faults(items)] == [("b.jpg", "box is not relative")]
    assert len(boxes(items)["a.jpg"]) == 101


def test_manifests_named_like_splits(images: Path) -> None:
    for name, row in (("train_labels", "a.jpg"), ("test_labels", "b.jpg"), ("more", "sub/c.jpg")):
        (images / f"{name}.csv").write_text(f"{HEADER}\n{row},,,cat,1,2,3,4\n")
        (images / f"{name}-plain.csv").write_text(f"image,label\n{row},cat\n")

    def splits(*names: str) -> list[str | None]:
        config = SourceConfig("csv", str(images), names)
        found = [item.split for item in SOURCES["csv"].read(config, "") if isinstance(item, ImageRecord)]
        assert SOURCES["csv"].split_names(config) == tuple(sorted(filter(None, found)))
        return found

    assert splits("train_labels.csv", "test_labels.csv") == ["train", "test"]
    assert splits("train_labels-plain.csv", "test_labels-plain.csv") == ["train", "test"]
    assert splits("train_labels.csv", "more.csv") == [None, None]
    assert splits("train_labels.csv") == [None]


def test_one_record_an_image_over_all_manifests(images: Path) -> None:
    for number in (1, 2):
        (images / f"{number}.csv").write_text(f"{HEADER}\na.jpg,,,cat,{number},2,3,4\n")
    assert boxes(read("csv", images, annotations=("1.csv", "2.csv"))) == {
        "a.jpg": [("cat", Box(1, 2, 3, 4)), ("cat", Box(2, 2, 3, 4))]
    }
    for name in ("train", "val"):
        (images / f"{name}.csv").write_text(f"{HEADER}\na.jpg,,,cat,1,2,3,4\n")
    items = read("csv", images, annotations=("train.csv", "val.csv"))
    assert [found[:2] for found in faults(items)] == [("a.jpg", "image is in two splits")]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("TRAIN,gs://b/a.jpg,cat,0.1,0.2,,,0.5,0.75,,", [("cat", Box(0.1, 0.2, 0.5, 0.75))]),
        ("TRAIN,a.jpg,cat,0.1,0.2,0.5,0.2,0.5,0.75,0.1,0.75", [("cat", Box(0.1, 0.2, 0.5, 0.75))]),
        ("TRAIN,a.jpg,cat,0.5,0.75,0.1,0.75,0.1,0.2,0.5,0.2", [("cat", Box(0.1, 0.2, 0.5, 0.75))]),
        ("TRAIN,a.jpg", []),
        ("TRAIN,a.jpg,,,,,,,,,", []),
    ],
)
def test_vertex_csv(images: Path, row: str, expected: list[tuple[str, Box]]) -> None:
    other = "UNASSIGNED,b.jpg,dog,0,0,,,1,1,,"
    items = read_csv(images, f"{row}\n{other}\n", image_roots=(str(images),))
    assert boxes(items) == {"a.jpg": expected, "b.jpg": [("dog", Box(0, 0, 1, 1))]}
    first, second = (item for item in items if isinstance(item, ImageRecord))
    assert (first.split, second.split) == ("train", None)
    assert (first.annotations.relative, second.annotations.relative) == (bool(expected), True)
    config = SourceConfig("csv", f"{images}/m.csv")
    assert SOURCES["csv"].schemas(config) == ("detection",)
    assert "for object detection" in (sniff(SOURCES["csv"], config) or "")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("TEST,a.jpg,cat,10,20,,,50,75,,", "box is not relative"),
        ("TEST,a.jpg,cat,0.1,0.2,,,,,,", "box is not two or four vertices"),
        ("TEST,a.jpg,cat,0.1,0.2,,,0.5,x,,", "box is not four numbers"),
        ("TEST,a.jpg,,0.1,0.2,,,0.5,0.6,,", "box without a label"),
        ("TEST,a.jpg,cat,0.1,0.2,,,0.5,0.6,,,9", "wrong number of cells"),
    ],
)
def test_bad_rows_of_vertex_csv(images: Path, row: str, reason: str) -> None:
    items = read_csv(images, f"TEST,b.jpg,dog,0,0,,,1,1,,\n{row}\n")
    assert [found[:2] for found in faults(items)] == [("a.jpg", reason)]
    assert list(boxes(items)) == ["b.jpg"]


def test_vertex_jsonl(images: Path) -> None:
    box = {"displayName": "cat", "xMin": 0.1, "yMin": 0.2, "xMax": 0.5, "yMax": 0.75}
    rows = [
        {
            "imageGcsUri": "gs://b/a.jpg",
            "boundingBoxAnnotations": [box, {**box, "annotationResourceLabels": {"by": "me"}}],
            "dataItemResourceLabels": {USE: "training"},
        },
        {"imageGcsUri": "gs://b/b.jpg", "boundingBoxAnnotations": []},
        {"imageGcsUri": "gs://b/sub/c.jpg", "boundingBoxAnnotations": [{**box, "xMin": None}]},
    ]
    items = read_jsonl(images, rows, image_roots=(str(images),))
    first, second = (item for item in items if isinstance(item, ImageRecord))
    assert first.annotations.objects == (
        AnnotatedObject("cat", Box(0.1, 0.2, 0.5, 0.75)),
        AnnotatedObject("cat", Box(0.1, 0.2, 0.5, 0.75), attributes={"annotationResourceLabels/by": "me"}),
    )
    assert (first.split, first.annotations.relative, dict(first.annotations.features)) == ("train", True, {})
    assert (second.key, second.annotations.objects, second.annotations.relative) == ("b.jpg", (), False)
    assert [found[:2] for found in faults(items)] == [("m.jsonl:3", "box is not four numbers")]
    assert SOURCES["jsonl"].schemas(SourceConfig("jsonl", f"{images}/m.jsonl")) == ("detection",)


def test_json_rows_of_lists_of_boxes(images: Path) -> None:
    rows: list[dict[str, object]] = [
        {
            "file_name": "a.jpg",
            "width": 640,
            "height": 480,
            "image_id": 5,
            "objects": {
                "bbox": [[1, 2, 3, 4], [5.5, 6, 1, 1]],
                "categories": [0, "dog"],
                "area": [12, None],
                "id": [7, 8],
                "note": "x",
            },
        },
        {"file_name": "b.jpg", "boxes": [[1, 2, 3, 4]], "labels": ["cat"], "split": "val"},
        {"file_name": "sub/c.jpg", "objects": {"bbox": [], "categories": []}},
    ]
    items = read_jsonl(images, rows)
    a, b, c = (item for item in items if isinstance(item, ImageRecord))
    assert a.annotations.objects == (
        AnnotatedObject(0, Box(1, 2, 4, 6), attributes={"area": 12, "id": 7}),
        AnnotatedObject("dog", Box(5.5, 6, 6.5, 7), attributes={"id": 8}),
    )
    assert (a.annotations.size, dict(a.annotations.features)) == (
        (480, 640),
        {"image_id": 5, "objects/note": "x"},
    )
    assert (b.split, boxes([b])) == ("val", {"b.jpg": [("cat", Box(1, 2, 3, 4))]})
    assert (b.annotations.labels, dict(b.annotations.features)) == ((), {})
    assert c.annotations.objects == () and not any(r.annotations.relative for r in (a, b, c))
    assert SOURCES["jsonl"].schemas(SourceConfig("jsonl", f"{images}/m.jsonl")) == ("detection",)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"boxes": [[1, 2, 3, 4]], "labels": []}, "boxes and labels differ in number"),
        ({"boxes": [[1, 2, 3, 4], [1, 2]]}, "box is not four numbers"),
        ({"objects": {"bbox": [[1, 2, "x", 4]]}}, "box is not four numbers"),
        ({"objects": {"bbox": [7]}}, "box is not four numbers"),
        ({"objects": {"bbox": [[1, 2, 3, 4]], "category": [None]}}, "box without a label"),
        ({"objects": {"bbox": [[1, 2, 3, 4]], "category": [1.5]}}, "label is not text or an integer"),
        ({"xmin": 1, "ymin": 2, "xmax": 3, "ymax": True, "label": "x"}, "box is not four numbers"),
        ({"xmin": 1, "ymin": 2, "xmax": 3, "ymax": 10**400, "label": "x"}, "box is not four numbers"),
    ],
)
def test_bad_boxes_in_json(images: Path, row: dict[str, object], reason: str) -> None:
    ((_, found, _),) = faults(read_jsonl(images, [{"image": "a.jpg", **row}]))
    assert found == reason


def test_json_rows_of_one_box_each(images: Path) -> None:
    box = {"label": "cat", "xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}
    rows: list[dict[str, object]] = [
        {"image": "a.jpg", **box},
        {"image": "b.jpg", **dict.fromkeys(box)},
        {"image": "a.jpg", **box, "label": 3, "xmin": 0.5},
        {"image": "sub/c.jpg", "note": "plain", "label": "x"},
    ]
    items = read_jsonl(images, rows)
    assert boxes(items) == {
        "a.jpg": [("cat", Box(1, 2, 3, 4)), (3, Box(0.5, 2, 3, 4))],
        "b.jpg": [],
        "sub/c.jpg": [],
    }
    last = items[2]
    assert isinstance(last, ImageRecord)
    assert (last.annotations.labels, dict(last.annotations.features)) == (("x",), {"note": "plain"})


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_bucket_gives_the_same(images: Path, bucket: str, bucket_server: BucketServer, kind: str) -> None:
    rows = [("a.jpg", 1), ("sub/c.jpg", 2), ("none.jpg", 3), ("a.jpg", 4)]
    if kind == "csv":
        text = "image,label,xmin,ymin,xmax,ymax\n" + "".join(f"{name},x,{at},2,3,4\n" for name, at in rows)
    else:
        box = {"label": "x", "ymin": 2, "xmax": 3, "ymax": 4}
        text = "".join(json.dumps({"image": name, "xmin": at, **box}) + "\n" for name, at in rows)
    (images / f"m.{kind}").write_text(text)
    for name in ("a.jpg", "sub/c.jpg", f"m.{kind}"):
        bucket_server.put(f"{bucket}/p/{name}", (images / name).read_bytes())
    here, there = read(kind, f"{images}/m.{kind}"), read(kind, f"{bucket}/p/m.{kind}")
    assert (
        boxes(here)
        == boxes(there)
        == {
            "a.jpg": [("x", Box(1, 2, 3, 4)), ("x", Box(4, 2, 3, 4))],
            "sub/c.jpg": [("x", Box(2, 2, 3, 4))],
        }
    )
    assert [found[:2] for found in faults(there)] == [(f"m.{kind}:{4 - (kind == 'jsonl')}", "not found")]


@pytest.mark.slow
def test_memory_is_less_than_a_kilobyte_an_image(tmp_path: Path) -> None:
    count = 2_000
    for number in range(count):
        (tmp_path / f"{number:012}.jpg").write_bytes(b"x")
    rows = "".join(f"{number:012}.jpg,,,some class,1,2.25,300,400\n" for number in range(count))

    def peak(times: int) -> int:
        (tmp_path / "m.csv").write_text(f"{HEADER}\n{rows * times}")
        tracemalloc.start()
        found = SOURCES["csv"].read(SourceConfig("csv", f"{tmp_path}/m.csv"), "/nowhere")
        assert sum(isinstance(item, ImageRecord) for item in found) == count
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    one, five = peak(1), peak(5)
    assert one < 1_200 * count  # with what one reading takes whatever its size
    assert five - one < 100 * 4 * count


def test_lists_of_sides_as_kaggle_has_them(images: Path) -> None:
    text = (
        'image_id,width,height,bbox,source\na,1024,768,"[834.0, 222.0, 56.5, 36.0]",usask_1\n'
        'sub/c,1024,768,,usask_1\nb,1024,768,"[1, 2, nan, 4]",x\na,1024,768,"[1, 2, 3, 4]",ethz_1\n'
        "gone,1024,768,,x\n"
    )
    items = read_csv(images, text, image_column="image_id")
    assert boxes(items) == {
        "a.jpg": [("object", Box(834, 222, 890.5, 258)), ("object", Box(1, 2, 4, 6))],
        "sub/c.jpg": [],
    }
    first = next(item for item in items if isinstance(item, ImageRecord))
    assert first.annotations.size == (768, 1024)
    assert first.annotations.objects[1].attributes == {"source": "ethz_1"}
    assert [fault[:2] for fault in faults(items)] == [
        ("m.csv:6", "not found"),
        ("b.jpg", "box is not four numbers"),
    ]


def test_lists_of_sides_in_json(images: Path) -> None:
    rows = [
        {"image": "a.jpg", "bbox": [1, 2, 3, 4], "label": "c"},
        {"image": "a.jpg", "bbox": [0.5, 0, 1, 1]},
    ]
    assert boxes(read_jsonl(images, [rows[0], {**rows[1], "label": 7}])) == {
        "a.jpg": [("c", Box(1, 2, 4, 6)), (7, Box(0.5, 0, 1.5, 1))]
    }


def test_quoted_headers_as_vott_writes_them(images: Path) -> None:
    text = '"image","xmin","ymin","xmax","ymax","label"\r\n"a.jpg",1.5,2,3,4,"cat; dog"\r\n'
    assert boxes(read_csv(images, text)) == {"a.jpg": [("cat; dog", Box(1.5, 2, 3, 4))]}


def test_a_bad_row_of_an_excluded_image_is_excluded(images: Path) -> None:
    rows = [{"image": name, "boxes": [[1, 2, 3, at]]} for name, at in (("a.jpg", None), ("b.jpg", 4))]
    items = read_jsonl(images, rows, exclude=("a.jpg",))
    assert boxes(items) == {"b.jpg": [("object", Box(1, 2, 3, 4))]}
    assert [(item.key, item.reason, item.skipped) for item in items if isinstance(item, Failure)] == [
        ("a.jpg", EXCLUDED, True)
    ]


@pytest.mark.corpus
def test_raccoons_have_the_boxes_of_their_xml(corpus: Path) -> None:
    folder = corpus / "raccoon"
    expected: dict[str, list[tuple[str, Box]]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for path in sorted((folder / "annotations").glob("*.xml")):
        root = ElementTree.parse(path).getroot()
        assert root is not None
        text = {part.tag: str(part.text) for part in root.iter() if len(part) == 0}
        name = text["filename"]
        sizes[name] = (int(text["height"]), int(text["width"]))
        for item in root.findall("object"):
            cells = {part.tag: str(part.text) for part in item.iter()}
            box = Box(*(float(cells[at]) for at in ("xmin", "ymin", "xmax", "ymax")))
            expected.setdefault(name, []).append((cells["name"], box))
    items = read("csv", folder / "images", annotations=(str(folder / "data/raccoon_labels.csv"),))
    found = {item.key: item for item in items if isinstance(item, ImageRecord)}
    assert len(found) == len(items) == 200
    assert boxes(items) == {key: expected[key] for key in found}
    assert sum(len(record.annotations.objects) for record in found.values()) == 217
    assert {key: record.annotations.size for key, record in found.items()} == {
        key: sizes[key] for key in found
    }


@pytest.mark.corpus
def test_raccoons_in_splits(corpus: Path) -> None:
    folder = corpus / "raccoon"
    names = [str(folder / f"data/{split}_labels.csv") for split in ("train", "test")]
    items = read("csv", folder / "images", annotations=tuple(names))
    rows = {
        split: {row["filename"] for row in csv.DictReader(Path(name).read_text().splitlines())}
        for split, name in zip(("train", "test"), names, strict=True)
    }
    found = {
        split: {r.key for r in items if isinstance(r, ImageRecord) and r.split == split} for split in rows
    }
    both = rows["train"] & rows["test"]
    assert found == {split: keys - both for split, keys in rows.items()}
    assert {key for key, *_ in faults(items)} == both
