"""Source `yolo`: every layout its labels come in, every kind of line, and what is refused."""

from __future__ import annotations

import collections
import json
import os
from pathlib import Path

import pytest
from PIL import Image

from recordmill.transforms.records import (
    AnnotatedObject,
    BadInput,
    Box,
    ClassNames,
    Failure,
    ImageRecord,
)
from recordmill.transforms.sources.class_tables import read_yaml
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.source import Item
from recordmill.transforms.sources.yolo.source import LineFormat, YoloSource
from tests.buckets.server import BucketServer
from tests.sources.placeless import without_place
from tests.sources.sniffing import sniff

SOURCE = YoloSource()
NAMES = "names: [cat, dog, no]\n"


def tree(root: Path, files: dict[str, str | None]) -> str:
    """Writes a file each: images where there is no text."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            Image.new("RGB", (4, 2)).save(path)
        else:
            path.write_text(text)
    return str(root)


def listed(place: str, **options: object) -> list[Item]:
    config = SourceConfig("yolo", place, **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return list(SOURCE.read(config, "/nowhere"))


def records(items: list[Item]) -> dict[str, ImageRecord]:
    return {item.key: item for item in items if isinstance(item, ImageRecord)}


def labels(items: list[Item]) -> dict[str, tuple[str | None, list[str | int]]]:
    return {
        key: (record.split, [one.label for one in record.annotations.objects])
        for key, record in records(items).items()
    }


def failures(items: list[Item]) -> list[tuple[str, str, bool]]:
    return [(item.key, item.reason, item.skipped) for item in items if isinstance(item, Failure)]


def sniffed(place: str, **options: object) -> bool:
    return sniff(SOURCE, SourceConfig("auto", place, **options)) is not None  # type: ignore[arg-type]


ULTRALYTICS: dict[str, str | None] = {
    "images/train/a.jpg": None,
    "images/train/deep/b.png": None,
    "images/val/c.jpg": None,
    "labels/train/a.txt": "1 0.5 0.5 0.25 0.5\n0 0.25 0.25 0.1 0.1\n",
    "labels/train/deep/b.txt": "",
    "labels/val/c.txt": "2 0.1 0.2 0.3 0.4",
}
EXPECTED = {
    "images/train/a.jpg": ("train", ["dog", "cat"]),
    "images/train/deep/b.png": ("train", []),
    "images/val/c.jpg": ("val", ["no"]),
}


@pytest.mark.parametrize(
    "description",
    [
        {"data.yaml": f"path: ../datasets/pets\ntrain: images/train\nval: [images/val]\n{NAMES}nc: 3\n"},
        {"pets.yaml": "train: ./images/train\nval: images/val\nnames:\n  0: cat\n  1: dog\n  2: no\n"},
        {"obj.names": "cat\ndog\nno\n"},
        {"classes.txt": "cat\ndog\nno"},
        {"labels/classes.txt": "cat\ndog\nno\n"},
    ],
)
def test_trees_of_images_and_labels(tmp_path: Path, description: dict[str, str | None]) -> None:
    place = tree(tmp_path, {**ULTRALYTICS, **description})
    items = listed(place)
    assert labels(items) == EXPECTED
    assert failures(items) == []
    assert items[0] == ClassNames({0: "cat", 1: "dog", 2: "no"})
    first = records(items)["images/train/a.jpg"]
    assert first.annotations.relative
    assert first.annotations.objects[0].box == (0.375, 0.25, 0.625, 0.75)
    assert sniffed(place)
    assert SOURCE.split_names(SourceConfig("yolo", place)) == ("train", "val")


def test_without_names_labels_are_the_ids(tmp_path: Path) -> None:
    place = tree(tmp_path, ULTRALYTICS)
    assert labels(listed(place))["images/train/a.jpg"] == ("train", [1, 0])
    assert sniffed(place)


@pytest.mark.parametrize(
    ("files", "split"),
    [
        ({"a.jpg": None, "a.txt": "0 .5 .5 1 1"}, None),
        ({"train/images/a.jpg": None, "train/labels/a.txt": "0 .5 .5 1 1"}, "train"),
        ({"valid/a.jpg": None, "valid/a.txt": "0 .5 .5 1 1"}, "valid"),
        ({"train/a.jpg": None, "labels/train/a.txt": "0 .5 .5 1 1"}, "train"),
        ({"Images/a.jpg": None, "Annotations/a.txt": "0 .5 .5 1 1"}, None),
    ],
)
def test_other_trees(tmp_path: Path, files: dict[str, str | None], split: str | None) -> None:
    place = tree(tmp_path, files)
    items = listed(place)
    assert list(labels(items).values()) == [(split, [0])]
    assert failures(items) == []
    assert sniffed(place)
    assert SOURCE.split_names(SourceConfig("yolo", place)) == ((split,) if split else ())


@pytest.mark.parametrize(
    ("name", "folder", "yaml"),
    [
        ("data.yaml", "", "train: /content/pets/images/train\nval: /content/pets/images/val\n"),
        ("data.yaml", "", "path: /content/pets\ntrain: images/train\nval: images/val\n"),
        ("data.yaml", "", "path: /content/pets\ntrain: IMAGES/Train\nval: [Images/VAL]\ntest: images/test\n"),
        ("data.yaml", "", "train: 'C:\\pets\\images\\train'\nval: 'C:\\pets\\images\\val'\n"),
        ("data.yaml", "any", "path: ../datasets/pets\ntrain: images/train\nval: images/val\n"),
        ("pets.yaml", "pets", "path: ../datasets/pets\ntrain: images/train\nval: images/val\n"),
    ],
)
def test_paths_of_another_computer_are_found_by_their_ends(
    tmp_path: Path, name: str, folder: str, yaml: str
) -> None:
    files = {f"{folder}/{key}".lstrip("/"): text for key, text in ULTRALYTICS.items()}
    others = {"readme/1.md": ""} if name == "pets.yaml" else {}
    items = listed(tree(tmp_path, {name: f"{yaml}{NAMES}", **files, **others}))
    assert labels(items) == {f"{folder}/{key}".lstrip("/"): expected for key, expected in EXPECTED.items()}
    skipped = [("images/test", "named images are not there", True)] if "test:" in yaml else []
    assert [one for one in failures(items) if one[1] != "not an image by name"] == skipped


def test_lists_with_paths_of_another_computer(tmp_path: Path) -> None:
    files = {f"pets/{key}": text for key, text in ULTRALYTICS.items()}
    lists = {
        "pets.yaml": f"path: /content/pets\ntrain: train.txt\nval: val.txt\n{NAMES}",
        "pets/train.txt": "/content/pets/images/train/a.jpg\n../pets/images/train/deep/b.png\n",
        "pets/val.txt": "/content/pets/images/val/c.jpg\n/content/pets/images/val/d.jpg\n",
    }
    items = listed(tree(tmp_path, {**files, **lists}))
    assert labels(items) == {f"pets/{key}": expected for key, expected in EXPECTED.items()}
    assert failures(items) == [("/content/pets/images/val/d.jpg", "outside the input root", False)]


def test_roboflow_names_folders_beside_the_one_of_its_yaml(tmp_path: Path) -> None:
    files: dict[str, str | None] = {
        "data.yaml": f"train: ../train/images\nval: ../valid/images\ntest: ../test/images\n{NAMES}",
        "README.roboflow.txt": "see there",
        "train/images/a.jpg": None,
        "train/labels/a.txt": "1 0.5 0.5 1 1",
        "valid/images/b.jpg": None,
        "extra/c.jpg": None,
    }
    items = listed(tree(tmp_path, files))
    assert labels(items) == {"train/images/a.jpg": ("train", ["dog"]), "valid/images/b.jpg": ("val", [])}
    assert failures(items) == [
        ("../test/images", "named images are not there", True),
        ("extra/c.jpg", "image in no split", True),
        ("README.roboflow.txt", "not a label file", True),
    ]


def test_darknet_lists_begin_at_a_folder_that_is_not_there(tmp_path: Path) -> None:
    files: dict[str, str | None] = {
        "obj.data": "classes = 2\ntrain = data/train.txt\nvalid = data/valid.txt\nnames = data/obj.names\n",
        "obj.names": "cat\ndog\n",
        "train.txt": "data/obj_train_data/2.jpg\ndata/obj_train_data/1.jpg\ndata/obj_train_data/9.jpg\n",
        "valid.txt": "data/obj_valid_data/3.jpg\n../../../etc/x.jpg\n/etc/passwd.jpg\n"
        "data/obj_valid_data/3.jpg\n",
        "obj_train_data/1.jpg": None,
        "obj_train_data/2.jpg": None,
        "obj_train_data/1.txt": "1 0.5 0.5 1 1",
        "obj_train_data/2.txt": "0 0.5 0.5 1 1",
        "obj_valid_data/3.jpg": None,
        "obj_valid_data/4.jpg": None,
    }
    place = tree(tmp_path, files)
    items = listed(place)
    assert list(labels(items).items()) == [
        ("obj_train_data/2.jpg", ("train", ["cat"])),
        ("obj_train_data/1.jpg", ("train", ["dog"])),
        ("obj_valid_data/3.jpg", ("valid", [])),
    ]
    assert records(items)["obj_train_data/1.jpg"].origin == "train.txt, line 2"
    assert failures(items) == [
        ("data/obj_train_data/9.jpg", "not found", False),
        ("../../../etc/x.jpg", "outside the input root", False),
        ("/etc/passwd.jpg", "outside the input root", False),
        ("obj_valid_data/3.jpg", "image listed twice", True),
        ("obj_valid_data/4.jpg", "image in no split", True),
    ]
    assert SOURCE.split_names(SourceConfig("yolo", place)) == ("train", "valid")


def test_lists_of_ultralytics(tmp_path: Path) -> None:
    files = {**ULTRALYTICS, "data.yaml": f"train: train.txt\nval: images/val\n{NAMES}"}
    place = tree(
        tmp_path, {**files, "train.txt": f"./images/train/a.jpg\n{tmp_path}/images/train/deep/b.png\n"}
    )
    assert labels(listed(place)) == EXPECTED
    (tmp_path / "data.yaml").unlink()
    assert list(labels(listed(place))) == ["images/train/a.jpg", "images/train/deep/b.png"]


def test_labels_without_images_beside_them_are_matched_by_name(tmp_path: Path) -> None:
    place = tree(tmp_path / "yolo", {"data.yaml": NAMES, "labels/a.txt": "1 0.5 0.5 1 1"})
    images = tree(tmp_path / "pictures/all", {"x/a.jpg": None, "b.jpg": None})
    with pytest.raises(ValueError, match="there is no image below it; give --image_root"):
        listed(place)
    items = listed(place, image_roots=(images,))
    assert labels(items) == {"x/a.jpg": (None, ["dog"]), "b.jpg": (None, [])}
    assert failures(items) == []
    tree(tmp_path / "yolo", {"labels/more/a.txt": "0 0.5 0.5 1 1"})
    assert ("x/a.jpg", "several annotations of one name", False) in failures(
        listed(place, image_roots=(images,))
    )


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    files: dict[str, str | None] = {
        "images/a.jpg": None,
        "images/b.jpg": None,
        "images/c.jpg": None,
        "labels/a.txt": "0 0.5 0.5 1 1",
        "labels/b.txt": "0 0.5 0.5 1 1\n\n1 0.5 x 1 1\n",
        "labels/c.txt": "7 0.5 0.5 1 1",
        "labels/z.txt": "0 0.5 0.5 1 1",
        "labels/README.txt": "about",
        "notes.txt": "about",
        "notes.pdf": "about",
        "classes.txt": "cat\ndog\n",
    }
    items = listed(tree(tmp_path, files))
    assert labels(items) == {"images/a.jpg": (None, ["cat"])}
    assert sorted(failures(items)) == [
        ("images/b.jpg", "not a YOLO line", False),
        ("images/c.jpg", "class id is not among the names", False),
        ("labels/README.txt", "not a label file", True),
        ("labels/z.txt", "annotation without its image", False),
        ("notes.pdf", "not an image by name", True),
        ("notes.txt", "not a label file", True),
    ]
    details = {item.key: item.detail for item in items if isinstance(item, Failure)}
    assert details["images/b.jpg"] == "labels/b.txt, line 3: 'x' is not a number"


def test_a_label_file_that_is_too_large_is_named(tmp_path: Path) -> None:
    place = tree(tmp_path / "in", {"images/0.png": None, "labels/0.txt": "0 0.5 0.5 0.1 0.1\n"})
    os.truncate(f"{place}/labels/0.txt", (1 << 26) + 1)
    (failure,) = listed(place)
    assert isinstance(failure, Failure) and failure.reason == "annotation file too large"
    assert failure.detail == "labels/0.txt: 67108865 bytes; up to 67108864 are read"


def test_selection_and_limit(tmp_path: Path) -> None:
    place = tree(tmp_path, ULTRALYTICS)
    assert list(labels(listed(place, exclude=("images/train/**",)))) == ["images/val/c.jpg"]
    assert list(labels(listed(place, limit=2))) == ["images/train/a.jpg", "images/train/deep/b.png"]


@pytest.mark.parametrize(
    ("line", "format_", "expected"),
    [
        ("3 0.5 0.25 0.5 0.5", LineFormat(), AnnotatedObject(3, Box(0.25, 0.0, 0.75, 0.5))),
        (
            "0 0.1 0.1 0.4 0.4",
            LineFormat(),
            AnnotatedObject(0, Box(0.1 - 0.2, 0.1 - 0.2, 0.1 + 0.2, 0.1 + 0.2)),
        ),
        (
            "0 .5 .5 1 1 .75",
            LineFormat({0: "cat"}),
            AnnotatedObject("cat", Box(0, 0, 1, 1), attributes={"confidence": 0.75}),
        ),
        ("0 .1 .2 .9 .2 .5 .8", LineFormat(), AnnotatedObject(0, Box(0.1, 0.2, 0.9, 0.8))),
        (
            "0 .1 .2 .9 .2 .5 .8",
            LineFormat(takes_masks=True),
            AnnotatedObject(0, mask=((0.1, 0.2, 0.9, 0.2, 0.5, 0.8),)),
        ),
        (
            "0 .5 .5 1 1 .1 .2 2 .3 .4 0",
            LineFormat(keypoints=(2, 3), takes_keypoints=True),
            AnnotatedObject(0, Box(0, 0, 1, 1), keypoints=((0.1, 0.2, 2), (0.0, 0.0, 0))),
        ),
        (
            "0 .5 .5 1 1 .1 .2 .3 .4",
            LineFormat(keypoints=(2, 2), takes_keypoints=True),
            AnnotatedObject(0, Box(0, 0, 1, 1), keypoints=((0.1, 0.2, 2), (0.3, 0.4, 2))),
        ),
        ("0 .5 .5 1 1 .1 .2 2 .3 .4 0", LineFormat(keypoints=(2, 3)), AnnotatedObject(0, Box(0, 0, 1, 1))),
    ],
)
def test_lines(line: str, format_: LineFormat, expected: AnnotatedObject) -> None:
    assert format_.objects(f"{line}\n{line}", "a.txt") == (expected, expected)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0 0.5 0.5 1", "not a YOLO line"),
        ("0", "not a YOLO line"),
        ("cat 0.5 0.5 1 1", "not a YOLO line"),
        ("-1 0.5 0.5 1 1", "not a YOLO line"),
        ("0.5 0.5 0.5 1 1", "not a YOLO line"),
        ("0 nan 0.5 1 1", "not a YOLO line"),
        ("0 .1 .2 .3 .4 .5 .6 .7", "not a YOLO line"),
        ("0 120 80 40 20", "coordinates are not shares of the image"),
    ],
)
def test_bad_lines(line: str, reason: str) -> None:
    with pytest.raises(BadInput, match=r"b\.txt, line 2: ") as caught:
        LineFormat().objects(f"0 0.5 0.5 1 1\n{line}", "b.txt")
    assert (caught.value.stage, caught.value.reason) == ("annotations", reason)


def test_many_lists_of_paths(tmp_path: Path) -> None:
    """Each path is compared with its own folders, not with all others."""
    folders = [f"images/{split}/{number}" for split in ("train", "val") for number in range(1000)]
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "images/train/7/a.png").touch()
    lines = {split: [one for one in folders if f"/{split}/" in one] for split in ("train", "val")}
    (tmp_path / "data.yaml").write_text(json.dumps({**lines, "names": ["cat"]}))
    config = SourceConfig("yolo", str(tmp_path))
    YoloSource().check(config)
    (tmp_path / "data.yaml").write_text(json.dumps({**lines, "test": ["images/val/7"], "names": ["cat"]}))
    with pytest.raises(ValueError, match=r"val \(images/val/7\) and test \(images/val/7\) name the same"):
        YoloSource().check(config)


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        (
            f"train: images/train\nval: images/train\n{NAMES}",
            r"train \(images/train\) and val .* the same images",
        ),
        (f"train: images\nval: images/val\n{NAMES}", "name the same images"),
        (f"train: /etc\n{NAMES}", "'/etc', outside the input; give --image_root"),
        (f"train: ../..\n{NAMES}", "outside the input"),
        (
            f"path: ../pets\ntrain: images/train\nval: images/dev\n{NAMES}",
            r"data\.yaml has val: 'images/dev', and neither '\.\./pets/images/dev' nor the end of that path "
            r"is below '/.*'; correct or remove val in data\.yaml, or give --image_root with the folder",
        ),
        (f"train: /content/train/images\nval: images/val\n{NAMES}", "has train: '/content/train/images'"),
        (f"train: train/images\nval: images/val\n{NAMES}", "has train: 'train/images'"),
        (f"test: images/test\n{NAMES}", "has test: 'images/test'"),
        (f"train: images/train\n{NAMES}nc: 4\n", "has 3 names, and nc is 4"),
        ("train: images/train\nnames: {x: cat}\n", "has the id 'x'"),
        ("train: images/train\nnames: cat\n", "neither a list nor a mapping"),
        ("names: [cat, [dog]]\n", "the name of class 1 is not text"),
        ("names: {2147483647: cat}\n", "has the id '2147483647', not a number from 0 to 2147483646"),
        (f"{NAMES}kpt_shape: [17, 4]\n", "2 or 3 numbers"),
        ("names: [cat\n", "is not YAML"),
        ("names: !!python/object/apply:os.system ['true']\n", "neither|not text|is not YAML"),
    ],
)
def test_bad_descriptions_are_refused(tmp_path: Path, yaml: str, message: str) -> None:
    place = tree(tmp_path, {**ULTRALYTICS, "data.yaml": yaml})
    if "system" in yaml:
        assert isinstance(read_yaml(f"{place}/data.yaml")["names"], list)  # text alone, nothing was called
        return
    with pytest.raises(ValueError, match=message):
        listed(place)


@pytest.mark.parametrize("name", ["data.yaml", "classes.txt", "train.txt"])
def test_descriptions_outside_the_input_are_refused(tmp_path: Path, name: str) -> None:
    place = tree(tmp_path / "in", ULTRALYTICS)
    text = NAMES if name == "data.yaml" else "images/train/a.jpg\n"
    (tmp_path / "secret").write_text(text)
    (tmp_path / "in" / name).symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=f"{name}': it leads to '.*/secret', outside the input root"):
        listed(place)
    if name == "data.yaml":
        assert labels(listed(f"{place}/{name}")) == EXPECTED  # the caller named the file itself
        assert failures(listed(f"{place}/{name}")) == []


def test_whose_a_label_file_is_has_to_be_known(tmp_path: Path) -> None:
    files = {"a/1.jpg": None, "b/1.jpg": None, "b/2.jpg": None, "boxes/1.txt": "0 .5 .5 1 1", "val.txt": ""}
    items = listed(tree(tmp_path, {**files, "boxes/2.txt": "1 .5 .5 1 1"}))
    assert labels(items) == {"b/2.jpg": (None, [1])}
    assert failures(items) == [
        ("a/1.jpg", "several images of one name", False),
        ("b/1.jpg", "several images of one name", False),
        ("val.txt", "not a label file", True),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"annotations": ("a.json",)},
        {"label_pattern": "(a)"},
        {"mask_pattern": "{stem}"},
        {"image_column": "a"},
    ],
)
def test_flags_without_use_are_refused(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="--source yolo does not use it"):
        listed(tree(tmp_path, ULTRALYTICS), **options)


@pytest.mark.parametrize(
    "files",
    [
        {"train/cat/1.jpg": None, "train/dog/2.jpg": None},
        {"1.jpg": None, "1.txt": "a cat on a mat"},
        {"1.jpg": None, "1.txt": "3"},
        {"images/1.jpg": None, "annotations/1.xml": "<annotation/>"},
        {"data.yaml": "a: 1\n", "1.jpg": None},
        {"config.yaml": "train: {lr: 1}\nnames: [a]\n", "1.jpg": None},
        {"config.yaml": "train: a\nnames: run1\n", "1.jpg": None},
    ],
)
def test_other_inputs_are_not_taken_for_yolo(tmp_path: Path, files: dict[str, str | None]) -> None:
    assert not sniffed(tree(tmp_path, files))


def test_a_bucket_gives_what_the_disk_gives(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    files = {**ULTRALYTICS, "data.yaml": f"train: train.txt\nval: images/val\n{NAMES}"}
    place = tree(tmp_path, {**files, "train.txt": "./images/train/a.jpg\nimages/train/deep/b.png\n"})
    bucket_server.upload_folder(tmp_path, f"{bucket}/in")
    expected = listed(place)[1:]
    found = listed(f"{bucket}/in")[1:]
    assert labels(found) == EXPECTED
    assert [without_place(item) for item in found if not isinstance(item, ClassNames)] == [
        without_place(item) for item in expected if not isinstance(item, ClassNames)
    ]
    assert sniffed(f"{bucket}/in")
    assert SOURCE.split_names(SourceConfig("yolo", f"{bucket}/in")) == ("train", "val")


@pytest.mark.corpus
@pytest.mark.parametrize("folder", ["yolo_boxes", "yolo_polygons"])
def test_real_boxes_and_polygons(corpus: Path, folder: str) -> None:
    root = corpus / "coco64"
    items = listed(
        f"{root}/{folder}", image_roots=(f"{root}/images/val2017",), include_annotations=("masks",)
    )
    assert failures(items) == []
    names = {
        int(number): name
        for number, _, name in (
            line.strip().partition(": ")
            for line in (root / folder / "data.yaml").read_text().split("names:")[1].splitlines()
        )
        if number
    }
    assert items[0] == ClassNames(names)
    found = records(items)
    assert sorted(found) == sorted(os.listdir(root / "images/val2017"))
    counts: collections.Counter[str] = collections.Counter()
    for key, record in found.items():
        text = root / folder / "labels" / f"{Path(key).stem}.txt"
        rows = [json.loads(f"[{','.join(line.split())}]") for line in text.read_text().splitlines()]
        assert len(rows) == len(record.annotations.objects)
        for (number, *values), one in zip(rows, record.annotations.objects, strict=True):
            assert one.label == names[number]
            counts["objects"] += 1
            if len(values) == 4:
                x, y, w, h = values
                assert one.box == (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
            else:
                assert (one.box, one.mask) == (None, (tuple(map(float, values)),))
    assert counts["objects"] > 300
