"""A dataset in brief."""

from collections import Counter

import pytest

from recordmill.transforms.shards.overview import class_overview, class_texts, pixel_shares, source_facts
from recordmill.transforms.shards.statistics import Statistics

NAMES = {0: "cat", 1: "dog", 2: "bird", 3: "unused"}


def test_classes_of_labels_and_of_objects() -> None:
    statistics = {
        "train": Statistics(labels=Counter({0: 1200, 1: 3}), objects=Counter({2: 4})),
        "val": Statistics(labels=Counter({0: 1, 1: 1, 2: 4})),
    }
    overview = class_overview(statistics, NAMES)
    assert overview == {
        "labels": {
            "classes": 3,
            "largest": {"name": "cat", "count": 1201},
            "smallest": {"name": "bird", "count": 4},  # of two that are as small, the last
        },
        "objects": {
            "classes": 1,
            "largest": {"name": "bird", "count": 4},
            "smallest": {"name": "bird", "count": 4},
        },
    }
    assert class_texts(overview, 4) == {
        "classes": "3: the largest is 'cat' with 1,201 labels, the smallest is 'bird' with 4",
        "object classes": "1: 'bird' with 4 objects",
    }


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({0: 5, 1: 5}, "2, each with 5 labels"),
        ({0: 1}, "1: 'cat' with 1 label"),
        ({0: 1, 9: 2}, "2: the largest is '9' with 2 labels, the smallest is 'cat' with 1"),
        ({0: 0}, "4 named"),
        ({}, "4 named"),
    ],
)
def test_classes_in_words(labels: dict[int, int], text: str) -> None:
    overview = class_overview({"train": Statistics(labels=Counter(labels))}, NAMES)
    assert class_texts(overview, len(NAMES)) == {"classes": text}


def test_classes_of_masks_are_counted_in_pixels() -> None:
    statistics = {
        "train": Statistics(pixels=Counter({0: 700, 2: 30})),
        "val": Statistics(pixels=Counter({2: 5, 255: 9000})),  # 255 is ignored
    }
    assert class_texts(class_overview(statistics, {2: "bird"}), 1) == {
        "mask classes": "2: the largest is '0' with 700 pixels, the smallest is 'bird' with 35"
    }


def test_shares_of_classes_in_masks() -> None:
    def masked(pixels: dict[int, int], images: dict[int, int]) -> Statistics:
        return Statistics(pixels=Counter(pixels), pixel_images=Counter(images))

    train = masked({0: 500, 2: 200, 255: 1000}, {0: 3, 2: 2, 255: 3})
    val = masked({0: 100, 1: 200}, {0: 1, 1: 1})
    assert pixel_shares({"train": train, "val": val}, NAMES) == [
        ("cat", 0.6, 4),
        ("dog", 0.2, 1),
        ("bird", 0.2, 2),
        ("", 0.5, 3),
    ]
    assert pixel_shares({"val": val}, {1: "dog"}) == [("dog", 2 / 3, 1), ("0", 1 / 3, 1)]
    assert pixel_shares({"train": masked({255: 9}, {255: 1})}, NAMES) == [("", 1, 1)]
    assert pixel_shares({}, NAMES) == []


def test_no_class_at_all() -> None:
    assert class_texts(class_overview({"train": Statistics(records=3)}, {}), 0) == {"classes": "none"}


def test_a_source() -> None:
    source = {"kind": "folder", "input": "/photos"}
    assert source_facts(source, "it holds images") == {
        "source": "folder (it holds images)",
        "input": "/photos",
    }
    assert source_facts(source, "") == {"source": "folder", "input": "/photos"}
    assert source_facts({"kind": "pcollection", "input": ""}, "") == {"source": "pcollection"}
