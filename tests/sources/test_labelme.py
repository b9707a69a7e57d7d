"""Source `labelme`, on trees made here; masks against pycocotools."""

from __future__ import annotations

import base64
import io
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

from recordmill.transforms.records import (
    AnnotatedObject,
    BadInput,
    Box,
    ClassNames,
    Failure,
    ImageRecord,
    ImageRef,
    Rle,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.labelme import LabelmeSource, read_labelme_json, read_labelme_xml
from recordmill.transforms.sources.source import Item
from recordmill.transforms.storage.reader import ImageReader
from tests.buckets.server import BucketServer
from tests.sources.placeless import without_place
from tests.sources.sniffing import sniff

SOURCE = LabelmeSource()


def shape(
    label: str, points: Sequence[Sequence[float]], kind: str | None = "polygon", **more: object
) -> dict[str, Any]:
    return {"label": label, "points": points, "group_id": None, "shape_type": kind, "flags": {}, **more}


def labelme(*shapes: dict[str, Any], image: str = "", **more: object) -> bytes:
    found: dict[str, Any] = {
        "version": "5.4.1",
        "flags": {},
        "shapes": shapes,
        "imagePath": image,
        "imageData": None,
    }
    return json.dumps({**found, "imageHeight": 40, "imageWidth": 60, **more}).encode()


def png(pixels: np.ndarray[Any, Any]) -> str:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


def made(root: Path, files: dict[str, bytes]) -> str:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return str(root)


def listed(place: str, scratch: str = "/nowhere", **options: object) -> list[Item]:
    config = SourceConfig("labelme", place, **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return list(SOURCE.read(config, scratch))


def records(items: list[Item]) -> dict[str, ImageRecord]:
    return {item.key: item for item in items if isinstance(item, ImageRecord)}


def failures(items: list[Item]) -> list[tuple[str, str, bool]]:
    return [(item.key, item.reason, item.skipped) for item in items if isinstance(item, Failure)]


def objects(*shapes: dict[str, Any], with_masks: bool = False) -> tuple[AnnotatedObject, ...]:
    return read_labelme_json(labelme(*shapes), with_masks).objects


TRIANGLE = [[10.25, 5.5], [20.0, 5.5], [10.25, 30.125]]


def test_outlines() -> None:
    rectangle = shape("b", [[30, 20.5], [4, 2]], "rectangle")
    circle = shape("c", [[20, 10], [23, 14]], "circle")
    old = {"label": "d", "points": TRIANGLE}
    found = objects(shape("a", TRIANGLE), rectangle, circle, old)
    assert [(one.label, one.box, one.mask) for one in found] == [
        ("a", Box(10.25, 5.5, 20.0, 30.125), None),
        ("b", Box(4, 2, 30, 20.5), None),
        ("c", Box(15, 5, 25, 15), None),
        ("d", Box(10.25, 5.5, 20.0, 30.125), None),
    ]
    masks = [one.mask for one in objects(shape("a", TRIANGLE), rectangle, circle, with_masks=True)]
    assert masks[:2] == [((10.25, 5.5, 20.0, 5.5, 10.25, 30.125),), ((4, 2, 30, 2, 30, 20.5, 4, 20.5),)]
    assert isinstance(masks[2], tuple) and len(masks[2][0]) == 128
    xs, ys = masks[2][0][::2], masks[2][0][1::2]
    assert {round(math.hypot(x - 20, y - 10), 9) for x, y in zip(xs, ys, strict=True)} == {5.0}


def test_groups_and_flags() -> None:
    flags = {"occluded": True, "difficult": False, "area": True}
    shapes = (
        shape("a", TRIANGLE, group_id=1, flags=flags),
        shape("b", TRIANGLE, group_id=1),
        shape("a", [[0, 0], [2, 0], [2, 50]], group_id=1),
        shape("a", TRIANGLE),
        shape("a", TRIANGLE),
    )
    found = objects(*shapes)
    assert [(one.label, one.box) for one in found] == [
        ("a", Box(0, 0, 20, 50)),
        ("b", Box(10.25, 5.5, 20.0, 30.125)),
        ("a", Box(10.25, 5.5, 20.0, 30.125)),
        ("a", Box(10.25, 5.5, 20.0, 30.125)),
    ]
    assert [one.attributes for one in found] == [{"occluded": 1, "difficult": 0}, {}, {}, {}]
    joined = objects(*shapes, with_masks=True)[0].mask
    assert joined == ((10.25, 5.5, 20.0, 5.5, 10.25, 30.125), (0, 0, 2, 0, 2, 50))


def decoded(mask: object) -> np.ndarray[Any, Any]:
    assert isinstance(mask, Rle) and isinstance(mask.counts, tuple)
    runs = {"size": [mask.height, mask.width], "counts": list(mask.counts)}
    return np.asarray(coco_mask.decode(coco_mask.frPyObjects(runs, mask.height, mask.width)))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [bool, np.uint8])
def test_masks_equal_what_pycocotools_decodes(seed: int, kind: type) -> None:
    random = np.random.default_rng(seed)
    truth = np.zeros((40, 60), np.uint8)
    shapes = []
    for group, (x, y, width, height) in enumerate(
        [(0, 0, 60, 40), (55, 30, 5, 10), (7, 9, 11, 13), (3, 3, 1, 1)]
    ):
        crop = random.random((height, width)) < (0.03, 0.5, 0.97, 1)[group]
        corners = [[x, y], [x + width - 1, y + height - 1]]
        data = crop if kind is bool else crop.astype(np.uint8) * 255
        shapes.append(shape("a", corners, "mask", mask=png(data), group_id=group))
        expected = np.zeros_like(truth)
        expected[y : y + height, x : x + width] = crop
        truth |= expected
        (found,) = objects(shapes[-1], with_masks=True)
        assert (decoded(found.mask) == expected).all()
        (boxed,) = objects(shapes[-1])
        assert (boxed.box, boxed.mask) == (Box(x, y, x + width, y + height), None)
    (joined,) = objects(*({**one, "group_id": "g"} for one in shapes), with_masks=True)
    assert (decoded(joined.mask) == truth).all()


def test_masks_beyond_the_picture_and_empty_ones() -> None:
    crop = np.full((10, 10), True)
    (found,) = objects(shape("a", [[-4, 35], [5, 44]], "mask", mask=png(crop)), with_masks=True)
    expected = np.zeros((40, 60), np.uint8)
    expected[35:40, 0:6] = 1
    assert (decoded(found.mask) == expected).all()
    (empty,) = objects(shape("a", [[0, 0], [9, 9]], "mask", mask=png(~crop)), with_masks=True)
    assert not decoded(empty.mask).any()


@pytest.mark.parametrize(
    ("mask", "detail"),
    [
        (png(np.zeros((3, 3), bool)), "its PNG is 3x3 1; its points mean 2x2"),
        (png(np.zeros((2, 2, 3), np.uint8)), "its PNG is 2x2 RGB"),
        (base64.b64encode(b"GIF89a").decode(), "shape 0: cannot identify image file"),
    ],
)
def test_masks_that_are_none(mask: str, detail: str) -> None:
    with pytest.raises(BadInput, match="mask not readable") as caught:
        objects(shape("a", [[0, 0], [1, 1]], "mask", mask=mask), with_masks=True)
    assert detail in caught.value.detail


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"", "Expecting value"),
        (b"\xff", "utf-8"),
        (b"[" * 100_000, "recursion"),
        (b"[]", "no list of shapes"),
        (b'{"images": []}', "no list of shapes"),
        (labelme(shape("", TRIANGLE)), "shape 0 has no label"),
        (labelme(shape("a", TRIANGLE, "spline")), "shape 0 is a 'spline'"),
        (labelme(shape("a", [[1, 2, 3]])), "a point that is not two numbers"),
        (labelme(shape("a", [[1, math.nan]])), "a point that is not two numbers"),
        (labelme(shape("a", [[1, math.inf]])), "a point that is not two numbers"),
        (labelme(shape("a", [[True, 1]])), "a point that is not two numbers"),
        (labelme(shape("\ud800", TRIANGLE)), "shape 0: label is not text"),
        (labelme({"label": 3, "points": []}), "shape 0: label is not text"),
        (labelme(shape("a", [[0, 0], [1, 1]], "mask", mask="?")), "base64"),
    ],
)
def test_what_is_not_labelme(data: bytes, detail: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_labelme_json(data, with_masks=True)
    assert (caught.value.stage, caught.value.reason) == ("annotations", "not LabelMe JSON")
    assert detail in caught.value.detail


def test_a_folder(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    left = (
        shape("p", [[1, 2]], "point"),
        shape("__ignore__", TRIANGLE),
        shape("l", [[1, 2], [3, 4]], "line"),
    )
    files = {
        "train/a.jpg": b"1",
        "train/a.json": labelme(
            shape("cat", TRIANGLE), *left, image="a.jpg", flags={"night": True, "rain": False}
        ),
        "val/json/b.json": labelme(shape("dog", TRIANGLE), image="..\\images\\b.png"),
        "val/images/b.png": b"22",
        "val/c.json": labelme(image="gone.jpg"),
        "val/d.json": b"{",
        "val/d.jpg": b"4",
        "val/e.jpg": b"5",
        "labels.txt": b"__ignore__\n_background_\ncat\ndog\n",
        "notes.md": b"",
    }
    place = made(tmp_path, files)
    items = listed(place)
    found = records(items)
    assert {key: (one.split, one.annotations.labels) for key, one in found.items()} == {
        "train/a.jpg": ("train", ("night",)),
        "val/images/b.png": ("val", ()),
    }
    first = found["train/a.jpg"]
    assert (first.annotations.size, first.annotations.upright, first.origin) == (
        (40, 60),
        True,
        "train/a.json",
    )
    assert [(one.label, one.box) for one in first.annotations.objects] == [
        ("cat", Box(10.25, 5.5, 20, 30.125))
    ]
    assert failures(items) == [
        ("notes.md", "neither image nor annotations by name", True),
        ("train/a.json:shape 1", "shape without an area", True),
        ("train/a.json:shape 2", "labelled __ignore__", True),
        ("train/a.json:shape 3", "shape without an area", True),
        ("val/c.json", "annotation without its image", False),
        ("val/d.jpg", "not LabelMe JSON", False),
        ("val/e.jpg", "image without annotations", True),
    ]
    assert [item for item in items if isinstance(item, ClassNames)] == [
        ClassNames({0: "_background_", 1: "cat", 2: "dog"})
    ]
    bucket_server.upload_folder(tmp_path, f"{bucket}/in")
    remote = listed(f"{bucket}/in")
    assert remote[0] == items[0]
    same = [
        [without_place(item) for item in some if not isinstance(item, ClassNames)] for some in (items, remote)
    ]
    assert same[0] == same[1]
    for root in (place, f"{bucket}/in"):
        config = SourceConfig("labelme", root)
        assert SOURCE.split_names(config) == ("train", "val")
        assert sniff(SOURCE, config) == "'train/a.json' is LabelMe JSON"
        assert SOURCE.schemas(config) == ("detection",)


@pytest.mark.parametrize("scratch", ["disk", "bucket"])
def test_images_within_json(tmp_path: Path, bucket: str, bucket_server: BucketServer, scratch: str) -> None:
    pictures = {name: os.urandom(100 + number) for number, name in enumerate("abc")}
    files = {
        f"in/{name}.json": labelme(image=image, imageData=base64.b64encode(pictures[name]).decode())
        for name, image in zip("abc", ("../far/away/x.bmp", "a.jpg", ""), strict=True)
    }
    made(
        tmp_path, {**files, "in/d.json": labelme(imageData="*"), "in/e.json": labelme(image="../../far.jpg")}
    )
    folder = f"{tmp_path}/scratch" if scratch == "disk" else f"{bucket}/scratch"
    (tmp_path / "scratch").mkdir()
    items = listed(f"{tmp_path}/in", folder)
    reader = ImageReader()
    found = {key: reader.read(one.image) for key, one in records(items).items() if one.image}
    assert found == {"a.bmp": pictures["a"], "b.jpg": pictures["b"], "c.png": pictures["c"]}
    assert failures(items) == [
        ("d.json", "not LabelMe JSON", False),
        ("e.json", "outside the input root", False),
    ]
    limited = listed(f"{tmp_path}/in", folder, limit=2)
    assert [reader.read(one.image) for one in records(limited).values() if one.image] == [
        pictures["a"],
        pictures["b"],
    ]
    assert list(records(listed(f"{tmp_path}/in", folder, exclude=("a.*", "c.*")))) == ["b.jpg"]


def web(objects: str) -> bytes:
    return (
        "<annotation><filename>i.jpg</filename><folder>set</folder><source><sourceAnnotation>LabelMe Webtool"
        f"</sourceAnnotation></source>{objects}<imagesize><nrows>77</nrows><ncols>102</ncols></imagesize></annotation>"
    ).encode()


POINTS = "".join(f"<pt><x>{x}</x><y>{y}</y></pt>" for x, y in [(43, 34), (45.5, 34), (45, 37)])
WINDOW = (
    "<object><name>window</name><deleted>0</deleted><occluded>yes</occluded>"
    f"<polygon>{POINTS}</polygon></object>"
)
PLATE = (
    "<object><name>plate</name><segm><box><xmin>58</xmin><ymin>66</ymin><xmax>62</xmax><ymax>68</ymax></box>"
    "<mask>i_1.png</mask></segm></object>"
)
GONE = "<object><name>gone</name><deleted>1</deleted></object>"


def test_the_web_tool(tmp_path: Path) -> None:
    files = {
        "Annotations/set/i.xml": web(WINDOW + PLATE + GONE),
        "Images/set/i.jpg": b"1",
        "Masks/set/i_1.png": b"2",
        "Masks/set/i_2.png": b"3",
        "Scribbles/set/s.png": b"4",
    }
    place = made(tmp_path, files)
    items = listed(place)
    (record,) = records(items).values()
    assert (record.key, record.annotations.size, record.split) == ("Images/set/i.jpg", (77, 102), None)
    window, plate = record.annotations.objects
    assert window == AnnotatedObject("window", Box(43, 34, 45.5, 37), attributes={"occluded": 1})
    assert plate == AnnotatedObject("plate", Box(58, 66, 62, 68))
    assert [(key, skipped) for key, _, skipped in failures(items)] == [
        ("Scribbles/set/s.png", True),
        ("Masks/set/i_1.png", True),
        ("Masks/set/i_2.png", True),
    ]
    items = listed(place, include_annotations=("masks",))
    (record,) = records(items).values()
    window, plate = record.annotations.objects
    assert (window.box, window.mask) == (None, ((43, 34, 45.5, 34, 45, 37),))
    assert isinstance(plate.mask, ImageRef) and plate.mask.uri == f"{place}/Masks/set/i_1.png"
    assert failures(items)[1:] == [("Masks/set/i_2.png", "mask of no object", True)]
    (tmp_path / "Masks/set/i_1.png").unlink()
    items = listed(place, include_annotations=("masks",))
    assert ("Annotations/set/i.xml", "mask not found", False) in failures(items)
    assert "web tool" in (sniff(SOURCE, SourceConfig("labelme", place)) or "")


@pytest.mark.parametrize(
    ("objects", "detail"),
    [
        ("<object><polygon/></object>", "object 1 has no name"),
        ("<object><name>a</name></object>", "no polygon, and no segm"),
        ("<object><name>a</name><polygon/></object>", "less than three points"),
        (WINDOW.replace("<x>43", "<x>wide"), "object 1: 'wide' is not a number"),
    ],
)
def test_what_is_not_of_the_web_tool(objects: str, detail: str) -> None:
    with pytest.raises(BadInput, match="not LabelMe XML") as caught:
        read_labelme_xml(web(objects))
    assert detail in caught.value.detail


def test_calls_that_are_wrong(tmp_path: Path) -> None:
    place = made(tmp_path, {"a.jpg": b"1"})
    with pytest.raises(ValueError, match=r"there is no \.json and no \.xml in it"):
        listed(place)
    with pytest.raises(ValueError, match="a file; --source labelme reads a folder"):
        listed(f"{place}/a.jpg")
    with pytest.raises(ValueError, match="--label_pattern is .*--source labelme does not use it"):
        listed(place, label_pattern="(a)")
    made(tmp_path, {"coco.json": b'{"images": [], "annotations": []}', "voc.xml": b"<annotation><object>"})
    assert sniff(SOURCE, SourceConfig("labelme", place)) is None


@pytest.mark.corpus
def test_real_json(corpus: Path) -> None:
    items = listed(str(corpus / "labelme"), include_annotations=("masks",))
    assert len(records(items)) == 3
    for key, record in records(items).items():
        truth = json.loads((corpus / "labelme" / key).with_suffix(".json").read_bytes())
        kept = [one for one in truth["shapes"] if one["label"] != "__ignore__"]
        assert [(one.label, one.mask) for one in record.annotations.objects] == [
            (one["label"], (tuple(value for point in one["points"] for value in point),)) for one in kept
        ]
        with Image.open(corpus / "labelme" / key) as image:
            assert record.annotations.size == (image.height, image.width)
    assert [reason for _, reason, _ in failures(items)] == ["labelled __ignore__"] * 2


@pytest.mark.corpus
def test_layouts(corpus: Path) -> None:
    (record,) = records(listed(str(corpus / "layouts/labelme_dataset"))).values()
    found = [one.label for one in record.annotations.objects]
    assert found == ["window", "license plate", "o1", "q1", "b1", "m1", "hg"]
    others = sorted(set(os.listdir(corpus / "layouts")) - {"labelme_dataset"})
    sniffed = [sniff(SOURCE, SourceConfig("labelme", str(corpus / "layouts" / name))) for name in others]
    assert len(others) > 9 and not any(sniffed)
