"""What the programs read: images in a folder for each class, images with COCO boxes, rows of a CSV."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

KEPT = ("kept", "small", "boxes")
"""Works that store images unchanged; the others encode them as JPEG."""
QUALITY = 90


class Box(NamedTuple):
    """Edges as fractions of the image's width and height, and the number and name of the class."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float
    label: int
    class_name: str


class Item(NamedTuple):
    """An image: its path, its path below the input, the number and name of its class, and its boxes."""

    path: str
    key: str
    label: int
    class_name: str
    boxes: tuple[Box, ...] = ()


class Row(NamedTuple):
    """A row of the CSV."""

    customer: int
    score: float
    city: str
    note: str


def short_side(work: str) -> int:
    """The length to which the shorter side is scaled down in a work; 0 for none."""
    return int(work.removeprefix("side")) if work.startswith("side") else 0


def list_items(source: Path) -> list[Item]:
    """The images of <source>/<class>/, classes in the order of names, or of <source>/annotations.json."""
    if (source / "annotations.json").exists():
        return _coco_items(source)
    return [
        Item(str(path), f"{folder.name}/{path.name}", label, folder.name)
        for label, folder in enumerate(sorted(source.iterdir()))
        for path in sorted(folder.iterdir())
    ]


def _coco_items(source: Path) -> list[Item]:
    content = json.loads((source / "annotations.json").read_text(encoding="utf-8"))
    names = {category["id"]: category["name"] for category in content["categories"]}
    labels = {number: label for label, number in enumerate(sorted(names))}
    sizes = {image["id"]: (image["width"], image["height"]) for image in content["images"]}
    boxes: dict[int, list[Box]] = defaultdict(list)
    for one in content["annotations"]:
        (x, y, w, h), (width, height) = one["bbox"], sizes[one["image_id"]]
        edges = (x / width, y / height, min((x + w) / width, 1.0), min((y + h) / height, 1.0))
        boxes[one["image_id"]].append(Box(*edges, labels[one["category_id"]], names[one["category_id"]]))
    return [
        Item(
            str(source / "images" / image["file_name"]), image["file_name"], -1, "", tuple(boxes[image["id"]])
        )
        for image in content["images"]
    ]


def read_rows(source: Path) -> Iterator[Row]:
    """The rows of a CSV in the order of the file."""
    with source.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        next(lines)
        for customer, score, city, note in lines:
            yield Row(int(customer), float(score), city, note)
