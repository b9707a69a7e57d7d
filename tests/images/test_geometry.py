"""Geometry: sizes against exact fractions, points and boxes against pixels moved one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from recordmill.transforms.images.exif import turned
from recordmill.transforms.images.geometry import (
    is_identity,
    is_scaled,
    moved_boxes,
    moved_points,
    plan_geometry,
)
from recordmill.transforms.images.policy import FITS, ImagePolicy
from recordmill.transforms.records import Geometry
from tests.images.drawn import Array, with_orientation

# EXIF 2.32, tag 0x0112, by where it says that row 0 and column 0 of the file are to be seen.
UPRIGHT: dict[int, Callable[[Array], Array]] = {
    1: lambda a: a,  # top, left
    2: np.fliplr,  # top, right
    3: lambda a: np.rot90(a, 2),  # bottom, right
    4: np.flipud,  # bottom, left
    5: lambda a: np.fliplr(np.rot90(a, -1)),  # left, top
    6: lambda a: np.rot90(a, -1),  # right, top
    7: lambda a: np.flipud(np.rot90(a, -1)),  # right, bottom
    8: lambda a: np.rot90(a, 1),  # left, bottom
}
POLICIES = [
    ImagePolicy(),
    ImagePolicy(max_side=7),
    ImagePolicy(max_side=40),
    ImagePolicy(short_side=5),
    ImagePolicy(short_side=1),
    *(ImagePolicy(size=size, fit=fit) for size in ((8, 8), (5, 12), (23, 9), (1, 1)) for fit in FITS),
]
SIZES = [(9, 13), (13, 9), (10, 10), (1, 6), (7, 2)]


def asked(policy: ImagePolicy) -> str:
    """A policy's name in the list of tests."""
    return f"{policy.max_side}-{policy.short_side}-{policy.size}-{policy.fit}"


def numbered(height: int, width: int, dtype: str = "uint16") -> Array:
    """Pixels that each have a value of their own, from 1 on."""
    return np.arange(1, height * width + 1, dtype=dtype).reshape(height, width)


def expected_frame(height: int, width: int, policy: ImagePolicy) -> tuple[int, int, int, int, int, int]:
    """Scaled height and width, top, left, height, width of an upright picture, in exact fractions."""
    scales = [Fraction(1), Fraction(1)]
    if policy.max_side is not None:
        scales = [min(Fraction(1), Fraction(policy.max_side, max(height, width)))] * 2
    elif policy.short_side is not None:
        scales = [min(Fraction(1), Fraction(policy.short_side, min(height, width)))] * 2
    elif policy.size is not None:
        scales = [Fraction(policy.size[0], height), Fraction(policy.size[1], width)]
        if policy.fit != "stretch":
            scales = [min(scales) if policy.fit == "pad" else max(scales)] * 2
    rows, columns = (
        max(1, math.floor(side * scale + Fraction(1, 2)))
        for side, scale in zip((height, width), scales, strict=True)
    )
    if policy.size is None:
        return rows, columns, 0, 0, rows, columns
    over = [target - side for target, side in zip(policy.size, (rows, columns), strict=True)]
    top, left = (gap // 2 if gap >= 0 else -(-gap // 2) for gap in over)
    return rows, columns, top, left, *policy.size


def moved_one_by_one(pixels: Array, orientation: int, policy: ImagePolicy, fill: int) -> Array:
    """Nearest pixels, by definition: each pixel of the result looks up the one under its centre."""
    upright = UPRIGHT[orientation](pixels)
    height, width = upright.shape
    rows, columns, top, left, *size = expected_frame(height, width, policy)
    under_rows = [math.floor(Fraction(2 * (y - top) + 1, 2) * height / rows) for y in range(size[0])]
    under_columns = [math.floor(Fraction(2 * (x - left) + 1, 2) * width / columns) for x in range(size[1])]
    out = np.full(size, fill, pixels.dtype)
    for y, row in enumerate(under_rows):
        for x, column in enumerate(under_columns):
            if 0 <= row < height and 0 <= column < width:
                out[y, x] = upright[row, column]
    return out


@pytest.mark.parametrize(
    ("source", "policy", "scaled"),
    [
        ((427, 640), {"short_side": 256}, (256, 384)),
        ((480, 640), {"max_side": 320}, (240, 320)),
        ((640, 480), {"max_side": 320}, (320, 240)),
        ((2, 5), {"short_side": 1}, (1, 3)),  # 2.5, half up
        ((9, 2), {"max_side": 2}, (2, 1)),  # 0.4, but never nothing
        ((100, 50), {"max_side": 100}, (100, 50)),
        ((100, 50), {"max_side": 4000}, (100, 50)),
        ((100, 50), {"short_side": 51}, (100, 50)),
    ],
)
def test_sizes(source: tuple[int, int], policy: dict[str, int], scaled: tuple[int, int]) -> None:
    planned = plan_geometry(*source, 1, ImagePolicy(**policy))
    assert planned == Geometry(1, *source, *scaled, 0, 0, *scaled)


@pytest.mark.parametrize(
    ("fit", "source", "rest"),
    [
        ("stretch", (3, 5), (10, 10, 0, 0)),
        ("pad", (3, 5), (6, 10, 2, 0)),
        ("pad", (100, 31), (10, 3, 0, 3)),  # seven columns to share: the odd one goes to the right
        ("crop", (3, 5), (10, 17, 0, -3)),
        ("crop", (100, 31), (32, 10, -11, 0)),
        ("crop", (10, 10), (10, 10, 0, 0)),
    ],
)
def test_fits(fit: str, source: tuple[int, int], rest: tuple[int, ...]) -> None:
    planned = plan_geometry(*source, 1, ImagePolicy(size=(10, 10), fit=fit))
    assert planned == Geometry(1, *source, *rest, 10, 10)


def policies() -> st.SearchStrategy[ImagePolicy]:
    side = st.integers(1, 3000)
    return st.one_of(
        st.builds(ImagePolicy, max_side=side),
        st.builds(ImagePolicy, short_side=side),
        st.builds(ImagePolicy, size=st.tuples(side, side), fit=st.sampled_from(FITS)),
    )


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 8), policies())
def test_sizes_are_those_of_exact_fractions(
    height: int, width: int, orientation: int, policy: ImagePolicy
) -> None:
    planned = plan_geometry(height, width, orientation, policy)
    upright = (width, height) if orientation >= 5 else (height, width)
    assert planned == Geometry(orientation, *upright, *expected_frame(*upright, policy))
    if policy.size is None:
        assert planned.height <= upright[0] and planned.width <= upright[1]
    elif policy.fit == "pad":
        assert planned.scaled_height <= planned.height and planned.scaled_width <= planned.width
    else:
        assert planned.scaled_height >= planned.height and planned.scaled_width >= planned.width


def test_an_ignored_orientation_turns_nothing() -> None:
    planned = plan_geometry(3, 5, 6, ImagePolicy(exif="ignore"))
    assert planned == Geometry(1, 3, 5, 3, 5, 0, 0, 3, 5)
    assert is_identity(planned)


def test_identity_and_scaled() -> None:
    def told(policy: ImagePolicy, orientation: int = 1) -> tuple[bool, bool]:
        planned = plan_geometry(8, 12, orientation, policy)
        return is_identity(planned), is_scaled(planned)

    assert told(ImagePolicy()) == (True, False)
    assert told(ImagePolicy(max_side=12)) == (True, False)
    assert told(ImagePolicy(), 2) == (False, False)
    assert told(ImagePolicy(max_side=11)) == (False, True)
    assert told(ImagePolicy(size=(8, 12), fit="pad")) == (True, False)
    assert told(ImagePolicy(size=(8, 13), fit="pad")) == (False, False)
    assert told(ImagePolicy(size=(8, 11), fit="crop")) == (False, False)
    assert told(ImagePolicy(size=(8, 11), fit="stretch")) == (False, True)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientations_are_pillows(orientation: int) -> None:
    pixels = numbered(5, 7, "uint8")
    image = Image.fromarray(pixels)
    image.getexif().update(with_orientation(orientation))
    expected = np.asarray(ImageOps.exif_transpose(image))
    np.testing.assert_array_equal(UPRIGHT[orientation](pixels), expected)
    np.testing.assert_array_equal(turned(pixels, orientation), expected)
    planned = plan_geometry(5, 7, orientation, ImagePolicy())
    assert (planned.height, planned.width) == expected.shape
    rows, columns = np.mgrid[:5, :7]
    centres = np.stack([columns.ravel() + 0.5, rows.ravel() + 0.5], axis=1)
    for value, (x, y) in zip(pixels.ravel(), moved_points(planned, centres), strict=True):
        assert expected[math.floor(y), math.floor(x)] == value
        assert (x % 1, y % 1) == (0.5, 0.5)


@pytest.mark.parametrize("policy", POLICIES, ids=asked)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_boxes_go_where_their_pixels_go(size: tuple[int, int], policy: ImagePolicy) -> None:
    height, width = size
    boxes = [
        (x0, y0, x1, y1)
        for x0, x1 in {(0, width), (width // 3, width // 3 + 1), (width // 2, width)}
        for y0, y1 in {(0, height), (height // 3, height // 3 + 1), (height // 2, height)}
    ]
    for orientation in range(1, 9):
        planned = plan_geometry(height, width, orientation, policy)
        ys, xs = np.arange(planned.height) + 0.5, np.arange(planned.width) + 0.5
        for box, moved in zip(boxes, moved_boxes(planned, np.array(boxes)), strict=True):
            drawn = np.zeros(size, np.uint8)
            drawn[box[1] : box[3], box[0] : box[2]] = 1
            seen = moved_one_by_one(drawn, orientation, policy, fill=0)
            # A pixel belongs to the box when its centre lies in it; none is seen twice, or elsewhere.
            eps = 1e-9
            inside = np.outer(
                (ys > moved[1] - eps) & (ys < moved[3] - eps), (xs > moved[0] - eps) & (xs < moved[2] - eps)
            )
            on_edge = np.add.outer(
                np.isclose(ys, moved[1]) | np.isclose(ys, moved[3]),
                np.isclose(xs, moved[0]) | np.isclose(xs, moved[2]),
            )
            np.testing.assert_array_equal(inside[~on_edge], seen.astype(bool)[~on_edge], str(planned))


@settings(max_examples=50)
@given(
    st.integers(1, 50),
    st.integers(1, 50),
    st.integers(1, 8),
    policies(),
    st.lists(st.floats(-20, 70), min_size=4, max_size=4),
)
def test_boxes_stay_boxes(
    height: int, width: int, orientation: int, policy: ImagePolicy, sides: list[float]
) -> None:
    planned = plan_geometry(height, width, orientation, policy)
    x0, x1 = sorted(sides[:2])
    y0, y1 = sorted(sides[2:])
    (moved,) = moved_boxes(planned, np.array([[x0, y0, x1, y1]]))
    assert moved[0] <= moved[2] and moved[1] <= moved[3]
    area = planned.scaled_height * planned.scaled_width / (height * width)
    assert (moved[2] - moved[0]) * (moved[3] - moved[1]) == pytest.approx(
        (x1 - x0) * (y1 - y0) * area, rel=1e-6, abs=1e-6
    )


def test_boxes_are_not_clipped() -> None:
    planned = plan_geometry(10, 20, 1, ImagePolicy(size=(10, 10), fit="crop"))
    np.testing.assert_array_equal(moved_boxes(planned, np.array([[0, 0, 20, 10]])), [[-5, 0, 15, 10]])


def test_none_at_all() -> None:
    planned = plan_geometry(10, 20, 6, ImagePolicy(max_side=5))
    assert moved_points(planned, np.zeros((0, 2))).shape == (0, 2)
    assert moved_boxes(planned, np.zeros((0, 4))).shape == (0, 4)
