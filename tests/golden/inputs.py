"""Generated inputs of the golden conversions: the same bytes each time."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from benchmarks.drawings import SHAPES, draw
from tests.fuzz import image_seeds, parser_seeds
from tests.images.drawn import with_orientation

SIZE = (48, 64)  # height, width
CLASSES = ("car", "dog")


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Writes files by their path below a folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def images(folder: Path) -> None:
    """Images of all formats and kinds, some damaged, in a folder for each format."""
    for kind, seeds in image_seeds.seeds().items():
        ending = "tif" if kind == "other" else kind
        write(folder, {f"{kind}/{number:03d}.{ending}": data for number, data in enumerate(seeds)})
    for number in range(8):
        picture = draw(SHAPES[number % 3], number, 160, 120)
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=85 + number, exif=with_orientation(number + 1))
        write(folder, {f"turned/{number}.jpg": stream.getvalue()})
    cut = stream.getvalue()
    write(folder, {"turned/cut.jpg": cut[: len(cut) // 2], "turned/none.jpg": b"no image"})


def photos(folder: Path) -> None:
    """Three classes of small drawings, with groups in their names; next to them a table, and names."""
    rows = ["path,label,patient,weight,ids"]
    for number in range(36):
        shape = SHAPES[number % 3]
        name = f"photos/{shape}/{shape}-g{number % 7}-{number:02d}.{'png' if number % 5 == 0 else 'jpg'}"
        stream = io.BytesIO()
        draw(shape, number, 40 + number, 30).save(stream, "PNG" if number % 5 == 0 else "JPEG", quality=92)
        write(folder, {name: stream.getvalue()})
        rows.append(f'{name},{shape},p{number % 5},{number / 8},"[{number}, 1]"')
    write(folder, {"table.csv": "\n".join(rows).encode(), "names.txt": b"triangle\ncircle\nsquare\n"})


def _scene(number: int) -> tuple[bytes, bytes, list[list[int]]]:
    """A JPEG with two filled boxes and an EXIF orientation, its mask of classes, and the boxes."""
    random = np.random.default_rng(number)
    picture = draw("circle", number, *SIZE[::-1])
    mask = Image.new("L", SIZE[::-1])
    boxes = []
    for value in (1, 2):
        left, top = (int(random.integers(-4, side // 2)) for side in SIZE[::-1])
        width, height = (int(random.integers(6, side // 2)) for side in SIZE[::-1])
        for image, fill in ((picture, (200 * (value - 1), 200, 0)), (mask, value)):
            ImageDraw.Draw(image).rectangle((left, top, left + width - 1, top + height - 1), fill=fill)
        boxes.append([left, top, width, height])
    stored, stored_mask = io.BytesIO(), io.BytesIO()
    picture.save(stored, "JPEG", quality=90, exif=with_orientation(number % 8 + 1))
    mask.save(stored_mask, "PNG")
    return stored.getvalue(), stored_mask.getvalue(), boxes


def scenes(folder: Path) -> None:
    """COCO with boxes beyond the edges, polygons, run lengths, key points, captions and panoptic masks."""
    height, width = SIZE
    found, objects, captions, segments = [], [], [], []
    for number in range(1, 10):
        image, mask, boxes = _scene(number)
        ids = np.asarray(Image.open(io.BytesIO(mask)))
        stream = io.BytesIO()
        Image.fromarray(np.stack([ids, ids * 0, ids * 0], -1)).save(stream, "PNG")
        name = "train2017" if number % 3 else "val2017"
        write(
            folder,
            {f"{name}/{number}.jpg": image, f"annotations/panoptic_{name}/{number}.png": stream.getvalue()},
        )
        found.append((name, {"id": number, "file_name": f"{number}.jpg", "height": height, "width": width}))
        for value, (left, top, wide, high) in enumerate(boxes, 1):
            right, bottom = left + wide, top + high
            one = {"image_id": number, "category_id": value, "bbox": [left, top, wide, high], "iscrowd": 0}
            one |= {
                "area": wide * high / 2,
                "segmentation": [[left, top, right, top, right, bottom, left, bottom]],
            }
            one |= {"keypoints": [left + 9, top + 9, 2, 0, 0, 0], "num_keypoints": 1}
            if value == 2 and number % 2:
                runs = [5, height - 10, height * width - height + 5]
                one |= {"iscrowd": 1, "segmentation": {"counts": runs, "size": [height, width]}}
            objects.append((name, {"id": len(objects) + 1, **one}))
        captions.append((name, {"id": number, "image_id": number, "caption": f"Drawing {number}."}))
        of_mask = [{"id": int(value), "category_id": int(value)} for value in np.unique(ids) if value]
        panoptic = {"image_id": number, "file_name": f"{number}.png", "segments_info": of_mask}
        segments.append((name, panoptic))
    categories = [
        {"id": number, "name": name, "isthing": number - 1, "keypoints": ["a", "b"], "skeleton": [[1, 2]]}
        for number, name in enumerate(CLASSES, 1)
    ]
    kinds = {"instances": objects, "captions": captions, "panoptic": segments}
    for name in ("train2017", "val2017"):
        listed = [image for split, image in found if split == name]
        for kind, every in kinds.items():
            value = {"images": listed, "annotations": [one for split, one in every if split == name]}
            if kind != "captions":
                value["categories"] = categories
            write(folder, {f"annotations/{kind}_{name}.json": json.dumps(value).encode()})


def masks(folder: Path) -> None:
    """Turned pictures with masks of classes, in three splits."""
    for number in range(9):
        image, mask, _ = _scene(number)
        split = ("train", "val", "test")[number % 3]
        write(folder, {f"images/{split}/{number}.jpg": image, f"masks/{split}/{number}.png": mask})


def clips(folder: Path) -> None:
    """Folders of frames, with labels and times."""
    for number in range(6):
        clip = f"{SHAPES[number % 2]}/{number}"
        for frame in range(3):
            stream = io.BytesIO()
            draw("square", 10 * number + frame, 24, 20).save(stream, "JPEG")
            write(folder, {f"{clip}/{frame:02d}.jpg": stream.getvalue()})
        lines = "frame,timestamp\n" + "".join(f"{frame},{frame / 4}\n" for frame in range(3))
        write(folder, {f"{clip}/timestamps.csv": lines.encode()})


def seed(name: str) -> Callable[[Path], None]:
    """The files of an input of the fuzzer of parsers."""
    return lambda folder: write(folder, parser_seeds.seeds()[name].files)
