"""A sample of each kind of annotation, and its parts: every pixel, box and mask, against numpy."""

from __future__ import annotations

import io
import itertools

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.annotations.sample import Sample, check_sample, sample_of
from recordmill.transforms.annotations.shapes import mask_rle, polygons_mask, rle_mask
from recordmill.transforms.images.exif import turned
from recordmill.transforms.images.mask import encode_mask
from recordmill.transforms.images.opened import opened
from recordmill.transforms.images.render import upright_colors
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    Box,
    ImageRecord,
    ImageRef,
    MaskImage,
    Part,
    Polygons,
    Rle,
    Segment,
)
from tests.images.drawn import Array

HEIGHT, WIDTH = 50, 70
SEGMENTS = (Segment(70_001, "cat", True), Segment(5, "sky", False))
# Coordinates with one decimal, as COCO has them: rounding is where rasters differ.
STAR = ((10.1, 5.3, 60.7, 20.9, 12.5, 44.1, 35.3, 2.7, 41.9, 48.3),)
PARTS: Polygons = ((3.0, 3.0, 20.5, 4.1, 9.9, 18.3), (50.1, 30.1, 66.9, 31.3, 58.7, 47.7))
OUTSIDE = ((-20.3, -9.9, 30.1, 10.3, 90.7, 60.1, -10.5, 55.5),)


def pixels_of(height: int = HEIGHT, width: int = WIDTH, dtype: type = np.uint8) -> Array:
    return np.random.default_rng(3).integers(0, np.iinfo(dtype).max, (height, width, 3)).astype(dtype)


def blob() -> Array:
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    drawn: Array = ((rows - 25) ** 2 + (columns - 40) ** 2 < 300).astype(np.uint8)
    return drawn


def made() -> Sample:
    """An image with one object of each kind, and all masks."""
    rng = np.random.default_rng(4)
    objects = [
        AnnotatedObject("star", Box(10.1, 2.7, 60.7, 48.3), STAR, attributes={"area": 900.0}),
        AnnotatedObject("parts", Box(3.0, 3.0, 66.9, 47.7), PARTS),
        AnnotatedObject("outside", Box(0.0, 0.0, 70.0, 50.0), OUTSIDE),
        AnnotatedObject("blob", Box(23.0, 8.0, 58.0, 43.0), mask_rle(blob())),
        AnnotatedObject(
            "person",
            Box(20.5, 10.25, 45.0, 40.0),
            keypoints=((30.0, 12.0, 2), (0.0, 0.0, 0), (44.5, 39.0, 1)),
            parts=(Part("head", Box(25.0, 10.25, 35.0, 20.0)), Part("foot", Box(40.0, 35.0, 45.0, 40.0))),
        ),
    ]
    masks = {
        "class": rng.integers(0, 5, (HEIGHT, WIDTH)).astype(np.uint8),
        "instance": rng.integers(0, 700, (HEIGHT, WIDTH)).astype(np.uint16),
        "panoptic": rng.choice([0, 5, 70_001], (HEIGHT, WIDTH)).astype(np.uint32),
    }
    annotations = Annotations(
        labels=("a",),
        objects=tuple(objects),
        masks={"panoptic": MaskImage(ImageRef(""), segments=SEGMENTS)},
        size=(HEIGHT, WIDTH),
        upright=True,
    )
    return Sample("k", "train", pixels_of(), annotations, masks)


def raster(one: AnnotatedObject, height: int, width: int) -> Array | None:
    if one.mask is None or isinstance(one.mask, ImageRef):
        return None
    return rle_mask(one.mask) if isinstance(one.mask, Rle) else polygons_mask(one.mask, height, width)


def check_part(whole: Sample, part: Sample, left: int, top: int) -> None:
    """A part against slices of the complete image."""
    check_sample(part)
    height, width = part.pixels.shape[:2]
    window = np.s_[top : top + height, left : left + width]
    np.testing.assert_array_equal(part.pixels, whole.pixels[window])
    for kind, mask in whole.masks.items():
        np.testing.assert_array_equal(part.masks[kind], mask[window])
        assert part.masks[kind].dtype == mask.dtype
    assert part.annotations.size == (height, width)
    assert part.annotations.masks["panoptic"].segments == SEGMENTS
    found = {str(one.label): one for one in part.annotations.objects}
    for one in whole.annotations.objects:
        assert one.box is not None
        xmin, ymin = max(one.box.xmin - left, 0), max(one.box.ymin - top, 0)
        xmax, ymax = min(one.box.xmax - left, width), min(one.box.ymax - top, height)
        covered = raster(one, HEIGHT, WIDTH)
        is_in = xmin < xmax and ymin < ymax and (covered is None or covered[window].any())
        assert (str(one.label) in found) == is_in
        if not is_in:
            continue
        cut = found[str(one.label)]
        assert cut.box == Box(xmin, ymin, xmax, ymax)
        if covered is not None:
            drawn = raster(cut, height, width)
            assert drawn is not None
            np.testing.assert_array_equal(drawn, covered[window])
        for before, after in zip(one.keypoints, cut.keypoints, strict=True):
            x, y = before[0] - left, before[1] - top
            stays = before != (0, 0, 0) and 0 <= x <= width and 0 <= y <= height
            assert after == ((x, y, before[2]) if stays else (0, 0, 0))
        names = [one.name for one in cut.parts]
        for piece in one.parts:
            sides = Box(
                max(piece.box.xmin - left, 0),
                max(piece.box.ymin - top, 0),
                min(piece.box.xmax - left, width),
                min(piece.box.ymax - top, height),
            )
            has_area = sides.xmin < sides.xmax and sides.ymin < sides.ymax
            assert (piece.name in names) == has_area
            if has_area:
                assert cut.parts[names.index(piece.name)].box == sides
        assert cut.attributes == one.attributes


@pytest.mark.parametrize(("height", "width"), [(25, 35), (16, 16), (50, 70), (49, 69), (1, 70), (64, 7)])
def test_tiles(height: int, width: int) -> None:
    whole = made()
    covered = np.zeros((HEIGHT, WIDTH), int)
    for top, left in itertools.product(range(0, HEIGHT, height), range(0, WIDTH, width)):
        part = whole.crop(left, top, left + width, top + height, f"{top}_{left}")
        check_part(whole, part, left, top)
        assert part.suffix == f"{top}_{left}"
        covered[top : top + part.pixels.shape[0], left : left + part.pixels.shape[1]] += 1
    assert (covered == 1).all()


def test_random_windows() -> None:
    whole = made()
    rng = np.random.default_rng(5)
    for _ in range(100):
        left, right = sorted(rng.choice(WIDTH + 1, 2, replace=False).tolist())
        top, bottom = sorted(rng.choice(HEIGHT + 1, 2, replace=False).tolist())
        check_part(whole, whole.crop(left, top, right, bottom), left, top)
        inner = whole.crop(0, 0, right, bottom).crop(left, top, right, bottom)
        np.testing.assert_array_equal(inner.pixels, whole.crop(left, top, right, bottom).pixels)


def test_outlines_stay_where_their_pixels_do() -> None:
    parts = made().crop(40, 25, 70, 50).annotations.objects
    (one,) = (one for one in parts if one.label == "parts")
    assert isinstance(one.mask, tuple) and len(one.mask) == 2
    assert one.mask[1] == pytest.approx((10.1, 5.1, 26.9, 6.3, 18.7, 22.7))


def test_rounding_and_limits() -> None:
    whole = made()
    part = whole.crop(-5, 9.6, 12.1, 500)
    check_part(whole, part, 0, 9)
    assert part.pixels.shape == (41, 13, 3)
    with pytest.raises(ValueError, match="no pixel of the image, 70x50, is in the crop 70, 0, 80, 10"):
        whole.crop(70, 0, 80, 10)


@pytest.mark.parametrize("orientation", [1, 3, 6])
@pytest.mark.parametrize("exif", ["apply", "ignore"])
def test_a_sample_of_a_turned_file(orientation: int, exif: str) -> None:
    """Relative boxes, polygons, masks as files and in colours: all in the upright pixels."""
    drawn = pixels_of(20, 30)
    out = io.BytesIO()
    tags = Image.Exif()
    tags[274] = orientation
    Image.fromarray(drawn).save(out, "PNG", exif=tags)
    classes = np.random.default_rng(6).integers(0, 3, (20, 30)).astype(np.uint8)
    table = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0]], np.uint8)
    colored = io.BytesIO()
    Image.fromarray(table[classes]).save(colored, "PNG")
    area = np.zeros((20, 30), np.uint8)
    area[2:9, 4:21] = 1
    files = {ImageRef("c.png"): colored.getvalue(), ImageRef("o.png"): encode_mask(area)}
    colors = ((0x000000, 0), (0x800000, 7), (0x008000, 255))
    annotations = Annotations(
        objects=(
            AnnotatedObject("a", Box(0.1, 0.2, 0.5, 0.6), ((0.1, 0.2, 0.5, 0.2, 0.5, 0.6),)),
            AnnotatedObject("b", None, ImageRef("o.png")),
        ),
        masks={"class": MaskImage(ImageRef("c.png"), colors)},
        relative=True,
    )
    record = ImageRecord("k", ImageRef("k.png"), "val", annotations)
    work = upright_colors(opened(out.getvalue()), exif)
    sample, notes = sample_of(record, work, "clip", files.__getitem__)
    turn = orientation if exif == "apply" else 1
    np.testing.assert_array_equal(sample.pixels, turned(drawn, turn))
    np.testing.assert_array_equal(
        sample.masks["class"], turned(np.array([0, 7, 255], np.uint8)[classes], turn)
    )
    one, two = sample.annotations.objects
    assert isinstance(two.mask, Rle) and one.box is not None and two.box is not None
    np.testing.assert_array_equal(rle_mask(two.mask), turned(area, turn))
    sides = {1: (3, 4, 15, 12), 3: (15, 8, 27, 16), 6: (8, 3, 16, 15)}[turn]
    assert one.box == pytest.approx(sides)
    sides = {1: (4, 2, 21, 9), 3: (9, 11, 26, 18), 6: (11, 4, 18, 21)}[turn]
    assert two.box == pytest.approx(sides)
    assert (sample.annotations.size, sample.annotations.relative) == (sample.pixels.shape[:2], False)
    assert (sample.key, sample.split, notes) == ("k", "val", [])
    with pytest.raises(ValueError, match="read-only"):
        sample.pixels[0, 0] = 1


def test_an_image_that_nobody_annotated() -> None:
    out = io.BytesIO()
    Image.fromarray(pixels_of(4, 4)).save(out, "PNG")
    work = upright_colors(opened(out.getvalue()), "apply")
    sample, _ = sample_of(ImageRecord("k", ImageRef("k")), work, "clip", lambda ref: b"")
    assert sample.annotations.size is None
    assert sample.crop(0, 0, 2, 2).annotations.size is None
