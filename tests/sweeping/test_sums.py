"""Sums are the same whatever the order in which images come, and however they are merged."""

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.similarity import Similarity
from recordmill.transforms.records import Failure
from recordmill.transforms.sweeping.measure import Measure, MeasuredImage
from recordmill.transforms.sweeping.results import Setting
from recordmill.transforms.sweeping.sums import SweepSum

ROWS = tuple(Setting(name, "files", None, ImagePolicy()) for name in "ab")

likenesses = st.one_of(
    st.none(),
    st.just(Similarity(1.0, math.inf, True)),
    st.builds(Similarity, st.sampled_from((0.1, 0.5, 0.7, 0.9)), st.floats(1, 60), st.just(False)),
)
measures = st.one_of(
    st.builds(
        Measure,
        st.integers(0, 1000),
        st.integers(0, 1000),
        st.integers(0, 8).map(float),
        st.integers(0, 8).map(float),
        likenesses,
        st.sampled_from((None, 0, 50, 51)),
    ),
    st.builds(Failure, st.just(""), st.just("encode"), st.sampled_from(("transparent", "too large"))),
)
images = st.lists(st.tuples(measures, measures, st.integers(0, 99)), max_size=12)


def summed(listed: list[tuple[str, list[Measure | Failure], int]], worst: int = 3) -> SweepSum:
    total = SweepSum(worst)
    for key, found, size in listed:
        total.add(MeasuredImage(key, key.encode(), size, found))
    return total


@given(images, st.integers(0, 2**32), st.integers(0, 12))
def test_neither_order_nor_merging_changes_anything(
    found: list[tuple[Measure, Measure, int]], seed: int, cut: int
) -> None:
    listed = [(f"{place:02}", [one, other], size) for place, (one, other, size) in enumerate(found)]
    straight = summed(listed)
    random.Random(seed).shuffle(listed)
    first, second = summed(listed[:cut]), summed(listed[cut:])
    for merged in (first, second):
        total = SweepSum(3)
        total.merge(merged)
        total.merge(second if merged is first else first)
        assert total == straight


@given(images.filter(bool))
def test_rows_against_plain_sums(found: list[tuple[Measure, Measure, int]]) -> None:
    listed = [(f"{place:02}", [one, other], size) for place, (one, other, size) in enumerate(found)]
    total = summed(listed)
    assert total.images == len(listed)
    for place, row in enumerate(total.rows(ROWS)):
        good = [(key, one[place], size) for key, one, size in listed if isinstance(one[place], Measure)]
        likes = [(one.similarity.ssim, key) for key, one, _ in good if one.similarity is not None]
        noisy = [one.similarity.psnr for _, one, _ in good if one.similarity and not one.similarity.identical]
        assert (row.images, row.failed) == (len(good), len(listed) - len(good))
        assert row.source_bytes == sum(size for _, _, size in good)
        assert row.tfrecord_bytes == sum(one.tfrecord_bytes for _, one, _ in good)
        assert row.image_bytes == sum(one.image_bytes for _, one, _ in good)
        assert row.encode_seconds == sum(one.encode_seconds for _, one, _ in good)
        assert row.decode_seconds == sum(one.decode_seconds for _, one, _ in good)
        assert row.compared == len(likes)
        assert row.identical == sum(1 for ssim, _ in likes if ssim == 1)
        assert (row.ssim_worst, row.ssim_worst_key) == (min(likes) if likes else (None, None))
        assert row.ssim_mean == (pytest.approx(sum(s for s, _ in likes) / len(likes)) if likes else None)
        assert row.psnr_mean == (pytest.approx(sum(noisy) / len(noisy)) if noisy else None)
        chosen = Counter(one.jpeg_quality for _, one, _ in good if one.jpeg_quality is not None)
        assert row.qualities == chosen


def test_the_worst_images_are_the_lowest_by_their_worst_setting_and_then_the_first() -> None:
    def image(*ssims: float) -> list[Measure | Failure]:
        return [Measure(1, 1, 0, 0, Similarity(ssim, 30.0, ssim == 1), None) for ssim in ssims]

    listed: list[tuple[str, list[Measure | Failure], int]] = [
        ("same", image(1, 1), 1),
        ("b", image(0.9, 0.5), 1),
        ("c", image(0.5, 0.9), 1),
        ("good", image(0.99, 0.98), 1),
        ("a", image(0.5, 0.5), 1),
    ]
    found = [(one.key, one.ssim, one.setting, one.ssims) for one in summed(listed).worst]
    assert found == [("a", 0.5, 0, (0.5, 0.5)), ("b", 0.5, 1, (0.9, 0.5)), ("c", 0.5, 0, (0.5, 0.9))]
    assert [one.key for one in summed(listed, 9).worst] == ["a", "b", "c", "good"]
    assert summed(listed, 0).worst == []


def test_what_was_refused() -> None:
    refusal = Failure("", "encode", "transparent")
    fine = Measure(1, 1, 0, 0, None, None)
    listed: list[tuple[str, list[Measure | Failure], int]] = [
        ("a", [fine, refusal], 1),
        ("b", [refusal, refusal], 1),
    ]
    assert summed(listed).refused() == {"encode: transparent": 2}
