"""Values into features, features into serialised Examples and SequenceExamples.

A `Feature` is a kind and its values. It becomes a protobuf message only inside its Example: a message
built on its own would be copied, image and all, when it is put there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

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


def int64_feature(value: object) -> Feature:
    """An int64 feature of a bool or int, or a list of them.

    Raises:
        BadInput: a value is no integer, or is outside int64.
    """
    if type(value) is int and INT64_MIN <= value <= INT64_MAX:
        return Feature("int64_list", (value,))
    return Feature("int64_list", _required(_values(value), (int,), "an integer"))


def float_feature(value: object) -> Feature:
    """A float32 feature of a float or int, or a list of them; NaN and infinity are kept.

    Raises:
        BadInput: a value is no number, or too large for float32.
    """
    if type(value) is float and abs(value) < _FLOAT32_OVERFLOW:
        return Feature("float_list", (value,))
    values = _required(_values(value), (float, int), "a number")
    for number in values:
        if abs(number) >= _FLOAT32_OVERFLOW and abs(number) != float("inf"):
            raise _out_of_range(number, "float32")
    return Feature("float_list", list(map(float, values)))


def bytes_feature(value: object) -> Feature:
    """A bytes feature of bytes or text (stored as UTF-8), or a list of them.

    Raises:
        BadInput: a value is neither, or text that UTF-8 cannot hold.
    """
    if type(value) is bytes:
        return Feature("bytes_list", (value,))
    if type(value) is str:
        return Feature("bytes_list", (_utf8(value),))
    values = _values(value)
    return Feature(
        "bytes_list", _required(values, (bytes,), "bytes or text (for the bytes of an array: .tobytes())")
    )


def feature(value: object) -> Feature:
    """The feature of a value, or of a list with a value, whose type determines its kind."""
    if isinstance(value, Feature):
        return value
    types = set(map(type, _values(value)))
    return (bytes_feature if bytes in types else float_feature if float in types else int64_feature)(value)


def build_example(features: Mapping[str, object]) -> bytes:
    """A serialised tf.train.Example, its features in the order of their names.

    Args:
        features: by name; a `Feature`, or a value that `feature` takes.
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
        BadInput: steps of different kinds.
    """
    example = SequenceExample()
    _fill(example.context.feature, context)
    for name, steps in feature_lists.items():
        messages = example.feature_lists.feature_list[name].feature
        kinds = set()
        for item in map(feature, steps):
            kinds.add(item.kind)
            _set(messages.add(), item)
        if len(kinds) > 1:
            raise BadInput("build", "steps of different kinds", f"feature list {name!r}: {sorted(kinds)}")
    data: bytes = example.SerializeToString(deterministic=True)
    return data


def _fill(fields: Any, features: Mapping[str, object]) -> None:
    for name, value in features.items():
        _set(fields[name], value if type(value) is Feature else feature(value))


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


def _values(value: object) -> list[Any]:
    """The values as ints within int64, floats and bytes."""
    return list(map(_scalar, value)) if isinstance(value, list | tuple) else [_scalar(value)]


def _scalar(value: object) -> int | float | bytes:
    if isinstance(value, int):
        number = int(value)
        if not INT64_MIN <= number <= INT64_MAX:
            raise _out_of_range(number, "int64")
        return number
    if isinstance(value, float | bytes):
        return value
    if isinstance(value, str):
        return _utf8(value)
    raise TypeError(f"a feature holds bool, int, float, text, bytes or a list of one of them, got {value!r}")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadInput("build", "text is not valid Unicode", f"{_short(text)}: {error.reason}") from error


def _required(values: list[Any], types: tuple[type, ...], expected: str) -> list[Any]:
    for item in values:
        if type(item) not in types:
            raise BadInput("build", "value of the wrong kind", f"got {_short(item)}, expected {expected}")
    return values


def _out_of_range(number: float, kind: str) -> BadInput:
    return BadInput("build", "number out of range", f"{number} does not fit {kind}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
