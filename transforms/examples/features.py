"""Values into features, features into serialised Examples and SequenceExamples.

A `Feature` is a kind and its values. It becomes a protobuf message only inside its Example: a message
built on its own would be copied, image and all, when it is put there.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from recordmill.transforms.examples.protos import Example, SequenceExample
from recordmill.transforms.records import BadInput

Kind = Literal["bytes_list", "float_list", "int64_list"]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
# The first magnitude that rounds to infinity in float32: half a step above the largest float32.
_FLOAT32_OVERFLOW = 2.0**128 - 2.0**103


class Feature(NamedTuple):
    """One feature; its kind does not depend on its values.

    Attributes:
        kind: the field of tf.train.Feature that holds it.
        values: flat; ints within int64, floats within float32, or bytes, by `kind`.
    """

    kind: Kind
    values: Sequence[Any]


def int64_feature(value: object, *, fixed_length: int | None = None) -> Feature:
    """An int64 feature of a bool, int, enum of these, numpy scalar or array, or (nested) list of them.

    Arrays and nested lists are flattened row by row.

    Args:
        value: to store.
        fixed_length: the number of values it must have after flattening.

    Raises:
        BadInput: a value is no integer or is outside int64, nested lists are ragged, or the length is wrong.
    """
    if type(value) is int and INT64_MIN <= value <= INT64_MAX and fixed_length is None:
        return Feature("int64_list", (value,))
    values = _values(value)
    _require(values, (int,), "an integer")
    return _checked("int64_list", values, fixed_length)


def float_feature(value: object, *, fixed_length: int | None = None) -> Feature:
    """A float32 feature of floats, or of the values of `int64_feature`; NaN and infinity are kept.

    Raises:
        BadInput: a value is no number or too large for float32, a list is ragged, or the length is wrong.
    """
    if type(value) is float and abs(value) < _FLOAT32_OVERFLOW and fixed_length is None:
        return Feature("float_list", (value,))
    values = _values(value)
    _require(values, (float, int), "a number")
    return _checked("float_list", _within_float32(values), fixed_length)


def bytes_feature(value: object, *, fixed_length: int | None = None) -> Feature:
    """A bytes feature of bytes, text (stored as UTF-8), an enum of these, or lists or arrays of them.

    Raises:
        BadInput: a value is neither bytes nor text, nested lists are ragged, or the length is wrong.
    """
    if type(value) is bytes and fixed_length is None:
        return Feature("bytes_list", (value,))
    if type(value) is str and fixed_length is None:
        return Feature("bytes_list", (_scalar(value),))
    values = _values(value)
    _require(values, (bytes,), "bytes or text (for the bytes of an array: .tobytes())")
    return _checked("bytes_list", values, fixed_length)


def feature(value: object, *, fixed_length: int | None = None) -> Feature:
    """The feature of a value whose type determines its kind; integers among floats become floats.

    Raises:
        BadInput: as the functions above; also an empty list, which has no kind, and text among numbers.
    """
    builder = _BUILDERS.get(value.dtype.kind if isinstance(value, np.ndarray) else type(value))
    if builder is not None:
        return builder(value, fixed_length=fixed_length)
    values = _values(value)
    types = {type(item) for item in values}
    if not types:
        detail = "use int64_feature([]), float_feature([]) or bytes_feature([])"
        raise BadInput("build", "empty list of unknown kind", detail)
    if types == {int}:
        return _checked("int64_list", values, fixed_length)
    if types == {bytes}:
        return _checked("bytes_list", values, fixed_length)
    if bytes in types:
        raise BadInput("build", "text and numbers in one list", f"got {_short(value)}")
    return _checked("float_list", _within_float32(values), fixed_length)


def build_example(features: Mapping[str, object]) -> bytes:
    """A serialised tf.train.Example, its features in the order of their names.

    Args:
        features: by name; a `Feature`, or a value that `feature` takes.

    Raises:
        BadInput: a value that `feature` refuses, its name in the detail.
    """
    example = Example()
    _fill(example.features.feature, features)
    data: bytes = example.SerializeToString(deterministic=True)
    return data


def build_sequence_example(
    context: Mapping[str, object], feature_lists: Mapping[str, Sequence[object]]
) -> bytes:
    """A serialised tf.train.SequenceExample.

    Args:
        context: features of the sequence, as in `build_example`.
        feature_lists: by name, one feature a step; the steps of one list have one kind.

    Raises:
        BadInput: a value that `feature` refuses, or steps of different kinds.
    """
    example = SequenceExample()
    _fill(example.context.feature, context)
    for name, steps in feature_lists.items():
        messages = example.feature_lists.feature_list[name].feature
        kinds = set()
        for step in steps:
            item = _named_feature(name, step)
            kinds.add(item.kind)
            _set(messages.add(), item)
        if len(kinds) > 1:
            raise BadInput("build", "steps of different kinds", f"feature list {name!r}: {sorted(kinds)}")
    data: bytes = example.SerializeToString(deterministic=True)
    return data


def _fill(fields: Any, features: Mapping[str, object]) -> None:
    """Adds features to the map field of a Features message, without a second copy."""
    for name, value in features.items():
        _set(fields[name], value if type(value) is Feature else _named_feature(name, value))


def _set(message: Any, item: Feature) -> None:
    # Spelt out: getattr(message, kind) takes twice the time of an attribute named in the source.
    kind, values = item
    if kind == "bytes_list":
        target = message.bytes_list
    elif kind == "int64_list":
        target = message.int64_list
    else:
        target = message.float_list
    if values:
        target.value.extend(values)
    else:
        target.SetInParent()  # an unset kind breaks readers


def _named_feature(name: str, value: object) -> Feature:
    """`feature(value)`; an error names the feature."""
    if isinstance(value, Feature):
        return value
    try:
        return feature(value)
    except BadInput as error:
        raise BadInput(error.stage, error.reason, f"feature {name!r}: {error.detail}") from error


def _values(value: object) -> list[Any]:
    """Any value as a flat list of ints within int64, floats and bytes."""
    return _flatten(value)[0]


def _flatten(value: object) -> tuple[list[Any], tuple[int, ...]]:
    """The values of anything, flat and row by row, and its shape; a scalar's is ()."""
    if isinstance(value, enum.Enum):
        return _flatten(value.value)
    if isinstance(value, list | tuple):
        return _flatten_list(value)
    if isinstance(value, np.ndarray):
        return _array_values(value), value.shape
    if not isinstance(value, _SCALARS) and hasattr(value, "__array__"):  # a tensor of another library
        return _flatten(np.asarray(value))
    return [_scalar(value)], ()


def _flatten_list(value: list[object] | tuple[object, ...]) -> tuple[list[Any], tuple[int, ...]]:
    values: list[Any] = []
    shapes: set[tuple[int, ...]] = set()
    for item in value:
        if type(item) in _PLAIN:
            values.append(_scalar(item))
            shapes.add(())
        else:
            items, shape = _flatten(item)
            values += items
            shapes.add(shape)
    if len(shapes) > 1:
        detail = f"its parts have the shapes {sorted(shapes)}; a feature is flat, so all must be alike"
        raise BadInput("build", "ragged list", detail)
    return values, (len(value), *(shapes.pop() if shapes else ()))


def _array_values(array: np.ndarray[Any, Any]) -> list[Any]:
    """An array's values as Python scalars, row-major."""
    kind = array.dtype.kind
    if kind == "u" and array.size and int(array.max()) > INT64_MAX:
        raise _out_of_range(int(array.max()), "int64")
    if kind in "biuf":
        values: list[Any] = array.astype(np.float64 if kind == "f" else np.int64).ravel().tolist()
        return values
    if kind in "SUO":
        return [_scalar(item) for item in array.ravel().tolist()]
    raise _unsupported(f"an array of dtype {array.dtype}")


def _scalar(value: object) -> int | float | bytes:
    """One value as an int within int64, a float or bytes."""
    if isinstance(value, int | np.integer | np.bool_):
        number = int(value)
        if not INT64_MIN <= number <= INT64_MAX:
            raise _out_of_range(number, "int64")
        return number
    if isinstance(value, float | np.floating):
        return float(value)
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise BadInput(
                "build", "text is not valid Unicode", f"{_short(value)}: {error.reason}"
            ) from error
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, enum.Enum):
        return _scalar(value.value)
    raise _unsupported(f"{_short(value)} of type {type(value).__name__}")


def _within_float32(values: list[Any]) -> list[float]:
    """The numbers as floats; infinities pass, a finite number that would become one does not."""
    for number in values:
        if abs(number) >= _FLOAT32_OVERFLOW and abs(number) != float("inf"):
            raise _out_of_range(number, "float32")
    return values


def _require(values: list[Any], types: tuple[type, ...], expected: str) -> None:
    for item in values:
        if type(item) not in types:
            raise BadInput("build", "value of the wrong kind", f"got {_short(item)}, expected {expected}")


def _checked(kind: Kind, values: list[Any], fixed_length: int | None) -> Feature:
    if fixed_length is not None and len(values) != fixed_length:
        raise BadInput("build", "wrong number of values", f"got {len(values)}, expected {fixed_length}")
    return Feature(kind, values)


def _out_of_range(number: float, kind: str) -> BadInput:
    return BadInput("build", "number out of range", f"{number} does not fit {kind}")


def _unsupported(what: str) -> BadInput:
    detail = f"got {what}; a feature holds bool, int, float, text, bytes, and lists or arrays of one of them"
    return BadInput("build", "type that no feature can hold", detail)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_PLAIN = (int, float, str, bytes, bool)
_SCALARS = (int, float, str, bytes, bytearray, memoryview, np.integer, np.floating, np.bool_)
# By Python type, and by the dtype's kind for arrays: an empty array has a kind, an empty list has none.
_BUILDERS: dict[object, Callable[..., Feature]] = {
    int: int64_feature,
    float: float_feature,
    bytes: bytes_feature,
    str: bytes_feature,
    **dict.fromkeys("biu", int64_feature),
    "f": float_feature,
    **dict.fromkeys("SU", bytes_feature),
}
