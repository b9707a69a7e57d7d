"""Labels to ids, and the names that belong to them."""

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.examples.labels import LabelMap, read_label_file
from transforms.records import BadInput


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
