"""The types of free features over a whole dataset."""

import pickle
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.examples.columns import Column, ColumnTypes
from recordmill.transforms.records import BadInput, FeatureValue

ABSENT = object()


def _column(values: list[Any], untyped: bool) -> Column:
    types = ColumnTypes(untyped=untyped)
    for value in values:
        types.observe({} if value is ABSENT else {"x": value})
    return types.resolve(len(values))["x"]


def _stored(values: list[Any], column: Column) -> list[list[Any]]:
    return [list(column.feature(None if value is ABSENT else value).values) for value in values]


@pytest.mark.parametrize(
    ("cells", "kind", "shape", "stored"),
    [
        (["1", "-20", "0"], "int64", (), [[1], [-20], [0]]),
        (["1", ""], "int64", (None,), [[1], []]),
        (["1", ABSENT], "int64", (None,), [[1], []]),
        ([str(2**63 - 1), str(-(2**63))], "int64", (), [[2**63 - 1], [-(2**63)]]),
        (["1", str(2**63)], "bytes", (), [[b"1"], [b"9223372036854775808"]]),
        (["1", "2.5"], "float32", (), [[1.0], [2.5]]),
        (
            ["1e3", ".5", "5.", "-0", "inf", "-Infinity"],
            "float32",
            (),
            [[1e3], [0.5], [5.0], [-0.0], [float("inf")], [float("-inf")]],
        ),
        (["0.5", ""], "float32", (None,), [[0.5], []]),
        # Integers as pandas writes them where some are missing, and float32 would round one.
        (["1700000123.0", "", "1700000200.0"], "int64", (None,), [[1700000123], [], [1700000200]]),
        (["16777217", "5.0"], "int64", (), [[16777217], [5]]),
        (["16777216.0", "-3.0", "0.0"], "float32", (), [[16777216.0], [-3.0], [0.0]]),
        (["16777217.0", "0.5"], "float32", (), [[16777217.0], [0.5]]),
        (["16777217.0", "-0.0"], "float32", (), [[16777217.0], [-0.0]]),
        (["16777217.0", "5."], "float32", (), [[16777217.0], [5.0]]),
        (["16777217.0", "nan"], "float32", (), [[16777217.0], [pytest.approx(float("nan"), nan_ok=True)]]),
        (["16777217.0", "05.0"], "bytes", (), [[b"16777217.0"], [b"05.0"]]),
        (["9007199254740993.0", f"{-(2**63)}.0"], "int64", (), [[9007199254740993], [-(2**63)]]),
        ([f"{2**63}.0", "16777217.0"], "float32", (), [[float(2**63)], [16777217.0]]),
        (["[16777217.0, 1]", "[2, 3.0]"], "int64", (2,), [[16777217, 1], [2, 3]]),
        (["[16777217.0, 1.5]", "[2, 3]"], "float32", (2,), [[16777217.0, 1.5], [2.0, 3.0]]),
        (["0.5", "1e39"], "bytes", (), [[b"0.5"], [b"1e39"]]),
        (["0.5", "1e999"], "bytes", (), [[b"0.5"], [b"1e999"]]),
        (["1", "007"], "bytes", (), [[b"1"], [b"007"]]),
        (["1", "+5"], "bytes", (), [[b"1"], [b"+5"]]),
        (["1", " 5"], "bytes", (), [[b"1"], [b" 5"]]),
        (["1_000"], "bytes", (), [[b"1_000"]]),
        (["٣"], "bytes", (), [["٣".encode()]]),
        (["1", "a"], "bytes", (), [[b"1"], [b"a"]]),
        (["a", "", ABSENT], "bytes", (), [[b"a"], [b""], [b""]]),
        (["", ""], "bytes", (), [[b""], [b""]]),
        (["[1, 2]", "[3, 4]"], "int64", (2,), [[1, 2], [3, 4]]),
        (["[1, 2]", "[3]"], "int64", (None,), [[1, 2], [3]]),
        (["[1, 2]", "[]"], "int64", (None,), [[1, 2], []]),
        (["[1, 2]", ""], "int64", (None,), [[1, 2], []]),
        (["[1, 2]", "[0.5, 1]"], "float32", (2,), [[1.0, 2.0], [0.5, 1.0]]),
        (['["a", "é"]', '["c", "d"]'], "bytes", (2,), [[b"a", "é".encode()], [b"c", b"d"]]),
        (['["a"]', "[]"], "bytes", (None,), [[b"a"], []]),
        (['["a"]', "[1]"], "bytes", (), [[b'["a"]'], [b"[1]"]]),
        (["[1]", "1"], "bytes", (), [[b"[1]"], [b"1"]]),
        (["[]", "[]"], "bytes", (), [[b"[]"], [b"[]"]]),
        (["[[1]]"], "bytes", (), [[b"[[1]]"]]),
        (["[true]"], "bytes", (), [[b"[true]"]]),
        (["[1, null]"], "bytes", (), [[b"[1, null]"]]),
        (["[1,"], "bytes", (), [[b"[1,"]]),
        (["[" * 5000 + "]" * 5000], "bytes", (), [[b"[" * 5000 + b"]" * 5000]]),
        ([f"[{2**63}]"], "bytes", (), [[b"[9223372036854775808]"]]),
        (["[1e39]"], "bytes", (), [[b"[1e39]"]]),
    ],
)
def test_cells_of_a_csv_file(cells: list[Any], kind: str, shape: Any, stored: list[list[Any]]) -> None:
    column = _column(cells, untyped=True)
    assert (column.kind, column.shape, column.mixed) == (kind, shape, False)
    assert _stored(cells, column) == stored


@pytest.mark.parametrize(
    ("values", "kind", "shape", "mixed", "stored"),
    [
        ([1, 2], "int64", (), False, [[1], [2]]),
        ([True, 2], "int64", (), False, [[1], [2]]),
        ([1, 0.5], "float32", (), False, [[1.0], [0.5]]),
        ([1, ABSENT], "int64", (None,), False, [[1], []]),
        ([1700000123.0, ABSENT, 5], "int64", (None,), False, [[1700000123], [], [5]]),
        ([16777217, 5.0], "int64", (), False, [[16777217], [5]]),
        ([16777216.0, 5], "float32", (), False, [[16777216.0], [5.0]]),
        ([16777217.0, 0.5], "float32", (), False, [[16777217.0], [0.5]]),
        ([16777217.0, -0.0], "float32", (), False, [[16777217.0], [-0.0]]),
        ([16777217.0, float("inf")], "float32", (), False, [[16777217.0], [float("inf")]]),
        ([16777217.0, 2.0**63], "float32", (), False, [[16777217.0], [2.0**63]]),
        ([(16777217.0, 1), 3.0], "int64", (None,), False, [[16777217, 1], [3]]),
        ([16777217.0, "a"], "bytes", (), True, [[b"16777217.0"], [b"a"]]),
        (["007", ""], "bytes", (), False, [[b"007"], [b""]]),
        (["a", ABSENT], "bytes", (None,), False, [[b"a"], []]),
        ([b"\xff", "a"], "bytes", (), False, [[b"\xff"], [b"a"]]),
        ([(1, 2), (3, 4)], "int64", (2,), False, [[1, 2], [3, 4]]),
        ([(1,), (3,)], "int64", (1,), False, [[1], [3]]),
        ([(1, 2), (0.5,)], "float32", (None,), False, [[1.0, 2.0], [0.5]]),
        ([(1, 2), ABSENT], "int64", (None,), False, [[1, 2], []]),
        ([(1, 2), 3], "int64", (None,), False, [[1, 2], [3]]),
        ([("a", "b"), ()], "bytes", (None,), False, [[b"a", b"b"], []]),
        ([(), ()], "bytes", (None,), False, [[], []]),
        ([1, "a", 0.5, True], "bytes", (), True, [[b"1"], [b"a"], [b"0.5"], [b"true"]]),
        ([(1, "a"), 2.5], "bytes", (None,), True, [[b"1", b"a"], [b"2.5"]]),
    ],
)
def test_typed_values(values: list[Any], kind: str, shape: Any, mixed: bool, stored: list[list[Any]]) -> None:
    column = _column(values, untyped=False)
    assert (column.kind, column.shape, column.mixed) == (kind, shape, mixed)
    assert _stored(values, column) == stored


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        (Column("int64", ()), 2**63, "number out of range"),
        (Column("int64", ()), 0.5, "value of the wrong kind"),
        (Column("int64", ()), "1", "value of the wrong kind"),
        (Column("int64", ()), None, "value does not fit its column"),
        (Column("int64", (2,)), (1, 2, 3), "value does not fit its column"),
        (Column("float32", ()), 1e39, "number out of range"),
        (Column("bytes", ()), 1, "value of the wrong kind"),
        (Column("int64", (), cells=True), "a", "value of the wrong kind"),
        (Column("int64", (), cells=True), "", "value does not fit its column"),
        (Column("bytes", (None,), cells=True), "a", "value does not fit its column"),
        (Column("bytes", (None,), cells=True), "[1]", "value of the wrong kind"),
    ],
)
def test_what_does_not_fit_is_refused(column: Column, value: Any, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        column.feature(value)
    assert (caught.value.stage, caught.value.reason) == ("build", reason)


def test_columns_come_in_the_order_of_their_names() -> None:
    types = ColumnTypes()
    types.observe({"b": 1, "a": 2})
    assert list(types.resolve(1)) == ["a", "b"]


def test_a_value_of_no_known_type_crashes() -> None:
    with pytest.raises(TypeError, match="a free feature is text"):
        ColumnTypes().observe({"x": None})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="a CSV cell must be text"):
        ColumnTypes(untyped=True).observe({"x": 1})


def test_accumulators_of_two_kinds_do_not_merge() -> None:
    with pytest.raises(ValueError, match="untyped=False into untyped=True"):
        ColumnTypes(untyped=True).merge(ColumnTypes())


FLOATS = st.one_of(st.floats(width=32, allow_nan=False), st.integers(-(2**53), 2**53).map(float))
INTS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(codec="utf-8"))
TYPED = st.one_of(
    INTS,
    FLOATS,
    TEXTS,
    st.booleans(),
    *(st.lists(item, max_size=3).map(tuple) for item in (INTS, FLOATS, TEXTS)),
)
CELLS = st.one_of(
    TEXTS,
    INTS.map(str),
    FLOATS.map(repr),
    st.lists(INTS, max_size=3).map(str),
    st.sampled_from(["", "[]", "nan", "-0", "1e5", '["a"]']),
)


def _records(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, FeatureValue]]]:
    return st.lists(st.dictionaries(st.sampled_from("ab"), values), max_size=8)


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.one_of(st.tuples(st.just(True), _records(CELLS)), st.tuples(st.just(False), _records(TYPED))),
    st.data(),
)
def test_bundles_and_their_order_do_not_matter(case: Any, data: Any) -> None:
    untyped, records = case
    whole = ColumnTypes(untyped)
    for record in records:
        whole.observe(record)
    shuffled = data.draw(st.permutations(records))
    cut = data.draw(st.integers(0, len(records)))
    parts = ColumnTypes(untyped), ColumnTypes(untyped)
    for number, record in enumerate(shuffled):
        parts[number >= cut].observe(record)
    merged = pickle.loads(pickle.dumps(parts[0]))
    merged.merge(parts[1])
    assert merged.resolve(len(records)) == whole.resolve(len(records))


@settings(deadline=None)  # a busy machine is no failure
@given(st.one_of(st.tuples(st.just(True), _records(CELLS)), st.tuples(st.just(False), _records(TYPED))))
def test_whatever_was_observed_fits(case: Any) -> None:
    untyped, records = case
    types = ColumnTypes(untyped)
    for record in records:
        types.observe(record)
    for name, column in types.resolve(len(records)).items():
        for record in records:
            values = column.feature(record.get(name)).values
            if column.shape != (None,):
                assert len(values) == (column.shape[0] if column.shape else 1)
            assert {type(value) for value in values} <= {
                {"int64": int, "float32": float, "bytes": bytes}[column.kind]
            }
            if column.kind == "float32":
                struct.pack(f"{len(values)}f", *values)


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.lists(st.one_of(INTS, st.integers(-(2**53), 2**53).map(float)), min_size=1, max_size=5), st.booleans()
)
def test_no_digit_of_an_integer_is_lost(numbers: list[int | float], untyped: bool) -> None:
    values = [f"{number:.1f}" if isinstance(number, float) else str(number) for number in numbers]
    column = _column(values if untyped else list(numbers), untyped)
    for number, value in zip(numbers, values, strict=True):
        (stored,) = column.feature(value if untyped else number).values
        if column.kind == "float32":
            (stored,) = struct.unpack("f", struct.pack("f", stored))
        assert stored == number


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.one_of(TEXTS, INTS.map(str)).filter(bool), min_size=1, max_size=5))
def test_integer_and_text_cells_come_back_as_they_were(cells: list[str]) -> None:
    column = _column(cells, untyped=True)
    if column.kind == "int64" and column.shape == ():
        assert [str(column.feature(cell).values[0]) for cell in cells] == cells
    if column.kind == "bytes" and column.shape == ():
        assert [column.feature(cell).values[0].decode() for cell in cells] == cells
