"""Masks: against pycocotools, against numpy, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pycocotools import mask as coco

from recordmill.transforms.annotations.shapes import mask_bounds, rle_mask
from recordmill.transforms.images.geometry import plan_geometry
from recordmill.transforms.images.mask import decode_mask
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Box,
    ImageRef,
    MaskImage,
    Rle,
    Segment,
)
from tests.annotations.made import Ids, put, stored
from tests.images.drawn import Array, encoded, tensorflow_pixels

CORPUS = os.environ.get("RECORDMILL_CORPUS", "")
FILE = ImageRef("masks/m.png")
SQUARE = (2.0, 2.0, 20.0, 3.0, 17.5, 21.25, 4.0, 18.0)
SMALL = (22.0, 22.0, 28.0, 22.0, 25.0, 28.0)


def ids_of(data: bytes, dtype: str = "uint8") -> Array:
    pixels: Array = tensorflow_pixels(data, dtype)[:, :, 0]
    return pixels


def masked(mask: object, **rest: object) -> Annotations:
    return Annotations(objects=(AnnotatedObject("cat", None, mask),), **rest)  # type: ignore[arg-type]


@settings(max_examples=50)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_run_lengths_are_pycocotools(height: int, width: int, seed: int, share: float) -> None:
    drawn = (np.random.default_rng(seed).random((height, width)) < share).astype(np.uint8)
    compressed = coco.encode(np.asfortranarray(drawn))["counts"].decode("ascii")
    np.testing.assert_array_equal(rle_mask(Rle(height, width, compressed)), drawn)
    flat = drawn.T.ravel()
    edges = np.flatnonzero(np.diff(flat, prepend=0))
    runs = np.diff([0, *edges, len(flat)]).tolist()
    np.testing.assert_array_equal(rle_mask(Rle(height, width, tuple(runs))), drawn)


def test_large_run_lengths_are_pycocotools() -> None:
    drawn = np.zeros((3000, 2000), np.uint8)
    drawn[500:700, 900:1500] = drawn[2000:2900, 3:1999] = 1
    compressed = coco.encode(np.asfortranarray(drawn))["counts"].decode("ascii")
    np.testing.assert_array_equal(rle_mask(Rle(3000, 2000, compressed)), drawn)


@pytest.mark.parametrize("counts", ["", "P", "abcP", "\x00\x01", "é", "o" * 40 + "0", (3, 4), (-1, 7), ()])
def test_damaged_run_lengths_are_refused(counts: str | tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="run lengths do not fill their mask"):
        rle_mask(Rle(2, 3, counts))


def test_polygons_are_pycocotools() -> None:
    mapped = put(masked((SQUARE, SMALL)), stored(30, 40), "objects", "object_masks")
    expected = coco.decode(coco.merge(coco.frPyObjects([list(SQUARE), list(SMALL)], 30, 40)))
    np.testing.assert_array_equal(ids_of(mapped.object_masks[0]), expected)
    assert mapped.objects[0].box == (2, 2, 28, 28)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    "policy", [ImagePolicy(), ImagePolicy(size=(64, 90), fit="pad")], ids=["kept", "pad"]
)
def test_shapes_of_every_kind_lie_alike(orientation: int, policy: ImagePolicy) -> None:
    drawn = np.zeros((30, 40), np.uint8)
    drawn[5:15, 10:30] = 1
    counts = coco.encode(np.asfortranarray(drawn))["counts"].decode("ascii")
    objects = (
        AnnotatedObject("box", Box(10.0, 5.0, 30.0, 15.0)),
        AnnotatedObject("polygon", None, ((10.0, 5.0, 30.0, 5.0, 30.0, 15.0, 10.0, 15.0),)),
        AnnotatedObject("rle", None, Rle(30, 40, counts)),
        AnnotatedObject("file", None, FILE),
    )
    geometry = plan_geometry(30, 40, orientation, policy)
    files = {FILE.uri: encoded(drawn * 255, "PNG")}
    image = stored(geometry.height, geometry.width, geometry)
    mapped = put(Annotations(objects=objects), image, "object_masks", files=files)
    assert len({one.box for one in mapped.objects}) == 1
    shapes = [ids_of(data) for data in mapped.object_masks]
    np.testing.assert_array_equal(shapes[2], shapes[3])
    for shape in shapes[:2]:
        found, expected = mask_bounds(shape), mask_bounds(shapes[2])
        assert found and expected and np.abs(np.subtract(found, expected)).max() <= 1
    assert [one.mask is None for one in mapped.objects] == [True, False, True, True]


def test_a_small_mask_of_an_object_grows_to_its_image() -> None:
    drawn = np.zeros((10, 20), np.uint8)
    drawn[2:4, 5:10] = 1
    (mapped,) = put(masked(FILE), stored(30, 60), files={FILE.uri: encoded(drawn, "PNG")}).objects
    assert mapped.box == (15, 6, 30, 12)
    with pytest.raises(BadInput, match="20x10 on an image of 30x60"):
        put(masked(FILE), stored(60, 30), files={FILE.uri: encoded(drawn, "PNG")})


def test_masks_of_classes_by_value() -> None:
    drawn = np.array([[0, 1, 2], [255, 2, 1]], np.uint8)
    annotations = Annotations(masks={"class": MaskImage(FILE)})
    files = {FILE.uri: encoded(drawn, "PNG")}
    mapped = put(annotations, stored(2, 3), "class_png", "class_raw", files=files, ids=Ids(shift=10))
    expected = np.array([[10, 11, 12], [255, 12, 11]], np.uint8)
    np.testing.assert_array_equal(ids_of(mapped.masks["class_png"]), expected)
    assert mapped.masks["class_raw"] == expected.tobytes()
    wide = put(annotations, stored(2, 3), "class_png", files=files, ids=Ids(shift=300))
    expected = np.array([[300, 301, 302], [255, 302, 301]])
    np.testing.assert_array_equal(ids_of(wide.masks["class_png"], "uint16"), expected)
    with pytest.raises(BadInput, match="too large for mask_raw"):
        put(annotations, stored(2, 3), "class_raw", files=files, ids=Ids(shift=300))


@pytest.mark.parametrize("size", [(4, 6), (6, 4)], ids=["raw", "upright"])
def test_masks_of_either_frame(size: tuple[int, int]) -> None:
    drawn = np.arange(24, dtype=np.uint8).reshape(size)
    image = stored(6, 8, plan_geometry(4, 6, 6, ImagePolicy(size=(6, 8), fit="pad")))
    files = {FILE.uri: encoded(drawn, "PNG")}
    names = {"class": MaskImage(FILE), "instance": MaskImage(FILE)}
    mapped = put(Annotations(masks=names), image, "class_png", "instance_png", files=files).masks
    upright = np.rot90(drawn, -1) if size == (4, 6) else drawn
    expected = np.pad(upright, ((0, 0), (2, 2)), constant_values=255)
    np.testing.assert_array_equal(ids_of(mapped["class_png"]), expected)
    np.testing.assert_array_equal(ids_of(mapped["instance_png"]), expected)


def test_masks_in_colour() -> None:
    drawn = np.array([[[255, 0, 0], [0, 0, 7]], [[0, 0, 7], [1, 2, 3]]], np.uint8)
    # 99 is of no class, and no pixel has its colour.
    mask = MaskImage(FILE, ((0xFF0000, 4), (0x000007, 255), (0x010203, 1), (0x040506, 99)))
    annotations = Annotations(masks={"class": mask, "instance": mask})
    clear = np.concatenate([drawn, np.array([[[9], [0]], [[255], [1]]], np.uint8)], axis=2)
    for pixels in (drawn, clear):
        files = {FILE.uri: encoded(pixels, "PNG")}
        mapped = put(annotations, stored(2, 2), "class_png", "instance_png", files=files)
        for name in ("class_png", "instance_png"):
            np.testing.assert_array_equal(ids_of(mapped.masks[name]), [[4, 255], [255, 1]])
    drawn[1, 0] = (16, 32, 48)
    with pytest.raises(BadInput, match=r"colour without a class \(#102030 at 0,1\)"):
        put(annotations, stored(2, 2), "class_png", files={FILE.uri: encoded(drawn, "PNG")})


def test_panoptic() -> None:
    drawn = np.zeros((2, 3, 3), np.uint8)
    drawn[0, 0], drawn[0, 1], drawn[1, 2] = (5, 1, 0), (0, 0, 1), (7, 0, 0)
    segments = (Segment(7, "grass", False), Segment(261, "cat", True), Segment(65536, "cat", True))
    annotations = Annotations(masks={"panoptic": MaskImage(FILE, segments=segments)})
    files, ids = {FILE.uri: encoded(drawn, "PNG")}, Ids({"cat": 3, "grass": 200})
    needs = ("class_png", "panoptic_category_png", "panoptic_instance_png")
    mapped = put(annotations, stored(2, 3), *needs, files=files, ids=ids).masks
    category = [[3, 3, 255], [255, 255, 200]]
    np.testing.assert_array_equal(ids_of(mapped["class_png"]), category)
    np.testing.assert_array_equal(ids_of(mapped["panoptic_category_png"]), category)
    np.testing.assert_array_equal(ids_of(mapped["panoptic_instance_png"]), [[2, 3, 0], [0, 0, 0]])
    annotations = Annotations(masks={"panoptic": MaskImage(FILE, segments=segments[:2])})
    with pytest.raises(BadInput, match=r"panoptic id without a segment \(65536 at 1,0\)"):
        put(annotations, stored(2, 3), "panoptic_category_png", files=files, ids=ids)


def test_objects_are_painted_in_order_and_crowds_first() -> None:
    def square(side: int) -> tuple[tuple[float, ...], ...]:
        return ((0.0, 0.0, side, 0.0, side, side, 0.0, side),)

    objects = (
        AnnotatedObject(2, None, square(3)),
        AnnotatedObject(7, Box(0.0, 0.0, 9.0, 9.0)),
        AnnotatedObject(3, None, square(1)),
        AnnotatedObject(4, None, square(5), attributes={"is_crowd": 1}),
    )
    image = stored(6, 8, plan_geometry(6, 6, 1, ImagePolicy(size=(6, 8), fit="pad")))
    mapped = put(Annotations(objects=objects), image, "class_png")
    expected = np.full((6, 8), 255)
    expected[:, 1:7] = 0
    expected[:5, 1:6], expected[:3, 1:4], expected[:1, 1:2] = 4, 2, 3
    np.testing.assert_array_equal(ids_of(mapped.masks["class_png"]), expected)
    assert mapped.objects == ()


def test_segments_are_merged_and_ignored() -> None:
    drawn = np.zeros((1, 5, 3), np.uint8)
    drawn[0, :4, 0] = (1, 2, 3, 4)
    labels = (("grass", False), ("cat", True), ("dog", True), ("dog", True))
    segments = tuple(Segment(number, *one) for number, one in enumerate(labels, 1))
    annotations = Annotations(masks={"panoptic": MaskImage(FILE, segments=segments)})
    needs, files = ("class_png", "panoptic_category_png", "panoptic_instance_png"), encoded(drawn, "PNG")

    def made(merged: dict[int, int]) -> tuple[list[int], list[int]]:
        ids = Ids({"grass": 0, "cat": 3, "dog": 300}, merged=merged)
        masks = put(annotations, stored(1, 5), *needs, files={FILE.uri: files}, ids=ids).masks
        np.testing.assert_array_equal(decode_mask(masks["class_png"]), decode_mask(masks[needs[1]]))
        category, instance = (decode_mask(masks[name])[0].tolist() for name in needs[1:])
        return category, instance

    assert made({300: 3}) == ([0, 3, 3, 3, 255], [0, 2, 3, 4, 0])
    assert made({300: 255, 0: 700}) == ([700, 3, 255, 255, 255], [0, 2, 0, 0, 0])


def test_drawn_classes_are_merged_and_ignored() -> None:
    def square(side: int) -> tuple[tuple[float, ...], ...]:
        return ((0.0, 0.0, side, 0.0, side, side, 0.0, side),)

    objects = tuple(AnnotatedObject(label, None, square(side)) for label, side in ((2, 4), (3, 3), (255, 1)))
    with pytest.raises(BadInput, match="class id that means ignored pixels"):
        put(Annotations(objects=objects), stored(5, 5), "class_png")
    merged = {2: 0, 3: 300, 255: 7, 0: 255}
    mapped = put(Annotations(objects=objects), stored(5, 5), "class_png", ids=Ids(merged=merged))
    expected = np.full((5, 5), 255)
    expected[:4, :4], expected[:3, :3], expected[0, 0] = 0, 300, 7
    np.testing.assert_array_equal(decode_mask(mapped.masks["class_png"]), expected)


def test_an_image_annotated_as_empty_is_background() -> None:
    mapped = put(Annotations(size=(2, 3)), stored(2, 3), "class_raw", "instance_png")
    assert mapped.masks == {"class_raw": bytes(6)}


GREY = {FILE.uri: encoded(np.full((2, 3), 99, np.uint8), "PNG")}
CLASS = Annotations(masks={"class": MaskImage(FILE)})
PANOPTIC = Annotations(masks={"panoptic": MaskImage(FILE)})


@pytest.mark.parametrize(
    ("annotations", "need", "data", "reason"),
    [
        (Annotations(), "class_png", b"", "no mask"),
        (Annotations(), "panoptic_category_png", b"", "no panoptic mask"),
        (CLASS, "class_png", GREY[FILE.uri], "mask value without a class"),
        (
            CLASS,
            "class_png",
            encoded(np.zeros((3, 3), np.uint8), "PNG"),
            "mask of another size than its image",
        ),
        (CLASS, "class_png", b"", "mask empty file"),
        (CLASS, "class_png", GREY[FILE.uri][:-20], "mask truncated"),
        (PANOPTIC, "panoptic_category_png", GREY[FILE.uri], "mask not supported"),
        (
            PANOPTIC,
            "panoptic_category_png",
            encoded(np.zeros((2, 3, 3), np.uint8), "JPEG"),
            "mask not supported",
        ),
        (masked(((0.0, 0.0, 1.0),)), "objects", b"", "polygon is not pairs of numbers"),
        (masked(((0.0, 0.0, 1.0, float("nan")),)), "objects", b"", "polygon is not pairs of numbers"),
        (masked(((0.0, 0.0, 1e9, 0.0, 3.0, 3.0),)), "object_masks", b"", "polygon far outside the image"),
        (masked(Rle(3, 2, (6,))), "object_masks", b"", "mask of another size than its image"),
    ],
)
def test_refused(annotations: Annotations, need: str, data: bytes, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        put(annotations, stored(2, 3), need, files={FILE.uri: data})
    assert (caught.value.stage, caught.value.reason) == ("annotations", reason)


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS, reason="RECORDMILL_CORPUS names no folder of real inputs")
def test_real_panoptic_masks() -> None:
    folder = Path(CORPUS) / "coco64" / "panoptic"
    listed = json.loads((folder / "panoptic_val2017.json").read_text())
    things = {one["id"]: bool(one["isthing"]) for one in listed["categories"]}
    paths = {path.name: path for path in folder.rglob("*.png")}
    present = [one for one in listed["annotations"] if one["file_name"] in paths]
    assert present
    for one in present:
        data = paths[one["file_name"]].read_bytes()
        with Image.open(paths[one["file_name"]]) as file:
            channels = np.asarray(file.convert("RGB")).astype(np.int64)
        codes = channels @ [1, 256, 65536]
        category, instance = np.full(codes.shape, 255), np.zeros(codes.shape)
        segments = []
        for number, segment in enumerate(one["segments_info"], 1):
            label = segment["category_id"]
            category[codes == segment["id"]] = label
            instance[codes == segment["id"]] = number if things[label] else 0
            segments.append(Segment(segment["id"], label, things[label]))
        annotations = Annotations(masks={"panoptic": MaskImage(FILE, segments=tuple(segments))})
        needs = ("panoptic_category_png", "panoptic_instance_png")
        mapped = put(annotations, stored(*codes.shape), *needs, files={FILE.uri: data}).masks
        np.testing.assert_array_equal(decode_mask(mapped["panoptic_category_png"]), category)
        np.testing.assert_array_equal(decode_mask(mapped["panoptic_instance_png"]), instance)


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS, reason="RECORDMILL_CORPUS names no folder of real inputs")
def test_real_palette_masks() -> None:
    folder = Path(CORPUS) / "palette_masks"
    paths = sorted((folder / "SegmentationClass").glob("*.png"))
    assert paths
    for path in paths:
        truth = np.load(folder / "SegmentationClassNpy" / f"{path.stem}.npy").astype(np.uint8)
        annotations = Annotations(masks={"class": MaskImage(FILE)})
        mapped = put(annotations, stored(*truth.shape), "class_raw", files={FILE.uri: path.read_bytes()})
        assert mapped.masks["class_raw"] == truth.tobytes()
