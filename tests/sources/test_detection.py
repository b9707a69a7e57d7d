"""Datasets below the folder that is given: found, listed where there are several, read as what they are."""

from __future__ import annotations

import collections
import dataclasses
import io
import json
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

import pytest
from PIL import Image

from recordmill.transforms.records import Failure, ImageRecord
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import Detected, detect
from recordmill.transforms.sources.registry import source_of
from tests.sources.small_inputs import INPUTS, Files, mask, picture

LABEL = b"0 0.5 0.5 0.5 0.5\n"
YAML = b"train: images/train\nval: images/val\nnames: [cat, dog]\n"
VOC = b"<annotation><filename>1.jpg</filename><size><width>6</width><height>4</height></size></annotation>"
FOLDERS = [name for name, one in INPUTS.items() if not one.place and name not in ("frames", "imagenet")]
LAID_OUT = ("coco", "voc", "yolo", "labelme", "labelme-web", "openimages", "masks", "idx")

PICTURE = picture(1)
YOLO: Files = {
    "data.yaml": YAML,
    **{f"images/{split}/{at}.png": PICTURE for split in ("train", "val") for at in (1, 2)},
    **{f"labels/{split}/{at}.txt": LABEL for split in ("train", "val") for at in (1, 2)},
}
CAMVID: Files = {
    **{f"{split}/{at}.png": PICTURE for split in ("train", "val") for at in (1, 2)},
    **{f"{split}annot/{at}.png": mask() for split in ("train", "val") for at in (1, 2)},
}
SPLITS: Files = {f"{split}/{at}.jpg": b"x" for split in ("train", "test") for at in (1, 2)}
CLASSES: Files = {f"{name}/{at}.jpg": b"x" for name in ("daisy", "rose") for at in (1, 2)}


def grow(root: Path, files: Files, place: str = "") -> str:
    for name, data in files.items():
        path = root / place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return str(root)


def below(files: Files, place: str) -> Files:
    return {f"{place}/{name}": data for name, data in files.items()}


def found(path: str, kind: str = "auto", **options: object) -> tuple[SourceConfig, Detected]:
    config = SourceConfig(kind, path, **options)  # type: ignore[arg-type]
    one = detect(config)
    return dataclasses.replace(config, kind=one.kind, input=one.input), one


def read(config: SourceConfig, scratch: Path) -> list[ImageRecord]:
    source_of(config).check(config)
    scratch.mkdir(exist_ok=True)
    items = list(source_of(config).read(config, str(scratch)))
    assert not [item for item in items if isinstance(item, Failure) and not item.skipped]
    return [item for item in items if isinstance(item, ImageRecord)]


def facts_of(records: Iterable[ImageRecord]) -> list[tuple[object, ...]]:
    """What records say, but for where they lie."""
    return [
        (
            os.path.basename(one.key),
            one.split,
            one.annotations.labels,
            [(thing.label, thing.box) for thing in one.annotations.objects],
            sorted(one.annotations.masks),
        )
        for one in records
    ]


DEVKIT = {**below(INPUTS["voc"].files([1]), "VOC2007"), **below(INPUTS["voc"].files([2]), "VOC2012")}
OURS: Files = {"manifest.json": b"{}", "train-00000-of-00001.tfrecord": b""}


@pytest.mark.parametrize("wrappers", ["a", "a/b"])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_wrapped_dataset_is_read_as_what_it_is(tmp_path: Path, name: str, wrappers: str) -> None:
    one = INPUTS[name]
    grow(tmp_path / "own", one.files([1, 2]))
    grow(tmp_path / "W", {**below(one.files([1, 2]), wrappers), "README.md": b"", "a/LICENSE.txt": b"1"})
    expected, _ = found(f"{tmp_path}/own", **one.options)
    config, why = found(f"{tmp_path}/W", **one.options)
    assert (config.kind, expected.input) == (one.kind, f"{tmp_path}/own")
    if name != "folder":  # one folder of images is a class wherever it lies
        assert facts_of(read(config, tmp_path / "x")) == facts_of(read(expected, tmp_path / "y"))
    if name in LAID_OUT:
        assert config.input == f"{tmp_path}/W/{wrappers}"
        assert why.why.endswith(f"; found in {wrappers!r}, below --input")
        assert [item.key for item in read(config, tmp_path / "x")] == [
            item.key for item in read(expected, tmp_path / "y")
        ]


@pytest.mark.parametrize(
    ("files", "kind", "place", "splits"),
    [
        (below(SPLITS, "images"), "folder", "images", {"train", "test"}),
        (below(SPLITS, "x/images"), "folder", "x/images", {"train", "test"}),
        (below(CLASSES, "flowers"), "folder", "flowers", {None}),
        ({**below(CLASSES, "flowers"), "notes/a.txt": b"?"}, "folder", "flowers", {None}),
        ({"cats/1.jpg": b"x", "cats/2.jpg": b"x"}, "folder", "", {None}),
        ({"x/Images/1.jpg": b"x", "x/Images/2.jpg": b"x"}, "folder", "x/Images", {None}),
        (below(SPLITS, "1/2/3/4/5"), "folder", "1/2/3/4/5", {"train", "test"}),
        ({**below(YOLO, "x"), **{f"n{at}/a.txt": b"" for at in range(300)}}, "yolo", "x", {"train", "val"}),
        (below(YOLO, "1/2/3/4/5"), "yolo", "1/2/3/4/5", {"train", "val"}),
        (below(CLASSES, "train"), "folder", "", {"train"}),
        ({**CLASSES, "daisy/more/9.jpg": b"x"}, "folder", "", {None}),
        (SPLITS, "folder", "", {"train", "test"}),
        (below(CAMVID, "CamVid"), "masks", "CamVid", {"train", "val"}),
        (below(YOLO, "coco8"), "yolo", "coco8", {"train", "val"}),
        (below({k: v for k, v in YOLO.items() if k != "data.yaml"}, "x"), "yolo", "x", {"train", "val"}),
        (below(DEVKIT, "VOCdevkit"), "voc", "VOCdevkit", {None}),
        (DEVKIT, "voc", "", {None}),
        ({f"a/b/train/n0144{at}/1.png": PICTURE for at in (1000, 2000)}, "imagenet", "", {"train"}),
        ({**below(YOLO, "x"), **below(OURS, "x/out"), **below(OURS, "out")}, "yolo", "x", {"train", "val"}),
        ({**SPLITS, **below(OURS, "earlier")}, "folder", "", {"train", "test"}),
        ({**below(INPUTS["tar"].files([1]), "train"), ".DS_Store": b"x"}, "archive", "", {"train"}),
    ],
)  # fmt: skip
def test_where_it_is_read(
    tmp_path: Path, files: Files, kind: str, place: str, splits: set[str | None]
) -> None:
    config, why = found(grow(tmp_path / "in", files))
    assert (config.kind, config.input) == (kind, f"{tmp_path}/in/{place}".rstrip("/"))
    assert why.why.endswith(f"; found in {place!r}, below --input") == bool(place)
    assert {record.split for record in read(config, tmp_path / "x")} == splits
    again, as_given = found(config.input, kind)
    assert (again.input, as_given.why) == (config.input, "set by --source")


TWO_SPLITS = {**below(SPLITS, "A"), **below(SPLITS, "B")}
COCO = INPUTS["coco"].files([1, 2])


@pytest.mark.parametrize(
    ("files", "listed"),
    [
        ({**below(SPLITS, "a/images"), "docs/1.jpg": b"x"}, {"a": ""}),
        (TWO_SPLITS, {"A": "", "B": ""}),
        ({**below(COCO, "coco"), **below(YOLO, "my yolo")}, {"coco": "coco", "my yolo": "yolo"}),
        ({**below(COCO, "x/a"), **below(COCO, "x/b")}, {"x/a": "coco", "x/b": "coco"}),
        ({**COCO, **below(YOLO, "yolo")}, {"": "coco", "yolo": "yolo"}),
        ({**below(YOLO, "a"), **below(YOLO, "b")}, {"a": "yolo", "b": "yolo"}),
        ({**below(YOLO, "yolo"), "cats/1.jpg": b"x"}, {"yolo": "yolo", "cats": ""}),
        ({**below(YOLO, "yolo"), "1.jpg": b"x"}, {"yolo": "yolo"}),
        (
            {**below(INPUTS["idx"].files([1]), "mnist"), **below(INPUTS["tfrecord"].files([1]), "records")},
            {"mnist": "idx", "records": "tfrecord"},
        ),
    ],
)
def test_several_datasets_are_listed(tmp_path: Path, files: Files, listed: dict[str, str]) -> None:
    place = grow(tmp_path / "in", files)
    with pytest.raises(ValueError) as caught:
        detect(SourceConfig("auto", place))
    message = str(caught.value)
    assert message.startswith(f"--input is {place!r}, ") and "\n" not in message
    for name, kind in listed.items():
        path = f"{place}/{name}".rstrip("/")
        assert f"--input {shlex.quote(path)}{f' --source {kind}' if kind else ''}" in message
        config, _ = found(path, kind or "auto")
        assert config.kind == (kind or "folder") and (config.input.startswith(path) or name == "")
        assert read(config, tmp_path / "x")


def test_a_source_that_is_given_is_looked_for_below(tmp_path: Path) -> None:
    place = grow(tmp_path / "in", {**below(COCO, "coco"), **below(YOLO, "yolo"), **below(YOLO, "x/yolo")})
    config, why = found(place, "coco")
    assert config.input == f"{place}/coco" and why.why == "set by --source; found in 'coco', below --input"
    with pytest.raises(ValueError, match=f"--input {place}/x/yolo --source yolo") as caught:
        found(place, "yolo")
    assert f"--input {place}/yolo --source yolo" in str(caught.value) and "coco" not in str(caught.value)
    assert found(place, "voc")[0].input == place
    with pytest.raises(ValueError, match="there is no XML in it"):
        read(found(place, "voc")[0], tmp_path / "x")
    assert found(grow(tmp_path / "two", TWO_SPLITS), "folder")[0].input == f"{tmp_path}/two"
    assert (
        found(grow(tmp_path / "one", below(SPLITS, "images")), "folder")[0].input == f"{tmp_path}/one/images"
    )


def test_yolo_on_the_parent_reads_names_and_splits(tmp_path: Path) -> None:
    records = read(found(grow(tmp_path / "in", below(YOLO, "coco8")), "yolo")[0], tmp_path / "x")
    assert {(one.split, one.annotations.objects[0].label) for one in records} == {
        ("train", "cat"),
        ("val", "cat"),
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"data.yaml": None},
        {
            "data.yaml": None,
            "labels/train/1.txt": b"",
            "labels/train/0.txt": b"",
            "images/train/0.png": PICTURE,
        },
        {"data.yaml": None, **{name: b"" for name in YOLO if name.startswith("labels/")}},
        {"data.yaml": None, "labels/classes.txt": b"cat\ndog\n"},
    ],
)
def test_yolo_without_data_yaml(tmp_path: Path, changes: dict[str, bytes | None]) -> None:
    files = {name: data for name, data in {**YOLO, **changes}.items() if data is not None}
    config, _ = found(grow(tmp_path / "in", files))
    assert config.kind == "yolo"
    records = read(config, tmp_path / "x")
    labelled = [data for name, data in files.items() if name.startswith("labels/") and data == LABEL]
    assert sum(len(one.annotations.objects) for one in records) == len(labelled)


def test_yolo_whose_images_lie_deeper_than_its_labels(tmp_path: Path) -> None:
    config, _ = found(grow(tmp_path / "in", {"images/val2017/1.png": PICTURE, "labels/1.txt": LABEL}))
    assert config.kind == "yolo"
    (record,) = read(config, tmp_path / "x")
    assert (record.split, len(record.annotations.objects)) == ("val", 1)


@pytest.mark.parametrize("text", ["README.txt", "images/train/notes.txt", "train.txt"])
def test_yolo_without_labels_is_refused(tmp_path: Path, text: str) -> None:
    files = {name: data for name, data in YOLO.items() if not name.startswith("labels/")}
    config = SourceConfig("yolo", grow(tmp_path, {**files, text: b"./images/train/1.png\n"}))
    with pytest.raises(ValueError, match=r"there is no label file, such as labels/1\.txt"):
        source_of(config).check(config)
    for label in ("images/train/1.txt", "labels/train/1.txt", "labels/train/other.txt"):
        (place := tmp_path / label).parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(LABEL)
        source_of(config).check(config)
        place.unlink()


def test_yolo_whose_folders_lie_deeper(tmp_path: Path) -> None:
    config, _ = found(
        grow(
            tmp_path / "in",
            {"images/a/b/1.png": PICTURE, "labels/a/b/1.txt": LABEL, "labels/a/b/0.txt": b"x"},
        )
    )
    assert config.kind == "yolo"


def _lossless(mode: str, size: tuple[int, int] = (6, 4)) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, size).save(stream, "PNG")
    return stream.getvalue()


def _jpeg() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (6, 4)).save(stream, "JPEG")
    return stream.getvalue()


def each(form: str, data: bytes) -> Files:
    return {form.format(at): data for at in range(4)}


PHOTOS = each("{}.jpg", b"x")


@pytest.mark.parametrize(
    ("files", "evidence", "remedy"),
    [
        ({**PHOTOS, "3.xml": b"<x/>"}, "'3.xml' holds .xml files", "convert them to"),
        ({**each("cat/{}.jpg", b"x"), **each("about/cat/{}.json", b"{}")}, "'about/cat/0.json'",
         "convert them"),
        ({**PHOTOS, **each("{}.txt", b"a cat\n")}, "'0.txt' holds .txt files", "make a CSV"),
        ({**PHOTOS, "l.csv": b"filename,y\n1.jpg,a\n"}, "'l.csv' holds rows that name images",
         "give --input {place} --annotations {place}/l.csv; for"),
        ({**each("p/{}.jpg", b"x"), "l.csv": b"y,id\na,0\na,1\nb,2\n"}, "'l.csv'",
         "--annotations {place}/l.csv --image_root {place}/p --image_column id; for"),
        ({**PHOTOS, "l.tsv": b"the y\tthe image\na\t1.jpg\n"}, "'l.tsv'",
         "--annotations {place}/l.tsv --image_column 'the image'; for"),
        ({**PHOTOS, "l.jsonl": b'{"image": "p/1.jpg"}\n'}, "'l.jsonl'", "--annotations"),
        ({**PHOTOS, "l.json": b'[{"image": "p/1.jpg"}]'}, "'l.json' holds names of images", "CSV"),
        ({**PHOTOS, "train.txt": b"p/1.jpg\np/2.jpg\n"}, "'train.txt' holds a list", "make a CSV"),
        ({**PHOTOS, "l.txt": b"1.jpg cat\n2.jpg dog\n"}, "'l.txt' holds a list", "make a CSV"),
        ({**PHOTOS, "images.txt": b"1 p/1.jpg\n2 p/2.jpg\n"}, "'images.txt' holds a list", "make a CSV"),
        ({**PHOTOS, "l.txt": b"image,caption\n1.jpg,A cat\n"}, "'l.txt' holds a list", "make a CSV"),
        ({**each("images/{}.jpg", b"x"), **each("masks/{}.jpg", b"x")}, "'masks' holds masks",
         "--source masks"),
        ({**each("images/{}.jpg", b"x"), **each("masks/{}.jpg", b"x"), **each("more/masks/x{}.jpg", b"x")},
         "'masks' holds masks", "--source masks"),
        ({**each("a/{}.jpg", _jpeg()), **each("b/{}.png", _lossless("P"))}, "'b' holds masks",
         "--mask_pattern"),
        ({**each("{}.jpg", _jpeg()), **each("{}.png", _lossless("L"))}, "'./' holds masks",
         "--mask_pattern"),
        ({**PHOTOS, "t.parquet": INPUTS["parquet"].files([1])["x/train.parquet"]},
         "'t.parquet' holds rows of images", "--input {place}/t.parquet --source parquet"),
    ],
)  # fmt: skip
def test_what_a_folder_would_leave_behind(tmp_path: Path, files: Files, evidence: str, remedy: str) -> None:
    place = grow(tmp_path / "in", files)
    with pytest.raises(ValueError) as caught:
        detect(SourceConfig("auto", place))
    message = str(caught.value)
    assert evidence in message and remedy.format(place=place) in message and "\n" not in message
    assert message.startswith(f"--input is {place!r}, ") and message.endswith("give --source folder")
    config, _ = found(place, "folder")
    assert config.input == place and read(config, tmp_path / "x")


@pytest.mark.parametrize(
    "files",
    [
        {**CLASSES, "README.txt": b"1.jpg is a rose\n", "LICENSE": b"", "SHA256SUMS": b"12 daisy/1.jpg\n"},
        {**CLASSES, "md5.txt": b"f0%s  daisy/1.jpg\nf1%s  rose/1.jpg\n" % (b"0" * 30, b"0" * 30)},
        {**CLASSES, "classes.txt": b"daisy\nrose\n", "daisy/notes.txt": b"a\n", "sizes.csv": b"x\n77\n"},
        {**each("cat/{}.png", _lossless("RGB")), **each("dog/{}.png", _lossless("RGB"))},
        {**each("cat/{}.png", _lossless("L")), **each("dog/{}.png", _lossless("L"))},
        {**each("mask/{}.png", _lossless("RGB")), **each("no_mask/{}.png", _lossless("RGB"))},
        {**each("cat/{}.png", _lossless("RGB")), **each("dog/{}.png", _lossless("L", (9, 9)))},
        {**each("cat/{}.jpg", b"x"), "cat/2.txt": b"my favourite\n"},
    ],
)
def test_what_a_folder_of_images_may_hold(tmp_path: Path, files: Files) -> None:
    place = grow(tmp_path / "in", files)
    assert found(place)[0].input == place and found(place)[0].kind == "folder"


@pytest.mark.parametrize("name", ["voc", "coco", "yolo", "masks", "labelme", "folder", "openimages"])
def test_a_tree_of_links_is_detected_with_its_image_root(tmp_path: Path, name: str) -> None:
    """Links to files, as tools that deduplicate make them."""
    one = INPUTS[name]
    store = tmp_path / "store"
    grow(store, one.files([1, 2]))
    for file in one.files([1, 2]):
        link = tmp_path / "in" / file
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(store / file)
    place = f"{tmp_path}/in"
    if name == "openimages":
        return
    with pytest.raises(ValueError, match="--image_root") as caught:
        read(found(place, **one.options)[0], tmp_path / "x")
    assert f"{place}/" in str(caught.value) and str(store) in str(caught.value)
    config, _ = found(place, image_roots=(str(store),), **one.options)
    assert config.kind == one.kind
    expected = read(found(str(store), **one.options)[0], tmp_path / "x")
    assert facts_of(read(config, tmp_path / "x")) == facts_of(expected)


@pytest.mark.parametrize("kind", ["auto", "given"])
@pytest.mark.parametrize("name", ["voc", "yolo", "masks", "coco", "labelme-web", "folder"])
def test_the_image_roots_of_a_message_make_linked_folders_readable(
    tmp_path: Path, name: str, kind: str
) -> None:
    one = INPUTS[name]
    grow(tmp_path / "my store", one.files([1, 2]))
    (tmp_path / "in").mkdir()
    for folder in os.listdir(tmp_path / "my store"):
        (tmp_path / "in" / folder).symlink_to(tmp_path / "my store" / folder)
    options: dict[str, object] = dict(one.options)
    source = one.kind if kind == "given" else "auto"
    with pytest.raises(ValueError) as caught:
        read(found(f"{tmp_path}/in", source, **options)[0], tmp_path / "x")
    message = str(caught.value)
    link = message.partition("is a link to ")[0].rpartition("'")[0].rpartition("'")[2]
    assert os.path.islink(link) and repr(os.path.realpath(link)) in message
    arguments = shlex.split(message.partition(": give ")[2])
    options["image_roots"] = tuple(arguments[1::2])
    assert arguments[::2] == ["--image_root"] * len(arguments[1::2])
    config, _ = found(f"{tmp_path}/in", source, **options)
    expected = read(found(f"{tmp_path}/my store", **one.options)[0], tmp_path / "x")
    assert config.kind == one.kind and facts_of(read(config, tmp_path / "x")) == facts_of(expected)


@pytest.mark.parametrize(
    "name", ["folder", "frames", "zip", "tar", "webdataset", "tfrecord", "idx", "npy", "openimages"]
)
def test_an_image_root_without_effect_is_refused(tmp_path: Path, name: str) -> None:
    one = INPUTS[name]
    place = grow(tmp_path / "in", one.files([1, 2]))
    if name == "frames":
        grow(tmp_path / "in", {"walk/0/timestamps.txt": b"1\n2", "walk/1/timestamps.txt": b"1\n2"})
    (tmp_path / "more").mkdir()
    roots = (f"{tmp_path}/more",)
    config, _ = found(place, one.kind)
    source_of(config).check(config)
    with pytest.raises(
        ValueError,
        match="--image_root is '.*/more', .*--source .* (does not use it|uses only for links)",
    ):
        source_of(config).check(dataclasses.replace(config, image_roots=roots))
    if name in ("folder", "frames", "zip", "tar", "webdataset", "tfrecord"):
        grow(tmp_path / "more", one.files([1, 2]), "a")
        (tmp_path / "in" / "linked").symlink_to(tmp_path / "more" / "a")
        source_of(config).check(dataclasses.replace(config, image_roots=roots))


@pytest.mark.parametrize("name", ["csv", "jsonl", "coco", "voc", "yolo", "masks", "labelme", "imagenet-list"])
def test_sources_that_look_for_images_take_image_roots(tmp_path: Path, name: str) -> None:
    """The images lie in the image root alone."""
    one = INPUTS[name]
    files = one.files([1, 2])
    images = {
        key: data for key, data in files.items() if key.endswith((".png", ".JPEG")) and "masks" not in key
    }
    images = {key: data for key, data in images.items() if "Segm" not in key and "panoptic" not in key}
    place = grow(tmp_path / "in", {key: data for key, data in files.items() if key not in images})
    flat = {
        (os.path.basename(key) if name not in ("csv", "jsonl") else key): data for key, data in images.items()
    }
    grow(tmp_path / "more", flat)
    config = SourceConfig(
        one.kind, f"{place}/{one.place}".rstrip("/"), image_roots=(f"{tmp_path}/more",), **one.options
    )
    assert len(read(config, tmp_path / "x")) == 2


def test_the_output_in_the_input_is_no_dataset(tmp_path: Path) -> None:
    place = grow(tmp_path / "in", {**below(YOLO, "yolo"), **below(COCO, "out")})
    with pytest.raises(ValueError, match="several datasets"):
        detect(SourceConfig("auto", place))
    assert found(place, skip_dirs=(f"{place}/out",))[0].input == f"{place}/yolo"


def test_links_to_one_dataset_are_one_dataset(tmp_path: Path) -> None:
    place = grow(tmp_path / "in", below(YOLO, "v1"))
    (tmp_path / "in/latest").symlink_to("v1")
    (tmp_path / "in/loop").symlink_to(".")
    assert found(place)[0].kind == "yolo"


def test_each_folder_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By all rules together; what is read afterwards lists again."""
    place = grow(tmp_path / "in", {f"{at:03}/{at}.jpg": b"x" for at in range(100)})
    listed: collections.Counter[str] = collections.Counter()
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.update([str(path)]) or scandir(path))
    assert found(place)[0].kind == "folder"
    assert listed.pop(place) <= 3 and set(listed.values()) == {1}


def test_few_folders_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = grow(tmp_path / "in", {f"{at:03}/{at}.jpg": b"x" for at in range(300)})
    monkeypatch.setattr("recordmill.transforms.sources.look._FOLDERS", 20)
    listed: list[object] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    assert found(place)[0].input == place
    before = len(listed)
    monkeypatch.setattr("recordmill.transforms.sources.look._FOLDERS", 3)
    listed.clear()
    assert found(place)[0].input == place
    assert before - len(listed) <= 20


def test_a_wrapped_dataset_in_a_bucket(tmp_path: Path, bucket: str, bucket_server) -> None:  # type: ignore[no-untyped-def]
    for place, files in (
        ("one", below(YOLO, "a/yolo")),
        ("two", TWO_SPLITS),
        ("three", below(SPLITS, "images")),
    ):
        grow(tmp_path / place, files)
        bucket_server.upload_folder(tmp_path / place, f"{bucket}/{place}")
    config, _ = found(f"{bucket}/one/")
    assert (config.kind, config.input) == ("yolo", f"{bucket}/one/a/yolo")
    assert {record.split for record in read(config, tmp_path / "x")} == {"train", "val"}
    with pytest.raises(ValueError, match=f"--input {bucket}/two/A; --input {bucket}/two/B"):
        found(f"{bucket}/two")
    assert found(f"{bucket}/three")[0].input == f"{bucket}/three/images"


def test_coco_json_alone_is_left_to_its_check(tmp_path: Path) -> None:
    files = {name: data for name, data in COCO.items() if name.endswith(".json")}
    assert json.loads(files["annotations/panoptic_val2017.json"])
    assert found(grow(tmp_path / "in", below(files, "x/y")))[0].kind == "coco"
