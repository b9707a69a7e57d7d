"""Generates images of the sizes, formats and metadata that photographs have."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageCms, ImageDraw

from benchmarks.drawings import SHAPES, draw
from benchmarks.inputs import shape_paths

_PICTURES = 96  # distinct drawings; files of the same drawing differ in a number that is drawn on it
_SMALLEST, _LARGEST, _LARGEST_PNG = 0.05e6, 12e6, 3e6  # pixels
_FORMATS = ("jpeg", "jpeg", "jpeg", "grey", "jpeg", "jpeg", "png", "jpeg", "jpeg", "cmyk", "jpeg", "jpeg")
_SMALL_SIDE = 32


def draw_photographs(folder: Path, number: int) -> None:
    """Draws JPEGs and PNGs of 0.05 to 12 megapixels, evenly spread over the logarithm, into <shape>/.

    Of twelve images, one is a grey JPEG, one a CMYK JPEG, and one a PNG of up to 3 megapixels. A quarter has
    an ICC profile that is not sRGB, most have EXIF data. JPEGs have qualities of 75 to 97, half of them 4:4:4
    and half 4:2:0.
    """
    for index, path, picture in _pictures(folder, number, lambda index: _FORMATS[index % len(_FORMATS)]):
        kind = _FORMATS[index % len(_FORMATS)]
        options: dict[str, Any] = {} if index % 5 == 4 else {"exif": _exif(index)}
        if index % 12 in (1, 4, 8):
            options["icc_profile"] = _WIDE_PROFILE
        if kind == "png":
            picture.save(path.with_suffix(".png"), **options)
            continue
        mode = {"grey": "L", "cmyk": "CMYK"}.get(kind, "RGB")
        options["quality"] = 75 + index * 7 % 23
        if mode == "RGB":
            options["subsampling"] = "4:2:0" if index % 2 else "4:4:4"
        picture.convert(mode).save(path.with_suffix(".jpg"), **options)


def draw_pngs(folder: Path, number: int) -> None:
    """Draws PNGs of 0.05 to 3 megapixels in RGB into <shape>/."""
    for _, path, picture in _pictures(folder, number, lambda _: "png"):
        picture.save(path.with_suffix(".png"))


def draw_small(folder: Path, number: int) -> None:
    """Draws PNGs of 32 x 32 pixels into <shape>/."""
    for index, path in enumerate(shape_paths(folder, number)):
        draw(SHAPES[index % len(SHAPES)], index, _SMALL_SIDE, _SMALL_SIDE).save(path.with_suffix(".png"))


def draw_boxes(folder: Path, number: int) -> None:
    """Draws photographs, and a COCO file (annotations.json) with seven boxes for each."""
    draw_photographs(folder / "images", number)
    random = np.random.default_rng(0)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for index, path in enumerate(sorted((folder / "images").rglob("*.*"))):
        with Image.open(path) as image:
            width, height = image.size
        name = str(path.relative_to(folder / "images"))
        images.append({"id": index + 1, "file_name": name, "width": width, "height": height})
        for x, y, w, h in random.uniform(0, 0.5, (7, 4)) * (width, height, width, height):
            box = [round(float(side), 2) for side in (x, y, w + 1, h + 1)]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": index + 1,
                    "category_id": len(annotations) % len(SHAPES) + 1,
                    "bbox": box,
                    "area": round(box[2] * box[3], 2),
                    "iscrowd": 0,
                }
            )
    categories = [{"id": number, "name": name} for number, name in enumerate(SHAPES, start=1)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "annotations.json").write_text(json.dumps(content), encoding="utf-8")


def _pictures(
    folder: Path, number: int, kind: Callable[[int], str]
) -> Iterator[tuple[int, Path, Image.Image]]:
    """Index, path without suffix and pixels of each image."""
    paths = shape_paths(folder, number)
    for first in range(min(number, _PICTURES)):
        drawn = _picture(first, _LARGEST_PNG if kind(first) == "png" else _LARGEST)
        for index in range(first, number, _PICTURES):
            picture = drawn.copy()
            ImageDraw.Draw(picture).text((8, 8), f"{index:08d}")
            yield index, paths[index], picture


def _picture(index: int, largest: float) -> Image.Image:
    """A drawing of 4:3 or 3:4; sizes go through the range in an order that mixes large and small."""
    low, high = math.log(_SMALLEST), math.log(largest)
    pixels = math.exp(low + (high - low) * (index * 37 % _PICTURES) / (_PICTURES - 1))
    long, short = round(math.sqrt(pixels * 4 / 3)), round(math.sqrt(pixels * 3 / 4))
    width, height = (long, short) if index % 3 else (short, long)
    return draw(SHAPES[index % len(SHAPES)], index, width, height, noise=3 + index % 5)


def _exif(index: int) -> bytes:
    """What a camera writes: its name, the time and the orientation, here always upright."""
    exif = Image.Exif()
    exif[0x010F], exif[0x0110], exif[0x0112] = "Recordmill", f"Generated {index}", 1
    exif[0x0132] = f"2026:01:01 00:{index // 60 % 60:02d}:{index % 60:02d}"
    return exif.tobytes()


def _wide_profile() -> bytes:
    """sRGB's ICC profile with other primaries (as Adobe RGB has): converting it changes colours."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    # ICC.1:2022, 7.3 and 10.31: the tag table, and XYZ values as s15Fixed16.
    adobe = {
        b"rXYZ": (0.6097, 0.3111, 0.0195),
        b"gXYZ": (0.2053, 0.6257, 0.0609),
        b"bXYZ": (0.1492, 0.0632, 0.7446),
    }
    for tag in range(int.from_bytes(profile[128:132], "big")):
        at = 132 + 12 * tag
        name, start = bytes(profile[at : at + 4]), int.from_bytes(profile[at + 4 : at + 8], "big")
        if name in adobe:
            values = (round(value * 65536).to_bytes(4, "big") for value in adobe[name])
            profile[start + 8 : start + 20] = b"".join(values)
    return bytes(profile)


_WIDE_PROFILE = _wide_profile()
