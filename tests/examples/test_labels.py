"""Labels to ids, and the names that belong to them."""

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.examples.labels import LabelMap, read_label_file
from recordmill.transforms.records import BadInput


@pytest.mark.parametrize(
    ("labels", "names", "offset", "ids"),
    [
        (["dog", "cat"], None, 0, {"cat": 0, "dog": 1}),
        (["dog", "cat"], None, 1, {"cat": 1, "dog": 2}),
        (["b", "B", "é", "a"], None, 0, {"B": 0, "a": 1, "b": 2, "é": 3}),
        ([3, 7], None, 0, {3: 3, 7: 7}),
        (["3", "12", "0"], None, 0, {"0": 0, "3": 3, "12": 12}),
        ([3, "3"], None, 0, {3: 3, "3": 3}),
        ([1, 2], None, -1, {1: 0, 2: 1}),
        (["0", "007"], None, 0, {"0": 0, "007": 1}),
        # Integers that pandas wrote as floats.
        (["0.0", "2.0", "11.0"], None, 0, {"0.0": 0, "2.0": 2, "11.0": 11}),
        (["3.0", "3", 3, "4.00"], None, 1, {"3.0": 4, "3": 4, 3: 4, "4.00": 5}),
        (["0.0", "1.5", "10.0"], None, 0, {"0.0": 0, "1.5": 1, "10.0": 2}),
        (["1.0", "2.0"], ["dog", "cat", "owl"], 0, {"1.0": 1, "2.0": 2}),
        (["1.0", "2.0"], ["2.0", "1.0"], 0, {"1.0": 1, "2.0": 0}),
        (["10", "9", "x"], None, 0, {"10": 0, "9": 1, "x": 2}),
        ([10, "9", "x"], None, 0, {10: 0, "9": 1, "x": 2}),
        # Too long for an id, so a name.
        (["1", "9" * 19], None, 0, {"1": 0, "9" * 19: 1}),
        (["1", "9" * 5000], None, 0, {"1": 0, "9" * 5000: 1}),
        (["dog", "cat"], ["dog", "cat", "owl"], 0, {"dog": 0, "cat": 1, "owl": 2}),
        ([0, "2"], ["dog", "cat", "owl"], 1, {0: 1, "2": 3, "owl": 3}),
        # Names that are integers are looked up by name; an integer is still a line number.
        (["10", "20"], ["20", "10"], 0, {"20": 0, "10": 1, 1: 1}),
        (["-1", "1"], ["-1", "1"], 0, {"-1": 0, "1": 1}),
        ([], None, 0, {}),
    ],
)
def test_ids(labels: list[Any], names: list[str] | None, offset: int, ids: dict[Any, int]) -> None:
    label_map = LabelMap.build(labels, names, offset)
    assert {label: label_map.id_of(label) for label in ids} == ids


@pytest.mark.parametrize(
    ("labels", "names", "offset", "label", "reason", "detail"),
    [
        ([0, 1, -1], None, 0, -1, "negative label", "label -1, offset 0"),
        (["0", "-1"], None, 0, "-1", "negative label", "label -1, offset 0"),
        ([0, 1], None, -1, 0, "negative label", "label 0, offset -1"),
        ([2**63], None, 0, 2**63, "unknown label", "9223372036854775808"),
        ([2**63 - 1], None, 1, 2**63 - 1, "unknown label", "9223372036854775807"),
        (["cat"], ["dog"], 0, "cat", "unknown label", "label 'cat' is none of the 1 classes"),
        ([1], ["dog"], 0, 1, "unknown label", "label 1"),
        (["1"], ["10", "20"], 0, "1", "unknown label", "label '1'"),
        ([-1], ["dog"], 0, -1, "negative label", "label -1"),
    ],
)
def test_labels_without_an_id(
    labels: list[Any], names: list[str] | None, offset: int, label: Any, reason: str, detail: str
) -> None:
    label_map = LabelMap.build(labels, names, offset)
    for method in (label_map.id_of, label_map.text_of):
        with pytest.raises(BadInput) as caught:
            method(label)
        assert (caught.value.stage, caught.value.reason) == ("build", reason)
        assert detail in caught.value.detail


def test_a_bad_label_leaves_the_others_their_ids() -> None:
    label_map = LabelMap.build(["5", "-3", "7"])
    assert label_map.labels == {5: "5", 7: "7"}


def test_integers_written_as_floats_are_the_integers() -> None:
    floats = LabelMap.build([f"{number}.0" for number in range(12)], first_id=1)
    integers = LabelMap.build([str(number) for number in range(12)], first_id=1)
    assert floats.class_names() == integers.class_names()
    assert [floats.id_of(f"{number}.0") for number in range(12)] == list(range(1, 13))
    assert floats.text_of("2.0") == "2"
    with pytest.raises(BadInput, match="negative label"):
        LabelMap.build(["0.0", "-1.0"]).id_of("-1.0")


def test_texts_and_mapping() -> None:
    assert LabelMap.build(["dog", "cat"], offset=1).labels == {1: "cat", 2: "dog"}
    by_file = LabelMap.build([1], ["dog", "cat"])
    assert (by_file.text_of(1), by_file.text_of("dog"), by_file.labels) == (
        "cat",
        "dog",
        {0: "dog", 1: "cat"},
    )
    assert LabelMap.build(["7"], offset=1).text_of("7") == "7"


def test_an_offset_cannot_make_a_named_class_negative() -> None:
    with pytest.raises(
        ValueError, match="^--label_offset is -1; named classes are numbered from 0, so it must be 0 or more$"
    ):
        LabelMap.build(["cat"], offset=-1)
    with pytest.raises(ValueError, match="^--label_offset is -1, .* class 'cat' -1; .* be 0 or more$"):
        LabelMap.build(["cat"], ["cat"], offset=-1)


@pytest.mark.parametrize(
    ("labels", "names", "offset", "expected"),
    [
        (["dog", "cat"], None, 0, ("cat", "dog")),
        (["cat"], None, 1, ("unused_0", "cat")),
        ([1, 4], None, 0, ("unused_0", "1", "unused_2", "unused_3", "4")),
        (["unused_0"], None, 1, ("unused_0 (0)", "unused_0")),
        (["a\nb", "a b", " ", "a\x00b"], None, 0, ("class_0", "a b", "a b (2)", "a b (3)")),
        ([" cat", "cat", "cat (1)"], None, 0, ("cat", "cat (1)", "cat (1) (2)")),
        (["\ud800"], None, 0, ("?",)),
        ([], None, 0, None),
        ([200_000], None, 0, None),
        ([100_000], None, 0, (*(f"unused_{i}" for i in range(100_000)), "100000")),
    ],
)
def test_class_names(labels: list[Any], names: Any, offset: int, expected: tuple[str, ...] | None) -> None:
    assert LabelMap.build(labels, names, offset).class_names() == expected


def test_many_real_classes_keep_their_names() -> None:
    names = LabelMap.build(f"class {number}" for number in range(150_000)).class_names()
    assert names is not None
    assert len(names) == 150_000


@settings(deadline=None)  # a busy machine is no failure
@given(st.sets(st.one_of(st.text(), st.integers(0, 300)), max_size=30), st.integers(0, 3))
def test_class_names_are_fit_for_a_file(labels: set[Any], offset: int) -> None:
    label_map = LabelMap.build(labels, offset=offset)
    names = label_map.class_names() or ()
    assert len(set(names)) == len(names)
    # As TFDS reads the file.
    assert [name.strip() for name in "\n".join(names).split("\n") if name.strip()] == list(names)
    for label in labels:
        assert 0 <= label_map.id_of(label) < len(names)


@settings(deadline=None)  # a busy machine is no failure
@given(st.sets(st.one_of(st.text(), st.integers()), max_size=30), st.randoms())
def test_order_does_not_matter(labels: set[Any], random: Any) -> None:
    shuffled = list(labels)
    random.shuffle(shuffled)
    assert LabelMap.build(shuffled) == LabelMap.build(sorted(labels, key=repr))


def test_pickles() -> None:
    label_map = LabelMap.build(["a", "b"], offset=1)
    assert pickle.loads(pickle.dumps(label_map)) == label_map


@pytest.mark.parametrize(
    "text",
    ["dog\ncat", "dog\ncat\n", "\ufeffdog\r\ncat\r\n", "dog \n cat\n\n\n"],
    ids=["bare", "end", "bom", "blank"],
)
def test_read_label_file(text: str) -> None:
    assert read_label_file(text) == ("dog", "cat")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "label file is empty"),
        ("\n\n", "label file is empty"),
        ("dog\n\ncat", "line 2 of the label file is blank"),
        ("\ndog", "line 1 of the label file is blank"),
        ("dog\ncat\ndog\n", "lines 1 and 3 of the label file are both 'dog'"),
    ],
)
def test_bad_label_file(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_label_file(text)


COCO = {1: "person", 3: "car", 90: "toothbrush"}
VOC = {0: "background", 1: "aeroplane", 2: "bicycle"}
YOLO = {0: "person", 1: "car"}


@pytest.mark.parametrize(
    ("classes", "names", "offset", "first_id", "ids", "mask_ids"),
    [
        # The source's own ids, moved only where the schema's ids begin at 1.
        (COCO, None, None, 0, {"person": 1, 3: 3, "90": 90}, {0: 0, 1: 1, 90: 90}),
        (COCO, None, None, 1, {"person": 1, "toothbrush": 90}, {0: 0, 3: 3}),
        (VOC, None, None, 1, {"aeroplane": 1, "background": 0}, {0: 0, 2: 2}),
        (YOLO, None, None, 0, {"person": 0, "car": 1}, {0: 0, 1: 1}),
        (YOLO, None, None, 1, {"person": 1, 0: 1, "1": 2}, {0: 1, 1: 2}),
        ({0: "a", 1: "background"}, None, None, 1, {"a": 1, "background": 2}, {0: 1}),
        (COCO, None, 10, 1, {"person": 11, 90: 100}, {0: 0, 1: 11}),
        (COCO, None, -1, 1, {"person": 0, 90: 89}, {1: 0}),
        # Names that are integers are looked up by name.
        ({0: "10", 1: "20"}, None, None, 0, {"20": 1, 1: 1}, {1: 1}),
        # The label file's lines are the ids; the source's own ids are still its classes.
        (COCO, ["car", "person", "toothbrush"], None, 0, {"person": 1, 1: 1, 3: 0, "90": 2}, {1: 1, 3: 0}),
        (COCO, ["car", "person", "toothbrush"], None, 1, {"car": 1, 3: 1}, {0: 0, 3: 1}),
        (VOC, ["aeroplane", "bicycle"], None, 0, {"aeroplane": 1, 2: 2}, {0: 0, 1: 1}),
        (VOC, ["background", "bicycle", "aeroplane"], None, 1, {"bicycle": 1, 1: 2}, {0: 0, 1: 2, 2: 1}),
        (None, ["background", "dog"], None, 1, {"dog": 1, 1: 1}, {0: 0, 1: 1}),
        (None, ["cat", "dog"], None, 1, {"cat": 1, "dog": 2}, {0: 1, 1: 2}),
        (None, ["cat", "dog"], 5, 1, {"cat": 5, 1: 6}, {1: 6}),
        # A label map's ids are the ids; the source's own ids are still its classes, in masks too.
        (VOC, {1: "bicycle", 4: "aeroplane"}, None, 1, {"aeroplane": 4, 2: 1, "1": 4}, {0: 0, 1: 4, 2: 1}),
        (YOLO, {0: "car", 1: "person"}, None, 0, {0: 1, "car": 0}, {0: 1, 1: 0}),
        (None, {1: "cat", 4: "dog"}, None, 1, {"dog": 4, 1: 1, "4": 4}, {0: 0, 4: 4}),
        (None, {1: "cat", 4: "dog"}, -1, 0, {"cat": 0, 4: 3}, {1: 0, 4: 3}),
        # Neither: any value is its own id.
        (None, None, None, 0, {}, {0: 0, 7: 7, 300: 300}),
        (None, None, 2, 0, {}, {0: 2, 7: 9}),
    ],
)
def test_ids_of_classes_and_masks(
    classes: Any, names: Any, offset: int | None, first_id: int, ids: dict[Any, int], mask_ids: dict[int, int]
) -> None:
    label_map = LabelMap.build(ids, names, offset, classes, first_id=first_id)
    assert {label: label_map.id_of(label) for label in ids} == ids
    assert {value: label_map.mask_id(value) for value in mask_ids} == mask_ids


@pytest.mark.parametrize(
    ("labels", "first_id", "offset"),
    [
        ([0, 1], 0, 0),
        ([0, 1], 1, 1),
        (["0", "7"], 1, 1),
        ([1, 2], 1, 0),
        ([-3, 0, 1], 1, 1),
        ([5], 1, 0),
        (["cat", "dog"], 1, 1),
        (["cat", "dog"], 0, 0),
        ([], 1, 0),
    ],
)
def test_the_least_offset_that_the_schema_allows(labels: list[Any], first_id: int, offset: int) -> None:
    assert LabelMap.build(labels, first_id=first_id).offset == offset
    assert LabelMap.build(labels, offset=3, first_id=first_id).offset == 3


def test_every_class_is_in_the_map() -> None:
    label_map = LabelMap.build(["car"], classes={90: "toothbrush", 1: "person", 3: "car"}, first_id=1)
    assert list(label_map.labels.items()) == [(1, "person"), (3, "car"), (90, "toothbrush")]
    names = label_map.class_names()
    assert names is not None
    assert (len(names), names[1], names[3], names[90]) == (91, "person", "car", "toothbrush")
    assert names[0] == "unused_0"
    for label in ("bus", 2, "2", 91):
        with pytest.raises(BadInput, match="unknown label"):
            label_map.id_of(label)


@pytest.mark.parametrize(
    ("classes", "names", "offset", "value"),
    [
        (COCO, None, None, 2),
        (VOC, None, None, 3),
        (None, ["cat", "dog"], None, 2),
        # The class is not in the label file.
        (COCO, ["person"], None, 3),
        ({0: "cat", 1: "dog"}, ["dog"], 1, 0),
        # 0 is the background, but a class has that id.
        (COCO, None, -1, 0),
        (VOC, ["aeroplane", "bicycle"], 0, 0),
        # 255 marks what is not looked at.
        ({254: "last"}, None, 1, 254),
        (None, None, 1, 254),
        (None, None, -1, 0),
    ],
)
def test_values_of_masks_without_a_class(classes: Any, names: Any, offset: int | None, value: int) -> None:
    label_map = LabelMap.build([], names, offset, classes)
    with pytest.raises(BadInput) as caught:
        label_map.mask_id(value)
    assert (caught.value.stage, caught.value.reason) == ("annotations", "mask value without a class")
    assert f"value {value} " in caught.value.detail


def test_words_for_names_that_are_codes() -> None:
    texts = {"n01": "tench", "n02": "crane", "n03": "crane", "n99": "unknown"}
    label_map = LabelMap.build([], classes={0: "n01", 1: "n02", 2: "n03"}, texts=texts, first_id=1)
    assert (label_map.text_of("n01"), label_map.display_of("n01")) == ("n01", "tench")
    assert (label_map.display_of(1), label_map.display_of("n03")) == ("crane", "crane")
    # A label may be the words instead, if they are one class's alone.
    assert (label_map.id_of("tench"), label_map.text_of("tench")) == (1, "n01")
    for label in ("crane", "unknown"):
        with pytest.raises(BadInput, match="unknown label"):
            label_map.id_of(label)
    by_file = LabelMap.build([], ["crane bird", "tench"], None, {7: "n01"}, {"n01": "tench"})
    assert (by_file.id_of("n01"), by_file.id_of(7)) == (1, 1)
    by_map = LabelMap.build(
        [], {3: "/m/0k4j", 5: "/m/0bt9lr"}, None, {1: "dog", 2: "car"}, {"/m/0k4j": "car"}
    )
    assert (by_map.id_of("car"), by_map.id_of(2), by_map.text_of("car")) == (3, 3, "/m/0k4j")
    assert by_map.mask_id(2) == 3
    assert LabelMap.build(["a"], texts={"a": "Ann"}).display_of("a") == "Ann"


def test_two_classes_of_one_name_are_refused_only_where_it_is_a_label() -> None:
    classes = {1: "cat", 4: "cat"}
    assert LabelMap.build([1, 4], classes=classes).text_of(4) == "cat"
    with pytest.raises(ValueError, match="^classes 1 and 4 are both called 'cat'.* name them apart"):
        LabelMap.build(["cat"], classes=classes)


def test_an_offset_cannot_make_a_class_s_own_id_negative() -> None:
    with pytest.raises(
        ValueError, match="^--label_offset is -2, which .* class 'person' -1; .* be -1 or more$"
    ):
        LabelMap.build([], offset=-2, classes=COCO)
