"""Reads serialised tf.train.Example, SequenceExample and TensorProto messages.

Bytes are not copied: a value of bytes is a range of its record. Sources of the format:
tensorflow/core/example/{example,feature}.proto and the Protocol Buffers encoding guide.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal, NamedTuple

from recordmill.transforms.records import BadInput

NOT_AN_EXAMPLE = "not a tf.train.Example"

Kind = Literal["bytes", "float", "int64"]

_VARINT, _FIXED64, _LENGTH, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_FIXED = {_FIXED32: 4, _FIXED64: 8}
_KINDS: dict[int, Kind] = {1: "bytes", 2: "float", 3: "int64"}
_DEEPEST = 100  # groups within groups, as Protocol Buffers' own readers have it
_MASK64 = (1 << 64) - 1


class Span(NamedTuple):
    """A range of bytes of a record; `stop` is exclusive."""

    start: int
    stop: int


class Feature(NamedTuple):
    """One tf.train.Feature.

    Attributes:
        kind: of its list; None where it has none.
        numbers: of a list of floats or of int64.
        spans: of a list of bytes.
    """

    kind: Kind | None
    numbers: tuple[int | float, ...] = ()
    spans: tuple[Span, ...] = ()

    def __len__(self) -> int:
        return len(self.spans) or len(self.numbers)


def read_example(record: bytes) -> dict[str, Feature]:
    """The features of an Example, or of a SequenceExample's context; none where there are none.

    Raises:
        BadInput: stage `manifest`, `not a tf.train.Example`.
    """
    return {name: _feature(record, parts) for name, parts in _entries(record, 1)}


def read_feature_lists(record: bytes) -> dict[str, list[Feature]]:
    """The feature lists of a SequenceExample, a feature a step; none where it is an Example.

    Raises:
        BadInput: as `read_example`.
    """
    return {
        name: [_feature(record, [step]) for part in parts for step in _values(record, part, 1)]
        for name, parts in _entries(record, 2)
    }


def read_tensor(record: bytes, span: Span) -> tuple[int, list[int], Span]:
    """The DataType, shape and content of a TensorProto.

    Source of the format: tensorflow/core/framework/{tensor,tensor_shape}.proto.

    Raises:
        BadInput: as `read_example`.
    """
    data_type, shape, content = 0, [], Span(0, 0)
    for number, wire_type, value in fields(record, span):
        if (number, wire_type) == (1, _VARINT):
            data_type = _varint(record, *value)[0]
        elif (number, wire_type) == (2, _LENGTH):
            shape = [_dimension(record, dimension) for dimension in _values(record, value, 2)]
        elif (number, wire_type) == (4, _LENGTH):
            content = value
    return data_type, shape, content


def _dimension(record: bytes, span: Span) -> int:
    sizes = [
        value for number, wire_type, value in fields(record, span) if (number, wire_type) == (1, _VARINT)
    ]
    return _varint(record, *sizes[-1])[0] if sizes else 0


def _entries(record: bytes, field: int) -> Iterator[tuple[str, list[Span]]]:
    """The names and values in a map; a value is in parts, which are merged."""
    for features in _values(record, Span(0, len(record)), field):
        for entry in _values(record, features, 1):
            key = Span(0, 0)
            parts: list[Span] = []
            for number, wire_type, value in fields(record, entry):
                if wire_type == _LENGTH and number == 1:
                    key = value
                elif wire_type == _LENGTH and number == 2:
                    parts.append(value)
            try:
                yield record[key.start : key.stop].decode(), parts
            except UnicodeDecodeError as error:
                raise _damaged(key.start, "a name is not UTF-8") from error


def _feature(record: bytes, parts: list[Span]) -> Feature:
    """A Feature, given in parts: lists of one kind are joined, and one of another kind replaces them."""
    kind: Kind | None = None
    numbers: list[int | float] = []
    spans: list[Span] = []
    for part in parts:
        for number, wire_type, value in fields(record, part):
            found = _KINDS.get(number)
            if found is None or wire_type != _LENGTH:
                continue
            if found != kind:
                kind, numbers, spans = found, [], []
            if found == "bytes":
                spans.extend(_values(record, value, 1))
            else:
                numbers.extend(_floats(record, value) if found == "float" else _integers(record, value))
    return Feature(kind, tuple(numbers), tuple(spans))


def _floats(record: bytes, span: Span) -> Iterator[float]:
    for number, wire_type, value in fields(record, span):
        if number == 1 and wire_type in (_LENGTH, _FIXED32):
            count, rest = divmod(value.stop - value.start, 4)
            if rest:
                raise _damaged(value.start, "a list of floats ends within one")
            yield from struct.unpack_from(f"<{count}f", record, value.start)


def _integers(record: bytes, span: Span) -> Iterator[int]:
    for number, wire_type, (at, stop) in fields(record, span):
        if number == 1 and wire_type in (_LENGTH, _VARINT):
            while at < stop:
                unsigned, at = _varint(record, at, stop)
                yield unsigned - (1 << 64) if unsigned >> 63 else unsigned


def _values(record: bytes, span: Span, wanted: int) -> Iterator[Span]:
    """The values of a field that holds bytes or messages."""
    for number, wire_type, value in fields(record, span):
        if number == wanted and wire_type == _LENGTH:
            yield value


def fields(record: bytes, span: Span) -> Iterator[tuple[int, int, Span]]:
    """Number, wire type and value of each field of the message in `span`; groups are passed over.

    Raises:
        BadInput: stage `manifest`, `not a tf.train.Example`: it is no message.
    """
    at, stop = span
    groups: list[int] = []
    while at < stop:
        begin = at
        tag, start = _varint(record, at, stop)
        number, wire_type = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise _damaged(at, f"there can be no field {number}")
        at = start
        if wire_type == _LENGTH:
            size, start = _varint(record, at, stop)
            at = start + size
        elif wire_type == _VARINT:
            at = _varint(record, at, stop)[1]
        elif wire_type in _FIXED:
            at += _FIXED[wire_type]
        elif wire_type == _START_GROUP:
            groups.append(number)
        elif wire_type != _END_GROUP:
            raise _damaged(begin, f"there is no wire type {wire_type}")
        elif not groups or groups.pop() != number:
            raise _damaged(begin, "a group ends that has not begun")
        if at > stop:
            raise _damaged(begin, f"a field ends {at - stop} bytes behind its message")
        if len(groups) > _DEEPEST:
            break
        if not groups and wire_type != _END_GROUP:
            yield number, wire_type, Span(start, at)
    if groups:
        raise _damaged(at, "a group has no end")


def _varint(record: bytes, at: int, stop: int) -> tuple[int, int]:
    """An unsigned integer of 64 bits, and where the next begins."""
    if at < stop and record[at] < 0x80:  # as most are
        return record[at], at + 1
    value = shift = 0
    while at < stop and shift < 70:
        byte = record[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK64, at
        shift += 7
    raise _damaged(at, "an integer has no end")


def _damaged(at: int, fault: str) -> BadInput:
    return BadInput("manifest", NOT_AN_EXAMPLE, f"at byte {at} of the record: {fault}")
