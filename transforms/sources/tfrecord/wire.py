"""The features of a serialised tf.train.Example or SequenceExample, their bytes told by where they lie.

Sources of the format: tensorflow/core/example/{example,feature}.proto and Protocol Buffers' guide to its
encoding. Nothing is copied but numbers: an image is referred to as a range of its record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal, NamedTuple

from recordmill.transforms.records import BadInput

NOT_AN_EXAMPLE = "not a tf.train.Example"

Kind = Literal["bytes", "float", "int64"]

_VARINT, _FIXED64, _LENGTH, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_KINDS: dict[int, Kind] = {1: "bytes", 2: "float", 3: "int64"}
_DEEPEST = 100  # groups within groups, as Protocol Buffers' own readers have it
_MASK64 = (1 << 64) - 1


class Span(NamedTuple):
    """Where bytes lie in their record.

    Attributes:
        start: the first.
        stop: after the last.
    """

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
    found: dict[str, Feature] = {}
    for features in _messages(record, Span(0, len(record)), 1):
        for name, value in _entries(record, features):
            found[name] = _feature(record, value)
    return found


def read_feature_lists(record: bytes) -> dict[str, list[Feature]]:
    """The feature lists of a SequenceExample, a feature a step; none where it is an Example.

    Raises:
        BadInput: as `read_example`.
    """
    found: dict[str, list[Feature]] = {}
    for lists in _messages(record, Span(0, len(record)), 2):
        for name, value in _entries(record, lists):
            steps = (step for part in value for step in _messages(record, part, 1))
            found[name] = [_feature(record, [step]) for step in steps]
    return found


def _entries(record: bytes, span: Span) -> Iterator[tuple[str, list[Span]]]:
    """Keys of a map, and the parts of the message that each leads to; of equal keys the last one counts."""
    for entry in _messages(record, span, 1):
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
                spans.extend(_messages(record, value, 1))
            else:
                numbers.extend(_floats(record, value) if found == "float" else _integers(record, value))
    return Feature(kind, tuple(numbers), tuple(spans))


def _floats(record: bytes, span: Span) -> Iterator[float]:
    for number, wire_type, value in fields(record, span):
        if number != 1 or wire_type not in (_LENGTH, _FIXED32):
            continue
        count, rest = divmod(value.stop - value.start, 4)
        if rest:
            raise _damaged(value.start, "a list of floats ends within one")
        yield from struct.unpack_from(f"<{count}f", record, value.start)


def _integers(record: bytes, span: Span) -> Iterator[int]:
    for number, wire_type, value in fields(record, span):
        if number != 1 or wire_type not in (_LENGTH, _VARINT):
            continue
        at = value.start
        while at < value.stop:
            unsigned, at = _varint(record, at, value.stop)
            yield unsigned - (1 << 64) if unsigned >> 63 else unsigned


def _messages(record: bytes, span: Span, wanted: int) -> Iterator[Span]:
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
    while at < stop:
        number, wire_type, value, at = _field(record, at, stop)
        if wire_type == _END_GROUP:
            raise _damaged(at, "a group ends that has not begun")
        if wire_type == _START_GROUP:
            at = _after_group(record, at, stop, number)
        else:
            yield number, wire_type, value


def varint(record: bytes, span: Span) -> int:
    """The value of a field of wire type 0, unsigned."""
    return _varint(record, *span)[0]


def _field(record: bytes, at: int, stop: int) -> tuple[int, int, Span, int]:
    """One field, and where the next begins; the value of a group's start or end is empty."""
    tag, start = _varint(record, at, stop)
    number, wire_type = tag >> 3, tag & 7
    if not 0 < number < 1 << 29:
        raise _damaged(at, f"there can be no field {number}")
    after = start
    if wire_type == _VARINT:
        after = _varint(record, start, stop)[1]
    elif wire_type == _LENGTH:
        size, start = _varint(record, start, stop)
        after = start + size
    elif wire_type in (_FIXED32, _FIXED64):
        after = start + (4 if wire_type == _FIXED32 else 8)
    elif wire_type not in (_START_GROUP, _END_GROUP):
        raise _damaged(at, f"there is no wire type {wire_type}")
    if after > stop:
        raise _damaged(at, f"a field ends {after - stop} bytes behind its message")
    return number, wire_type, Span(start, after), after


def _after_group(record: bytes, at: int, stop: int, group: int) -> int:
    """Where a group ends that begins at `at`."""
    begun = [group]
    while begun:
        if at >= stop or len(begun) > _DEEPEST:
            raise _damaged(at, "a group has no end")
        start = at
        number, wire_type, _, at = _field(record, at, stop)
        if wire_type == _START_GROUP:
            begun.append(number)
        elif wire_type == _END_GROUP and begun.pop() != number:
            raise _damaged(start, "a group ends that has not begun")
    return at


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
