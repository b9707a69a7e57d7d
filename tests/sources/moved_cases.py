"""Datasets of the corpus, what each holds, and what is left of it where a piece is missing.

The numbers were counted in the JSON, XML, CSV and text files themselves, without this project.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.sources.moved_trees import Tree, below, files_of, without

Numbers = Mapping[str, int]
_NONE: Numbers = {}


@dataclasses.dataclass(frozen=True)
class Expected:
    """What is read.

    Attributes:
        source: its name.
        splits: records by split.
        labels: labels of images, by class.
        boxes: objects by class; or their number alone, under `*`.
        masks: mask images by kind, and the masks of objects under `object`.
    """

    source: str
    splits: Mapping[Any, int]
    labels: Numbers = dataclasses.field(default_factory=dict)
    boxes: Numbers = dataclasses.field(default_factory=dict)
    masks: Numbers = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Refused:
    """A call that ends with exit status 2, or whose job fails: nothing is published.

    Attributes:
        message: part of what is said.
    """

    message: str = ""


@dataclasses.dataclass(frozen=True)
class Missing:
    """Pieces that are left out of a dataset.

    Attributes:
        pieces: their paths, separated by spaces; folders end in `/`.
        outcomes: any of these is right.
    """

    pieces: str
    outcomes: tuple[Expected | Refused, ...]


@dataclasses.dataclass(frozen=True)
class Case:
    """A dataset.

    Attributes:
        name: of the test.
        tree: its files, of the corpus.
        expected: what is read of it where it is given itself.
        flags: of the call; `{root}` stands for its folder.
        right: a call that reads it, where its folder and the flags alone are not one.
        missing: what may be missing.
        flat: its images lie in no folder, so that a folder around them looks like a class.
        input: folder of the tree that is given.
    """

    name: str
    tree: Callable[[Path], Tree]
    expected: Expected | Refused
    flags: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()
    flat: bool = False
    input: str = ""


def _without(pieces: str, *outcomes: Expected | Refused) -> Missing:
    return Missing(pieces, outcomes)


def _folder(name: str) -> Callable[[Path], Tree]:
    return lambda corpus: files_of(corpus / name)


def _layout(
    name: str,
    expected: Expected | Refused,
    flags: tuple[str, ...] = (),
    missing: tuple[Missing, ...] = (),
    flat: bool = False,
) -> Case:
    """A dataset of `layouts`."""
    return Case(name, _folder(f"layouts/{name}"), expected, flags, missing=missing, flat=flat)


_TRAIN_VAL = {"train": 1, "val": 1}
_A_AND_BB = {"a": 1, "b": 2}
_BOTH = Expected("coco", _TRAIN_VAL, boxes=_A_AND_BB)
_MASKS = ("--include_annotations", "masks")
_IMAGES_ONLY = Expected("folder", _TRAIN_VAL)

_COCO_SPLITS = (_without("annotations/", _IMAGES_ONLY), _without("images/train/", Refused("not found")))


def _coco(name: str, kind: str, expected: Expected, *flags: str) -> Case:
    one = _without(f"annotations/{kind}_val.json", _without_val(expected), Refused())
    return _layout(f"coco_dataset/{name}", expected, flags, missing=(*_COCO_SPLITS, one))


def _without_val(expected: Expected) -> Expected:
    """Of the layouts of COCO: one image with one object."""
    one = {"b": 1}
    return Expected(
        "coco",
        {"train": 1},
        labels=one if expected.labels else {},
        boxes=({"a": 1} if expected.boxes == {"a": 1, "b": 1} else one) if expected.boxes else {},
        masks=dict.fromkeys(expected.masks, 1),
    )


_COCO = (
    _layout(
        "coco_dataset/coco",
        Expected("coco", _TRAIN_VAL, _A_AND_BB, {"a": 2, "b": 2}, {"panoptic": 2}),
        missing=(
            *_COCO_SPLITS,
            _without(
                "annotations/instances_train.json annotations/instances_val.json",
                Expected("coco", _TRAIN_VAL, _A_AND_BB, {"a": 2, "b": 2}, {"panoptic": 2}),
            ),
            _without(
                "annotations/panoptic_train/ annotations/panoptic_val/", Refused("panoptic mask not found")
            ),
        ),
    ),
    _coco("coco_captions", "captions", Expected("coco", _TRAIN_VAL), "--include_annotations", "captions"),
    _coco("coco_image_info", "image_info", Expected("coco", _TRAIN_VAL)),
    _coco("coco_instances", "instances", _BOTH),
    _coco("coco_labels", "labels", Expected("coco", _TRAIN_VAL, labels=_A_AND_BB)),
    _coco("coco_person_keypoints", "person_keypoints", _BOTH, "--include_annotations", "keypoints"),
    _coco("coco_stuff", "stuff", Expected("coco", _TRAIN_VAL, boxes={"a": 1, "b": 1})),
    _layout(
        "coco_dataset/coco_panoptic",
        Expected("coco", _TRAIN_VAL, masks={"panoptic": 2}),
        missing=_COCO_SPLITS,
    ),
    _layout(
        "coco_dataset/coco_roboflow",
        _BOTH,
        missing=(
            _without(
                "train/_annotations.coco.json val/_annotations.coco.json", Expected("folder", _TRAIN_VAL)
            ),
            _without("val/", Expected("coco", {"train": 1}, boxes={"b": 1})),
        ),
    ),
    _layout("coco_dataset/mmdet_coco", _BOTH, missing=(_without("annotations/", _IMAGES_ONLY),)),
)

_VOC1 = Expected("voc", {"train": 1}, boxes={"cat": 1, "person": 1}, masks={"class": 1, "instance": 1})
_VOC = (
    _layout(
        "voc_dataset/voc_dataset1",
        _VOC1,
        missing=(
            _without("ImageSets/", dataclasses.replace(_VOC1, splits={None: 1})),
            _without("Annotations/", dataclasses.replace(_VOC1, boxes=_NONE)),
            _without("SegmentationClass/", dataclasses.replace(_VOC1, masks={"instance": 1})),
            _without("SegmentationClass/ SegmentationObject/", dataclasses.replace(_VOC1, masks={})),
            _without("Annotations/ SegmentationClass/ SegmentationObject/", Refused()),
            _without(
                "Annotations/ SegmentationClass/ SegmentationObject/ ImageSets/",
                Expected("folder", {None: 2}),
                Refused(),
            ),
            _without("JPEGImages/", Refused("image_root")),
        ),
    ),
    _layout(
        "voc_dataset/voc_dataset3",
        Expected("voc", {"train": 1}, boxes={"cat": 1}),
        missing=(
            _without("ImageSets/", Expected("voc", {None: 1}, boxes={"cat": 1})),
            _without("Annotations/", Refused()),
        ),
    ),
    _layout("voc_dataset/voc_dataset2", Refused("annotation without its image")),
    Case(
        "palette_masks",
        _folder("palette_masks"),
        Expected("voc", {None: 3}, masks={"class": 3}),
        missing=(
            _without("class_names.txt", Expected("voc", {None: 3}, masks={"class": 3})),
            _without("SegmentationClass/", Refused()),
        ),
    ),
)


def _raccoon_voc(corpus: Path) -> Tree:
    folder = corpus / "raccoon"
    return {**files_of(folder / "images", "images/"), **files_of(folder / "annotations", "annotations/")}


def _raccoon_csv(corpus: Path) -> Tree:
    folder = corpus / "raccoon"
    lists = {f"data/{name}_labels.csv": folder / f"data/{name}_labels.csv" for name in ("train", "test")}
    return {**files_of(folder / "images", "images/"), **lists}


def _raccoon_split(corpus: Path) -> Tree:
    """Roboflow's export for TensorFlow: a CSV in each folder of a split."""
    tree: dict[str, Path | bytes] = {}
    for name in ("train", "test"):
        rows = (corpus / f"raccoon/data/{name}_labels.csv").read_text()
        tree[f"{name}/_annotations.csv"] = rows.encode()
        for row in csv.DictReader(io.StringIO(rows)):
            tree[f"{name}/{row['filename']}"] = corpus / "raccoon/images" / row["filename"]
    return tree


_RACCOON = (
    Case(
        "raccoon as VOC",
        _raccoon_voc,
        Expected("voc", {None: 200}, boxes={"raccoon": 217}),
        missing=(
            _without("annotations/", Expected("folder", {None: 200}), Refused()),
            _without("images/", Refused("image_root")),
        ),
    ),
    Case(
        "raccoon as CSV",
        _raccoon_csv,
        Expected("csv", {"train": 160, "test": 40}, boxes={"raccoon": 217}),
        ("--annotations", "{root}/data/train_labels.csv", "--annotations", "{root}/data/test_labels.csv"),
        input="images",
    ),
    Case(
        "raccoon as a CSV in each split",
        _raccoon_split,
        Expected("csv", {"train": 160, "test": 40}, boxes={"raccoon": 217}),
        right=(
            *("--input", "{root}", "--annotations", "{root}/train/_annotations.csv"),
            *("--annotations", "{root}/test/_annotations.csv"),
        ),
        missing=(
            _without(
                "train/_annotations.csv test/_annotations.csv", Expected("folder", {"train": 160, "test": 40})
            ),
        ),
    ),
)


def _coco_images(corpus: Path, split_at: int = 64) -> dict[str, Path]:
    """The images of COCO by where they lie in a tree: the first of them in train2017."""
    found = sorted((corpus / "coco64/images/val2017").iterdir())
    return {
        f"{'train2017' if number < 64 - split_at else 'val2017'}/{path.name}": path
        for number, path in enumerate(found)
    }


def _coco64(corpus: Path) -> Tree:
    instances = corpus / "coco64/annotations/instances_val2017.json"
    return {"annotations/instances_val2017.json": instances, **below(_coco_images(corpus), "images/")}


def _coco64_panoptic(corpus: Path) -> Tree:
    """The panoptic masks of the images that are there: 64 of 100."""
    folder = corpus / "coco64/panoptic"
    images = _coco_images(corpus)
    known = {Path(name).name for name in images}
    value = json.loads((folder / "panoptic_val2017.json").read_text())
    value["images"] = [image for image in value["images"] if image["file_name"] in known]
    ids = {image["id"] for image in value["images"]}
    value["annotations"] = [one for one in value["annotations"] if one["image_id"] in ids]
    masks = files_of(folder / "panoptic_val2017", "annotations/panoptic_val2017/")
    tree: dict[str, Path | bytes] = {"annotations/panoptic_val2017.json": json.dumps(value).encode()}
    return {**tree, **masks, **images}


def _yolo64(kind: str) -> Callable[[Path], Tree]:
    def tree(corpus: Path) -> Tree:
        images = _coco_images(corpus, 32)
        texts = corpus / "coco64" / kind / "labels"
        labels = {
            f"labels/{Path(name).with_suffix('.txt')}": texts / f"{Path(name).stem}.txt" for name in images
        }
        present = {name: path for name, path in labels.items() if path.exists()}
        return {"data.yaml": corpus / "coco64" / kind / "data.yaml", **present, **below(images, "images/")}

    return tree


def _roboflow_yolo(corpus: Path) -> Tree:
    """Roboflow's export: train/images, train/labels, valid/…, and a data.yaml that says ../train/images."""
    tree: dict[str, Path | bytes] = {}
    names = []
    for path, content in _yolo64("yolo_boxes")(corpus).items():
        kind, _, rest = path.partition("/")
        if rest:
            split, name = rest.split("/")
            tree[f"{'train' if split == 'train2017' else 'valid'}/{kind}/{name}"] = content
    for line in (corpus / "coco64/yolo_boxes/data.yaml").read_text().splitlines():
        number, _, name = line.strip().partition(": ")
        if number.isdigit():
            names.append(name)
    text = f"train: ../train/images\nval: ../valid/images\n\nnc: {len(names)}\nnames: {json.dumps(names)}\n"
    return {"data.yaml": text.encode(), **tree}


def _semantic(split_at: int, folders: tuple[str, str] = ("images", "masks")) -> Callable[[Path], Tree]:
    def tree(corpus: Path) -> Tree:
        images = _coco_images(corpus, split_at)
        names = images if split_at != 64 else {path.name: path for path in images.values()}
        masks = corpus / "coco64/semantic/masks"
        of = {Path(name).with_suffix(".png").as_posix(): masks / f"{Path(name).stem}.png" for name in names}
        return {**below(names, f"{folders[0]}/"), **below(of, f"{folders[1]}/")}

    return tree


_HALVES = {"train": 32, "val": 32}
_YOLO64 = Expected("yolo", _HALVES, boxes={"*": 440})
_YOLO_MISSING = (
    _without("labels/", Refused("label")),
    _without("images/", Refused()),
    _without("data.yaml labels/", Expected("folder", _HALVES)),
)


def _yolo_without_names(boxes: Numbers, masks: int = 0) -> Missing:
    found = Expected("yolo", _HALVES, boxes=boxes, masks={"object": masks} if masks else {})
    return _without("data.yaml", found)


_COCO64 = (
    Case(
        "coco64 instances",
        _coco64,
        Expected("coco", {"val": 64}, boxes={"*": 443, "person": 182, "orange": 1}),
        missing=(
            _without("annotations/", Expected("folder", {"val": 64})),
            _without("images/", Refused("not found")),
        ),
    ),
    Case(
        "coco64 instances with masks",
        _coco64,
        Expected("coco", {"val": 64}, boxes={"*": 443, "person": 182}, masks={"object": 443}),
        _MASKS,
    ),
    Case(
        "coco64 panoptic",
        _coco64_panoptic,
        Expected("coco", {"val": 64}, masks={"panoptic": 64}),
        missing=(
            _without("annotations/panoptic_val2017/", Refused("panoptic mask not found")),
            _without("annotations/panoptic_val2017.json", Refused()),
        ),
    ),
    Case(
        "coco64 YOLO boxes",
        _yolo64("yolo_boxes"),
        dataclasses.replace(_YOLO64, boxes={"*": 440, "person": 179, "wine glass": 19, "book": 15}),
        missing=(_yolo_without_names({"*": 440, "0": 179}), *_YOLO_MISSING),
    ),
    Case(
        "coco64 YOLO polygons",
        _yolo64("yolo_polygons"),
        dataclasses.replace(_YOLO64, boxes={"*": 443}, masks={"object": 443}),
        _MASKS,
        missing=(_yolo_without_names({"*": 443, "1": 182}, 443), *_YOLO_MISSING),
    ),
    Case(
        "coco64 YOLO of Roboflow",
        _roboflow_yolo,
        Expected("yolo", {"train": 32, "val": 32}, boxes={"*": 440, "person": 179}),
        missing=(
            _without("data.yaml", Expected("yolo", {"train": 32, "valid": 32}, boxes={"*": 440, "0": 179})),
            _without("train/labels/ valid/labels/", Refused("label")),
        ),
    ),
    Case(
        "coco64 semantic",
        _semantic(64),
        Expected("masks", {None: 64}, masks={"class": 64}),
        missing=(
            _without("masks/", Expected("folder", {None: 64}), Refused()),
            _without("images/", Refused()),
        ),
    ),
    Case(
        "coco64 semantic in splits with a year",
        _semantic(32),
        Expected("masks", _HALVES, masks={"class": 64}),
        missing=(_without("masks/", Expected("folder", _HALVES)),),
    ),
    Case(
        "coco64 semantic, Images and Masks",
        _semantic(64, ("Images", "Masks")),
        Expected("masks", {None: 64}, masks={"class": 64}),
    ),
)

_YOLO_IDS = {"2": 1, "4": 1}
_YOLO_NAMES = {"label_2": 1, "label_4": 1}
_YOLO = (
    _layout(
        "yolo_dataset/annotations",
        Expected("yolo", {None: 1}, boxes=_YOLO_NAMES),
        missing=(
            _without("obj.names", Expected("yolo", {None: 1}, boxes=_YOLO_IDS)),
            _without("Annotations/", Refused()),
        ),
    ),
    _layout(
        "yolo_dataset/labels",
        Expected("yolo", _TRAIN_VAL, boxes={"label_2": 2, "label_4": 2}),
        missing=(
            _without("obj.names", Expected("yolo", _TRAIN_VAL, boxes={"2": 2, "4": 2})),
            _without("labels/", Refused(), _IMAGES_ONLY),
            _without("labels/val/", Expected("yolo", _TRAIN_VAL, boxes=_YOLO_NAMES), Refused("label")),
        ),
    ),
    _layout(
        "yolo_dataset/strict",
        Expected("yolo", {"train": 1}, boxes=_YOLO_NAMES),
        missing=(
            _without("obj.names", Refused("obj.names"), Expected("yolo", {"train": 1}, boxes=_YOLO_IDS)),
            _without(
                "obj.data",
                Expected("yolo", {"train": 1}, boxes=_YOLO_NAMES),
                Expected("yolo", {None: 1}, boxes=_YOLO_NAMES),
            ),
            _without("train.txt", Refused("train.txt"), Expected("yolo", {None: 1}, boxes=_YOLO_NAMES)),
            _without("obj_train_data/1.txt", Refused("label")),
        ),
    ),
)


def _cats_dogs(corpus: Path) -> Tree:
    return files_of(corpus / "cats_dogs")


def _pets(*splits: tuple[str, Callable[[int], bool]]) -> Callable[[Path], Tree]:
    """Cats and dogs in a folder each, in folders of splits; by the number in their names."""

    def tree(corpus: Path) -> Tree:
        found = {}
        for path in sorted((corpus / "cats_dogs").iterdir()):
            kind, _, number = path.stem.partition("_")
            split = next(name for name, takes in splits if takes(int(number)))
            found[f"{split}{kind}/{path.name}"] = path
        return found

    return tree


def _synsets(corpus: Path) -> Tree:
    names = {"cat": "n02121808", "dog": "n02084071"}
    tree = _pets(("train/", lambda number: number > 0), ("val/", lambda number: True))(corpus)
    return {
        "/".join(names.get(part, part) for part in path.split("/")): content for path, content in tree.items()
    }


def _photos(*folders: str) -> Callable[[Path], Tree]:
    """Cats and dogs without a folder for each, five in each of two folders."""

    def tree(corpus: Path) -> Tree:
        found = sorted((corpus / "cats_dogs").iterdir())
        return {f"{folders[number % 2]}/{path.name}": path for number, path in enumerate(found)}

    return tree


def _with_csv(name: str, header: str, folder: str) -> Callable[[Path], Tree]:
    def tree(corpus: Path) -> Tree:
        found = sorted((corpus / "cats_dogs").iterdir())
        rows = "".join(f"{path.name},{path.name[:3]}\n" for path in found)
        return {name: f"{header}\n{rows}".encode(), **{f"{folder}{path.name}": path for path in found}}

    return tree


def _imagenet_list(name: str) -> Callable[[Path], Tree]:
    """With the images that the list names and the corpus has not."""

    def tree(corpus: Path) -> Tree:
        folder = corpus / "layouts/imagenet_txt_dataset"
        image = folder / "basic/images/1.jpg"
        images = {f"images/{number}.jpg": image for number in ((1, 2, 3, 4) if name == "basic" else (1,))}
        return {**files_of(folder / name), **images}

    return tree


_FIVES = {"cat": 5, "dog": 5}
_4_AND_1 = {"train": 8, "test": 2}
_LISTED = Expected("imagenet", {"train": 4}, {"label_0": 1, "label_3": 1, "label_5": 2})

_CLASSES = (
    Case(
        "cats_dogs",
        _cats_dogs,
        Expected("folder", {None: 10}, _FIVES),
        ("--label_pattern", r"([a-z]+)_\d"),
        flat=True,
    ),
    Case("cats_dogs without a pattern", _cats_dogs, Expected("folder", {None: 10}), flat=True),
    Case("cats_dogs in folders", _pets(("", lambda number: True)), Expected("folder", {None: 10}, _FIVES)),
    Case(
        "cats_dogs in splits",
        _pets(("train/", lambda number: number > 0), ("test/", lambda number: True)),
        Expected("folder", _4_AND_1, _FIVES),
        missing=(
            _without("test/", Expected("folder", {"train": 8}, {"cat": 4, "dog": 4})),
            _without("train/", Expected("folder", {"test": 2}, {"cat": 1, "dog": 1})),
        ),
    ),
    Case(
        "cats_dogs in splits with a year",
        _pets(("train2017/", lambda number: number > 0), ("val2017/", lambda number: True)),
        Expected("folder", {"train": 8, "val": 2}, _FIVES),
    ),
    Case(
        "images/train and images/test",
        _photos("images/train", "images/test"),
        Expected("folder", {"train": 5, "test": 5}),
        right=("--input", "{root}/images"),
    ),
    Case("train and test", _photos("train", "test"), Expected("folder", {"train": 5, "test": 5})),
    Case(
        "cats_dogs by synset",
        _synsets,
        Expected("imagenet", {"train": 8, "val": 2}, {"n02121808": 5, "n02084071": 5}),
        missing=(_without("val/", Expected("imagenet", {"train": 8}, {"n02121808": 4, "n02084071": 4})),),
    ),
    Case(
        "metadata.csv of Hugging Face",
        _with_csv("metadata.csv", "file_name,label", ""),
        Expected("csv", {None: 10}, _FIVES),
        right=("--input", "{root}", "--annotations", "{root}/metadata.csv"),
    ),
    Case(
        "train.csv and train_images of Kaggle",
        _with_csv("train.csv", "image_id,label", "train_images/"),
        Expected("csv", {None: 10}, _FIVES),
        right=(
            *("--input", "{root}/train_images", "--annotations", "{root}/train.csv"),
            *("--image_column", "image_id"),
        ),
        missing=(_without("train.csv", Expected("folder", {None: 10}), Refused()),),
    ),
    Case(
        "labels.csv and train",
        _with_csv("labels.csv", "filename,label", "train/"),
        Expected("csv", {"train": 10}, _FIVES),
        right=("--input", "{root}", "--annotations", "{root}/labels.csv"),
    ),
    Case(
        "imagenet_txt_dataset/basic",
        _imagenet_list("basic"),
        _LISTED,
        missing=(
            _without("synsets.txt", Expected("imagenet", {"train": 4}, {"0": 1, "3": 1, "5": 2})),
            _without("train.txt", Refused(), Expected("folder", {None: 4})),
        ),
    ),
    Case(
        "imagenet_txt_dataset/no_labels",
        _imagenet_list("no_labels"),
        Expected("imagenet", {"train": 1}, {"4": 1}),
    ),
    _layout("imagenet_dataset", Expected("folder", {None: 4}, {"label_0": 1, "label_1": 2})),
    _layout("image_dir_dataset", Expected("folder", {None: 2}), flat=True),
    Case("exif_orientation", _folder("exif_orientation"), Expected("folder", {None: 18}), flat=True),
    _layout("image_zip_dataset", Expected("archive", {None: 2})),
)

_SEVEN = dict.fromkeys(("window", "license plate", "o1", "q1", "b1", "m1", "hg"), 1)
_V6 = Expected(
    "openimages",
    {"train": 2, "test": 1, "validation": 1},
    {"Generic label #0": 1, "Generic label #1": 1, "Generic label #3": 1},
    {"Generic label #0": 1, "Generic label #3": 1},
)
_V6_IDS = dataclasses.replace(_V6, labels={"/m/0": 1, "/m/1": 1, "/m/3": 1}, boxes={"/m/0": 1, "/m/3": 1})
_DIGITS = (42, 67, 55, 45, 55, 50, 43, 49, 40, 54)


def _mnist(corpus: Path) -> Tree:
    """The first 500 images."""
    tree: dict[str, Path | bytes] = {}
    for name, header, size in (("images-idx3", 16, 28 * 28), ("labels-idx1", 8, 1)):
        data = gzip.decompress((corpus / f"mnist/t10k-{name}-ubyte.gz").read_bytes())
        count = (500).to_bytes(4, "big")
        tree[f"t10k-{name}-ubyte.gz"] = gzip.compress(data[:4] + count + data[8 : header + 500 * size])
    return tree


_OTHERS = (
    Case(
        "labelme",
        _folder("labelme"),
        Expected(
            "labelme", {None: 3}, boxes={"person": 7, "bottle": 1, "chair": 1, "sofa": 4, "bus": 2, "car": 1}
        ),
        missing=(
            _without("2011_000003.json 2011_000006.json 2011_000025.json", Expected("folder", {None: 3})),
            _without(
                "2011_000025.json",
                Expected("labelme", {None: 2}, boxes={"person": 7, "bottle": 1, "chair": 1, "sofa": 4}),
            ),
        ),
    ),
    _layout(
        "labelme_dataset",
        Expected("labelme", {None: 1}, boxes=_SEVEN),
        missing=(
            _without("Masks/", Expected("labelme", {None: 1}, boxes=_SEVEN), Refused()),
            _without("Annotations/", Refused()),
        ),
    ),
    Case(
        "mnist",
        _mnist,
        Expected("idx", {"test": 500}, {str(number): count for number, count in enumerate(_DIGITS)}),
        missing=(
            _without("t10k-labels-idx1-ubyte.gz", Expected("idx", {"test": 500}), Refused("label")),
            _without("t10k-images-idx3-ubyte.gz", Refused()),
        ),
    ),
    _layout("mnist_dataset", Refused("labels")),
    _layout(
        "open_images_dataset/v5",
        Expected("openimages", {"train": 1, "test": 1}),
        missing=(_without("annotations/", Expected("folder", {"train": 1, "test": 1})),),
    ),
    _layout(
        "open_images_dataset/v6",
        _V6,
        missing=(
            _without("annotations/oidv6-class-descriptions.csv", _V6_IDS),
            _without("annotations/", Refused()),
            _without("annotations/ masks/", Expected("folder", {"train": 2, "test": 1, "validation": 1})),
        ),
    ),
    Case(
        "open_images_dataset/v6 with masks",
        _folder("layouts/open_images_dataset/v6"),
        dataclasses.replace(_V6, masks={"object": 1}),
        _MASKS,
        missing=(_without("masks/", Refused("mask")),),
    ),
    _layout(
        "tf_detection_api_dataset",
        Expected("tfrecord", {"train": 1, "val": 1, "test": 1}, boxes={"label_2": 1, "label_3": 2, "0": 1}),
        missing=(
            _without(
                "label_map.pbtxt",
                Expected(
                    "tfrecord", {"train": 1, "val": 1, "test": 1}, boxes={"label_2": 1, "label_3": 2, "0": 1}
                ),
            ),
        ),
    ),
)


def _camvid(corpus: Path) -> Tree:
    """With a table of the colours of its masks, which the corpus has not: black, and CamVid's sky."""
    table = b"0 0 0 Void\n128 128 128 Sky\n128 0 0 Building\n192 192 128 Column_Pole\n128 64 128 Road\n"
    return {"label_colors.txt": table, **files_of(corpus / "layouts/camvid_dataset")}


_REFUSED = (
    _layout("camvid_dataset", Refused("in colours")),
    Case(
        "camvid_dataset with its colours",
        _camvid,
        Expected("masks", {"train": 1, "val": 1, "test": 2}, masks={"class": 4}),
        missing=(
            _without(
                "train.txt val.txt test.txt",
                Expected("masks", {"train": 1, "val": 1, "test": 2}, masks={"class": 4}),
            ),
            _without("trainannot/ valannot/ testannot/", Refused()),
            _without("valannot/", Refused()),
        ),
    ),
    _layout("celeba_dataset/dataset", Refused("CelebA")),
    _layout("celeba_dataset/dataset_with_meta_file", Refused("CelebA")),
    _layout("cvat_dataset/for_images/export_task", Refused("CVAT")),
    _layout("cvat_dataset/for_images/export_project", Refused("CVAT")),
    _layout("cvat_dataset/for_video", Refused("CVAT")),
)

CASES: Mapping[str, Case] = {
    case.name: case for case in (*_COCO, *_VOC, *_RACCOON, *_COCO64, *_YOLO, *_CLASSES, *_OTHERS, *_REFUSED)
}


def piece_removed(case: Case, missing: Missing, corpus: Path) -> Tree:
    """The tree of a case without a piece."""
    return without(case.tree(corpus), *missing.pieces.split())
