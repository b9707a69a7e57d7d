"""Values into features, features into serialised Examples and SequenceExamples.

Messages are serialised here, without protobuf: that takes half the time, and an image is copied once.
Sources of the format: tensorflow/core/example/{example,feature}.proto, and the encoding guide of Protocol
Buffers.
"""

from __future__ import annotations

import array
import functools
import operator
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from recordmill.transforms.records import BadInput

Kind = Literal["bytes_list", "float_list", "int64_list"]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
# The first magnitude that rounds to infinity in float32: half a step above the largest float32.
_FLOAT32_OVERFLOW = 2.0**128 - 2.0**103
# The tags of fields 1 to 3, each with a length. 1 is the list of every message; a map's entry has its key in
# 1 and its value in 2.
_FIRST, _SECOND, _THIRD = b"\x0a", b"\x12", b"\x1a"
_TAG_OF_KIND = {"bytes_list": _FIRST, "float_list": _SECOND, "int64_list": _THIRD}
_MOST_BYTES = (1 << 31) - 1  # no reader of protobuf takes a larger message
_SHORT = [bytes((number,)) for number in range(0x80)]


class Feature(msgspec.Struct, frozen=True, gc=False):
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
        return Feature("bytes_list", (utf8(value),))
    values = _values(value)
    return Feature(
        "bytes_list", _required(values, (bytes,), "bytes or text (for the bytes of an array: .tobytes())")
    )


def utf8(text: str) -> bytes:
    """Text as UTF-8, as features store it. Raises BadInput if it has lone surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadInput("build", "text is not valid Unicode", f"{_short(text)}: {error.reason}") from error


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
    return _message([*_field(_FIRST, _map(features))])


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
    lists: list[bytes] = []
    for name, key in _keys(tuple(feature_lists)):
        parts: list[bytes] = []
        kinds = set()
        for step in map(feature, feature_lists[name]):
            kinds.add(step.kind)
            _add(parts, b"", step)
        if len(kinds) > 1:
            raise BadInput("build", "steps of different kinds", f"feature list {name!r}: {sorted(kinds)}")
        size = sum(map(len, parts))
        lists += _field(_FIRST, [key, _SECOND, _varint(size), *parts])
    return _message([*_field(_FIRST, _map(context)), *_field(_SECOND, lists)])


def _message(parts: list[bytes]) -> bytes:
    """A complete message. Raises BadInput if it is too large for readers."""
    data = b"".join(parts)
    if len(data) > _MOST_BYTES:
        raise BadInput(
            "build", "record too large", f"{len(data):,} bytes; readers take up to {_MOST_BYTES:,}"
        )
    return data


def _map(features: Mapping[str, object]) -> list[bytes]:
    """The parts of a Features message, in the order of names."""
    parts: list[bytes] = []
    for name, key in _keys(tuple(features)):
        value = features[name]
        _add(parts, key, value if type(value) is Feature else feature(value))
    return parts


def _add(parts: list[bytes], key: bytes, item: Feature) -> None:
    """Adds a feature as field 1; with a key, as the value of that entry of a map."""
    kind, values = item.kind, item.values
    if kind == "bytes_list":
        if len(values) != 1 or type(values[0]) is not bytes:
            parts += _bytes_list(key, values)
            return
        packed = values[0]
    elif not values:
        parts.append(_head(key, kind, 0))  # a kind that is not set breaks readers
        return
    else:
        packed = b"".join(map(_int64, values)) if kind == "int64_list" else _floats(values)
    parts.append(_head_of_one(key, kind, len(packed)))
    parts.append(packed)


def _bytes_list(key: bytes, values: Sequence[Any]) -> list[bytes]:
    """The parts of a bytes_list of any number of values."""
    if not {bytes}.issuperset(map(type, values)):
        raise TypeError(f"a bytes_list holds bytes, got {_short(values)}")
    content = [part for value in values for part in (_FIRST, _varint(len(value)), value)]
    return [_head(key, "bytes_list", sum(map(len, content))), *content]


@functools.lru_cache(maxsize=4096)
def _head_of_one(key: bytes, kind: Kind, size: int) -> bytes:
    """The bytes before the data of a feature with one value of bytes, or with packed numbers."""
    head = _FIRST + _varint(size)
    return _head(key, kind, len(head) + size) + head


def _head(key: bytes, kind: Kind, size: int) -> bytes:
    """The bytes before the values of a feature, which take `size` bytes."""
    head = _TAG_OF_KIND[kind] + _varint(size)
    if key:
        head = key + _SECOND + _varint(len(head) + size) + head
    return _FIRST + _varint(len(head) + size) + head


def _field(tag: bytes, parts: Sequence[bytes]) -> Iterable[bytes]:
    """The parts of a message in a field `tag`; empty if the message is empty."""
    return (tag, _varint(sum(map(len, parts))), *parts) if parts else ()


@functools.lru_cache(maxsize=256)
def _keys(names: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
    """Names in the order in which protobuf sorts a map, each with the key of its entry.

    The order is by bytes, but a name comes after those that begin with it.
    """
    encoded = {name: name.encode() for name in names}
    ordered = sorted(names, key=lambda name: encoded[name] + b"\xff")  # no byte of UTF-8
    return tuple((name, _FIRST + _varint(len(encoded[name])) + encoded[name]) for name in ordered)


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _SHORT[number]
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _int64(number: int) -> bytes:
    """The varint of an integer; of a negative one, that of its two's complement. Raises OverflowError."""
    if 0 <= number < 0x80:
        return _SHORT[number]
    return _varint(int.from_bytes(operator.index(number).to_bytes(8, "big", signed=True), "big"))


def _floats(values: Sequence[float]) -> bytes:
    """Values as float32, little-endian."""
    packed = array.array("f", list(values))
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


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
        return utf8(value)
    raise TypeError(f"a feature holds bool, int, float, text, bytes or a list of one of them, got {value!r}")


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
