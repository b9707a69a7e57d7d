"""The type of each free feature, determined over all records.

A TFRecord reader wants one type and, if possible, a fixed shape for each feature; CSV and JSON Lines promise
neither. A TFRecord's floats are float32: numbers with a fraction are rounded to about seven digits, and so
are the integers among them. But if all are integers, some spelt `N.0` (as pandas writes a column of integers
with gaps), and float32 would change one, all are stored as int64.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from recordmill.transforms.examples.features import (
    INT64_MAX,
    INT64_MIN,
    Feature,
    Kind,
    bytes_feature,
    float_feature,
    int64_feature,
)
from recordmill.transforms.records import BadInput, FeatureValue

ColumnKind = Literal["int64", "float32", "bytes"]
KIND: dict[ColumnKind, Kind] = {"int64": "int64_list", "float32": "float_list", "bytes": "bytes_list"}

# The types of the values in a column, as bits: of scalars, then, shifted, of the elements of lists. INTEGRAL
# is a float that an int64 holds without loss; INEXACT is an integer, of either type, that float32 changes.
_INT, _INTEGRAL, _FLOAT, _TEXT, _INEXACT = 1, 2, 4, 8, 16
_SHIFT = 5
_LIST_EMPTY = 1 << 2 * _SHIFT
_SCALARS = (1 << _SHIFT) - 1
_BIT_OF_TYPE = {int: _INT, bool: _INT, float: _FLOAT, str: _TEXT, bytes: _TEXT}
_FLOAT32_DIGITS = 24  # significant bits
_EXACT = 1 << _FLOAT32_DIGITS

# Canonical numbers only: 007 and +5 are codes more often than quantities, and would not come back alike.
_NUMBER_CELL = re.compile(
    r"(0|-?[1-9][0-9]*)(\.0)?|"
    r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|nan|NaN|-?(?:inf|Infinity)"
)
_FLOAT32_MAX = 3.4028234663852886e38
_TWO_63 = 2.0**63


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """How a free feature is stored.

    Attributes:
        kind: type of its values.
        shape: () for one value in each record, (n,) for n in each, (None,) for any number.
        cells: its values are the text of CSV cells, still to be read.
        mixed: it holds text and numbers, and all are stored as text.
    """

    kind: ColumnKind
    shape: tuple[int | None, ...]
    cells: bool = False
    mixed: bool = False

    def feature(self, value: FeatureValue | None) -> Feature:
        """A value as it is stored, flat.

        Args:
            value: as the source has it; None if the record has none.

        Raises:
            BadInput: the value does not fit the column.
        """
        # Cells as they are; a list of text is never of shape ().
        is_cell_text = self.cells and self.kind == "bytes" and self.shape == ()
        if value is None or (self.cells and value == ""):
            feature = Feature(KIND[self.kind], (b"",) if is_cell_text else ())
        elif self.cells and not is_cell_text:
            bits, read = _cell(value)
            if not bits >> _SHIFT and self.kind == "bytes":  # an empty list in a column of lists of text
                detail = f"got {value!r}, expected a JSON list"
                raise BadInput("build", "value does not fit its column", detail)
            feature = self._stored(read)
        else:
            feature = self._stored(value)
        count = len(feature.values)
        if self.shape != (None,) and count != (self.shape[0] if self.shape else 1):
            detail = f"got {count} values, the column has shape {self.shape}"
            raise BadInput("build", "value does not fit its column", detail)
        return feature

    def _stored(self, value: Any) -> Feature:
        if self.mixed:
            value = [_as_text(item) for item in value] if isinstance(value, tuple) else _as_text(value)
        if self.kind == "int64":
            value = tuple(map(_as_integer, value)) if isinstance(value, tuple) else _as_integer(value)
            return int64_feature(value)
        return float_feature(value) if self.kind == "float32" else bytes_feature(value)


@dataclasses.dataclass(slots=True)
class ColumnTypes:
    """Accumulates the types of the free features: a few integers a column, for any number of records.

    Attributes:
        untyped: whether the values are the text of CSV cells; the text determines the type.
        seen: by column: the bits above, records with a scalar, records with a list, shortest and
            longest list.
    """

    untyped: bool = False
    seen: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    def observe(self, features: Mapping[str, FeatureValue]) -> None:
        """Adds the free features of one record."""
        for name, value in features.items():
            state = self.seen.get(name)
            if state is None:
                state = self.seen[name] = [0, 0, 0, -1, 0]
            if not self.untyped:
                bits, length = _typed(value)
            elif value == "" or state[0] & _TEXT:  # already text
                continue
            else:
                bits, read = _cell(value)
                length = len(read) if bits >> _SHIFT else None
            state[0] |= bits
            if length is None:
                state[1] += 1
            else:
                _count_list(state, 1, length, length)

    def merge(self, other: ColumnTypes) -> None:
        """Adds another accumulator of the same dataset."""
        if self.untyped != other.untyped:
            raise ValueError(f"cannot merge columns of untyped={other.untyped} into untyped={self.untyped}")
        for name, (bits, scalars, lists, shortest, longest) in other.seen.items():
            state = self.seen.setdefault(name, [0, 0, 0, -1, 0])
            state[0] |= bits
            state[1] += scalars
            if lists:
                _count_list(state, lists, shortest, longest)

    def resolve(self, records: int | None) -> dict[str, Column]:
        """The columns, in the order of their names.

        Args:
            records: records in the dataset, with and without free features; None if a column is stored
                only as often as it has a value, as the lists of steps are.
        """
        resolve = _untyped_column if self.untyped else _typed_column
        return {
            name: resolve(state, state[1] + state[2] if records is None else records)
            for name, state in sorted(self.seen.items())
        }


def _count_list(state: list[int], lists: int, shortest: int, longest: int) -> None:
    state[2] += lists
    state[3] = shortest if state[3] < 0 else min(state[3], shortest)
    state[4] = max(state[4], longest)


def _typed(value: FeatureValue) -> tuple[int, int | None]:
    """The bits of a typed value, and its length if it is a list."""
    try:
        if not isinstance(value, tuple):
            return _bits(value), None
        return _list_bits(value), len(value)
    except KeyError as error:
        raise TypeError(
            f"a free feature is text, bytes, int, float, bool or a tuple of these, got {value!r}"
        ) from error


def _list_bits(items: Iterable[Any]) -> int:
    bits = 0
    for item in items:
        bits |= _bits(item)
    return bits << _SHIFT or _LIST_EMPTY


def _bits(value: Any) -> int:
    """The bits of a scalar."""
    bits = _BIT_OF_TYPE[type(value)]
    if bits == _FLOAT and _is_integral(value):
        return _INTEGRAL | _inexact(int(value))
    return bits | _inexact(value) if bits == _INT else bits


def _is_integral(number: float) -> bool:
    """Whether nothing is lost by making it an int64; -0.0 would lose its sign."""
    return (
        number.is_integer() and -_TWO_63 <= number < _TWO_63 and (number != 0 or math.copysign(1, number) > 0)
    )


def _inexact(number: int) -> int:
    if -_EXACT <= number <= _EXACT:
        return 0
    lowest = (number & -number).bit_length()
    return _INEXACT if number.bit_length() - lowest >= _FLOAT32_DIGITS else 0


def _as_integer(value: Any) -> Any:
    """An integral number as an integer; anything else unchanged."""
    return int(value) if isinstance(value, float) and _is_integral(value) else value


def _cell(value: FeatureValue) -> tuple[int, Any]:
    """The bits of a cell that is not empty, and the value it spells: a number, a tuple or its text."""
    if not isinstance(value, str):
        raise TypeError(f"a CSV cell must be text, got {value!r} of type {type(value).__name__}")
    if value.isdecimal() and len(value) < 19 and value.isascii() and (value[0] != "0" or value == "0"):
        return _INT | _inexact(int(value)), int(value)  # most integers; it saves half the time
    spelled = _NUMBER_CELL.fullmatch(value)
    if spelled is None:
        return _list_cell(value) if value[0] == "[" and value[-1] == "]" else (_TEXT, value)
    if spelled.lastindex is not None:
        digits, fraction = spelled.groups()
        number = int(digits) if len(digits) <= 20 else INT64_MAX + 1
        if INT64_MIN <= number <= INT64_MAX:
            return (_INTEGRAL if fraction else _INT) | _inexact(number), number
        if not fraction:
            return _TEXT, value
    real = float(value)
    is_lost = abs(real) > _FLOAT32_MAX and value[-1] not in "fy"  # inf and Infinity are meant so
    return (_TEXT, value) if is_lost else (_FLOAT, real)


def _list_cell(value: str) -> tuple[int, Any]:
    """A flat JSON list of numbers, or of texts; anything else is text."""
    try:
        items = json.loads(value)
    except (ValueError, RecursionError):
        return _TEXT, value
    types = {type(item) for item in items}
    if types != {str} and not types <= {int, float}:
        return _TEXT, value
    if any(not INT64_MIN <= item <= INT64_MAX for item in items if type(item) is int):
        return _TEXT, value
    if any(abs(item) > _FLOAT32_MAX and not math.isinf(item) for item in items if type(item) is float):
        return _TEXT, value
    return _list_bits(items), tuple(items)


def _untyped_column(state: list[int], records: int) -> Column:
    scalars, lists = state[0] & _SCALARS, state[0] >> _SHIFT
    elements = lists & _SCALARS
    if elements == _TEXT and not scalars:
        return Column("bytes", _shape(state, records), cells=True)
    bits = scalars or elements
    if not bits or bits & _TEXT or (scalars and lists):
        return Column("bytes", (), cells=True)
    return Column(_number_kind(bits), _shape(state, records), cells=True)


def _typed_column(state: list[int], records: int) -> Column:
    bits = (state[0] | state[0] >> _SHIFT) & _SCALARS
    shape = _shape(state, records)
    numbers = bits & (_INT | _INTEGRAL | _FLOAT)
    if bits & _TEXT or not numbers:
        return Column("bytes", shape, mixed=bool(bits & _TEXT and numbers))
    return Column(_number_kind(bits), shape)


def _number_kind(bits: int) -> ColumnKind:
    kept_whole = not bits & _FLOAT and (bits & _INEXACT or not bits & _INTEGRAL)
    return "int64" if kept_whole else "float32"


def _shape(state: list[int], records: int) -> tuple[int | None, ...]:
    _, scalars, lists, shortest, longest = state
    if scalars == records and not lists:
        return ()
    if lists == records and not scalars and shortest == longest > 0:
        return (longest,)
    return (None,)


def _as_text(value: Any) -> str | bytes:
    """A value of a mixed column: text as it is, a number as JSON writes it."""
    return value if isinstance(value, str | bytes) else json.dumps(value)
