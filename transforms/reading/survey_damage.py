"""The records of a file in order, past what is damaged: where it is, what it costs, and what comes after."""

from __future__ import annotations

import functools
import io
import itertools
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from recordmill.transforms.framing import (
    FRAME_BYTES,
    HEAD_BYTES,
    DamagedRecordError,
    Readable,
    is_head,
    masked_crc32c,
    read_frames,
)
from recordmill.transforms.reading.shard import opened
from recordmill.transforms.sources.tfrecord.files import Inflated
from recordmill.transforms.storage.files import open_named

LARGEST = 256 << 20
"""Bytes of the largest record that is looked into."""

_BLOCK = 1 << 20
_TAIL_BYTES = FRAME_BYTES - HEAD_BYTES
_LENGTH_BYTES = 8
_Words = npt.NDArray[np.uint32]


class Record(NamedTuple):
    """A record of a file.

    Attributes:
        number: in its file, from 0; behind damage, as if each had cost one record.
        offset: of its frame; in a compressed file, of what it unpacks to.
        size: bytes of its payload.
        payload: both checksums of which are right; None, and unchecked, where there are more than `LARGEST`.
    """

    number: int
    offset: int
    size: int
    payload: bytes | None


class Damage(NamedTuple):
    """Bytes of a file that are no records.

    Attributes:
        number: of the record in its file, from 0.
        offset: where its frame begins, as of `Record`.
        fault: what is wrong with it.
        resumed: where the next record that can be read begins, or the file ends; None where nothing behind
            it can be read, or nothing was found in the bytes that were looked through.
    """

    number: int
    offset: int
    fault: str
    resumed: int | None

    @property
    def lost(self) -> int | None:
        """Bytes before the next record; None where that is not known."""
        return None if self.resumed is None else self.resumed - self.offset


class RecordFile:
    """A file of TFRecords that is read in order, whatever it holds.

    Args:
        path: of the file, compressed or not.
        size: bytes that it has.
        most_scanned: bytes behind damage that are looked through for the next record; None for all.

    Attributes:
        packed: whether it is compressed; None before it is opened.
        used: bytes of the file that were read for what it gave so far, whole frames where it is not packed.
    """

    def __init__(self, path: str, size: int, most_scanned: int | None = None) -> None:
        self._path = path
        self._size = size
        self._most = size if most_scanned is None else most_scanned
        self.packed: bool | None = None
        self.used = 0

    def items(self) -> Iterator[Record | Damage]:
        """Its records, and the damage between them.

        Raises:
            OSError: it cannot be read.
        """
        with opened(self._path) as (stream, packed):
            self.packed = packed
            if not packed:
                assert isinstance(stream, io.BufferedReader)
                yield from self._read(_Framed(stream), stream)
                return
        with open_named(self._path) as stored:
            for item in self._read(_Framed(Inflated(stored)), None):
                self.used = stored.tell()
                yield item
            self.used = self._size

    def _read(self, framed: _Framed, file: io.BufferedReader | None) -> Iterator[Record | Damage]:
        offset = 0
        for number in itertools.count():
            try:
                if not framed.head():
                    return
                record = _record(framed, number, offset)
            except (DamagedRecordError, EOFError, zlib.error) as error:
                fault = error.fault if isinstance(error, DamagedRecordError) else str(error)
                resumed = self._resumed(framed, file, offset, isinstance(error, DamagedRecordError))
                if resumed is not None and file is not None:
                    self.used = resumed
                yield Damage(number, offset, fault, resumed)
                if resumed is None:
                    return
                offset = resumed
            else:
                offset += record.size + FRAME_BYTES
                if file is not None:
                    self.used = offset
                yield record

    def _resumed(
        self, framed: _Framed, file: io.BufferedReader | None, offset: int, framing: bool
    ) -> int | None:
        """Where reading goes on behind a damaged record; the stream is there then."""
        if not framing:
            return None
        size = framed.size
        after = None if size is None else offset + size + FRAME_BYTES
        if file is None:
            try:
                behind = framed.head()
            except (EOFError, zlib.error):
                return None
            return after if not behind or is_head(behind) else None
        resumed = after if after is not None and self._begins(file, after) else None
        if resumed is None:
            end = min(self._size, offset + self._most)
            resumed = next_record(file, offset + 1, end, self._size)
            if resumed is None and end == self._size:
                resumed = self._size
        if resumed is not None:
            framed.go(resumed)
        return resumed

    def _begins(self, file: io.BufferedReader, offset: int) -> bool:
        """Whether a record begins at an offset, or the file ends there."""
        if offset >= self._size:
            return offset == self._size
        file.seek(offset)
        return is_head(file.read(HEAD_BYTES))


class _Framed:
    """A stream whose next head can be looked at.

    Attributes:
        size: bytes of the payload that the last head tells, where its checksum is right; else None.
    """

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._head = b""
        self.size: int | None = None

    def head(self) -> bytes:
        """The next `HEAD_BYTES`, fewer at the end; they are read again afterwards."""
        while len(self._head) < HEAD_BYTES and (more := self._stream.read(HEAD_BYTES - len(self._head))):
            self._head += more
        return self._head

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, none at the end."""
        if not self._head:
            return self._stream.read(size)
        data, self._head = self._head[:size], self._head[size:]
        return data

    def go(self, offset: int) -> None:
        """Goes to a place of a stream that is a file."""
        assert isinstance(self._stream, io.BufferedReader)
        self._head = b""
        self._stream.seek(offset)


def _record(framed: _Framed, number: int, offset: int) -> Record:
    """The record that comes next.

    Raises:
        DamagedRecordError: as `read_frames`.
    """
    head = framed.head()
    size = int.from_bytes(head[:_LENGTH_BYTES], "little")
    framed.size = size if is_head(head) else None
    try:
        if framed.size is not None and LARGEST < size < 1 << 31:
            _pass_over(framed, size, offset)
            return Record(number, offset, size, None)
        payload = next(read_frames(framed)).payload
    except DamagedRecordError as error:
        raise DamagedRecordError(number, offset, error.fault) from error
    return Record(number, offset, len(payload), payload)


def _pass_over(framed: _Framed, size: int, offset: int) -> None:
    """Reads a frame without holding it."""
    left = size + FRAME_BYTES
    while left and (data := framed.read(min(left, _BLOCK))):
        left -= len(data)
    if left:
        whole = size + FRAME_BYTES
        fault = f"the file ends in it, after {whole - left} of {whole} bytes"
        raise DamagedRecordError(0, offset, fault)


def next_record(file: io.BufferedReader, start: int, end: int, size: int) -> int | None:
    """Where the first whole record begins in a part of a file; None where none does.

    Args:
        file: uncompressed.
        start: of the part.
        end: of the part.
        size: bytes of the file.
    """
    for at in range(start, end, _BLOCK):
        file.seek(at)
        # heads that begin in this block may end in the next
        block = file.read(min(_BLOCK, end - at) + HEAD_BYTES - 1)
        for place in heads_in(block):
            offset = at + place
            length = int.from_bytes(block[place : place + _LENGTH_BYTES], "little")
            if offset + length + FRAME_BYTES <= size and _is_whole(file, offset, length):
                return offset
    return None


def _is_whole(file: io.BufferedReader, offset: int, length: int) -> bool:
    """Whether the payload behind a head has its checksum: one of 2^32 places looks like a head by chance."""
    if length > LARGEST:
        return True
    file.seek(offset)
    try:
        next(read_frames(file))
    except DamagedRecordError:
        return False
    return True


def heads_in(block: bytes) -> list[int]:
    """Where bytes are what comes before a payload of less than 4 GiB: a length and its checksum."""
    count = len(block) - HEAD_BYTES + 1
    if count <= 0:
        return []
    words: _Words = np.ndarray((len(block) - 3,), np.dtype("<u4"), block, strides=(1,))
    places = np.flatnonzero(words[4 : count + 4] == 0)
    lengths = words[places]
    base, tables = _tables()
    crc = np.full(len(places), base, np.uint32)
    for byte, table in enumerate(tables):
        crc ^= table[lengths >> np.uint32(8 * byte) & np.uint32(255)]
    # of no bytes, the checksum is 0, and the masked one what masking adds
    masked = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(masked_crc32c(b""))
    return [int(place) for place in places[masked == words[places + 8]]]


@functools.cache
def _tables() -> tuple[np.uint32, list[_Words]]:
    """The CRC-32C of a length as the exclusive or of one term for each of its lower bytes."""
    base = google_crc32c.value(bytes(_LENGTH_BYTES))
    tables = []
    for byte in range(4):
        values = (
            google_crc32c.value((value << 8 * byte).to_bytes(_LENGTH_BYTES, "little")) for value in range(256)
        )
        tables.append(np.array([value ^ base for value in values], np.uint32))
    return np.uint32(base), tables
