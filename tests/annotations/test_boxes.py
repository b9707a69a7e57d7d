"""Boxes, key points and parts: against painted pixels, exactly, and by policy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from recordmill.transforms.images.geometry import plan_geometry
from recordmill.transforms.images.policy import FITS, ImagePolicy
from recordmill.transforms.images.store import store_image
from recordmill.transforms.records import BOXES, AnnotatedObject, Annotations, BadInput, Box, Geometry, Part
from tests.annotations.made import put, stored
from tests.images.drawn import encoded, tensorflow_pixels, with_orientation

NAN = math.nan
POLICIES = [
    ImagePolicy(image_format="png"),
    ImagePolicy(image_format="png", max_side=60),
    *(ImagePolicy(image_format="png", size=(90, 70), fit=fit) for fit in FITS),
]


def one(box: Box | None, **rest: object) -> Annotations:
    return Annotations(objects=(AnnotatedObject("cat", box, **rest),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "policy", POLICIES, ids=lambda policy: f"{policy.max_side}-{policy.size}-{policy.fit}"
)
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("upright", [False, True])
def test_boxes_surround_what_was_painted(orientation: int, policy: ImagePolicy, upright: bool) -> None:
    pixels = np.zeros((80, 120, 3), np.uint8)
    pixels[20:50, 40:85] = 255
    data = encoded(Image.fromarray(pixels), "PNG", exif=with_orientation(orientation))
    image = store_image(data, policy)
    box: tuple[int, ...] = (40, 20, 85, 50)
    size = (80, 120)
    if upright:
        turned = store_image(data, ImagePolicy(image_format="png"))
        seen = tensorflow_pixels(turned.data)[:, :, 0] > 127
        box, size = bounds(seen), seen.shape[:2]
    polygon = (box[0], box[1], box[2], box[1], box[2], box[3], box[0], box[3])
    annotations = Annotations(
        objects=(
            AnnotatedObject(
                "cat",
                Box(*map(float, box)),
                (tuple(map(float, polygon)),),
                ((box[0], box[1], 2), (box[2], box[3], 1)),
                (Part("head", Box(*map(float, box))),),
            ),
        ),
        size=size,
        upright=upright,
    )
    (mapped,) = put(annotations, image).objects
    assert mapped.box is not None and isinstance(mapped.mask, tuple)
    seen = tensorflow_pixels(image.data)[:, :, 0]
    seen = seen > 127
    if policy.fit == "pad" and image.geometry is not None and image.geometry.top + image.geometry.left:
        geometry = image.geometry
        inside = np.zeros_like(seen)
        inside[
            geometry.top : geometry.top + geometry.scaled_height,
            geometry.left : geometry.left + geometry.scaled_width,
        ] = True
        seen &= inside
    expected = bounds(seen)
    assert np.abs(np.subtract(mapped.box, expected)).max() <= 1
    assert mapped.parts == (Part("head", mapped.box),)
    xs, ys = mapped.mask[0][::2], mapped.mask[0][1::2]
    corners = np.clip([min(xs), min(ys), max(xs), max(ys)], 0, [image.width, image.height] * 2)
    np.testing.assert_allclose(corners, mapped.box, atol=1e-9)
    for x, y, visibility in mapped.keypoints:
        assert visibility == 0 or (
            min(abs(x - mapped.box.xmin), abs(x - mapped.box.xmax)) < 1e-9
            and min(abs(y - mapped.box.ymin), abs(y - mapped.box.ymax)) < 1e-9
        )


def bounds(mask: np.ndarray) -> tuple[int, ...]:
    ys, xs = np.nonzero(mask)
    return int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1


@settings(max_examples=100)
@given(st.lists(st.floats(0, 97), min_size=4, max_size=4, unique=True))
def test_nothing_changes_a_coordinate_of_an_image_that_is_kept(sides: list[float]) -> None:
    x0, x1 = sorted(sides[:2])
    y0, y1 = sorted(sides[2:])
    annotations = one(Box(x0, y0, x1, y1), mask=((x0, y0, x1, y0, x1, y1),), keypoints=((x0, y1, 2),))
    for image in (stored(97, 97), stored(97, 97, plan_geometry(97, 97, 1, ImagePolicy()))):
        assert put(annotations, image).objects == annotations.objects


@settings(max_examples=100)
@given(
    st.lists(st.floats(-50, 150), min_size=4, max_size=4),
    st.integers(1, 8),
    st.sampled_from(POLICIES),
)
def test_a_box_is_inside_or_noted(sides: list[float], orientation: int, policy: ImagePolicy) -> None:
    geometry = plan_geometry(80, 120, orientation, policy)
    mapped = put(one(Box(*sides)), stored(geometry.height, geometry.width, geometry))
    assert mapped.objects or mapped.notes
    for found in mapped.objects:
        assert found.box is not None
        assert 0 <= found.box.xmin < found.box.xmax <= geometry.width
        assert 0 <= found.box.ymin < found.box.ymax <= geometry.height


WITHIN, PARTLY, WHOLLY = Box(1.0, 2.0, 3.0, 4.0), Box(-5.0, 2.0, 3.0, 4.0), Box(100.0, 2.0, 110.0, 4.0)
FLAT, SWAPPED = Box(10.0, 10.0, 10.0, 40.0), Box(3.0, 2.0, 1.0, 4.0)
DROPPED, CLIPPED, NO_AREA = "box outside the image dropped", "box clipped", "box without an area"


@pytest.mark.parametrize(
    ("box", "boxes", "left", "reason"),
    [
        (WITHIN, "clip", WITHIN, None),
        (WITHIN, "drop", WITHIN, None),
        (WITHIN, "fail", WITHIN, None),
        (PARTLY, "clip", Box(0.0, 2.0, 3.0, 4.0), CLIPPED),
        (PARTLY, "drop", None, DROPPED),
        (WHOLLY, "clip", None, DROPPED),
        (WHOLLY, "drop", None, DROPPED),
        (FLAT, "clip", None, NO_AREA),
        (FLAT, "drop", None, NO_AREA),
        (SWAPPED, "clip", None, NO_AREA),
        (None, "clip", None, NO_AREA),
        (Box(-1e-5, 2.0, 100.00001, 4.0), "fail", Box(0.0, 2.0, 100.0, 4.0), None),
    ],
)
def test_what_becomes_of_boxes(box: Box | None, boxes: str, left: Box | None, reason: str | None) -> None:
    mapped = put(one(box), stored(50, 100), boxes=boxes)
    assert [found.box for found in mapped.objects] == ([left] if left else [])
    assert [note[0] for note in mapped.notes] == ([reason] if reason else [])
    assert all("object 0 'cat'" in detail for _, detail in mapped.notes)


@pytest.mark.parametrize(
    ("box", "boxes", "reason", "detail"),
    [
        (PARTLY, "fail", "box outside the image", "object 0 'cat': -5,2,3,4 in 100x50; --boxes=clip"),
        (WHOLLY, "fail", "box outside the image", "object 0 'cat': 100,2,110,4 in 100x50"),
        (FLAT, "fail", NO_AREA, "object 0 'cat': 10,10,10,40"),
        *((Box(NAN, 0, 1, 1), policy, "box is not a number", "nan,0,1,1") for policy in BOXES),
        (Box(0, 0, math.inf, 1), "clip", "box is not a number", "inf"),
    ],
)
def test_boxes_that_fail_the_record(box: Box, boxes: str, reason: str, detail: str) -> None:
    with pytest.raises(BadInput) as caught:
        put(one(box), stored(50, 100), boxes=boxes)
    assert (caught.value.stage, caught.value.reason) == ("annotations", reason)
    assert detail in caught.value.detail


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="'cut'"):
        put(one(WITHIN), stored(50, 100), boxes="cut")


def test_relative_coordinates() -> None:
    annotations = Annotations(
        objects=(
            AnnotatedObject(3, Box(0.25, 0.5, 0.75, 1.0), ((0.5, 0.5, 1.0, 0.5, 1.0, 1.0),), ((0.5, 1, 2),)),
        ),
        relative=True,
    )
    (mapped,) = put(annotations, stored(50, 100)).objects
    assert mapped.box == (25, 25, 75, 50)
    assert mapped.mask == ((50, 25, 100, 25, 100, 50),)
    assert mapped.keypoints == ((50, 50, 2),)


def test_a_crop_cuts_boxes_and_key_points() -> None:
    geometry = plan_geometry(50, 100, 1, ImagePolicy(size=(50, 50), fit="crop"))
    objects = (
        AnnotatedObject("a", Box(0.0, 0.0, 20.0, 20.0)),
        AnnotatedObject(
            "b", Box(10.0, 0.0, 50.0, 20.0), keypoints=((20.0, 5.0, 2), (30.0, 5.0, 1), (0, 0, 0))
        ),
    )
    mapped = put(Annotations(objects=objects), stored(50, 50, geometry))
    (left,) = mapped.objects
    assert (left.label, left.box) == ("b", (0, 0, 25, 20))
    assert left.keypoints == ((0, 0, 0), (5, 5, 1), (0, 0, 0))
    assert mapped.notes == (
        ("box cut off by the crop", "object 0 'a'"),
        ("key points cut off by the crop", "object 1 'b': 1 of 3"),
    )


def test_what_rounding_leaves_of_a_box_is_cut_off() -> None:
    # The crop begins in the column at which the box ends, but for the last bit.
    geometry = Geometry(1, 97, 201, 90, 187, 0, -71, 90, 45)
    edge = math.nextafter(71 * 201 / 187, 201)
    assert edge * 187 / 201 > 71
    mapped = put(
        Annotations(objects=(AnnotatedObject("a", Box(0.0, 0.0, edge, 97.0)),)), stored(90, 45, geometry)
    )
    assert (mapped.objects, mapped.notes) == ((), (("box cut off by the crop", "object 0 'a'"),))
    beside = Annotations(objects=(AnnotatedObject("a", Box(40 - 1e-9, 0.0, 50.0, 30.0)),))
    (note,) = put(beside, stored(30, 40)).notes
    assert note == ("box outside the image dropped", "object 0 'a': 40,0,50,30 in 40x30")
    thin = Annotations(objects=(AnnotatedObject("a", Box(20.0, 0.0, 20.0 + 1e-9, 30.0)),))
    assert put(thin, stored(30, 40)).objects == thin.objects


def test_areas_follow_the_scale_and_other_attributes_stay() -> None:
    geometry = plan_geometry(50, 100, 6, ImagePolicy(max_side=50))
    annotations = one(Box(0.0, 0.0, 40.0, 20.0), attributes={"area": 800.0, "is_crowd": 1})
    (mapped,) = put(annotations, stored(50, 25, geometry)).objects
    assert mapped.attributes == {"area": 200.0, "is_crowd": 1}
    assert mapped.box == (15, 0, 25, 20)


@pytest.mark.parametrize(
    ("size", "upright", "expected"),
    [
        (None, False, (30, 0, 50, 10)),
        (None, True, (0, 0, 10, 20)),
        ((50, 100), True, (30, 0, 50, 10)),
        ((100, 50), False, (0, 0, 10, 20)),
    ],
)
def test_the_declared_size_tells_the_frame(
    size: tuple[int, int] | None, upright: bool, expected: tuple[int, ...]
) -> None:
    image = stored(100, 50, plan_geometry(50, 100, 6, ImagePolicy()))
    objects = (AnnotatedObject("cat", Box(0.0, 0.0, 10.0, 20.0)),)
    assert put(Annotations(objects=objects, size=size, upright=upright), image).objects[0].box == expected


@pytest.mark.parametrize(
    "image", [stored(50, 100), stored(100, 50, plan_geometry(50, 100, 6, ImagePolicy()))]
)
def test_another_declared_size_fails(image: object) -> None:
    with pytest.raises(BadInput, match="declare 90x50, the image has 100x50"):
        put(Annotations(size=(50, 90)), image)  # type: ignore[arg-type]
