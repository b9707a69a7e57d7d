"""The part of an image that is shown: the one that differs most, at every setting, against brute force."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from benchmarks.drawings import draw
from recordmill.transforms.images.similarity import CROP_SIDE, Original, most_changed
from recordmill.transforms.images.store import store_image
from recordmill.transforms.records import BadInput
from recordmill.transforms.sweeping.measure import Worst, crops_of
from recordmill.transforms.sweeping.settings import SweepConfig, settings
from tests.images.drawn import encoded, tensorflow_pixels

CONFIG = SweepConfig(qualities=(95, 30), targets=())
ROWS = settings(CONFIG)
COARSE = [row.name for row in ROWS].index("re-encoded, q30")

planes = arrays.arrays(np.uint8, st.shared(st.tuples(st.integers(1, 9), st.integers(1, 9)), key="shape"))


@given(planes, planes, st.integers(1, 10))
def test_the_window_is_the_one_that_a_search_finds(one: np.ndarray, other: np.ndarray, side: int) -> None:
    height, width = min(side, one.shape[0]), min(side, one.shape[1])
    difference = np.abs(one.astype(int) - other)
    sums = {
        (top, left): difference[top : top + height, left : left + width].sum()
        for top in range(one.shape[0] - height + 1)
        for left in range(one.shape[1] - width + 1)
    }
    most = max(sums.values())
    first = min(place for place, total in sums.items() if total == most)
    assert most_changed(one, other, side) == (*first, height, width)


def worst(data: bytes, ssims: tuple[float | None, ...]) -> Worst:
    return Worst(0.5, "a.png", COARSE, b"", ssims)


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))


@pytest.mark.slow
def test_crops_are_of_what_is_stored_at_every_setting() -> None:
    data = encoded(draw("square", 3, 400, 300), "PNG")
    ssims = tuple(1 - place / 100 for place in range(len(ROWS)))
    crops = crops_of(worst(data, ssims), Original(data), ROWS, CONFIG.seen)
    assert [(crop.setting, crop.ssim) for crop in crops] == [
        (row.name, ssim) for row, ssim in zip(ROWS, ssims, strict=True)
    ]
    boxes, sources = {crop.box for crop in crops}, {crop.source_png for crop in crops}
    assert len(boxes) == len(sources) == 1
    top, left, height, width = boxes.pop()
    assert (height, width) == (CROP_SIDE, CROP_SIDE)
    area = (slice(top, top + height), slice(left, left + width))
    source = tensorflow_pixels(data)
    np.testing.assert_array_equal(pixels(sources.pop()), source[area])
    for row, crop in zip(ROWS, crops, strict=True):
        stored = store_image(data, row.policy)
        assert crop.image_bytes == len(stored.data)
        if stored.image_format == "raw":
            np.testing.assert_array_equal(pixels(crop.png), source[area])
        else:
            shown = pixels(crop.png).astype(int)
            assert np.abs(shown - tensorflow_pixels(stored.data)[area]).max() <= 2
    changed = tensorflow_pixels(store_image(data, ROWS[COARSE].policy).data)
    luma = [np.asarray(Image.fromarray(one).convert("L")) for one in (source, changed)]
    assert most_changed(luma[0], luma[1], CROP_SIDE)[:2] == pytest.approx((top, left), abs=2)


def test_a_small_image_is_its_own_crop_and_what_was_not_compared_is_left_out() -> None:
    data = encoded(draw("square", 3, 40, 30), "PNG")
    ssims = tuple(None if place == 2 else 0.9 for place in range(len(ROWS)))
    crops = crops_of(worst(data, ssims), Original(data), ROWS, CONFIG.seen)
    assert [crop.setting for crop in crops] == [row.name for row in ROWS if row.name != ROWS[2].name]
    assert {crop.box for crop in crops} == {(0, 0, 30, 40)}


def test_a_file_that_is_damaged_by_now() -> None:
    data = encoded(draw("square", 3, 40, 30), "PNG")
    with pytest.raises(BadInput):
        crops_of(worst(data, (0.5,) * len(ROWS)), Original(data[:500]), ROWS, CONFIG.seen)
