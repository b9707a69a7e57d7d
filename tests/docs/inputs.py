"""Draws the inputs that commands of the documents name."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image, ImageDraw

from benchmarks.drawings import SHAPES, draw, draw_folder
from benchmarks.inputs import draw_digits
from recordmill.transforms.sources.names import is_image_name
from recordmill.transforms.sources.registry import SOURCES
from tests.docs.pages import section, text_of

SIZE = (32, 24)  # of the images in the examples of sources
BOX = [4, 2, 10, 12]
_SIDES = "<xmin>4</xmin><ymin>2</ymin><xmax>14</xmax><ymax>14</ymax>"


def _xml(name: str) -> str:
    return (
        f"<annotation><filename>{{stem}}</filename><size><width>{SIZE[0]}</width><height>{SIZE[1]}</height>"
        f"</size><object><name>{name}</name><bndbox>{_SIDES}</bndbox></object></annotation>"
    )


def _coco(annotation: dict[str, Any], **category: object) -> str:
    image = {"id": 9, "file_name": "000000000009.jpg", "width": SIZE[0], "height": SIZE[1]}
    categories = [{"id": 18, "name": "dog", **category}]
    annotations = [{"id": 1, "image_id": 9, **annotation}]
    return json.dumps({"images": [image], "annotations": annotations, "categories": categories})


_LABELME = json.dumps(
    {
        "imagePath": "",
        "imageHeight": SIZE[1],
        "imageWidth": SIZE[0],
        "shapes": [{"label": "dog", "points": [[4, 2], [14, 2], [14, 14]], "shape_type": "polygon"}],
    }
)
_OPEN_IMAGES = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\n0001eeaf4aed83f9,x,/m/0cmf2,1,0.1,0.5,0.2,0.6\n"
)
# What the files of the examples hold that are neither images nor containers, by name.
TEXTS = {
    "instances_train2017.json": _coco(
        {
            "category_id": 18,
            "bbox": BOX,
            "area": 120,
            "iscrowd": 0,
            "segmentation": [[4, 2, 14, 2, 14, 14, 4, 14]],
            "keypoints": [5, 5, 2],
        }
    ),
    "captions_train2017.json": _coco({"caption": "a dog"}),
    "panoptic_train2017.json": _coco(
        {"file_name": "000000000009.png", "segments_info": [{"id": 1, "category_id": 18}]}, isthing=1
    ),
    "2007_000027.xml": _xml("dog"),
    "n01440764_10040.xml": _xml("n01440764"),
    "train.txt": "2007_000027\n",
    "data.yaml": "train: images/train\nval: images/val\nnames: [dog]\n",
    "1.txt": "0 0.5 0.5 0.25 0.5\n",
    "2.txt": "0 0.25 0.25 0.75 0.25 0.5 0.75\n",
    "1.json": _LABELME,
    "2.json": _LABELME,
    "class-descriptions-boxable.csv": "/m/0cmf2,Airplane\n",
    "validation-annotations-bbox.csv": _OPEN_IMAGES,
    "classes.txt": "background\nroad\n",
    "ILSVRC2012_validation_ground_truth.txt": "1\n",
    "synset_words.txt": "n01440764 tench, Tinca tinca\n",
    "labels.txt": "start\nend\n",
    "timestamps.txt": "0.0\n0.04\n",
    "labels.csv": "path,label\nphotos/1.jpg,cat\nphotos/2.jpg,dog\n",
    "labels.jsonl": "".join(json.dumps({"image": f"photos/{n}.jpg", "label": "cat"}) + "\n" for n in (1, 2)),
    "label_map.pbtxt": "item { id: 1 name: 'cat' }",
}


def example_files(example: str) -> dict[str, list[str]]:
    """Paths of the files in an example tree; of a container, those in it."""
    found: dict[str, list[str]] = {}
    above: list[str] = []
    for line in example.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        above[depth:] = [line.strip()]
        parts = [part.rstrip("/") for part in above]
        container = next((at for at, part in enumerate(above) if not part.endswith("/")), depth)
        if line.endswith("/"):
            continue
        members = found.setdefault("/".join(parts[: container + 1]), [])
        if container < depth:
            members.append("/".join(parts[container + 1 :]))
    return found


def draw_example(name: str, folder: Path) -> None:
    """Draws the example tree of a source, with contents for each of its files."""
    for path, members in example_files(SOURCES[name].description.example).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".tar":
            with tarfile.open(file, "w") as tar:
                for member in members or ["0001.jpg", "0001.cls", "0001.json"]:
                    info = tarfile.TarInfo(member)
                    info.size = len(data := member_bytes(member))
                    tar.addfile(info, io.BytesIO(data))
        elif file.suffix == ".zip":
            with zipfile.ZipFile(file, "w") as archive:
                for member in members:
                    archive.writestr(member, member_bytes(member))
        else:
            write_file(file)


def member_bytes(name: str) -> bytes:
    """Contents of a member of an archive."""
    if not is_image_name(name):
        return {"cls": b"1", "json": b'{"age": 7}'}[name.rpartition(".")[2]]
    stored = io.BytesIO()
    draw("circle", 1, *SIZE).save(stored, "PNG" if name.endswith("png") else "JPEG")
    return stored.getvalue()


def write_file(file: Path) -> None:
    """Writes a file of an example."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.parent.name in ("SegmentationClass", "masks", "validation", "panoptic_train2017") and (
        file.suffix == ".png"
    ):
        mask = Image.new("RGB" if "panoptic" in file.parent.name else "L", SIZE)
        ImageDraw.Draw(mask).rectangle((4, 2, 13, 13), fill=1)
        mask.save(file)
    elif is_image_name(file.name):
        file.write_bytes(member_bytes(file.name))
    elif file.name == "meta.mat":  # map_clsloc.txt has the same
        file.with_name("map_clsloc.txt").write_text("n01440764 1 tench\n", "utf-8")
    elif file.suffix == ".gz":
        file.write_bytes(gzip.compress(idx_bytes(is_labels="labels" in file.name)))
    elif file.suffix == ".npy":
        np.save(file, np.arange(2) if file.name[0] == "y" else np.zeros((2, *SIZE, 3), np.uint8))
    elif file.suffix == ".tfrecord":
        write_records(file)
    elif file.suffix == ".parquet":
        image = {"bytes": member_bytes("1.png"), "path": None}
        pyarrow.parquet.write_table(pyarrow.table({"image": [image], "label": [1]}), file)
    elif file.name == "series.jsonl":
        lines = re.findall(
            r"^    (\{.*\})$", section("## sequence", text_of("docs/reference/sources.md")), re.MULTILINE
        )
        file.write_text("\n".join(lines), "utf-8")
    else:
        file.write_text(TEXTS[file.name].replace("{stem}", f"{file.stem}.jpg"), "utf-8")


def idx_bytes(is_labels: bool) -> bytes:
    """An IDX file of two digits, or of their labels."""
    shape = (2,) if is_labels else (2, 28, 28)
    head = bytes((0, 0, 8, len(shape))) + b"".join(side.to_bytes(4, "big") for side in shape)
    return head + bytes(int(np.prod(shape)))


def write_records(file: Path) -> None:
    """A TFRecord file of one record of raw pixels, by TensorFlow."""
    import tensorflow as tf

    pixels = np.asarray(draw("circle", 1, *SIZE)).tobytes()
    numbers = {"height": SIZE[1], "width": SIZE[0], "depth": 3, "label": 1}
    features = {name: tf.train.Feature(int64_list={"value": [value]}) for name, value in numbers.items()}
    features["image_raw"] = tf.train.Feature(bytes_list={"value": [pixels]})
    file.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        writer.write(tf.train.Example(features={"feature": features}).SerializeToString())


def _photos(folder: Path) -> None:
    if not (folder / "photos/circle").exists():
        assert len(list(draw_folder(folder / "photos", each=10))) == 30


def _pets(folder: Path) -> None:
    (folder / "pets").mkdir()
    for name in ("cat_0.jpeg", "cat_1.png", "dog_0.jpg"):
        draw("circle", len(name), *SIZE).save(folder / "pets" / name)


_TWO = ("circle/circle_000.jpg", "square/square_000.jpg")


def _labels(folder: Path) -> None:
    _photos(folder)
    with (folder / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        table = [["path", "label", "age"], *([f"photos/{key}", key[:6], "7"] for key in _TWO)]
        csv.writer(file).writerows(table)


def _lists(folder: Path) -> None:
    _photos(folder)
    (folder / "lists").mkdir()
    lines = [json.dumps({"image": key, "label": key.split("/")[0]}) for key in _TWO]
    (folder / "lists/labels.jsonl").write_text("\n".join(lines), "utf-8")


def _boxes(folder: Path) -> None:
    for number in (1, 2):
        write_file(folder / f"photos/{number}.jpg")
    text = section("## csv", text_of("docs/reference/sources.md"))
    lines = re.findall(r"^    ((?:filename|photos/).*,.*)$", text, re.MULTILINE)
    (folder / "boxes.csv").write_text("\n".join(lines), "utf-8")


def _class_names(folder: Path) -> None:
    (folder / "classes.txt").write_text("\n".join(SHAPES), "utf-8")


# Of the guides to detection and segmentation: numbers of images by split.
_DRAWN = {"train": range(1, 9), "val": range(101, 105)}


def _scenes(folder: Path) -> None:
    """COCO with a file of annotations for each split."""
    (folder / "scenes/annotations").mkdir(parents=True)
    categories = [{"id": number, "name": shape} for number, shape in enumerate(SHAPES, 1)]
    for split, numbers in _DRAWN.items():
        images: list[dict[str, Any]] = []
        for number in numbers:
            _draw_to(folder / f"scenes/{split}/{number:04}.jpg", number)
            images.append(
                {"id": number, "file_name": f"{number:04}.jpg", "width": SIZE[0], "height": SIZE[1]}
            )
        annotations = [
            {"id": one["id"], "image_id": one["id"], "category_id": 1 + one["id"] % 3, "bbox": BOX}
            for one in images
        ]
        coco = {"images": images, "annotations": annotations, "categories": categories}
        (folder / f"scenes/annotations/instances_{split}.json").write_text(json.dumps(coco), "utf-8")


def _shapes(folder: Path) -> None:
    """Masks of four classes, with a border that is to be ignored."""
    for split, numbers in _DRAWN.items():
        for number in numbers:
            _draw_to(folder / f"shapes/images/{split}/{number:04}.jpg", number)
            mask = Image.new("L", SIZE)
            ImageDraw.Draw(mask).rectangle((4, 2, 13, 13), fill=1 + number % 3, outline=255)
            (folder / f"shapes/masks/{split}").mkdir(parents=True, exist_ok=True)
            mask.save(folder / f"shapes/masks/{split}/{number:04}.png")
    (folder / "shapes/classes.txt").write_text("\n".join(("background", *SHAPES)), "utf-8")


def _draw_to(file: Path, seed: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draw(SHAPES[seed % 3], seed, *SIZE).save(file)


# By the first folder or file of a path; the examples of other sources are added.
INPUTS: dict[str, Callable[[Path], object]] = {
    "photos": _photos,
    "pets": _pets,
    "labels.csv": _labels,
    "lists": _lists,
    "boxes.csv": _boxes,
    "scenes": _scenes,
    "shapes": _shapes,
    "mnist": lambda folder: draw_digits(folder / "mnist", 20),
    "bloated": lambda folder: write_records(folder / "bloated/train.tfrecord"),
    "classes.txt": _class_names,
}


def _add_examples() -> None:
    for name, source in SOURCES.items():
        top = source.description.example.splitlines()[0].rstrip("/")
        INPUTS.setdefault(top, lambda folder, name=name: draw_example(name, folder))


_add_examples()


# boxes.csv has images in photos/ too.
_MADE = {"photos": "photos/circle"}


def draw_inputs(code: str, folder: Path) -> None:
    """Draws the inputs whose names are in a text of code."""
    for name, drawn in INPUTS.items():
        if (
            re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w.-])", code)
            and not (folder / _MADE.get(name, name)).exists()
        ):
            drawn(folder)
