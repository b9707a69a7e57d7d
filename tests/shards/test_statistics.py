"""Figures about records: counted, merged in any order, and noted as JSON."""

import json
import math
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.shards.statistics import MOST_REENCODED, Sides, Statistics

SIDES = st.integers(1, 60_000)
SHARE = st.floats(0, 1, width=32)
LABELS = st.lists(st.integers(-1, 40), max_size=3)
RECORDS = st.lists(
    st.tuples(
        st.lists(st.tuples(SIDES, SIDES), max_size=3),
        LABELS,
        LABELS,
        st.none() | st.lists(st.tuples(SHARE, SHARE, SHARE, SHARE), max_size=3),
        st.dictionaries(st.integers(0, 65_535), st.integers(1, 10**9), max_size=3),
    ),
    max_size=6,
)


def one(width: int = 640, height: int = 480, *boxes: Sides, **others: Any) -> Statistics:
    """Of one record."""
    statistics = Statistics()
    statistics.add([(width, height)], boxes=boxes, **others)
    return statistics


def test_a_few_records() -> None:
    statistics = Statistics()
    statistics.add([(640, 480)], [3], [1, 1, 2], [(0, 0, 0.5, 0.5), (0, 0, 1, 1), (0.25, 0.5, 0.5, 1)])
    statistics.add([(32, 64)], [3, 4], [], [])
    statistics.add([], [5])
    statistics.add([(32, 64), (640, 480)], boxes=None, pixels={0: 2000, 7: 48})
    statistics.merge(one(640, 480, pixels={7: 300_000, 255: 7200}))
    assert statistics == Statistics(
        records=5,
        images=5,
        widths=Counter({19: 3, 10: 2}),  # 2^(19/2) is 724, and nearer to 640 than 512 is
        heights=Counter({18: 3, 12: 2}),
        aspects=Counter({2: 3, -4: 2}),
        least=(32, 64),
        most=(640, 480),
        labels=Counter({3: 2, 4: 1, 5: 1}),
        objects=Counter({1: 2, 2: 1}),
        pixels=Counter({0: 2000, 7: 300_048, 255: 7200}),
        pixel_images=Counter({0: 1, 7: 2, 255: 1}),
        boxes_per_image=Counter({3: 1, 0: 2}),
        box_sides=Counter({-2: 1, 0: 1, -3: 1}),  # 1/2, 1, and the root of 1/8
        box_aspects=Counter({2: 2, -2: 1}),  # 4:3 twice; 160 by 240
        unlabelled=2,
    )


@pytest.mark.parametrize("place", range(3, 30))
def test_a_side_is_in_the_bin_that_is_nearest_by_ratio(place: int) -> None:
    edge = 2 ** (place / 2 + 1 / 4)
    assert one(math.floor(edge), 1).widths == {place: 1}
    assert one(1, math.ceil(edge)).heights == {place + 1: 1}


@pytest.mark.parametrize(
    ("width", "height", "place"),
    [(1, 1, 0), (119, 100, 1), (109, 100, 0), (1, 60_000, -12), (60_000, 1, 12), (8, 1, 12), (1, 8, -12)],
)
def test_a_shape(width: int, height: int, place: int) -> None:
    assert one(width, height).aspects == {place: 1}


@pytest.mark.parametrize(
    ("box", "side", "aspect"),
    [
        ((0, 0, 1, 1), 0, 2),
        ((0.5, 0.5, 0.5, 0.5), -16, 0),
        ((0.5, 0.1, 0.5, 0.9), -16, -12),
        ((0.1, 0.5, 0.9, 0.5), -16, 12),
        ((0.9, 0.1, 0.1, 0.9), -16, -12),
        ((math.nan, 0, 1, 1), -16, -12),
        ((0, 0, 1e-6, 1e-6), -16, 2),
        ((0, 0, 3, 3), 0, 2),
    ],
)
def test_a_box(box: Sides, side: int, aspect: int) -> None:
    found = one(640, 480, box)
    assert (found.box_sides, found.box_aspects) == ({side: 1}, {aspect: 1})


def test_more_than_a_hundred_boxes_are_a_hundred() -> None:
    assert one(640, 480, *[(0.0, 0.0, 1.0, 1.0)] * 250).boxes_per_image == {100: 1}
    assert one(640, 480).boxes_per_image == {0: 1}


def test_boxes_are_counted_as_records_store_them() -> None:
    """0.1 and 0.7 are other numbers as 32-bit floats: a count of the stored ones is the same."""
    import numpy as np

    rng = random.Random(0)
    for _ in range(200):
        sides = (rng.random() / 2, rng.random() / 2, rng.random(), rng.random())
        xmin, ymin, xmax, ymax = (float(np.float32(value)) for value in sides)
        assert one(640, 480, sides) == one(640, 480, (xmin, ymin, xmax, ymax))


@given(RECORDS, st.randoms())
def test_the_sum_does_not_depend_on_parts_and_order(
    records: list[tuple[list[tuple[int, int]], list[int], list[int], list[Sides] | None, dict[int, int]]],
    order: random.Random,
) -> None:
    whole = Statistics()
    for record in records:
        whole.add(*record)
    parts = []
    for record in records:
        part = Statistics()
        part.add(*record)
        parts.append(part)
    order.shuffle(parts)
    total = Statistics()
    for part in parts:
        total.merge(part)
    assert total == whole
    assert Statistics.from_json(json.loads(json.dumps(whole.as_json()))) == whole


def test_of_the_re_encoded_images_the_first_references_are_remembered() -> None:
    references = [(f"{n}.png", bytes([n, 255 - n])) for n in range(100)]
    shuffled = random.Random(1).sample(references, len(references))
    whole, halves = Statistics(), [Statistics(), Statistics()]
    for number, (key, reference) in enumerate(shuffled):
        whole.add_reencoded(key, reference)
        halves[number % 2].add_reencoded(key, reference)
    halves[0].merge(halves[1])
    assert whole.reencoded == halves[0].reencoded == references[:MOST_REENCODED]
    assert Statistics.from_json(json.loads(json.dumps(whole.as_json()))) == whole


def test_counts_are_listed_in_order() -> None:
    statistics = Statistics()
    statistics.add([(8, 8)], [10, 9, -1])
    assert list(statistics.as_json()["labels"].items()) == [("-1", 1), ("9", 1), ("10", 1)]
    assert list(statistics.as_json()) == list(Statistics().as_json())
