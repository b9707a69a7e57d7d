"""TFRecord framing, read: uint64 length, masked crc32c of it, payload, masked crc32c of that; little endian.

Source of the format: tensorflow/core/lib/io/record_writer.h. Imports nothing of Beam.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import google_crc32c

# google_crc32c falls back, with a mere warning, to a Python loop of some 20 ms for each 70 KB image.
if google_crc32c.implementation != "c":
    raise ImportError(
        f"google-crc32c has only its {google_crc32c.implementation!r} implementation here, too slow for "
        "TFRecords; install a wheel of it that has the C library: pip install --force-reinstall google-crc32c"
    )

FRAME_BYTES = 16
"""What framing adds to a payload."""

HEAD_BYTES = 12
"""What framing puts before a payload."""

_MASK_DELTA = 0xA282EAD8
_READ_BYTES = 1 << 20
_MOST_BYTES = 1 << 31  # protobuf has no larger message; a compressed file may claim, and have, any number
_HEAD = struct.Struct("<QI")
_crc_bytes = struct.Struct("<I").pack
_crc32c = google_crc32c.value


def masked_crc32c(data: bytes) -> int:
    """The CRC-32C of `data`, rotated and offset as TFRecord stores it."""
    crc: int = _crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


class Readable(Protocol):
    """What records are read from."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, none at the end."""


class HashedFile:
    """A file that is read through from its start.

    Args:
        file: at its start.

    Attributes:
        size: bytes that were read.
        digest: SHA-256 of them.
    """

    def __init__(self, file: Readable) -> None:
        self._file = file
        self.size = 0
        self.digest = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most so many; none at the end."""
        data = self._file.read(size)
        self.digest.update(data)
        self.size += len(data)
        return data

    def finish(self) -> None:
        """Reads what is left."""
        while self.read(_READ_BYTES):
            pass


class Frame(NamedTuple):
    """One record.

    Attributes:
        offset: of the frame in its file; the payload begins `HEAD_BYTES` later.
        payload: bytes.
    """

    offset: int
    payload: bytes


class DamagedRecordError(ValueError):
    """A record that cannot be read, and with it what follows: nothing marks where a record begins.

    Args:
        number: of the record in its file, from 0.
        offset: where its frame begins.
        fault: what is wrong with it.
    """

    def __init__(self, number: int, offset: int, fault: str) -> None:
        super().__init__(f"record {number} at byte {offset}: {fault}")
        self.number = number
        self.offset = offset
        self.fault = fault


def is_head(head: bytes) -> bool:
    """Whether bytes are what comes before a payload: a length and its checksum."""
    return len(head) == HEAD_BYTES and masked_crc32c(head[:8]) == _HEAD.unpack(head)[1]


def read_records(file: Readable) -> Iterator[bytes]:
    """The payloads of a TFRecord file; see `read_frames`."""
    for frame in read_frames(file):
        yield frame.payload


def read_frames(file: Readable, most: int = _MOST_BYTES) -> Iterator[Frame]:
    """The records of a TFRecord file, both checksums of each verified.

    Holds one record at a time, and never more than the file has, whatever a damaged length says.

    Args:
        file: that is open at the start of a record.
        most: bytes that a payload may have.

    Raises:
        DamagedRecordError: names the record, its offset, and what is wrong with it.
    """
    offset = number = 0
    while head := _read(file, HEAD_BYTES):
        payload = _payload(file, head, number, offset, most)
        yield Frame(offset, payload)
        offset += len(payload) + FRAME_BYTES
        number += 1


def _payload(file: Readable, head: bytes, number: int, offset: int, most: int) -> bytes:
    """The payload that follows a head, verified."""
    if len(head) < HEAD_BYTES:
        fault = f"the file ends in its length, after {len(head)} of {HEAD_BYTES} bytes"
        raise DamagedRecordError(number, offset, fault)
    size: int = _HEAD.unpack(head)[0]
    if not is_head(head):
        fault = f"its length, {size}, does not have the checksum stored with it"
        raise DamagedRecordError(number, offset, fault)
    if size > most:
        fault = f"its length is {size} bytes; up to {most} are read"
        raise DamagedRecordError(number, offset, fault)
    payload = _read(file, size)
    tail = _read(file, FRAME_BYTES - HEAD_BYTES)
    if len(payload) + len(tail) < size + FRAME_BYTES - HEAD_BYTES:
        found = HEAD_BYTES + len(payload) + len(tail)
        fault = f"the file ends in it, after {found} of {size + FRAME_BYTES} bytes"
        raise DamagedRecordError(number, offset, fault)
    if _crc_bytes(masked_crc32c(payload)) != tail:
        raise DamagedRecordError(
            number, offset, f"its {size} bytes do not have the checksum stored with them"
        )
    return payload


def _read(file: Readable, size: int) -> bytes:
    """The next `size` bytes; fewer at the end of the file only."""
    data = file.read(min(size, _READ_BYTES))
    if len(data) == size:
        return data
    parts = [data]
    left = size - len(data)
    while left and parts[-1]:
        parts.append(file.read(min(left, _READ_BYTES)))
        left -= len(parts[-1])
    return b"".join(parts)
