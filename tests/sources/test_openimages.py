"""Open Images: boxes, labels, masks and lists of images of many CSV files, joined by the images' ids."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from recordmill.transforms.records import AnnotatedObject, Box, ClassNames, Failure, ImageRecord, ImageRef
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.entries_by_image import EntriesByImage
from recordmill.transforms.sources.openimages import OpenImagesSource
from recordmill.transforms.sources.source import Item
from tests.buckets.server import BucketServer
from tests.sources.sniffing import sniff

SOURCE = OpenImagesSource()
LABELS = "ImageID,Source,LabelName,Confidence"
BOXES = f"{LABELS},XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"
MASKS = "MaskPath,ImageID,LabelName,BoxID,BoxXMin,BoxXMax,BoxYMin,BoxYMax,PredictedIoU,Clicks"
FILES = {
    "annotations/class-descriptions-boxable.csv": "/m/c,Cat\n/m/d,Dog",
    "annotations/train-annotations-bbox.csv": (
        f"{BOXES}\nb,xclick,/m/c,1,0.1,0.5,0.2,0.6,1,0,0,0,0\na,xclick,/m/d,1,0,1,0.25,0.75,-1,0,1,0,1\n"
        "b,xclick,/m/d,1,0.3,0.4,0.5,0.6,0,0,0,0,0\ngone,xclick,/m/d,1,0,1,0,1,0,0,0,0,0"
    ),
    "annotations/test-annotations-human-imagelabels.csv": (
        f"{LABELS}\nc,verification,/m/c,1\nc,verification,/m/d,0\nc,verification,/m/e,0.5\nc,v,/m/z,1"
    ),
    "annotations/test-annotations-machine-imagelabels.csv": f"{LABELS}\nc,machine,/m/d,0.9",
    "annotations/image_ids_and_rotation.csv": (
        'ImageID,Subset,Title,Rotation\na,train,"A ""title""",90\nd,validation,,0.0\nlost,test,,nan'
    ),
    "images/train/a.jpg": "x",
    "images/train/b.jpeg": "xx",
    "images/test/c.jpg": "xxx",
    "images/validation/d.png": "xxxx",
    "images/validation/e.png": "xxxx",
    "annotations/train-annotations-object-segmentation.csv": (
        f"{MASKS}\nb_1.png,b,/m/d,1,0.3,0.4,0.5,0.6,0.9,\nb_2.png,b,/m/c,2,0.7,0.8,0.7,0.9,0.9,"
    ),
    "masks/train/b_1.png": "m",
    "masks/b_2.png": "mm",
}


def put(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def read(folder: Path | str, **options: object) -> list[Item]:
    config = SourceConfig("openimages", str(folder), **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return list(SOURCE.read(config, "/nowhere"))


def by_key(items: list[Item]) -> dict[str, ImageRecord]:
    return {item.key: item for item in items if isinstance(item, ImageRecord)}


def failures(items: list[Item]) -> list[tuple[str, str, bool]]:
    return [(item.key, item.reason, item.skipped) for item in items if isinstance(item, Failure)]


def test_all_files_come_together(tmp_path: Path) -> None:
    items = read(put(tmp_path, FILES))
    assert [item for item in items if isinstance(item, ClassNames)] == [
        ClassNames({1: "Cat", 2: "Dog", 3: "/m/z"})
    ]
    found = by_key(items)
    assert list(found) == [
        "images/test/c.jpg",
        "images/train/a.jpg",
        "images/train/b.jpeg",
        "images/validation/d.png",
    ]
    flags = ("occluded", "truncated", "group_of", "depiction", "inside")
    by_id = {record.annotations.source_id: record for record in found.values()}
    assert by_id["a"].annotations.objects == (
        AnnotatedObject(
            "Dog", Box(0, 0.25, 1, 0.75), attributes=dict(zip(flags, (-1, 0, 1, 0, 1), strict=True))
        ),
    )
    assert [(item.label, item.box) for item in by_id["b"].annotations.objects] == [
        ("Cat", Box(0.1, 0.2, 0.5, 0.6)),
        ("Dog", Box(0.3, 0.5, 0.4, 0.6)),
    ]
    assert by_id["a"].annotations.relative and not by_id["c"].annotations.relative
    assert (by_id["c"].annotations.labels, dict(by_id["c"].annotations.features)) == (
        ("Cat", "/m/z"),
        {"labels_absent": ("Dog",)},
    )
    assert dict(by_id["a"].annotations.features) == {"rotation": 90}
    assert by_id["d"].annotations.objects == () and dict(by_id["d"].annotations.features) == {}
    assert {name: record.split for name, record in by_id.items()} == {
        "a": "train",
        "b": "train",
        "c": "test",
        "d": "validation",
    }
    assert by_id["b"].size == 2 and by_id["b"].image is not None
    assert by_id["b"].image.uri == f"{tmp_path}/images/train/b.jpeg"


def test_what_is_not_a_record_is_told(tmp_path: Path) -> None:
    assert sorted(failures(read(put(tmp_path, {**FILES, "annotations/x.json": "{}"})))) == [
        (
            "annotations/test-annotations-human-imagelabels.csv",
            "labels that nobody has verified are not taken",
            True,
        ),
        (
            "annotations/test-annotations-machine-imagelabels.csv",
            "labels by machine are not taken",
            True,
        ),
        ("annotations/train-annotations-object-segmentation.csv", "masks are not taken", True),
        ("annotations/x.json", "not an image by name", True),
        ("images/test/lost.jpg", "listed image that is not there and has no annotation", True),
        ("images/train/gone.jpg", "not found", False),
        ("images/validation/e.png", "image without annotations", True),
        ("masks/", "masks are not taken", True),
    ]


def test_masks_go_to_their_boxes(tmp_path: Path) -> None:
    found = by_key(read(put(tmp_path, FILES), include_annotations=("masks",)))
    objects = found["images/train/b.jpeg"].annotations.objects
    masks = [getattr(item.mask, "uri", None) for item in objects]
    assert masks == [None, f"{tmp_path}/masks/train/b_1.png", f"{tmp_path}/masks/b_2.png"]
    assert (objects[2].label, objects[2].box) == ("Cat", Box(0.7, 0.7, 0.8, 0.9))
    assert all(item.mask is None for item in found["images/train/a.jpg"].annotations.objects)


@pytest.mark.parametrize(
    ("path", "reason"),
    [("none.png", "not found"), ("../../../etc/passwd", "outside the input root"), ("", "not a file")],
)
def test_a_mask_that_cannot_be_had_fails_its_image(tmp_path: Path, path: str, reason: str) -> None:
    rows = f"{MASKS}\n{path},b,/m/d,1,0.3,0.4,0.5,0.6,0.9,"
    put(tmp_path, {**FILES, "annotations/train-annotations-object-segmentation.csv": rows})
    items = read(tmp_path, include_annotations=("masks",))
    assert ("images/train/b.jpeg", reason, False) in failures(items)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("b,x,/m/c,1,0.1,zero,0,1,0,0,0,0,0", "box is not four numbers"),
        ("b,x,/m/c,1,,,,,0,0,0,0,0", "box is not four numbers"),
        ("b,x,/m/c,1,10,200,10,300,0,0,0,0,0", "box is not relative"),
        ("b,x,/m/c,1,0,1,0,1,7,0,0,0,0", "attribute of a box is not -1, 0 or 1"),
        ("b,x,,1,0,1,0,1,0,0,0,0,0", "row without a label"),
        ("b,x,/m/c,1,0,1", "wrong number of cells"),
        ("b,x,/m/c,1,0_1,1,0,1,0,0,0,0,0", "box is not four numbers"),
    ],
)
def test_a_bad_row_fails_its_image_and_no_other(tmp_path: Path, row: str, reason: str) -> None:
    name = "annotations/train-annotations-bbox.csv"
    items = read(put(tmp_path, {**FILES, name: f"{FILES[name]}\n{row}"}))
    assert ("images/train/b.jpeg", reason, False) in failures(items)
    (failure,) = (item for item in items if isinstance(item, Failure) and item.key == "images/train/b.jpeg")
    assert f"{name}, line 6" in failure.detail
    assert "images/train/a.jpg" in by_key(items)


@pytest.mark.parametrize("confidence", ["nan", "-1", "2", "yes"])
def test_labels_are_there_or_not(tmp_path: Path, confidence: str) -> None:
    name = "annotations/test-annotations-human-imagelabels.csv"
    again = name.replace("labels.csv", "labels-boxable.csv")
    items = read(put(tmp_path, {**FILES, again: FILES[name]}))
    found = by_key(items)["images/test/c.jpg"].annotations
    assert (found.labels, found.features) == (("Cat", "/m/z"), {"labels_absent": ("Dog",)})
    items = read(put(tmp_path, {**FILES, name: f"{FILES[name]}\nc,v,/m/d,{confidence}"}))
    assert ("images/test/c.jpg", "confidence is not a number from 0 to 1", False) in failures(items)


def test_odd_tables_are_no_crash(tmp_path: Path) -> None:
    name, masks = (
        "annotations/image_ids_and_rotation.csv",
        "annotations/train-annotations-object-segmentation.csv",
    )
    subsets = "".join(f"\nx{number},subset{number},," for number in range(300))
    long = f"{FILES[masks]}\nb,b,/m/d,1,0.3,0.4,0.5,0.6,0.9,".replace("\nb,", f"\n{'m' * 70_000},")
    items = read(
        put(tmp_path, {**FILES, name: FILES[name] + subsets, masks: long}), include_annotations=("masks",)
    )
    assert (
        "images/subset299/x299.jpg",
        "listed image that is not there and has no annotation",
        True,
    ) in failures(items)
    assert ("images/train/b.jpeg", "name too long", False) in failures(items)


def test_rows_without_an_image_are_failures(tmp_path: Path) -> None:
    name = "annotations/train-annotations-bbox.csv"
    items = read(put(tmp_path, {**FILES, name: f'{FILES[name]}\n,x,/m/c\n"b"c,x'}))
    assert [found[:2] for found in failures(items) if found[0].startswith(name)] == [
        (f"{name}:6", "row without an image"),
        (f"{name}:7", "not CSV"),
    ]


def test_classes_that_share_a_name_go_by_their_ids(tmp_path: Path) -> None:
    name = "annotations/oidv6-class-descriptions.csv"
    items = read(put(tmp_path, {**FILES, name: "LabelName,DisplayName\n/m/c,Other\n/m/e,Dog"}))
    assert ClassNames(
        {1: "/m/c", 2: "/m/d", 3: "/m/e", 4: "/m/z"}, {"/m/c": "Cat", "/m/d": "Dog", "/m/e": "Dog"}
    ) in (items)
    assert by_key(items)["images/train/a.jpg"].annotations.objects[0].label == "/m/d"


def test_the_list_tells_the_split_of_images_in_no_folder_of_one(tmp_path: Path) -> None:
    files = {
        "image_ids_and_rotation.csv": "ImageID,Subset\na,validation",
        "test-annotations-bbox.csv": f"{BOXES}\nb,x,/m/c,1,0,1,0,1,0,0,0,0,0\na,x,/m/c,1,0,1,0,1,0,0,0,0,0",
        "a.jpg": "x",
        "b.jpg": "x",
    }
    items = read(put(tmp_path, files))
    assert [(key, record.split) for key, record in by_key(items).items()] == [
        ("a.jpg", "validation"),
        ("b.jpg", "test"),
    ]
    assert not any(isinstance(item, ClassNames) for item in items)
    assert SOURCE.split_names(SourceConfig("openimages", str(tmp_path))) is None


def test_selection_and_limit(tmp_path: Path) -> None:
    put(tmp_path, FILES)
    items = read(tmp_path, include=("images/test/*",))
    assert list(by_key(items)) == ["images/test/c.jpg"]
    assert ("images/train/gone.jpg", "excluded by --include/--exclude", True) in failures(items)
    assert ("images/train/a.jpg", "excluded by --include/--exclude", True) in failures(items)
    assert len(by_key(read(tmp_path, limit=2))) == 2
    labels = {r.annotations.labels for r in by_key(read(tmp_path, label_pattern="images/(.*)/")).values()}
    assert labels == {("train",), ("test",), ("validation",)}


def test_two_images_of_one_id(tmp_path: Path) -> None:
    items = read(put(tmp_path, {**FILES, "images/train/c.jpg": "x"}))
    assert ("images/train/c.jpg", "two images have one id", False) in failures(items)


def test_it_is_known_by_its_files(tmp_path: Path) -> None:
    config = SourceConfig("auto", str(put(tmp_path, FILES)))
    why = sniff(SOURCE, config)
    assert why is not None and "image_ids_and_rotation.csv is a file of Open Images" in why
    assert SOURCE.split_names(config) == ("test", "train", "validation")
    assert SOURCE.schemas(config) == ("detection",)
    (tmp_path / "annotations/train-annotations-bbox.csv").unlink()
    assert SOURCE.schemas(config) == ()


def test_folders_in_another_case(tmp_path: Path) -> None:
    respelled = {
        name: "/".join((*map(str.title, name.split("/")[:-1]), name.split("/")[-1])) for name in FILES
    }
    there = put(tmp_path / "there", {respelled[name]: text for name, text in FILES.items()})
    usual, found = (
        by_key(read(folder, include_annotations=("masks",)))
        for folder in (put(tmp_path / "here", FILES), there)
    )
    assert list(found) == [respelled[key] for key in usual]
    for record, expected in zip(found.values(), usual.values(), strict=True):
        assert (record.split, record.annotations.labels) == (expected.split, expected.annotations.labels)
        assert [one.box for one in record.annotations.objects] == [
            one.box for one in expected.annotations.objects
        ]
    masks = [one.mask for one in found["Images/Train/b.jpeg"].annotations.objects]
    assert [mask.uri for mask in masks if isinstance(mask, ImageRef)] == [
        f"{there}/Masks/Train/b_1.png",
        f"{there}/Masks/b_2.png",
    ]
    assert ("Masks/", "masks are not taken", True) in failures(read(there))
    config = SourceConfig("auto", str(there))
    assert "Annotations/image_ids_and_rotation.csv" in (sniff(SOURCE, config) or "")
    assert SOURCE.split_names(config) == ("test", "train", "validation")


@pytest.mark.parametrize(
    "files",
    [
        {"a.jpg": "x"},
        {"annotations/instances.json": "{}", "images/a.jpg": "x"},
        {"class-descriptions.csv": "/m/a,b", "a.jpg": "x"},
        {"my-annotations-bbox.csv": "image,xmin\na.jpg,1", "a.jpg": "x"},
    ],
)
def test_other_folders_are_not_it(tmp_path: Path, files: dict[str, str]) -> None:
    assert sniff(SOURCE, SourceConfig("auto", str(put(tmp_path, files)))) is None


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"a.jpg": "x"}, {}, "where neither it nor annotations/ has a CSV file of Open Images"),
        (
            {"annotations/a-annotations-bbox.csv": "image,xmin\na.jpg,1"},
            {},
            "annotations/a-annotations-bbox.csv has no column ImageID",
        ),
        (FILES, {"include_annotations": ("captions",)}, "--include_annotations has 'captions'; .* has masks"),
        (FILES, {"label_column": "x"}, "--label_column is 'x', and --source openimages does not use it"),
        (FILES, {"mask_pattern": "x"}, "--mask_pattern is 'x', and"),
        (FILES, {"label_pattern": "x"}, "which has no group"),
    ],
)
def test_bad_calls(tmp_path: Path, files: dict[str, str], options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read(put(tmp_path, files), **options)
    assert "\n" not in str(caught.value)


def test_a_bucket_gives_the_same(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    put(tmp_path, FILES)
    for name, text in FILES.items():
        bucket_server.put(f"{bucket}/oi/{name}", text.encode())
    options = {"include_annotations": ("masks",)}
    here, there = read(tmp_path, **options), read(f"{bucket}/oi", **options)

    def placeless(items: list[Item]) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for item in items:
            if not isinstance(item, ImageRecord):
                found.append((item,))
                continue
            objects = [(part.label, part.box, part.attributes) for part in item.annotations.objects]
            found.append((item.key, item.split, item.size, item.annotations.labels, objects))
        return found

    assert placeless(here) == placeless(there)
    record = by_key(there)["images/train/b.jpeg"]
    assert record.image is not None and record.image.uri == f"{bucket}/oi/images/train/b.jpeg"
    assert getattr(record.annotations.objects[1].mask, "uri", "") == f"{bucket}/oi/masks/train/b_1.png"
    config = SourceConfig("auto", f"{bucket}/oi")
    assert sniff(SOURCE, config) and SOURCE.split_names(config) == ("test", "train", "validation")


@pytest.mark.slow
def test_rows_cost_no_memory() -> None:
    count = 50_000
    entries = EntriesByImage()
    tracemalloc.start()
    for number in range(count):
        entries.add(number * 7919 % 1000, b"%d" % number)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used < 20_000  # 8 bytes an image
    found = [list(map(int, entries.of(number))) for number in range(1001)]
    entries.close()
    assert found == [
        [number for number in range(count) if number * 7919 % 1000 == image] for image in range(1001)
    ]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("version", "keys", "schemas"),
    [
        ("v5", ["images/test/cc.jpg", "images/train/aa.jpg"], ()),
        (
            "v6",
            ["images/test/c.jpg", "images/train/a.jpg", "images/train/b.jpg", "images/validation/d.png"],
            ("detection",),
        ),
    ],
)
def test_real_layouts(corpus: Path, version: str, keys: list[str], schemas: tuple[str, ...]) -> None:
    folder = f"{corpus}/layouts/open_images_dataset/{version}"
    items = read(folder, include_annotations=("masks",))
    assert list(by_key(items)) == keys and SOURCE.schemas(SourceConfig("", folder)) == schemas
    assert all(item.skipped for item in items if isinstance(item, Failure))
    if version == "v6":
        (box,) = by_key(items)["images/test/c.jpg"].annotations.objects
        assert (box.label, box.box) == ("Generic label #3", Box(0.7, 0, 0.8, 0.5))
