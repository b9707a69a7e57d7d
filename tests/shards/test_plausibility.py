"""Warnings about counts, and their words."""

from collections import Counter

import pytest

from recordmill.transforms.shards.overview import data_warnings
from recordmill.transforms.shards.statistics import Statistics

NAMES = {0: "cat", 1: "dog", 2: "bird"}


def labelled(*labels: int, unlabelled: int = 0) -> Statistics:
    """A record for each label, and some without."""
    records = len(labels) + unlabelled
    return Statistics(records=records, labels=Counter(labels), unlabelled=unlabelled)


def boxed(*images: list[int]) -> Statistics:
    """An image for each list of the classes of its boxes."""
    statistics = Statistics()
    for classes in images:
        statistics.add([(8, 8)], objects=classes, boxes=[(0.0, 0.0, 1.0, 1.0)] * len(classes))
    return statistics


def found(statistics: dict[str, Statistics], names: dict[int, str] = NAMES) -> dict[str, str]:
    """What is found, by kind."""
    return {one.kind: one.found for one in data_warnings(statistics, names)}


def test_a_plausible_dataset_has_no_warning() -> None:
    assert found({"train": labelled(0, 0, 1, 1), "val": labelled(0, 1)}) == {}
    assert found({"train": boxed([0], [0, 0], [0])}) == {}  # one class of objects is usual
    assert found({"train": Statistics(records=3, unlabelled=3)}) == {}
    assert found({}) == {}


def test_a_single_class() -> None:
    (warning,) = data_warnings({"train": labelled(*[0] * 1200), "val": labelled(0, 0)}, NAMES)
    assert (warning.kind, warning.found) == ("single_class", "all 1,202 labels are 'cat'")
    assert warning.text == (
        "all 1,202 labels are 'cat'. Check that --input is the folder that holds the folders of the classes, "
        "or that --label_column or --label_pattern finds the class"
    )
    assert found({"train": labelled(0)}) == {}


def test_a_class_for_each_record() -> None:
    assert found({"train": labelled(0, 1, 3, 4), "val": labelled(2)}) == {
        "class_for_each_record": "there are 5 classes, one for each record with a label"
    }
    assert found({"train": labelled(0, 1, 2, 3)}) == {}  # too few to say
    assert found({"train": labelled(0, 1, 2, 3, 4, 4)}) == {}
    assert found({"train": boxed([0], [1], [2], [3], [4])}) == {
        "class_for_each_record": "there are 5 classes, one for each image with boxes"
    }
    assert found({"train": boxed(*[[0, 1, 2, 3, 4]] * 5)}) == {}  # few images of many objects


def test_an_identifier_next_to_other_labels() -> None:
    statistics = Statistics()
    for number in range(10):
        statistics.add([(8, 8)], [number, 100 + number % 2])
    assert list(found({"train": statistics}, {})) == ["class_for_each_record"]


def test_attributes_of_few_images_are_no_identifiers() -> None:
    statistics = Statistics()
    for number in range(10):
        statistics.add([(8, 8)], [number, number + 1, number + 2, 20 + number % 4])
    assert found({"train": statistics}, {}) == {}


@pytest.mark.parametrize(("few", "is_tiny"), [(1, True), (2, False)])
def test_a_tiny_split(few: int, is_tiny: bool) -> None:
    statistics = {"train": Statistics(records=2000), "val": Statistics(records=few)}
    expected = {"tiny_split": "split 'train' has 2,000 records, and 'val' has 1"} if is_tiny else {}
    assert found(statistics) == expected


def test_many_tiny_splits() -> None:
    tiny = {f"s{number}": Statistics(records=number) for number in range(6)}
    assert found({**tiny, "train": Statistics(records=10_000)}) == {
        "tiny_split": "split 'train' has 10,000 records, and 's0' has 0, 's1' has 1, 's2' has 2, 's3' has 3 "
        "and 2 more"
    }


def test_records_without_a_label() -> None:
    assert found({"train": labelled(0, 1, 0, unlabelled=2)}) == {
        "unlabelled_records": "2 of 5 records have no label"
    }
    assert found({"train": labelled(0, 1, 0), "val": labelled(unlabelled=4)}) == {
        "unlabelled_records": "4 of 7 records have no label (val 4 of 4)"
    }


def test_an_image_with_boxes_needs_no_label() -> None:
    statistics = boxed([0], [1, 1])
    statistics.add([(8, 8)], [0], [1], [(0.0, 0.0, 1.0, 1.0)])
    statistics.add([(8, 8)], [1], [1], [(0.0, 0.0, 1.0, 1.0)])
    assert found({"train": statistics}) == {}


def test_masks_of_one_class() -> None:
    of_masks = Statistics(records=2, unlabelled=2, pixels=Counter({0: 1500, 255: 7}))  # 255 is ignored
    assert found({"train": of_masks, "val": of_masks}) == {
        "single_class": "all 3,000 pixels of masks are 'cat'"
    }
    of_masks.pixels[1] = 1
    assert found({"train": of_masks}) == {}


def test_images_without_boxes() -> None:
    assert found({"train": boxed([0], [], [1, 0], []), "val": boxed([0])}) == {
        "images_without_boxes": "2 of 5 images have no box (train 2 of 4)"
    }
    assert found({"train": boxed([], [])}, {0: "cat"}) == {
        "images_without_boxes": "2 of 2 images have no box"
    }


def test_captions_need_no_boxes() -> None:
    assert found({"train": boxed([], [])}, {}) == {}


def test_labelled_images_need_no_boxes() -> None:
    statistics = boxed([], [])
    statistics.add([(8, 8)], [0], [], [])
    statistics.add([(8, 8)], [1], [], [])
    assert found({"train": statistics}) == {"unlabelled_records": "2 of 4 records have no label"}


def spelled(*names: str) -> dict[str, str]:
    """What is found where two records have each of these classes."""
    numbers = [number for number in range(len(names)) for _ in range(2)]
    return found({"train": labelled(*numbers)}, dict(enumerate(names)))


@pytest.mark.parametrize(
    "names",
    [
        ("Cat", "cat"),
        ("cat", " cat "),
        ("traffic light", "traffic_light"),
        ("traffic-light", "Traffic  Light"),
        ("Straße", "STRASSE"),
        ("caf\u00e9", "cafe\u0301"),
    ],
)
def test_spellings_of_one_class(names: tuple[str, str]) -> None:
    first, second = sorted(names)
    assert spelled(*names, "other") == {
        "class_spelling": f"1 class has more than one spelling: {first!r} (2), {second!r} (2)"
    }


@pytest.mark.parametrize("names", [("A", "a"), ("1", "-1"), ("_", "-"), ("cat", "cats"), ("a1", "a11")])
def test_names_that_are_no_spellings_of_one(names: tuple[str, str]) -> None:
    assert spelled(*names) == {}


def test_many_spellings_are_shown_by_example() -> None:
    names = [name for number in range(5) for name in (f"class {number}", f"Class {number}")]
    assert spelled(*names, "CLASS 0", "class_0", "class-0") == {
        "class_spelling": "5 classes have more than one spelling: "
        "'CLASS 0' (2), 'Class 0' (2), 'class 0' (2), 'class-0' (2), …; "
        "'Class 1' (2), 'class 1' (2); 'Class 2' (2), 'class 2' (2); and 2 more"
    }


def test_spellings_that_no_record_has_do_not_count() -> None:
    names = {0: "cat", 1: "Cat", 2: "dog"}
    assert found({"train": labelled(0, 0, 2, 2)}, names) == {}
    # of masks, whose classes are not counted
    assert found({"train": Statistics(records=2, unlabelled=2)}, names) == {
        "class_spelling": "1 class has more than one spelling: 'Cat', 'cat'"
    }


def test_names_are_quoted_and_cut() -> None:
    hostile = {0: "x" * 99, 1: "a\u202e\n"}
    assert found({"train": labelled(0, 0)}, hostile) == {"single_class": f"all 2 labels are '{'x' * 60}…'"}
    assert found({"train": labelled(1, 1)}, hostile) == {"single_class": "all 2 labels are 'a\\u202e\\n'"}
    assert found({"train": labelled(7, 7)}, hostile) == {"single_class": "all 2 labels are '7'"}


def test_the_order_of_warnings_and_of_splits_is_fixed() -> None:
    statistics = {"train": labelled(*[0, 1] * 2000, unlabelled=1), "val": boxed([0], [])}
    names = {0: "cat", 1: "Cat"}
    kinds = ["tiny_split", "unlabelled_records", "class_spelling", "images_without_boxes"]
    assert [one.kind for one in data_warnings(statistics, names)] == kinds
    assert data_warnings(statistics, names) == data_warnings(statistics, names)
