"""Values into features: each type that is stored, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.examples import features as features_module
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
from tests import protos
from tests.lazy import tf

MAX, MIN = 2**63 - 1, -(2**63)

INTEGERS: list[tuple[Any, list[int]]] = [
    (True, [1]),
    (7, [7]),
    (MAX, [MAX]),
    (MIN, [MIN]),
    ([1, True], [1, 1]),
    ((1, 2), [1, 2]),
]
FLOATS: list[tuple[Any, list[float]]] = [
    (1.5, [1.5]),
    (float("inf"), [float("inf")]),
    (3.4028234663852886e38, [3.4028234663852886e38]),
    ([1, 2.5], [1, 2.5]),
]
TEXTS: list[tuple[Any, list[bytes]]] = [
    (b"\x00\xff", [b"\x00\xff"]),
    ("é", ["é".encode()]),
    ("", [b""]),
    (["a", b"b"], [b"a", b"b"]),
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


def test_nan_is_kept() -> None:
    kind, values = _read_back([float("nan"), 1.0])
    assert (kind, np.isnan(values).tolist()) == ("float_list", [True, False])


@pytest.mark.parametrize(
    ("builder", "kind"),
    [(int64_feature, "int64_list"), (float_feature, "float_list"), (bytes_feature, "bytes_list")],
)
@pytest.mark.parametrize("empty", [[], ()])
def test_an_empty_list_keeps_its_kind(builder: Any, kind: str, empty: Any) -> None:
    assert _read_back(builder(empty)) == (kind, [])


@pytest.mark.parametrize(
    ("builder", "value", "reason"),
    [
        (int64_feature, 2**63, "number out of range"),
        (int64_feature, MIN - 1, "number out of range"),
        (int64_feature, [1, 2**64], "number out of range"),
        (int64_feature, 1.0, "value of the wrong kind"),
        (int64_feature, "1", "value of the wrong kind"),
        (float_feature, 1e39, "number out of range"),
        (float_feature, [1.0, -1e300], "number out of range"),
        (float_feature, "1.0", "value of the wrong kind"),
        (bytes_feature, 1, "value of the wrong kind"),
        (bytes_feature, "\ud800", "text is not valid Unicode"),
        (feature, [1, "a"], "value of the wrong kind"),
        (feature, [1.5, b"a"], "value of the wrong kind"),
    ],
)
def test_what_does_not_fit_is_refused(builder: Any, value: Any, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        builder(value)
    assert (caught.value.stage, caught.value.reason) == ("build", reason)
    assert caught.value.detail


@pytest.mark.parametrize("value", [None, [1, None], 1j, {"a": 1}, [[1]], np.zeros(2)])
def test_types_that_no_feature_holds(value: Any) -> None:
    with pytest.raises(TypeError, match="a feature holds bool, int, float, text, bytes"):
        feature(value)


SCALARS = st.one_of(
    st.integers(MIN, MAX),
    st.floats(width=32, allow_nan=False),
    st.text(st.characters(codec="utf-8")),
    st.binary(),
)


KINDS = st.one_of(
    st.builds(Feature, st.just("int64_list"), st.lists(st.integers(MIN, MAX))),
    st.builds(Feature, st.just("float_list"), st.lists(st.floats() | st.integers(-1000, 1000))),
    st.builds(Feature, st.just("bytes_list"), st.lists(st.binary() | st.just(b"x" * 20_000))),
)
# Short names of few characters: many of them begin with another.
NAMES = st.text("ab/\u00e9\ufffd\U0001f600", max_size=3) | st.text(st.characters(codec="utf-8"))


@settings(deadline=None)
@given(st.dictionaries(NAMES, KINDS), st.dictionaries(NAMES, st.tuples(KINDS, st.integers(0, 3))))
def test_bytes_are_those_of_protobuf(
    features: dict[str, Feature], lists: dict[str, tuple[Feature, int]]
) -> None:
    def put(message: Any, item: Feature) -> None:
        getattr(message, item.kind).SetInParent()
        getattr(message, item.kind).value.extend(item.values)

    example, sequence = protos.Example(), protos.SequenceExample()
    for name, item in features.items():
        put(example.features.feature[name], item)
        put(sequence.context.feature[name], item)
    for name, (item, steps) in lists.items():
        every = sequence.feature_lists.feature_list[name].feature
        for _ in range(steps):
            put(every.add(), item)
    assert build_example(features) == example.SerializeToString(deterministic=True)
    repeated = {name: [item] * steps for name, (item, steps) in lists.items()}
    assert build_sequence_example(features, repeated) == sequence.SerializeToString(deterministic=True)


@pytest.mark.parametrize("number", [MAX + 1, MIN - 1])
def test_an_integer_beyond_int64_is_never_cut(number: int) -> None:
    with pytest.raises(OverflowError):
        build_example({"x": Feature("int64_list", (number,))})


def test_a_record_that_no_reader_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features_module, "_MOST_BYTES", 100)
    assert build_example({"x": bytes(80)})
    with pytest.raises(BadInput, match=r"record too large \(109 bytes; readers take up to 100\)"):
        build_example({"x": bytes(100 - 4)})


@pytest.mark.parametrize(
    "wrong",
    [
        Feature("int64_list", (300.5,)),
        Feature("bytes_list", (memoryview(b"a"),)),
        Feature("bytes_list", (b"a", "b")),
        Feature("float_list", ("1",)),
    ],
)
def test_values_of_another_type_are_refused(wrong: Feature) -> None:
    with pytest.raises(TypeError):
        build_example({"x": wrong})


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


def test_sequence_example_is_that_of_tensorflow() -> None:
    words = ["one", "two"]
    ours = build_sequence_example(
        {"id": 7, "name": "clip"},
        {"words": words, "boxes": [[0.5, 1.0], float_feature([])], "none": []},
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
    assert bytes_feature(b"a") == Feature("bytes_list", (b"a",))
