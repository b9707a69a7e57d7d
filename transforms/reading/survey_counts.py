"""How many records a file has, and where each of them lies, with as little reading as may be."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from recordmill.transforms.framing import FRAME_BYTES, HEAD_BYTES, DamagedRecordError, is_head
from recordmill.transforms.storage.files import open_named, read_bytes

By = Literal["manifest", "index", "reading", "heads", "estimate"]

_BLOCK = 1 << 14
_LENGTH_BYTES = 8
_MOST_LENGTHS = 1 << 16


class Count(NamedTuple):
    """A number of records.

    Attributes:
        records: the number.
        by: what told it: the manifest, the index, reading all, hopping from head to head, or what was read
            and how large the file is.
    """

    records: int
    by: By

    @property
    def exact(self) -> bool:
        """Whether it is no estimate."""
        return self.by != "estimate"


Location = tuple[int, int]
"""Offset of a record's frame, and bytes of that frame, in an uncompressed file."""


def index_count(path: str, size: int) -> int | None:
    """The number of records that an index tells; None where it is not of a file of `size` bytes.

    Raises:
        OSError: it cannot be read.
    """
    data = read_bytes(path).rstrip()
    last = data[data.rfind(b"\n") + 1 :].split()
    if not data:
        return 0 if size == 0 else None
    if len(last) != 2 or not all(part.isdigit() for part in last) or sum(map(int, last)) != size:
        return None
    return data.count(b"\n") + 1


def head_count(path: str, size: int, most: int | None) -> Count:
    """The number of records of an uncompressed file, by their heads; an estimate behind the first `most`.

    Raises:
        DamagedRecordError: a head is damaged.
        OSError: it cannot be read.
    """
    number, offset = 0, 0
    for offset, length in itertools.islice(locations(path, size), most):
        number += 1
        offset += length
    return Count(number, "heads") if offset >= size else estimated(number, offset, size)


def estimated(records: int, used: int, size: int) -> Count:
    """The number of records of a file of which some are known to take `used` bytes."""
    return Count(max(round(records * size / used), records) if used else records, "estimate")


def locations(path: str, size: int) -> Iterator[Location]:
    """Where the records of an uncompressed file lie, by their heads: payloads are not read.

    Raises:
        DamagedRecordError: a head is damaged, or the file ends in a record.
        OSError: it cannot be read.
    """
    with open_named(path) as file:
        offset, start, block = 0, 0, b""
        lengths: dict[bytes, int] = {}  # by head: many records may be of one size
        for number in itertools.count():
            if offset >= size:
                return
            at = offset - start
            if at + HEAD_BYTES > len(block):
                file.seek(offset)
                block, start, at = file.read(_BLOCK), offset, 0
            head = block[at : at + HEAD_BYTES]
            length = lengths.get(head)
            if length is None:
                length = _frame_length(head, number, offset)
                if len(lengths) < _MOST_LENGTHS:
                    lengths[head] = length
            if offset + length > size:
                fault = f"the file ends in it, after {size - offset} of {length} bytes"
                raise DamagedRecordError(number, offset, fault)
            yield offset, length
            offset += length


def _frame_length(head: bytes, number: int, offset: int) -> int:
    """Bytes of the frame that begins with a head. Raises DamagedRecordError."""
    if len(head) < HEAD_BYTES:
        fault = f"the file ends in its length, after {len(head)} of {HEAD_BYTES} bytes"
        raise DamagedRecordError(number, offset, fault)
    length = int.from_bytes(head[:_LENGTH_BYTES], "little")
    if not is_head(head):
        fault = f"its length, {length}, does not have the checksum stored with it"
        raise DamagedRecordError(number, offset, fault)
    return length + FRAME_BYTES


def locate(found: Iterable[Location], numbers: Sequence[int]) -> Iterator[Location]:
    """Those of some numbers, from 0 and in order, as far as there are so many."""
    wanted = iter(numbers)
    number = next(wanted, None)
    for at, location in enumerate(found):
        if at == number:
            yield location
            number = next(wanted, None)
            if number is None:
                return
