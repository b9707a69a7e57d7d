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
    """One tf.train.Feature: numbers, or ranges of bytes. Its kind is None where it has no list."""

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
    """The feature lists of a SequenceExample, a feature a step. Raises BadInput as `read_example`."""
    return {
        name: [_feature(record, [step]) for part in parts for step in _values(record, part, 1)]
        for name, parts in _entries(record, 2)
    }


def number_bytes(record: bytes) -> int:
    """Bytes of all lists of numbers of a record. Raises BadInput as `read_example`."""
    features = [part for _, parts in _entries(record, 1) for part in parts]
    lists = [part for _, parts in _entries(record, 2) for part in parts]
    features += [step for part in lists for step in _values(record, part, 1)]
    return sum(
        value.stop - value.start
        for feature in features
        for number, wire_type, value in fields(record, feature)
        if wire_type == _LENGTH and _KINDS.get(number) in ("float", "int64")
    )


def read_tensor(record: bytes, span: Span) -> tuple[int, list[int], Span]:
    """The DataType, shape and content of a TensorProto. Raises BadInput as `read_example`.

    Source of the format: tensorflow/core/framework/{tensor,tensor_shape}.proto.
    """
    shapes = [*_values(record, span, 2)]
    shape = [_integer(record, dimension) for one in shapes[-1:] for dimension in _values(record, one, 2)]
    return _integer(record, span), shape, [Span(0, 0), *_values(record, span, 4)][-1]


def _integer(record: bytes, span: Span) -> int:
    """Field 1 of a message; 0 where it has none."""
    return [0, *_integers(record, span)][-1]


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
    for start, stop in _values(record, span, 1, _FIXED32):
        count, rest = divmod(stop - start, 4)
        if rest:
            raise _damaged(start, "a list of floats ends within one")
        yield from struct.unpack_from(f"<{count}f", record, start)


def _integers(record: bytes, span: Span) -> Iterator[int]:
    for at, stop in _values(record, span, 1, _VARINT):
        while at < stop:
            unsigned, at = _varint(record, at, stop)
            yield unsigned - (1 << 64) if unsigned >> 63 else unsigned


def _values(record: bytes, span: Span, field: int, unpacked: int = _LENGTH) -> Iterator[Span]:
    """The values of a field of bytes, messages or packed numbers; `unpacked` is the wire type of others."""
    for number, wire_type, value in fields(record, span):
        if number == field and wire_type in (_LENGTH, unpacked):
            yield value


def fields(record: bytes, span: Span) -> Iterator[tuple[int, int, Span]]:
    """Number, wire type and value of each field but groups. Raises BadInput as `read_example`."""
    at, stop = span
    groups: list[int] = []
    while at < stop:
        begin, tag = at, record[at]
        at += 1
        if tag >= 0x80:
            tag, at = _varint(record, begin, stop)
        start, number, wire_type = at, tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise _damaged(begin, f"there can be no field {number}")
        if wire_type == _LENGTH:
            short = at < stop and record[at] < 0x80  # as most are
            size, start = (record[at], at + 1) if short else _varint(record, at, stop)
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
