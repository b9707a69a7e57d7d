"""Inputs whose every image tells by its pixels which one it is."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

CLASSES = ("cat", "dog", "owl")
COUNTS = {"train": 6, "val": 2}
SIZE = (20, 24)
SENTENCES = (
    ("free", "entry"),
    ("ok",),
    ("see", "you", "at", "noon"),
    ("win", "a", "prize"),
    ("no",),
    ("yes", "please"),
)


def pixels_of(key: str) -> npt.NDArray[np.uint8]:
    """The picture of a key: noise that no other key has."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).integers(0, 256, (*SIZE, 3), dtype=np.uint8)


def keys_of(split: str) -> dict[str, int]:
    """Label of each key of a split."""
    return {
        f"{split}/{name}/{number}.png": label
        for label, name in enumerate(CLASSES)
        for number in range(COUNTS[split])
    }


def draw_classes(folder: Path) -> None:
    """A folder a split, in it one a class."""
    for split in COUNTS:
        for key in keys_of(split):
            (folder / key).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels_of(key)).save(folder / key)


def boxes_of(number: int) -> list[tuple[int, float, float, float, float]]:
    """Class, and xmin, ymin, xmax, ymax as shares, of the objects in the image of that number: 0 to 3."""
    return [(1 + at % 2, 0.125 * at, 0.25, 0.125 * at + 0.5, 0.75) for at in range(number % 4)]


def draw_boxes(folder: Path) -> None:
    """A COCO file, whose classes 1 and 2 are `car` and `dog`, with eight images."""
    (folder / "images").mkdir(parents=True)
    height, width = SIZE
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(8):
        name = f"{number}.png"
        Image.fromarray(pixels_of(name)).save(folder / "images" / name)
        images.append({"id": number, "file_name": name, "height": height, "width": width})
        for label, x0, y0, x1, y1 in boxes_of(number):
            box = [x0 * width, y0 * height, (x1 - x0) * width, (y1 - y0) * height]
            one = {"id": len(annotations) + 1, "image_id": number, "category_id": label, "bbox": box}
            annotations.append({**one, "area": box[2] * box[3], "iscrowd": 0})
    categories = [{"id": 1, "name": "car"}, {"id": 2, "name": "dog"}]
    told = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "instances_train2017.json").write_text(json.dumps(told))


def draw_words(path: Path) -> None:
    """A sentence a line: its number, and its words with their lengths."""
    rows = (
        {"context": {"number": number}, "feature_lists": {"word": words, "letters": list(map(len, words))}}
        for number, words in enumerate(SENTENCES)
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
