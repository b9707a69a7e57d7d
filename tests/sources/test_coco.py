"""COCO's annotation files: what each kind becomes, how files are put together, what is refused."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    Box,
    ClassNames,
    Failure,
    ImageRecord,
    JobError,
    Rle,
    Segment,
)
from recordmill.transforms.sources.coco.files import JsonSections
from recordmill.transforms.sources.coco.source import CocoSource
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.source import Item
from recordmill.transforms.storage.reader import ImageReader
from tests.buckets.server import BucketServer
from tests.sources.placeless import without_place
from tests.sources.sniffing import sniff

SOURCE = CocoSource()
ALL = ("masks", "keypoints", "captions")
CATEGORIES = [{"id": 1, "name": "cat"}, {"id": 7, "name": "dog"}]


def image(number: int | str, name: str, **more: object) -> dict[str, object]:
    return {"id": number, "file_name": name, "height": 20, "width": 30, **more}


def box(number: int, of: int | str, *bbox: float, category: int = 1, **more: object) -> dict[str, object]:
    return {"id": number, "image_id": of, "category_id": category, "bbox": list(bbox), **more}


def write(
    path: Path, images: list[Any], annotations: list[Any] | None = None, categories: Any = CATEGORIES
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sections = {"info": {"year": 2017}, "images": images, "categories": categories}
    if annotations is not None:
        sections["annotations"] = annotations
    path.write_text(json.dumps(sections))


def put(folder: Path, *names: str) -> None:
    """Files that are images by name: no source looks into them."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())


def read(place: Path | str, **options: object) -> list[Item]:
    config = SourceConfig("coco", str(place), **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return list(SOURCE.read(config, "/nowhere"))


def records(items: list[Item]) -> dict[str, ImageRecord]:
    found = [item for item in items if isinstance(item, ImageRecord)]
    assert len({item.key for item in found}) == len(found)
    return {item.key: item for item in found}


def failures(items: list[Item]) -> list[tuple[str, str, bool]]:
    return [(item.key, item.reason, item.skipped) for item in items if isinstance(item, Failure)]


def only(place: Path, **options: object) -> Annotations:
    items = read(place, **options)
    assert failures(items) == []
    (record,) = records(items).values()
    return record.annotations


def test_instances(tmp_path: Path) -> None:
    put(tmp_path, "val2017/1.jpg", "val2017/2.jpg")
    annotations = [
        box(
            5,
            11,
            1.5,
            2,
            3.25,
            4,
            iscrowd=0,
            area=12.5,
            segmentation=[[1, 2, 3, 4, 5, 6.5], [0, 0, 1, 0, 1, 1]],
        ),
        box(
            3, 11, 0, 0, 30, 20, category=7, iscrowd=1, segmentation={"size": [20, 30], "counts": [100, 500]}
        ),
        box(4, 11, 1, 1, 1, 1, segmentation={"size": [20, 30], "counts": "PQR"}),
    ]
    write(
        tmp_path / "annotations/instances_val2017.json", [image(11, "1.jpg"), image(12, "2.jpg")], annotations
    )
    items = read(tmp_path, include_annotations=("masks",))
    assert items[0] == ClassNames({1: "cat", 7: "dog"})
    found = records(items)
    assert list(found) == ["val2017/1.jpg", "val2017/2.jpg"]
    first = found["val2017/1.jpg"]
    assert (first.split, first.annotations.source_id, first.annotations.size) == ("val", "11", (20, 30))
    assert first.origin == "annotations/instances_val2017.json, image 11"
    assert first.annotations.objects == (
        AnnotatedObject(
            "cat",
            Box(1.5, 2.0, 4.75, 6.0),
            ((1.0, 2.0, 3.0, 4.0, 5.0, 6.5), (0.0, 0.0, 1.0, 0.0, 1.0, 1.0)),
            attributes={"is_crowd": 0, "area": 12.5},
        ),
        AnnotatedObject("dog", Box(0, 0, 30, 20), Rle(20, 30, (100, 500)), attributes={"is_crowd": 1}),
        AnnotatedObject("cat", Box(1, 1, 2, 2), Rle(20, 30, "PQR")),
    )
    assert found["val2017/2.jpg"].annotations == Annotations(size=(20, 30), source_id="12")
    assert first.image is not None and ImageReader().read(first.image) == b"val2017/1.jpg"
    assert first.size == len(b"val2017/1.jpg")


def test_masks_key_points_and_captions_are_taken_where_they_are_asked_for(tmp_path: Path) -> None:
    put(tmp_path, "1.jpg")
    person = box(1, 1, 0, 0, 5, 5, keypoints=[9, 9, 0, 1, 2, 1, 3.5, 4, 2], segmentation=[[0, 0, 5, 0, 5, 5]])
    caption = {"id": 1, "image_id": 1, "caption": "A cat."}
    write(tmp_path / "person_keypoints.json", [image(1, "1.jpg")], [person])
    write(tmp_path / "captions.json", [image(1, "1.jpg")], [caption], [])
    plain = AnnotatedObject("cat", Box(0, 0, 5, 5))
    polygons, points = ((0, 0, 5, 0, 5, 5),), ((0, 0, 0), (1, 2, 1), (3.5, 4, 2))
    assert only(tmp_path) == Annotations(objects=(plain,), size=(20, 30), source_id="1")
    assert only(tmp_path, include_annotations=("masks",)).objects[0].mask == polygons
    assert only(tmp_path, include_annotations=("masks",)).objects[0].keypoints == ()
    assert only(tmp_path, include_annotations=("keypoints",)).objects[0].keypoints == points
    assert only(tmp_path, include_annotations=("keypoints",)).objects[0].mask is None
    assert only(tmp_path, include_annotations=("captions",)).captions == ("A cat.",)


def test_files_of_one_split_are_put_together_by_image(tmp_path: Path) -> None:
    put(tmp_path, "train2017/1.jpg", "train2017/2.jpg", "val2017/1.jpg", "panoptic_train2017/1.png")
    one, two = image(1, "1.jpg"), image(2, "2.jpg", weather="sunny")
    same = box(9, 1, 1, 1, 2, 2, area=4.0, segmentation=[[1, 1, 2, 1, 2, 2]])
    other = box(9, 2, 3, 3, 2, 2)  # the same id, of another image
    points = {**same, "keypoints": [1, 1, 2]}
    folder = tmp_path / "annotations"
    write(folder / "instances_train2017.json", [one, two], [same, other])
    write(folder / "person_keypoints_train2017.json", [two, one], [points, box(8, 1, 0, 0, 1, 1)])
    captions = [{"id": 9, "image_id": 1, "caption": text} for text in ("a", "b")]
    write(folder / "captions_train2017.json", [one], captions, [])
    segment = {"id": 513, "category_id": 7}
    panoptic = {"image_id": 1, "file_name": "1.png", "segments_info": [segment]}
    write(folder / "panoptic_train2017.json", [one], [panoptic], [{"id": 7, "name": "dog", "isthing": 0}])
    write(folder / "instances_val2017.json", [image(1, "1.jpg")], [])
    write(folder / "labels_train.json", [one], [{"id": 1, "image_id": 1, "category_id": 7}])
    items = read(tmp_path, include_annotations=ALL)
    assert failures(items) == []
    found = records(items)
    assert [(key, item.split) for key, item in found.items()] == [
        ("train2017/1.jpg", "train"),
        ("train2017/2.jpg", "train"),
        ("val2017/1.jpg", "val"),
    ]
    first = found["train2017/1.jpg"].annotations
    assert first.objects == (
        AnnotatedObject(
            "cat", Box(1, 1, 3, 3), ((1, 1, 2, 1, 2, 2),), ((1, 1, 2),), attributes={"area": 4.0}
        ),
        AnnotatedObject("cat", Box(0, 0, 1, 1)),
    )
    assert (first.captions, first.labels, list(first.masks)) == (("a", "b"), ("dog",), ["panoptic"])
    mask = first.masks["panoptic"]
    assert mask.segments == (Segment(513, "dog", False),)
    assert ImageReader().read(mask.image) == b"panoptic_train2017/1.png"
    second = found["train2017/2.jpg"].annotations
    assert second.objects == (AnnotatedObject("cat", Box(3, 3, 5, 5)),)
    assert (second.features, second.masks) == ({"weather": "sunny"}, {})
    config = SourceConfig("coco", str(tmp_path))
    assert SOURCE.split_names(config) == ("train", "val")
    assert SOURCE.schemas(config) == ("detection", "panoptic")


@pytest.mark.parametrize(
    ("name", "annotation", "schemas"),
    [
        ("a.json", box(1, 1, 0, 0, 1, 1), ("detection",)),
        ("b.json", {"id": 1, "image_id": 1, "caption": "x"}, ("detection",)),
        ("c.json", {"image_id": 1, "file_name": "1.png", "segments_info": []}, ("panoptic",)),
        ("d.json", {"id": 1, "image_id": 1, "category_id": 7}, ("classification",)),
        ("image_info_test.json", None, ()),
    ],
)
def test_schemas_by_what_is_in_a_file(
    tmp_path: Path, name: str, annotation: dict[str, object] | None, schemas: tuple[str, ...]
) -> None:
    write(tmp_path / name, [image(1, "1.jpg")], [annotation] if annotation else [])
    assert SOURCE.schemas(SourceConfig("coco", str(tmp_path))) == schemas


@pytest.mark.parametrize(
    ("name", "schemas"),
    [
        ("panoptic_val2017.json", ("panoptic",)),
        ("labels_val.json", ("classification",)),
        ("instances_val.json", ("detection",)),
    ],
)
def test_schemas_by_name_where_annotations_come_late(
    tmp_path: Path, name: str, schemas: tuple[str, ...]
) -> None:
    write(tmp_path / name, [image(n, f"{n:0100}.jpg") for n in range(8_000)], [box(1, 1, 0, 0, 1, 1)])
    assert os.path.getsize(tmp_path / name) > 1 << 20
    assert SOURCE.schemas(SourceConfig("coco", str(tmp_path))) == schemas


@pytest.mark.parametrize(
    ("file", "where", "split"),
    [
        ("annotations/instances_train2017.json", "train2017", "train"),
        ("annotations/instances_train2017.json", "images/train2017", "train"),
        ("annotations/instances_train2017.json", "images/train", "train"),
        ("annotations/instances_val.json", "val", "val"),
        ("annotations/instances_val.json", "images", "val"),
        ("annotations/instances_val.json", ".", "val"),
        ("annotations/instances_default.json", "images/default", None),
        ("annotations/instances_test-dev2017.json", "test-dev2017", "test-dev"),
        ("train/_annotations.coco.json", "train", "train"),
        ("_annotations.coco.json", ".", None),
        ("lvis_v1_val.json", "val", "val"),
        ("train.json", "data", "train"),
        ("labels.json", "data", None),
        ("a/valid/labels.json", "a/valid/images", "valid"),
        ("Annotations/instances_val.json", "Images", "val"),
        ("ANNOTATIONS/instances_train2017.json", "IMAGES/TRAIN2017", "train"),
        ("annotations/instances_train2017.json", "Train", "train"),
    ],
)
def test_where_images_lie_and_which_split_they_are_of(
    tmp_path: Path, file: str, where: str, split: str | None
) -> None:
    put(tmp_path, f"{where}/1.jpg")
    write(tmp_path / file, [image(1, "1.jpg")], [box(1, 1, 0, 0, 1, 1)])
    (record,) = records(read(tmp_path)).values()
    assert (record.key, record.split) == (os.path.normpath(f"{where}/1.jpg"), split)
    config = SourceConfig("coco", str(tmp_path))
    assert SOURCE.split_names(config) == ((split,) if split else ())
    assert sniff(SOURCE, config) == f"{file!r} is a COCO annotation file"


def test_files_that_flags_name(tmp_path: Path) -> None:
    put(tmp_path, "photos/a/1.jpg", "more/2.jpg")
    write(
        tmp_path / "notes/part.json", [image("x", "a/1.jpg"), image("y", "2.jpg")], [box(1, "x", 0, 0, 1, 1)]
    )
    given = {"annotations": (f"{tmp_path}/notes/part.json",)}
    items = read(tmp_path / "photos", **given)
    assert list(records(items)) == ["a/1.jpg"]
    assert failures(items) == [("2.jpg", "not found", False)]
    items = read(tmp_path / "photos", image_roots=(f"{tmp_path}/more",), **given)
    assert [item.annotations.source_id for item in records(items).values()] == ["x", "y"]
    put(tmp_path, "notes/2.jpg")  # beside the file that the call names
    assert list(records(read(tmp_path / "notes/part.json"))) == ["2.jpg"]
    why = sniff(SOURCE, SourceConfig("auto", f"{tmp_path}/photos", **given))  # type: ignore[arg-type]
    assert why == f"'{tmp_path}/notes/part.json' is a COCO annotation file"


def test_lvis_names_images_by_their_url(tmp_path: Path) -> None:
    put(tmp_path, "train2017/9.jpg")
    url = "http://images.cocodataset.org/train2017/9.jpg"
    write(tmp_path / "lvis_v1_val.json", [{"id": 9, "coco_url": url}], [box(1, 9, 0, 0, 1, 1)])
    assert list(records(read(tmp_path))) == ["train2017/9.jpg"]


def test_sections_may_come_in_any_order(tmp_path: Path) -> None:
    put(tmp_path, "1.jpg", "2.jpg")
    sections = {
        "annotations": [box(1, 2, 0, 0, 1, 1), box(2, 1, 0, 0, 2, 2), box(3, 2, 0, 0, 3, 3, category=7)],
        "images": [image(1, "1.jpg"), image(2, "2.jpg")],
        "categories": CATEGORIES,
    }
    (tmp_path / "a.json").write_text(json.dumps(sections))
    found = {
        key: [(one.label, one.box[2]) for one in item.annotations.objects if one.box]
        for key, item in records(read(tmp_path)).items()
    }
    assert found == {"1.jpg": [("cat", 2)], "2.jpg": [("cat", 1), ("dog", 3)]}


def test_ids_where_names_repeat_and_where_there_are_none(tmp_path: Path) -> None:
    put(tmp_path, "1.jpg")
    repeated = [{"id": 0, "name": "cat"}, {"id": 3, "name": "cat"}]
    write(tmp_path / "a.json", [image(1, "1.jpg")], [box(1, 1, 0, 0, 1, 1, category=3)], repeated)
    items = read(tmp_path)
    assert items[0] == ClassNames({0: "cat", 3: "cat"})
    assert records(items)["1.jpg"].annotations.objects[0].label == 3
    write(tmp_path / "a.json", [image(1, "1.jpg")], [box(1, 1, 0, 0, 1, 1, category=3)], [])
    items = read(tmp_path)
    assert not any(isinstance(item, ClassNames) for item in items)
    assert records(items)["1.jpg"].annotations.objects[0].label == 3


def test_objects_without_a_box_keep_their_mask(tmp_path: Path) -> None:
    put(tmp_path, "1.jpg")
    outline = {"id": 1, "image_id": 1, "category_id": 1, "segmentation": [[0, 0, 9, 0, 9, 9]]}
    write(tmp_path / "a.json", [image(1, "1.jpg")], [outline, {**outline, "id": 2, "bbox": []}])
    objects = only(tmp_path).objects
    assert objects == (AnnotatedObject("cat", None, ((0, 0, 9, 0, 9, 9),)),) * 2


GOOD = box(1, 1, 0, 0, 1, 1)
PANOPTIC = {"id": 1, "image_id": 1, "file_name": "m.png", "segments_info": []}


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        ({**GOOD, "bbox": [0, 0, 1]}, "bounding box is not four numbers"),
        ({**GOOD, "bbox": [0, 0, 1, "1"]}, "bounding box is not four numbers"),
        ({**GOOD, "bbox": [0, 0, 1, float("nan")]}, "bounding box is not four numbers"),
        ({**GOOD, "bbox": [0, 0, 1, True]}, "bounding box is not four numbers"),
        ({**GOOD, "bbox": [0, 0, 1, 10**400]}, "bounding box is not four numbers"),
        ({**GOOD, "bbox": {"x": 1}}, "bounding box is not four numbers"),
        ({**GOOD, "bbox": []}, "object without box and mask"),
        ({**GOOD, "category_id": 2}, "category is not listed"),
        ({**GOOD, "category_id": None}, "no category"),
        ({**GOOD, "iscrowd": "no"}, "iscrowd is not 0 or 1"),
        ({**GOOD, "area": "big"}, "area is not a number"),
        ({**GOOD, "segmentation": [[1, 2, 3]]}, "polygon is not pairs of numbers"),
        ({**GOOD, "segmentation": [[1, 2], "x"]}, "polygon is not pairs of numbers"),
        ({**GOOD, "segmentation": "x"}, "segmentation is neither polygons nor run lengths"),
        ({**GOOD, "segmentation": {"counts": [1]}}, "run lengths without a size"),
        ({**GOOD, "segmentation": {"size": [2, 2], "counts": [-1, 5]}}, "run lengths are not numbers"),
        ({**GOOD, "segmentation": {"size": [4, 6], "counts": "\ud800"}}, "run lengths are not numbers"),
        ({**GOOD, "attributes": {"color": "\ud800"}}, "attribute is not text"),
        ({**GOOD, "segmentation": {"size": [2, 2], "counts": [1, 2]}}, "run lengths do not fill the mask"),
        ({**GOOD, "keypoints": [1, 2]}, "key points are not x, y and visibility"),
        ({**GOOD, "keypoints": [1, 2, 3]}, "visibility of a key point is not 0, 1 or 2"),
        ({"id": 1, "image_id": 1, "caption": 5}, "caption is not text"),
        ({**PANOPTIC, "file_name": None}, "panoptic mask without a file name"),
        ({**PANOPTIC, "file_name": "no.png"}, "panoptic mask not found"),
        ({**PANOPTIC, "segments_info": [{"id": 5}]}, "no category"),
        ({**PANOPTIC, "segments_info": [{"category_id": 1}]}, "segment without an id of a colour"),
        ({**PANOPTIC, "segments_info": [{"id": 5, "category_id": 1}] * 2}, "segment id twice"),
        ({**PANOPTIC, "segments_info": 5}, "segments are not a list"),
    ],
)  # fmt: skip
def test_an_annotation_that_cannot_be_read_fails_its_image(
    tmp_path: Path, annotation: dict[str, object], reason: str
) -> None:
    put(tmp_path, "images/1.jpg", "images/2.jpg", "m.png")
    images = [image(1, "1.jpg"), image(2, "2.jpg")]
    write(tmp_path / "instances.json", images, [GOOD, annotation, {**GOOD, "image_id": 2}])
    items = read(tmp_path, include_annotations=ALL)
    assert failures(items) == [("images/1.jpg", reason, False)]
    (failure,) = (item for item in items if isinstance(item, Failure))
    assert failure.stage == "annotations"
    assert failure.detail.startswith("annotation 1 of instances.json: ")
    assert list(records(items)) == ["images/2.jpg"]


def test_what_belongs_to_no_image_is_told(tmp_path: Path) -> None:
    put(tmp_path, "1.jpg", "2.jpg", "3.jpg", ".hidden.jpg", "notes.txt")
    images = [
        image(1, "1.jpg"),
        image(1, "2.jpg"),
        image(4, "1.jpg"),
        image(5, "gone.jpg"),
        image(6, "../outside.jpg"),
        {"id": 8},
        "x",
        image(True, "2.jpg"),
    ]  # type: list[Any]
    annotations = [box(1, 99, 0, 0, 1, 1), {"id": 2}, 7, {**box(0, 99, 0, 0, 1, 1), "id": None}]
    write(tmp_path / "in.json", images, annotations)
    items = read(tmp_path)
    assert list(records(items)) == ["1.jpg"]
    assert failures(items) == [
        ("in.json:image 1", "image id twice", False),
        ("in.json:image 4", "image twice", False),
        ("in.json:image 8", "image without a file name", False),
        ("in.json:image number 7", "image is not an object", False),
        ("in.json:image number 8", "image without an id", False),
        ("in.json:annotation 2", "annotation without an image id", False),
        ("in.json:annotation number 3", "annotation is not an object", False),
        ("in.json:annotation 1", "annotation without its image", False),
        ("in.json:annotation of image 99", "annotation without its image", False),
        ("gone.jpg", "not found", False),
        ("../outside.jpg", "outside the input root", False),
        ("2.jpg", "image without annotations", True),
        ("3.jpg", "image without annotations", True),
    ]
    details = {item.key: item.detail for item in items if isinstance(item, Failure)}
    assert details["in.json:image 1"] == "'1.jpg' and '2.jpg' have the id 1"
    assert details["in.json:image 4"] == "'1.jpg' has the ids 1 and 4"
    assert {item.stage for item in items if isinstance(item, Failure) and not item.skipped} == {"annotations"}


def test_files_that_disagree(tmp_path: Path) -> None:
    put(tmp_path, "1.jpg")
    write(tmp_path / "instances_train.json", [image(1, "1.jpg")], [GOOD])
    write(tmp_path / "stuff_train.json", [image(1, "1.jpg", width=31)], [])
    assert failures(read(tmp_path)) == [("1.jpg", "annotation files disagree on the size", False)]
    write(tmp_path / "stuff_train.json", [image(1, "1.jpg")], [], [{"id": 7, "name": "wolf"}])
    with pytest.raises(JobError, match="category 7 is 'dog' in 'instances_train.json' and 'wolf' in 'stuff_"):
        read(tmp_path)


def test_include_exclude_and_limit(tmp_path: Path) -> None:
    names = [f"{name}.jpg" for name in "abcd"]
    put(tmp_path, *(f"images/{name}" for name in names), "images/e.jpg")
    write(tmp_path / "a.json", [image(n, name) for n, name in enumerate(names)], [])
    items = read(tmp_path, include=("[ace].jpg",), exclude=("images/c*",))
    excluded = "excluded by --include/--exclude"
    assert list(records(items)) == ["images/a.jpg"]
    assert failures(items) == [
        *((f"images/{name}.jpg", excluded, True) for name in "bcd"),
        ("images/e.jpg", "image without annotations", True),
    ]
    assert list(records(read(tmp_path, limit=2))) == ["images/a.jpg", "images/b.jpg"]


def test_other_json_is_skipped_and_the_output_is_not_looked_at(tmp_path: Path) -> None:
    put(tmp_path, "1.jpg")
    write(tmp_path / "a.json", [image(1, "1.jpg")], [])
    write(tmp_path / "out/b.json", [image(1, "1.jpg")], [])
    (tmp_path / "notes.json").write_text("[1, 2]")
    (tmp_path / ".cache.json").write_text("{}")
    items = read(tmp_path, skip_dirs=(f"{tmp_path}/out",))
    assert len(records(items)) == 1
    assert failures(items) == [("notes.json", "not a COCO annotation file", True)]


@pytest.mark.parametrize(
    "text",
    [
        '{"version": "5", "shapes": [], "imagePath": "1.jpg"}',
        '{"LabelName": "/m/0", "Subcategory": [{"LabelName": "/m/1"}]}',
        '{"image": "1.jpg"}\n{"image": "2.jpg"}',
        '{"images": ["1.jpg"], "annotations": []}',
        '{"annotations": [{"image_id": 1, "question_id": 2}]}',
        '[{"image_id": 1, "caption": "x"}]',
        "",
        "\x00\x01",
    ],
)
def test_other_json_is_not_taken_for_coco(tmp_path: Path, text: str) -> None:
    (tmp_path / "labels.json").write_text(text)
    assert sniff(SOURCE, SourceConfig("auto", str(tmp_path))) is None
    put(tmp_path, "x/1.jpg")
    assert sniff(SOURCE, SourceConfig("auto", f"{tmp_path}/x")) is None
    assert sniff(SOURCE, SourceConfig("auto", f"{tmp_path}/x/1.jpg")) is None


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"label_column": "x"}, "--label_column is 'x', and --source coco does not use it"),
        ({"label_pattern": "(x)"}, "--label_pattern is '\\(x\\)', and --source coco does not use it"),
        ({"image_column": "x"}, "--image_column is 'x'"),
        ({"mask_pattern": "x"}, "--mask_pattern is 'x'"),
        ({"annotations": ("other.json",)}, "--annotations is '.*other.json', which is not a COCO annotation"),
        ({"annotations": ("gone.json",)}, "--annotations is 'gone.json': there is no such file"),
        ({"image_roots": ("/gone",)}, "--image_root is '/gone': there is no such folder"),
    ],
)
def test_calls_that_are_wrong(tmp_path: Path, options: dict[str, object], match: str) -> None:
    write(tmp_path / "a.json", [image(1, "1.jpg")], [])
    (tmp_path / "other.json").write_text('{"a": [1]}')
    with pytest.raises(ValueError, match=match):
        read(tmp_path, **options)


def test_captions_alone_have_to_be_asked_for(tmp_path: Path) -> None:
    put(tmp_path, "1.jpg")
    write(
        tmp_path / "captions.json", [image(1, "1.jpg")], [{"id": 1, "image_id": 1, "caption": "A cat."}], []
    )
    with pytest.raises(ValueError, match="only captions; give --include_annotations=captions"):
        read(tmp_path)
    assert only(tmp_path, include_annotations=("captions",)).captions == ("A cat.",)


def test_names_as_windows_writes_them(tmp_path: Path) -> None:
    put(tmp_path, "images/sub/a.jpg", "images/b.jpg", "images/c\\d.jpg")
    names = ["images\\sub\\a.jpg", "C:\\photos\\b.jpg", "c\\d.jpg", "sub\\gone.jpg", "..\\..\\x.jpg"]
    write(tmp_path / "result.json", [image(number, name) for number, name in enumerate(names)], [])
    items = read(tmp_path)
    assert list(records(items)) == ["images/sub/a.jpg", "images/b.jpg", "images/c\\d.jpg"]
    assert failures(items) == [
        ("sub\\gone.jpg", "not found", False),
        ("..\\..\\x.jpg", "outside the input root", False),
    ]


def test_image_ids_that_are_no_unicode(tmp_path: Path) -> None:
    put(tmp_path, "1.jpg")
    write(tmp_path / "a.json", [image("\ud800", "1.jpg")], [])
    assert [reason for _, reason, _ in failures(read(tmp_path))] == ["image without an id"]


def test_category_ids_that_no_feature_holds(tmp_path: Path) -> None:
    put(tmp_path, "1.jpg")
    huge = 1 << 63
    write(tmp_path / "a.json", [image(1, "1.jpg")], [], [{"id": huge, "name": "cat"}])
    with pytest.raises(JobError, match="a category without an id of 0 to 2"):
        read(tmp_path)
    write(tmp_path / "a.json", [image(1, "1.jpg")], [box(1, 1, 0, 0, 1, 1, category=huge)], [])
    assert failures(read(tmp_path)) == [("1.jpg", "no category", False)]


def test_a_folder_without_annotation_files(tmp_path: Path) -> None:
    put(tmp_path, "1.jpg")
    with pytest.raises(ValueError, match="where no COCO annotation file is found"):
        read(tmp_path)


START = '{"images": [\n{"id": 1, "file_name": "1.jpg"}], '


@pytest.mark.parametrize(
    ("rest", "match"),
    [
        ('"annotations": [{"id": 1,', "cut off"),
        ('"annotations": [1 2]}', "',' is expected, at character 65, line 2"),
        ('"categories": [], "annotations": []} x', "there is more after the end"),
        ('"categories": [], annotations: []}', "a key in double quotes is expected"),
        ('"annotations": [{"a": nope}]}', "expecting value, at character 69, line 2"),
        ('"annotations": [' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_broken_json_is_told_with_its_place(tmp_path: Path, rest: str, match: str) -> None:
    path = tmp_path / "instances_train.json"
    path.write_text(START + rest)
    put(tmp_path, "1.jpg")
    with pytest.raises(JobError, match=f"'{path}' is broken: .*{match}"):
        list(SOURCE.read(SourceConfig("coco", str(tmp_path)), "/nowhere"))
    path.write_bytes(b'{"images": [{"id": 1, "file_name": "\xff.jpg"}], "annotations": []}')
    with pytest.raises(ValueError, match="a byte is not UTF-8"):
        SOURCE.check(SourceConfig("coco", str(tmp_path)))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=9,
)


@given(
    st.dictionaries(st.text(max_size=4), st.lists(_JSON, max_size=4) | _JSON, max_size=4),
    st.booleans(),
    st.data(),
)
def test_lists_are_read_as_json_reads_them(
    value: dict[str, Any], indented: bool, data: st.DataObject
) -> None:
    text = json.dumps(value, indent=2 if indented else None, ensure_ascii=data.draw(st.booleans()))
    try:
        stored = text.encode("utf-8-sig" if indented else "utf-8")
    except UnicodeEncodeError:
        return
    sections = JsonSections(io.BytesIO(stored), "x.json", data.draw(st.integers(1, 40)))
    found = list(sections.elements())
    lists = {key: inner for key, inner in value.items() if isinstance(inner, list)}
    assert sections.lists == list(lists)
    assert [(key, inner) for key, inner, _ in found] == [(key, one) for key in lists for one in lists[key]]
    assert [json.loads(one.text) for one in found] == [one.value for one in found]


@given(st.integers(0, 200), st.integers(1, 300))
def test_a_cut_file_is_never_read_as_whole(cut: int, chunk: int) -> None:
    whole = json.dumps(
        {"images": [{"id": 1.25, "a": 'x\u00e9"y'}, {"b": [True, None, -3e5]}], "c": {"d": 12}, "e": 1234}
    )
    data = whole.encode()
    if cut >= len(data):
        return
    with pytest.raises(JobError, match="'x.json' is broken: "):
        list(JsonSections(io.BytesIO(data[:cut]), "x.json", chunk).elements())


def test_a_bucket_gives_what_the_disk_gives(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    put(tmp_path, "train2017/1.jpg", "train2017/2.jpg", "val2017/3.jpg", "annotations/panoptic_val2017/3.png")
    folder = tmp_path / "annotations"
    write(
        folder / "instances_train2017.json",
        [image(1, "1.jpg"), image(9, "gone.jpg")],
        [box(1, 1, 1, 2, 3, 4)],
    )
    panoptic = {"image_id": 3, "file_name": "3.png", "segments_info": [{"id": 5, "category_id": 1}]}
    write(folder / "panoptic_val2017.json", [image(3, "3.jpg")], [panoptic, box(7, 99, 0, 0, 1, 1)])
    (folder / "notes.json").write_text("{}")
    bucket_server.upload_folder(tmp_path, f"{bucket}/in")
    expected = read(tmp_path)
    assert [type(item).__name__ for item in expected].count("ImageRecord") == 2
    assert [key for key, _, _ in failures(expected)] == [
        "annotations/notes.json",
        "annotations/panoptic_val2017.json:annotation 7",
        "gone.jpg",
        "train2017/2.jpg",
    ]
    items = read(f"{bucket}/in")
    masks = [item.annotations.masks for item in items if isinstance(item, ImageRecord)]
    assert masks[1]["panoptic"].image.uri == f"{bucket}/in/annotations/panoptic_val2017/3.png"
    for one, other in zip(items, expected, strict=True):
        if isinstance(one, ImageRecord) and isinstance(other, ImageRecord):
            assert (one.key, one.split, one.size, one.origin) == (
                other.key,
                other.split,
                other.size,
                other.origin,
            )
            assert one.annotations.objects == other.annotations.objects
            assert one.image is not None and one.image.uri == f"{bucket}/in/{one.key}"
            assert ImageReader().read(one.image) == one.key.encode()
        elif isinstance(one, Failure) and isinstance(other, Failure):
            assert without_place(one) == without_place(other)
        else:
            assert one == other
    assert sniff(SOURCE, SourceConfig("auto", f"{bucket}/in")) is not None
    assert records(
        read(f"{bucket}/in/train2017", annotations=(f"{bucket}/in/annotations/instances_train2017.json",))
    )


@pytest.mark.corpus
def test_every_instance_of_coco_equals_what_pycocotools_reads(corpus: Path) -> None:
    from pycocotools import mask as coco_mask
    from pycocotools.coco import COCO

    folder = corpus / "coco64"
    reference = COCO(folder / "annotations/instances_val2017.json")
    names = {number: category["name"] for number, category in reference.cats.items()}
    items = read(folder, include_annotations=ALL, annotations=("annotations/instances_val2017.json",))
    found = records(items)
    assert len(found) == len(reference.imgs) == 64
    assert failures(items) == []
    kinds = set()
    for record in found.values():
        known = reference.imgs[int(record.annotations.source_id)]
        assert record.key == f"images/val2017/{known['file_name']}"
        assert record.annotations.size == (known["height"], known["width"])
        expected = reference.imgToAnns[known["id"]]
        assert len(expected) == len(record.annotations.objects)
        for one, other in zip(record.annotations.objects, expected, strict=True):
            x, y, width, height = other["bbox"]
            assert one.box == (x, y, x + width, y + height)
            assert one.label == names[other["category_id"]]
            assert one.attributes == {"is_crowd": other["iscrowd"], "area": other["area"]}
            assert isinstance(one.mask, Rle)
            height, width, counts = one.mask.height, one.mask.width, one.mask.counts
            runs: Any = {"size": [height, width], "counts": counts}
            if isinstance(counts, tuple):
                uncompressed: Any = {**runs, "counts": list(counts)}
                runs = coco_mask.frPyObjects(uncompressed, height, width)
            assert (coco_mask.decode(runs) == reference.annToMask(other)).all()
            kinds.add((type(counts), other["iscrowd"]))
    assert kinds == {(str, 0), (tuple, 1)}


@pytest.mark.corpus
def test_panoptic_segments_of_coco(corpus: Path) -> None:
    folder = corpus / "coco64"
    with open(folder / "panoptic/panoptic_val2017.json") as file:
        whole = json.load(file)
    categories = {category["id"]: category for category in whole["categories"]}
    names = {image["id"]: image["file_name"] for image in whole["images"]}
    items = read(folder)
    found = {os.path.basename(key): record for key, record in records(items).items()}
    assert (len(found), SOURCE.schemas(SourceConfig("coco", str(folder)))) == (64, ("detection", "panoptic"))
    missing = {key for key, reason, _ in failures(items) if reason == "not found"}
    assert missing == set(names.values()) - set(found)
    seen = 0
    for annotation in whole["annotations"]:
        if (record := found.get(names[annotation["image_id"]])) is None:
            continue
        mask = record.annotations.masks["panoptic"]
        assert mask.image.uri.endswith(f"panoptic/panoptic_val2017/{annotation['file_name']}")
        assert [(one.id, one.label, one.is_thing) for one in mask.segments] == [
            (
                one["id"],
                categories[one["category_id"]]["name"],
                categories[one["category_id"]]["isthing"] == 1,
            )
            for one in annotation["segments_info"]
        ]
        seen += 1
    assert seen == 64


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("tree", "schemas"),
    [
        ("coco", ("detection", "panoptic")),
        ("coco_captions", ("detection",)),
        ("coco_image_info", ()),
        ("coco_instances", ("detection",)),
        ("coco_labels", ("classification",)),
        ("coco_panoptic", ("panoptic",)),
        ("coco_person_keypoints", ("detection",)),
        ("coco_roboflow", ("detection",)),
        ("coco_stuff", ("detection",)),
        ("mmdet_coco", ("detection",)),
    ],
)
def test_layouts(corpus: Path, tree: str, schemas: tuple[str, ...]) -> None:
    folder = corpus / "layouts/coco_dataset" / tree
    config = SourceConfig("coco", str(folder), include_annotations=ALL)
    assert sniff(SOURCE, config) is not None
    assert SOURCE.schemas(config) == schemas
    items = read(folder, include_annotations=ALL)
    assert failures(items) == []
    found = [
        (os.path.basename(key), item.split, item.annotations.source_id)
        for key, item in records(items).items()
    ]
    assert found == [("a.jpg", "train", "5"), ("b.jpg", "val", "40")]


@pytest.mark.corpus
def test_no_other_layout_is_taken_for_coco(corpus: Path) -> None:
    layouts = corpus / "layouts"
    for folder, _, _ in os.walk(layouts):
        if "coco_dataset" not in folder and Path(folder) != layouts:
            assert sniff(SOURCE, SourceConfig("auto", folder)) is None, folder


def test_the_folder_that_has_an_image_is_named(tmp_path: Path) -> None:
    write(tmp_path / "labels.json", [image(1, "1.jpg"), image(2, "2.jpg")], [box(1, 1, 1, 2, 3, 4)])
    put(tmp_path, "photos/1.jpg")
    details = {item.key: item.detail for item in read(tmp_path) if isinstance(item, Failure)}
    assert details == {
        "1.jpg": f"'1.jpg', looked for in {tmp_path}; --image_root {tmp_path}/photos finds it",
        "2.jpg": f"'2.jpg', looked for in {tmp_path}",
    }
    assert set(records(read(tmp_path, image_roots=(f"{tmp_path}/photos",)))) == {"photos/1.jpg"}
