"""The wire format of Examples, against TensorFlow's own messages."""

from __future__ import annotations

import random
import struct

import pytest
from google.protobuf.message import DecodeError

from recordmill.transforms.examples.wire import Feature, read_example, read_feature_lists
from recordmill.transforms.records import BadInput
from tests.lazy import tf

Plain = tuple[str | None, list[object]]
Lists = tuple[dict[str, Plain], dict[str, list[Plain]]]


def plain(record: bytes, feature: Feature) -> Plain:
    values = [record[start:stop] for start, stop in feature.spans]
    return feature.kind, list(values if feature.kind == "bytes" else feature.numbers)


def mine(record: bytes) -> Lists:
    lists = read_feature_lists(record)
    return (
        {name: plain(record, feature) for name, feature in read_example(record).items()},
        {name: [plain(record, step) for step in steps] for name, steps in lists.items()},
    )


def theirs_of(feature: tf.train.Feature) -> Plain:
    kind = feature.WhichOneof("kind")
    return (None, []) if kind is None else (kind[:-5], list(getattr(feature, kind).value))


def theirs(record: bytes) -> Lists:
    message = tf.train.SequenceExample.FromString(record)
    lists = message.feature_lists.feature_list
    return (
        {name: theirs_of(feature) for name, feature in message.context.feature.items()},
        {name: [theirs_of(step) for step in steps.feature] for name, steps in lists.items()},
    )


def fill(feature: tf.train.Feature, chance: random.Random) -> None:
    count, kind = chance.randrange(4), chance.randrange(4)
    if kind == 0:
        feature.bytes_list.value.extend(chance.randbytes(chance.randrange(200)) for _ in range(count))
    elif kind == 1:
        feature.float_list.value.extend(chance.gauss(0, 10) for _ in range(count))
    elif kind == 2:
        feature.int64_list.value.extend(
            chance.randrange(-(2**63), 2**63) >> chance.randrange(63) for _ in range(count)
        )


def sequence(chance: random.Random) -> bytes:
    message = tf.train.SequenceExample()
    for number in range(chance.randrange(4)):
        fill(message.context.feature["aä" * (number + 1)], chance)
    for number in range(chance.randrange(3)):
        for _ in range(chance.randrange(4)):
            fill(message.feature_lists.feature_list[f"list{number}"].feature.add(), chance)
    return bytes(message.SerializeToString())


def test_what_tensorflow_writes() -> None:
    chance = random.Random(1)
    for _ in range(500):
        record = sequence(chance) + (sequence(chance) if chance.random() < 0.3 else b"")
        assert mine(record) == theirs(record)


def test_damaged_records_are_refused_where_tensorflow_refuses_them() -> None:
    chance = random.Random(2)
    refused = 0
    for _ in range(4000):
        record = bytearray(sequence(chance) or b"\n\0")
        if chance.random() < 0.5:
            del record[chance.randrange(len(record)) :]
        else:
            record[chance.randrange(len(record))] = chance.randrange(256)
        expected: Lists | None
        try:
            expected = theirs(bytes(record))
        except DecodeError:
            expected = None
        try:
            found = mine(bytes(record))
        except BadInput as error:
            assert (error.stage, error.reason) == ("manifest", "not a tf.train.Example")
            refused += 1
            assert expected is None
            continue
        if expected is None:  # a name that is not UTF-8, and of which another one counts
            assert "" in found[0] or "" in found[1]
            continue
        # the Python messages leave out entries of maps that have fields of their own
        assert all(repr(found[0][name]) == repr(known) for name, known in expected[0].items())
        assert all(repr(found[1][name]) == repr(known) for name, known in expected[1].items())
    assert refused > 1000


def message(number: int, *parts: bytes) -> bytes:
    data = b"".join(parts)
    assert len(data) < 128
    return bytes((number << 3 | 2, len(data))) + data


def one(feature: bytes) -> bytes:
    return message(1, message(1, message(1, b"a"), message(2, feature)))


FLOATS = struct.pack("<2f", 1.5, -2.0)


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        (message(2, message(1, FLOATS)), ("float", [1.5, -2.0])),
        (message(2, b"\x0d" + FLOATS[:4] + b"\x0d" + FLOATS[4:]), ("float", [1.5, -2.0])),
        (message(3, b"\x08\x05\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), ("int64", [5, -1])),
        (message(3, message(1, b"\x05\x06"), b"\x08\x07"), ("int64", [5, 6, 7])),
        (message(1, message(1, b"x")) + message(1, message(1, b"y")), ("bytes", [b"x", b"y"])),
        (message(1, message(1, b"x")) + message(3, b"\x08\x05"), ("int64", [5])),
        (b"\x33\x08\x01\x34" + message(3, b"\x08\x05") + b"\x39" + bytes(8), ("int64", [5])),
        (b"", (None, [])),
    ],
)
def test_every_way_to_write_a_feature(feature: bytes, expected: Plain) -> None:
    record = one(feature)
    assert mine(record)[0] == theirs(record)[0] == {"a": expected}


def test_of_equal_names_the_last_counts() -> None:
    record = one(message(3, b"\x08\x05")) + one(message(3, b"\x08\x06"))
    assert mine(record)[0] == theirs(record)[0] == {"a": ("int64", [6])}


@pytest.mark.parametrize(
    "record",
    [
        b"\n\x05\n",  # ends behind the record
        one(message(2, message(1, FLOATS[:3]))),
        one(message(3, message(1, b"\xff"))),
        one(b"\x33\x08\x01"),  # a group without an end
        one(b"\x34"),
        one(b"\x37"),  # no such wire type
        b"\x02\x00",  # field 0
        message(1, message(1, message(1, b"\xff"))),  # a name
        b"\xff" * 11,
    ],
)
def test_what_is_no_example(record: bytes) -> None:
    with pytest.raises(DecodeError):
        theirs(record)
    with pytest.raises(BadInput, match="not a tf.train.Example"):
        mine(record)


def test_bytes_are_told_by_where_they_lie() -> None:
    example = tf.train.Example()
    example.features.feature["image"].bytes_list.value.extend([b"first", b"second"])
    record = example.SerializeToString()
    (first, second) = read_example(record)["image"].spans
    assert (record[first.start : first.stop], record[second.start : second.stop]) == (b"first", b"second")
