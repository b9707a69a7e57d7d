"""Annotated pictures, edited: COCO's objects and panoptic segments, images of masks, tables."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from PIL import Image

from tests.pipelines.versions.edits import Edit, encoded, picture, pictures
from tests.pipelines.versions.photos import ENCODING, SHARDS

SIZE = (48, 32)
_CATEGORIES = {1: "ant", 3: "car", 18: "dog"}


def coco(masks: int, *flags: str) -> Edit:
    """Two pictures changed, one new of a new category, one gone; an outline moved, an object relabelled.

    Args:
        masks: that are made anew under the flags.
        flags: of the conversion, beside those of the encoding.
    """
    names = [f"train2017/{number:02d}.jpg" for number in range(20)]
    before = {name: picture(number, name, SIZE) for number, name in enumerate(names)}
    objects = {name: [_object(3, number), _object(18, number + 5)] for number, name in enumerate(names)}
    after = dict(before)
    for number in (3, 4):
        after[names[number]] = picture(100 + number, ".jpg", SIZE)
    after["train2017/20.jpg"] = picture(20, ".jpg", SIZE)
    del after[names[19]]
    edited = {**objects, "train2017/20.jpg": [_object(1, 2), _object(3, 9)]}
    del edited[names[19]]
    edited[names[5]] = [_object(3, 11), objects[names[5]][1]]
    edited[names[6]] = [objects[names[6]][0], {**objects[names[6]][1], "category_id": 3}]
    annotations = "annotations/instances_train2017.json"
    before[annotations] = _coco_file(objects, (3, 18))
    after[annotations] = _coco_file(edited, (1, 3, 18))
    given = ("--max_side=40", *flags, *ENCODING, *SHARDS)
    return Edit(before, after, records=20, images=3, masks=masks, flags=given)


def _object(category: int, place: int) -> dict[str, Any]:
    """A rectangle, outlined; every third as run lengths."""
    left, top, width, height = 2 * (place % 7), place % 5, 20, 16
    right, bottom = left + width, top + height
    mask: Any = [[left, top, right, top, right, bottom, left, bottom]]
    if place % 3 == 0:
        pixels = np.zeros((SIZE[1], SIZE[0]), np.uint8)
        pixels[top:bottom, left:right] = 1
        mask = {"size": [SIZE[1], SIZE[0]], "counts": _runs(pixels)}
    box = [left, top, width, height]
    told = {"bbox": box, "area": width * height, "iscrowd": 0, "segmentation": mask}
    return {"category_id": category, **told}


def _runs(pixels: np.ndarray) -> list[int]:
    flat = [0, *pixels.ravel(order="F").tolist()]
    edges = [place for place, (one, other) in enumerate(zip(flat, flat[1:], strict=False)) if one != other]
    bounds = [0, *edges, len(flat) - 1]
    return [end - start for start, end in zip(bounds, bounds[1:], strict=False)]


def _coco_file(objects: dict[str, list[dict[str, Any]]], categories: tuple[int, ...]) -> bytes:
    images, annotations = [], []
    for path in sorted(objects):
        number = int(path[-6:-4]) + 1
        name = path.rpartition("/")[2]
        images.append({"id": number, "file_name": name, "width": SIZE[0], "height": SIZE[1]})
        for place, one in enumerate(objects[path]):
            annotations.append({"id": 10 * number + place, "image_id": number, **one})
    named = [{"id": number, "name": _CATEGORIES[number], "isthing": 1} for number in categories]
    return json.dumps({"images": images, "annotations": annotations, "categories": named}).encode()


def panoptic() -> Edit:
    """A picture changed, the segments of another, one relabelled; one new of a new category, one gone."""
    names = [f"{number:02d}" for number in range(14)]
    photos = {f"train2017/{name}.jpg": picture(number, ".jpg", SIZE) for number, name in enumerate(names)}
    shapes = {f"annotations/panoptic_train2017/{name}.png": _segments(int(name)) for name in names}
    classes = dict.fromkeys(names, (3, 18))
    before = {**photos, **shapes, "annotations/panoptic_train2017.json": _panoptic_file(classes)}
    after = {**before, "train2017/01.jpg": picture(100, ".jpg", SIZE)}
    after["annotations/panoptic_train2017/02.png"] = _segments(9)
    after |= {"train2017/14.jpg": picture(14, ".jpg", SIZE)}
    after["annotations/panoptic_train2017/14.png"] = _segments(14)
    del after["train2017/13.jpg"], after["annotations/panoptic_train2017/13.png"]
    del classes["13"]
    classes = {**classes, "03": (18, 3), "14": (1, 3)}
    after["annotations/panoptic_train2017.json"] = _panoptic_file(classes)
    flags = ("--include_annotations=masks", *ENCODING, *SHARDS)
    again = ("/01.png", "/03.png")  # of another picture, and of other classes
    return Edit(
        before,
        after,
        records=14,
        images=2,
        reads=6,
        masks=8,
        flags=flags,
        is_sealed=lambda path: path.endswith(again),
    )


def _segments(seed: int) -> bytes:
    """Two halves, of ids 1 and 2 in the red channel."""
    pixels = np.zeros((SIZE[1], SIZE[0], 3), np.uint8)
    pixels[..., 0] = 1
    pixels[:, 10 + seed :, 0] = 2
    return encoded(Image.fromarray(pixels), ".png")


def _panoptic_file(classes: dict[str, tuple[int, int]]) -> bytes:
    images, annotations = [], []
    for name, (first, second) in sorted(classes.items()):
        images.append({"id": int(name) + 1, "file_name": f"{name}.jpg", "width": SIZE[0], "height": SIZE[1]})
        segments = [
            {"id": number, "category_id": category, "area": 9, "bbox": [0, 0, 3, 3], "iscrowd": 0}
            for number, category in ((1, first), (2, second))
        ]
        annotations.append({"image_id": int(name) + 1, "file_name": f"{name}.png", "segments_info": segments})
    used = sorted({category for pair in classes.values() for category in pair})
    named = [{"id": number, "name": _CATEGORIES[number], "isthing": number % 2} for number in used]
    return json.dumps({"images": images, "annotations": annotations, "categories": named}).encode()


def masks() -> Edit:
    """Pictures with a mask beside each: a picture changed, another's mask, a pair new, a pair gone."""
    before = {}
    for number in range(24):
        before[f"images/{number:02d}.jpg"] = picture(number, ".jpg", SIZE)
        before[f"masks/{number:02d}.png"] = mask(number)
    before["classes.txt"] = b"none\nroad\ncar\n"
    after = {**before, "images/20.jpg": picture(100, ".jpg", SIZE), "masks/21.png": mask(101)}
    after |= {"images/30.jpg": picture(30, ".jpg", SIZE), "masks/30.png": mask(30)}
    del after["images/22.jpg"], after["masks/22.png"]
    after["classes.txt"] = b"none\nroad\ncar\ntram\n"
    flags = ("--max_side=40", *ENCODING, *SHARDS)
    return Edit(
        before,
        after,
        records=24,
        images=2,
        reads=5,
        masks=3,
        flags=flags,
        is_sealed=lambda path: path.startswith("masks/") and (path < "masks/08" or "20" in path),
    )


def mask(seed: int, count: int = 3) -> bytes:
    """A mask of so many values, from 0."""
    cells = np.arange(16, dtype=np.uint8) % count
    values = np.random.default_rng(seed).permutation(cells).reshape(4, 4)
    return encoded(Image.fromarray(values).resize(SIZE, Image.Resampling.NEAREST), ".png")


def table() -> Edit:
    """Rows: a picture changed, a row new and one gone, a label that sorts first, another weight."""
    names = [f"photos/{number:02d}.jpg" for number in range(24)]
    rows = {name: ["dog" if number % 2 else "cat", number / 4] for number, name in enumerate(names)}
    before = {**pictures(names), "labels.csv": _rows(rows)}
    after = {**before, names[4]: picture(100, ".jpg"), "photos/24.jpg": picture(24, ".jpg")}
    del after[names[5]], rows[names[5]]
    rows[names[6]] = ["ant", rows[names[6]][1]]
    rows[names[7]] = [rows[names[7]][0], 99.5]
    after["labels.csv"] = _rows({**rows, "photos/24.jpg": ["dog", 7.0]})
    return Edit(before, after, records=24, images=2, input="labels.csv", flags=(*ENCODING, *SHARDS))


def _rows(rows: dict[str, list[Any]]) -> bytes:
    lines = ["path,label,weight", *(f"{path},{label},{weight}" for path, (label, weight) in rows.items())]
    return "\n".join(lines).encode()


def outlines() -> Edit:
    """Outlined objects of classes by name: one is new and sorts first, and the ids of all others shift."""
    before: dict[str, bytes] = {}
    for number in range(12):
        label = "car" if number % 2 else "dog"
        before |= {
            f"{number:02d}.jpg": picture(number, ".jpg", SIZE),
            f"{number:02d}.json": _outline(number, label),
        }
    after = {**before, "04.jpg": picture(100, ".jpg", SIZE)}
    after |= {"12.jpg": picture(12, ".jpg", SIZE), "12.json": _outline(12, "ant")}
    flags = ("--include_annotations=masks", "--schema=detection,segmentation", *ENCODING, *SHARDS)
    # A mask of classes each; and of the two that are encoded anew, one of their object.
    return Edit(before, after, records=13, images=2, masks=26, flags=flags)


def _outline(number: int, label: str) -> bytes:
    left, top = 2 * (number % 7), number % 5
    corners = [[left, top], [left + 20, top], [left + 20, top + 16], [left, top + 16]]
    shape = {"label": label, "points": corners, "shape_type": "polygon", "flags": {}}
    told = {"version": "5.0.1", "flags": {}, "shapes": [shape], "imagePath": f"{number:02d}.jpg"}
    return json.dumps({**told, "imageData": None, "imageHeight": SIZE[1], "imageWidth": SIZE[0]}).encode()
