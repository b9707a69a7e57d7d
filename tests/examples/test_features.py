"""Values into features: every type the tutorials name, and what is refused."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.examples.features import (
    Feature,
    build_example,
    build_sequence_example,
    bytes_feature,
    feature,
    float_feature,
    int64_feature,
)
from recordmill.transforms.records import BadInput
from tests.lazy import tf


class Colour(enum.Enum):
    RED = 1
    NAME = "red"
    HALF = 0.5


class Size(enum.IntEnum):
    BIG = 3


MAX, MIN = 2**63 - 1, -(2**63)

INTEGERS: list[tuple[Any, list[int]]] = [
    (True, [1]),
    (7, [7]),
    (MAX, [MAX]),
    (MIN, [MIN]),
    (Colour.RED, [1]),
    (Size.BIG, [3]),
    (np.bool_(True), [1]),
    *(
        (dtype(5), [5])
        for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
    ),
    (np.uint64(MAX), [MAX]),
    (np.array(4, np.int32), [4]),
    (np.array([[1, 2], [3, 4]], np.uint8), [1, 2, 3, 4]),
    (np.array([[1, 2], [3, 4]], np.int64).T, [1, 3, 2, 4]),
    (np.array([], np.int32), []),
    (np.array([True, False]), [1, 0]),
    ([1, True, np.int32(3), Size.BIG], [1, 1, 3, 3]),
    ((1, 2), [1, 2]),
    ([[1, 2], [3, 4]], [1, 2, 3, 4]),
    ([np.array([1, 2]), [3, 4]], [1, 2, 3, 4]),
    (np.array([1, 2], object), [1, 2]),
]
FLOATS: list[tuple[Any, list[float]]] = [
    (1.5, [1.5]),
    (Colour.HALF, [0.5]),
    (np.float16(1.5), [1.5]),
    (np.float32(0.1), [float(np.float32(0.1))]),
    (np.float64(1.5), [1.5]),
    (np.longdouble(1.5), [1.5]),
    (float("inf"), [float("inf")]),
    (3.4028234663852886e38, [3.4028234663852886e38]),
    (np.array([[1.5], [2.5]]), [1.5, 2.5]),
    (np.array([], np.float32), []),
    ([1, 2.5], [1, 2.5]),
]
TEXTS: list[tuple[Any, list[bytes]]] = [
    (b"\x00\xff", [b"\x00\xff"]),
    ("é", ["é".encode()]),
    ("", [b""]),
    (bytearray(b"ab"), [b"ab"]),
    (memoryview(b"ab"), [b"ab"]),
    (Colour.NAME, [b"red"]),
    (np.str_("ab"), [b"ab"]),
    (np.bytes_(b"ab"), [b"ab"]),
    (np.array(["a", "bc"]), [b"a", b"bc"]),
    (np.array([b"a", b"bc"]), [b"a", b"bc"]),
    (np.array(["a", b"b"], object), [b"a", b"b"]),
    (["a", b"b"], [b"a", b"b"]),
    ([["a"], ["b"]], [b"a", b"b"]),
]


def _read_back(item: object) -> tuple[str, list[Any]]:
    """The kind and values of a feature, as TensorFlow's own message reads them."""
    message = tf.train.Example.FromString(build_example({"x": item})).features.feature["x"]
    kind = message.WhichOneof("kind")
    return kind, list(getattr(message, kind).value)


@pytest.mark.parametrize(("value", "expected"), INTEGERS)
def test_integers(value: Any, expected: list[int]) -> None:
    assert _read_back(int64_feature(value)) == ("int64_list", expected)
    assert _read_back(value) == ("int64_list", expected)
    assert _read_back(float_feature(value)) == (
        "float_list",
        [float(np.float32(number)) for number in expected],
    )


@pytest.mark.parametrize(("value", "expected"), FLOATS)
def test_floats(value: Any, expected: list[float]) -> None:
    assert _read_back(float_feature(value)) == ("float_list", expected)
    assert _read_back(value) == ("float_list", expected)


@pytest.mark.parametrize(("value", "expected"), TEXTS)
def test_bytes_and_text(value: Any, expected: list[bytes]) -> None:
    assert _read_back(bytes_feature(value)) == ("bytes_list", expected)
    assert _read_back(value) == ("bytes_list", expected)


def test_tensors() -> None:
    test_integers(tf.constant([[1, 2]]), [1, 2])
    test_floats(tf.constant(2.5), [2.5])
    test_bytes_and_text(tf.constant("ab"), [b"ab"])


def test_nan_is_kept() -> None:
    kind, values = _read_back([float("nan"), 1.0])
    assert (kind, np.isnan(values).tolist()) == ("float_list", [True, False])


@pytest.mark.parametrize(
    ("builder", "kind"),
    [(int64_feature, "int64_list"), (float_feature, "float_list"), (bytes_feature, "bytes_list")],
)
@pytest.mark.parametrize("empty", [[], (), [[], []]])
def test_an_empty_list_keeps_its_kind(builder: Any, kind: str, empty: Any) -> None:
    assert _read_back(builder(empty)) == (kind, [])


@pytest.mark.parametrize(
    ("builder", "value", "reason"),
    [
        (int64_feature, 2**63, "number out of range"),
        (int64_feature, MIN - 1, "number out of range"),
        (int64_feature, np.uint64(2**63), "number out of range"),
        (int64_feature, np.array([1, 2**63], np.uint64), "number out of range"),
        (int64_feature, [1, 2**64], "number out of range"),
        (int64_feature, 1.0, "value of the wrong kind"),
        (int64_feature, np.array([1.0]), "value of the wrong kind"),
        (int64_feature, "1", "value of the wrong kind"),
        (float_feature, 1e39, "number out of range"),
        (float_feature, [1.0, -1e300], "number out of range"),
        (float_feature, np.array([1e39]), "number out of range"),
        (float_feature, "1.0", "value of the wrong kind"),
        (bytes_feature, 1, "value of the wrong kind"),
        (bytes_feature, np.zeros(3, np.uint8), "value of the wrong kind"),
        (bytes_feature, "\ud800", "text is not valid Unicode"),
        (feature, [], "empty list of unknown kind"),
        (feature, [1, "a"], "text and numbers in one list"),
        (feature, [1.5, b"a"], "text and numbers in one list"),
        (feature, [[1, 2], [3]], "ragged list"),
        (feature, [1, [2]], "ragged list"),
        (feature, [np.zeros(2), np.zeros(3)], "ragged list"),
        (feature, None, "type that no feature can hold"),
        (feature, [1, None], "type that no feature can hold"),
        (feature, 1j, "type that no feature can hold"),
        (feature, np.array([1j]), "type that no feature can hold"),
        (feature, {"a": 1}, "type that no feature can hold"),
        (feature, {1, 2}, "type that no feature can hold"),
        (feature, np.datetime64("2020-01-01"), "type that no feature can hold"),
        (feature, np.array(["2020-01-01"], "datetime64[D]"), "type that no feature can hold"),
        (feature, __import__("datetime").date(2020, 1, 1), "type that no feature can hold"),
        (feature, np.array([None], object), "type that no feature can hold"),
    ],
)
def test_what_does_not_fit_is_refused(builder: Any, value: Any, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        builder(value)
    assert (caught.value.stage, caught.value.reason) == ("build", reason)
    assert caught.value.detail


def test_fixed_length() -> None:
    assert int64_feature([[1, 2], [3, 4]], fixed_length=4).values == [1, 2, 3, 4]
    for builder, value in (
        (int64_feature, 5),
        (float_feature, [1.0]),
        (bytes_feature, "a"),
        (feature, [1, 2, 3]),
    ):
        assert len(builder(value, fixed_length=len(builder(value).values)).values) == len(
            builder(value).values
        )
        with pytest.raises(BadInput, match=r"wrong number of values \(got \d, expected 2\)"):
            builder(value, fixed_length=2)


def test_the_name_of_a_refused_feature_is_told() -> None:
    with pytest.raises(BadInput, match=r"feature 'when': got 1j of type complex"):
        build_example({"ok": 1, "when": 1j})


SCALARS = st.one_of(
    st.integers(MIN, MAX),
    st.floats(width=32, allow_nan=False),
    st.text(st.characters(codec="utf-8")),
    st.binary(),
)


@settings(deadline=None)  # a busy machine is no failure
@given(st.dictionaries(st.text(st.characters(codec="utf-8")), SCALARS))
def test_bytes_are_those_of_tensorflow(values: dict[str, Any]) -> None:
    theirs = tf.train.Example()
    for name, value in values.items():
        message = theirs.features.feature[name]
        if isinstance(value, int):
            message.int64_list.value.append(value)
        elif isinstance(value, float):
            message.float_list.value.append(value)
        else:
            message.bytes_list.value.append(value if isinstance(value, bytes) else value.encode())
    ours = build_example(values)
    if values:  # an Example without features: ours keeps the empty Features message or leaves it out
        assert ours == theirs.SerializeToString(deterministic=True)
    assert tf.train.Example.FromString(ours).features == theirs.features


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.data())
def test_arrays_flatten_row_major(shape: list[int], data: Any) -> None:
    array = np.arange(
        np.prod(shape), dtype=data.draw(st.sampled_from([np.int32, np.float32, np.uint16]))
    ).reshape(shape)
    transposed = array.transpose(data.draw(st.permutations(range(array.ndim))))
    expected = list(transposed.flatten(order="C"))
    assert list(feature(transposed).values) == expected
    assert list(feature(transposed.tolist()).values) == expected


def test_sequence_example_is_that_of_tensorflow() -> None:
    words = ["one", "two"]
    ours = build_sequence_example(
        {"id": 7, "name": "clip"},
        {"words": words, "boxes": [np.array([0.5, 1.0], np.float32), float_feature([])], "none": []},
    )
    feature_ = tf.train.Feature
    theirs = tf.train.SequenceExample(
        context=tf.train.Features(
            feature={
                "id": feature_(int64_list=tf.train.Int64List(value=[7])),
                "name": feature_(bytes_list=tf.train.BytesList(value=[b"clip"])),
            }
        ),
        feature_lists=tf.train.FeatureLists(
            feature_list={
                "words": tf.train.FeatureList(
                    feature=[feature_(bytes_list=tf.train.BytesList(value=[w.encode()])) for w in words]
                ),
                "boxes": tf.train.FeatureList(
                    feature=[
                        feature_(float_list=tf.train.FloatList(value=[0.5, 1.0])),
                        feature_(float_list=tf.train.FloatList()),
                    ]
                ),
                "none": tf.train.FeatureList(),
            }
        ),
    )
    assert ours == theirs.SerializeToString(deterministic=True)
    context, lists = tf.io.parse_single_sequence_example(
        ours,
        {"id": tf.io.FixedLenFeature([], tf.int64)},
        {"words": tf.io.FixedLenSequenceFeature([], tf.string), "boxes": tf.io.VarLenFeature(tf.float32)},
    )
    assert int(context["id"]) == 7
    assert lists["words"].numpy().tolist() == [b"one", b"two"]
    assert tf.sparse.to_dense(lists["boxes"]).numpy().tolist() == [[0.5, 1.0], [0.0, 0.0]]


def test_steps_of_one_kind() -> None:
    with pytest.raises(BadInput, match=r"steps of different kinds \(feature list 'x'"):
        build_sequence_example({}, {"x": [1, "a"]})


def test_a_feature_is_what_its_builder_says() -> None:
    assert int64_feature(3) == Feature("int64_list", (3,))
    assert bytes_feature("a") == Feature("bytes_list", (b"a",))
