"""Inputs whose every image tells by its pixels which one it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
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


def object_masks_of(number: int) -> npt.NDArray[np.uint8]:
    """1 where each object in the image of that number is: (objects, height, width, 1)."""
    boxes = boxes_of(number)
    masks = np.zeros((len(boxes), *SIZE, 1), np.uint8)
    for mask, (_, *box) in zip(masks, boxes, strict=True):
        x0, y0, x1, y1 = (round(side * SIZE[1 - at % 2]) for at, side in enumerate(box))
        mask[y0:y1, x0:x1] = 1
    return masks


def painted(number: int, values: Sequence[int], background: int) -> npt.NDArray[np.uint8]:
    """A value for each object of the image of that number, later objects on top: (height, width, 1)."""
    pixels = np.full((*SIZE, 1), background, np.uint8)
    for mask, value in zip(object_masks_of(number), values, strict=True):
        pixels[mask != 0] = value
    return pixels


def draw_boxes(folder: Path, outlined: Iterable[int] = (), panoptic: bool = False) -> None:
    """A COCO file, whose classes 1 and 2 are `car` and `dog`, with eight images.

    Args:
        folder: where it is drawn.
        outlined: numbers of the images whose objects have polygons too.
        panoptic: whether there are panoptic masks too.
    """
    (folder / "images").mkdir(parents=True)
    height, width = SIZE
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    segments: list[dict[str, Any]] = []
    for number in range(8):
        name = f"{number}.png"
        Image.fromarray(pixels_of(name)).save(folder / "images" / name)
        images.append({"id": number, "file_name": name, "height": height, "width": width})
        for label, *sides in boxes_of(number):
            x0, y0, x1, y1 = (side * (width, height)[at % 2] for at, side in enumerate(sides))
            box = [x0, y0, x1 - x0, y1 - y0]
            one = {"id": len(annotations) + 1, "image_id": number, "category_id": label, "bbox": box}
            one |= {"segmentation": [[x0, y0, x1, y0, x1, y1, x0, y1]]} if number in outlined else {}
            annotations.append({**one, "area": box[2] * box[3], "iscrowd": 0})
        found = [{"id": at, "category_id": label} for at, (label, *_) in enumerate(boxes_of(number), 1)]
        segments.append({"image_id": number, "file_name": name, "segments_info": found})
        if panoptic:
            (folder / "panoptic_train2017").mkdir(exist_ok=True)
            ids = painted(number, [one["id"] for one in found], 0)
            Image.fromarray(np.pad(ids, ((0, 0), (0, 0), (0, 2)))).save(folder / "panoptic_train2017" / name)
    categories = [{"id": 1, "name": "car", "isthing": 1}, {"id": 2, "name": "dog", "isthing": 1}]
    for kind in ("instances", "panoptic") if panoptic else ("instances",):
        rows = segments if kind == "panoptic" else annotations
        written = {"images": images, "annotations": rows, "categories": categories}
        (folder / f"{kind}_train2017.json").write_text(json.dumps(written))


def mask_of(number: int, values: int) -> npt.NDArray[Any]:
    """Noise of so many values that no other number has, of 16 bits if there are more than 256."""
    noise = np.random.default_rng(number).integers(0, values, (*SIZE, 1))
    return noise.astype(np.uint16 if values > 256 else np.uint8)


def draw_masks(folder: Path, masks: Mapping[str, Sequence[npt.NDArray[Any] | None]]) -> None:
    """An image a number, and its masks in the folders named; none where a mask is None."""
    for name, every in {"JPEGImages": [], **masks}.items():
        (folder / name).mkdir(parents=True)
        for number, mask in enumerate(every):
            if mask is not None:
                Image.fromarray(mask[:, :, 0]).save(folder / name / f"{number}.png")
    for number in range(max(map(len, masks.values()))):
        Image.fromarray(pixels_of(f"{number}.png")).save(folder / "JPEGImages" / f"{number}.png")


def draw_words(path: Path) -> None:
    """A sentence a line: its number, and its words with their lengths."""
    rows = (
        {"context": {"number": number}, "feature_lists": {"word": words, "letters": list(map(len, words))}}
        for number, words in enumerate(SENTENCES)
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
