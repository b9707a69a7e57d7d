"""--mask_values and --ignore_label: which values and classes they mean, and what is refused."""

from collections.abc import Mapping
from typing import Any

import pytest

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.examples.mask_values import with_mask_values
from recordmill.transforms.records import BadInput

ROADS = {0: "background", 1: "road", 2: "car", 11: "void"}
NUMBERS = LabelMap.build([], offset=3)
MASKS, DRAWN = frozenset({"class"}), frozenset({"objects", "object_masks"})


def roads(**options: Any) -> LabelMap:
    return LabelMap.build([], classes=ROADS, **options)


def changed(
    labels: LabelMap, values: Mapping[str, str], annotated: frozenset[str] = MASKS, used: Any = ()
) -> LabelMap:
    return with_mask_values(labels, values, annotated, used)


@pytest.mark.parametrize(
    ("labels", "values", "stored"),
    [
        (roads(), {"11": "255"}, {0: 0, 1: 1, 2: 2, 11: 255}),
        (roads(), {"void": "255", "car": "road"}, {0: 0, 1: 1, 2: 1, 11: 255}),
        (roads(offset=3), {"11": "0", "car": "1"}, {0: 3, 1: 4, 2: 4, 11: 3}),
        # Values without a name.
        (roads(), {"34": "255", "35": "road", "11": "40"}, {34: 255, 35: 1, 11: 40}),
        (NUMBERS, {"34": "0", "7": "255"}, {34: 3, 7: 255, 8: 11, 0: 3}),
        # The offset alone would make it negative.
        (LabelMap.build([], offset=-1), {"0": "255"}, {0: 255, 1: 0}),
        # Ids of a label file.
        (
            roads(names=["car", "road", "void", "background"]),
            {"void": "255", "2": "road"},
            {2: 1, 1: 1, 11: 255},
        ),
        # The name of a class is no value.
        (LabelMap.build([], classes={0: "5", 1: "6", 5: "x"}), {"5": "255"}, {0: 255, 1: 1, 5: 5}),
    ],
)
def test_values_of_masks(labels: LabelMap, values: dict[str, str], stored: dict[int, int]) -> None:
    found = changed(labels, values)
    assert {value: found.mask_id(value) for value in stored} == stored


def test_a_class_that_the_label_file_lacks() -> None:
    labels = roads(names=["background", "road", "car"])
    found = with_mask_values(labels, {"void": "255"}, MASKS, (), ROADS)
    assert ([found.mask_id(value) for value in ROADS], len(found.labels)) == ([0, 1, 2, 255], 3)
    with pytest.raises(ValueError, match="'void' is no class; the classes are background, road, car"):
        with_mask_values(labels, {"car": "void"}, MASKS, (), ROADS)


def test_the_background_of_a_label_file_without_it_has_its_name() -> None:
    labels = roads(names=["car", "road", "void"])
    found = with_mask_values(labels, {"void": "background"}, MASKS, (), ROADS)
    assert [found.mask_id(value) for value in ROADS] == [0, 2, 1, 0]


def test_a_value_without_a_class_still_fails() -> None:
    with pytest.raises(BadInput, match="value 34 is none of the 3 classes"):
        changed(roads(), {"void": "255"}).mask_id(34)


def test_ids_of_labels_in_masks() -> None:
    found = changed(roads(), {"void": "255", "2": "road"}, DRAWN)
    assert [found.in_masks(number) for number in (0, 1, 2, 11)] == [0, 1, 1, 255]
    assert [found.id_of(label) for label in ("road", "car", 2, "void")] == [1, 2, 2, 11]


def test_the_background_of_drawn_objects_has_a_name() -> None:
    labels = LabelMap.build(["cat", "dog"], first_id=1)
    found = changed(labels, {"background": "255", "cat": "dog"}, DRAWN)
    assert [found.in_masks(number) for number in range(3)] == [255, 2, 2]
    assert [changed(labels, {"cat": "0"}, DRAWN).in_masks(number) for number in range(3)] == [0, 0, 2]
    own = LabelMap.build([], classes={0: "cat", 1: "dog"}, first_id=1)
    assert changed(own, {"0": "255"}, DRAWN).in_masks(1) == 255


def test_names_of_classes_that_no_label_uses_leave() -> None:
    found = changed(roads(), {"void": "255", "car": "road"})
    assert found.labels == {0: "background", 1: "road"}
    assert found.class_names() == ("background", "road")
    found = changed(roads(), {"road": "255"})
    assert found.class_names() == (
        "background",
        "unused_1",
        "car",
        *(f"unused_{n}" for n in range(3, 11)),
        "void",
    )
    found = changed(roads(), {"void": "255", "car": "road"}, MASKS | DRAWN, used=["car"])
    assert (found.labels, found.text_of("car")) == ({0: "background", 1: "road", 2: "car"}, "car")
    assert changed(roads(), {"35": "34"}).labels == {**ROADS, 34: "34"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"255": "0"}, r"mask_values has 255=0: 255 is ignored already"),
        ({"1": "65536"}, "has 1=65536: 65536 is not a value of a mask, which has 0 to 65535"),
        ({"-1": "255"}, "ignore_label is '-1': -1 is not a value of a mask"),
        ({"a": "b", "b": "c"}, "has a=b: b is replaced, too; give a=c"),
        ({"a": "b", "b": "a"}, "has a=b: b is replaced by a; "),
        ({"a": "a"}, "has a=a: it replaces a class by itself"),
    ],
)
def test_what_is_wrong_whatever_the_classes_are(values: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DatasetConfig(mask_values=values)


@pytest.mark.parametrize(
    ("labels", "values", "message"),
    [
        (roads(), {"viod": "255"}, "'viod' is no class; the classes are background, road, car, void"),
        (roads(), {"car": "truck"}, "has car=truck: 'truck' is no class"),
        (NUMBERS, {"void": "255"}, "the classes have no names; give a value"),
        (roads(), {"car": "1", "2": "0"}, "car=1: car and 2 are one class; give one of them"),
        (roads(), {"car": "1", "road": "0"}, "car=1: road is replaced, too; give car=0"),
        (roads(), {"car": "2"}, "car=2: both are one class"),
        (roads(names=["x", "car", "y", "background", "road", "void"]), {"car": "5"}, "stored as 5, 'void'"),
        (
            roads(offset=250),
            {"void": "5"},
            "5 would be stored as 255; ids are 0 to 65535, and 255 is to ignore",
        ),
    ],
)
def test_what_does_not_fit_the_classes(labels: LabelMap, values: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        changed(labels, values)


def test_a_value_without_a_class_is_of_masks_of_classes_alone() -> None:
    with pytest.raises(ValueError, match="'34' is no class"):
        changed(roads(), {"34": "255"}, DRAWN)


def test_an_ignored_label_is_a_value_of_255() -> None:
    config = DatasetConfig(mask_values={"1": "2"}, ignore_label=("11", "void"), schema="segmentation")
    assert config == DatasetConfig(mask_values={"1": "2", "11": "255", "void": "255"}, schema="segmentation")
    assert config.as_json()["mask_values"] == {"1": "2", "11": "255", "void": "255"}
    assert "mask_values" not in DatasetConfig().as_json()
    with pytest.raises(ValueError, match="ignore_label is '1', and DatasetConfig.mask_values has 1=2"):
        DatasetConfig(mask_values={"1": "2"}, ignore_label=("1",))
    with pytest.raises(
        ValueError, match="mask_values changes masks, and DatasetConfig.schema=detection stores"
    ):
        DatasetConfig(mask_values={"1": "2"}, schema="detection")
