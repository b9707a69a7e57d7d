"""Reads one TFRecord file: in order, past damage, or single records by their offsets."""

from __future__ import annotations

import array
import contextlib
import functools
import io
import itertools
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from recordmill.transforms.examples.framing import (
    FRAME_BYTES,
    HEAD_BYTES,
    DamagedRecordError,
    Frame,
    Readable,
    RecordFile,
    is_head,
    masked_crc32c,
    payload_size,
    read_frames,
    read_fully,
    read_payload,
)
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import open_named, read_bytes

LARGEST = 256 << 20
"""Bytes of the largest record that `records_and_damage` holds in memory."""

_BLOCK = 1 << 20
_HEAD_BLOCK = 1 << 14
_LENGTH_BYTES = 8
_MOST_LENGTHS = 1 << 16
_MOST_PASSED = 1 << 31
_Words = npt.NDArray[np.uint32]


class Location(NamedTuple):
    """Where a record is in an uncompressed file."""

    offset: int
    length: int


class Index(NamedTuple):
    """The locations of the records of an uncompressed file."""

    offsets: array.array[int]
    lengths: array.array[int]

    def __len__(self) -> int:
        return len(self.offsets)


class Record(NamedTuple):
    """A record of a file.

    Attributes:
        number: in its file, from 0; a damaged part counts as one record.
        offset: of its frame; in a compressed file, after decompression.
        payload: with both checksums verified; None, and not verified, if it has more than `LARGEST` bytes.
    """

    number: int
    offset: int
    size: int
    payload: bytes | None


class Damage(NamedTuple):
    """Bytes of a file that are not records.

    Attributes:
        resumed: where the next readable record begins, or the end of the file; None if none was found.
    """

    number: int
    offset: int
    fault: str
    resumed: int | None

    @property
    def lost(self) -> int | None:
        """Number of bytes before the next record; None if no record was found after them."""
        return None if self.resumed is None else self.resumed - self.offset


@contextlib.contextmanager
def opened(path: str, hashed: bool = False) -> Iterator[RecordFile]:
    """Opens a TFRecord file, local or in a bucket. Raises OSError."""
    with open_named(path) as stored:
        yield RecordFile(stored, hashed)


def frames(path: str) -> Iterator[Frame]:
    """The records of a file in order, with both checksums verified. Raises DamagedRecordError, OSError."""
    with opened(path) as file:
        yield from file.frames()


def frames_in(path: str, offset: int, length: int, first: int = 0) -> Iterator[Frame]:
    """The records in a part of an uncompressed file, which is held in memory.

    `first` is the number of its first record in the file. Raises DamagedRecordError, OSError.
    """
    with open_named(path) as file:
        file.seek(offset)
        data = file.read(length)
    yield from read_frames(io.BytesIO(data), first=first, offset=offset)


def record_at(path: str, offset: int, length: int, number: int = 0) -> bytes:
    """The payload of one record of an uncompressed file; an error has its `number`.

    Raises:
        DamagedRecordError: it is damaged, or no record begins and ends there.
        OSError: it cannot be read.
    """
    frame = next(frames_in(path, offset, length, number), None)
    if frame is None or len(frame.payload) + FRAME_BYTES != length:
        raise DamagedRecordError(number, offset, f"no record of {length} bytes is there")
    return frame.payload


def read_index(path: str) -> Index:
    """Reads an index as DALI and the `tfrecord` package have it: a line `<offset> <length>` per record.

    Raises:
        ValueError: a line has another form; names file and line.
        OSError: it cannot be read.
    """
    index = Index(array.array("Q"), array.array("Q"))
    for number, line in enumerate(read_bytes(path).splitlines(), 1):
        try:
            offset, length = line.split()
            index.offsets.append(int(offset))
            index.lengths.append(int(length))
        except (ValueError, OverflowError) as error:
            shown = line[:40].decode("utf-8", "replace")
            raise ValueError(
                f"{path}: line {number} is {shown!r}; an index has an offset and a length in each line"
            ) from error
    return index


def index_count(path: str, size: int) -> int | None:
    """The number of records in an index; None if it is not of a file of `size` bytes. Raises OSError."""
    data = read_bytes(path).rstrip()
    last = data[data.rfind(b"\n") + 1 :].split()
    if not data:
        return 0 if size == 0 else None
    if len(last) != 2 or not all(part.isdigit() for part in last) or sum(map(int, last)) != size:
        return None
    return data.count(b"\n") + 1


def locations(path: str, size: int) -> Iterator[Location]:
    """The locations of the records of an uncompressed file; payloads are not read.

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
                block, start, at = file.read(_HEAD_BLOCK), offset, 0
            head = block[at : at + HEAD_BYTES]
            length = lengths.get(head)
            if length is None:
                length = payload_size(head, number, offset) + FRAME_BYTES
                if len(lengths) < _MOST_LENGTHS:
                    lengths[head] = length
            if offset + length > size:
                raise DamagedRecordError.cut_off(number, offset, size - offset, length)
            yield Location(offset, length)
            offset += length


def record_count(path: str) -> int:
    """The number of records of a file; of a plain local file only the heads are read.

    Raises DamagedRecordError, OSError.
    """
    system = file_system(path)
    with opened(path) as file:
        if file.compression or system.has_latency:
            return sum(1 for _ in file.frames())
        size = file.file.seek(0, io.SEEK_END)
    return sum(1 for _ in locations(path, size))


def records_and_damage(
    file: RecordFile, size: int, most_scanned: int | None = None
) -> Iterator[Record | Damage]:
    """The records of a file in order, and the damage between them.

    Args:
        file: at its start.
        size: bytes of the file.
        most_scanned: bytes after damage that are searched for the next record; None for all.

    Raises:
        OSError: it cannot be read.
    """
    offset, ahead = 0, b""
    for number in itertools.count():
        head, ahead = ahead, b""
        try:
            head = head or read_fully(file.stream, HEAD_BYTES)
            if not head:
                return
            record = _record(file.stream, head, number, offset)
        except (EOFError, zlib.error) as error:
            yield Damage(number, offset, str(error), None)
            return
        except DamagedRecordError as error:
            end = offset + int.from_bytes(head[:_LENGTH_BYTES], "little") + FRAME_BYTES
            after = end if is_head(head) else None
            if file.compression:
                ahead, resumed = _next_in_stream(file.stream, after)
            else:
                resumed = _next_in_file(file.file, offset, after, size, most_scanned)
            yield Damage(number, offset, error.fault, resumed)
            if resumed is None:
                return
            offset = resumed
            if not file.compression:
                file.file.seek(offset)
        else:
            yield record
            offset += record.size + FRAME_BYTES


def _record(stream: Readable, head: bytes, number: int, offset: int) -> Record:
    """The record whose head was read. Raises DamagedRecordError."""
    size = payload_size(head, number, offset)
    if not LARGEST < size < _MOST_PASSED:
        return Record(number, offset, size, read_payload(stream, size, number, offset))
    left = size + FRAME_BYTES - HEAD_BYTES
    while left and (data := stream.read(min(left, _BLOCK))):
        left -= len(data)
    if left:
        raise DamagedRecordError.cut_off(number, offset, size + FRAME_BYTES - left, size + FRAME_BYTES)
    return Record(number, offset, size, None)


def _next_in_stream(stream: Readable, after: int | None) -> tuple[bytes, int | None]:
    """The head of the next record of a compressed file, which is read, and its offset.

    Args:
        stream: after decompression.
        after: offset of the end of the damaged record; None if its length is damaged.
    """
    try:
        ahead = read_fully(stream, HEAD_BYTES)
    except (EOFError, zlib.error):
        return b"", None
    return ahead, after if not ahead or is_head(ahead) else None


def _next_in_file(
    file: io.BufferedReader, offset: int, after: int | None, size: int, most_scanned: int | None
) -> int | None:
    """The offset of the first complete record after a damaged one, or of the end; None if none was found."""
    if after is not None and after <= size:
        file.seek(after)
        if after == size or is_head(file.read(HEAD_BYTES)):
            return after
    end = size if most_scanned is None else min(size, offset + most_scanned)
    found = next_record(file, offset + 1, end, size)
    return size if found is None and end == size else found


def next_record(file: io.BufferedReader, start: int, end: int, size: int) -> int | None:
    """The offset of the first complete record in a part of a file; None if there is none."""
    for at in range(start, end, _BLOCK):
        file.seek(at)
        # heads that begin in this block may end in the next
        block = file.read(min(_BLOCK, end - at) + HEAD_BYTES - 1)
        for position in heads_in(block):
            offset = at + position
            length = int.from_bytes(block[position : position + _LENGTH_BYTES], "little")
            if offset + length + FRAME_BYTES <= size and _is_complete(file, offset, length):
                return offset
    return None


def _is_complete(file: io.BufferedReader, offset: int, length: int) -> bool:
    """Whether the payload has its checksum: one in 2^32 positions looks like a head by chance."""
    if length > LARGEST:
        return True
    file.seek(offset)
    try:
        next(read_frames(file))
    except DamagedRecordError:
        return False
    return True


def heads_in(block: bytes) -> list[int]:
    """The positions of heads of payloads of less than 4 GiB: a length and its checksum."""
    count = len(block) - HEAD_BYTES + 1
    if count <= 0:
        return []
    words: _Words = np.ndarray((len(block) - 3,), np.dtype("<u4"), block, strides=(1,))
    positions = np.flatnonzero(words[4 : count + 4] == 0)
    lengths = words[positions]
    base, tables = _tables()
    crc = np.full(len(positions), base, np.uint32)
    for byte, table in enumerate(tables):
        crc ^= table[lengths >> np.uint32(8 * byte) & np.uint32(255)]
    # of no bytes, the checksum is 0, and the masked one is the offset of masking
    masked = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(masked_crc32c(b""))
    return [int(position) for position in positions[masked == words[positions + 8]]]


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
