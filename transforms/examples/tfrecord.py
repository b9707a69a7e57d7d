"""TFRecord framing: uint64 length, masked crc32c of it, payload, masked crc32c of that; little endian.

Source of the format: tensorflow/core/lib/io/record_writer.h. Files of it concatenate byte for byte.
"""

from __future__ import annotations

import array
import hashlib
import struct
from collections.abc import Iterator
from typing import BinaryIO, Protocol

import google_crc32c

# google_crc32c falls back, with a mere warning, to a Python loop of some 20 ms for each 70 KB image.
if google_crc32c.implementation != "c":
    raise ImportError(
        f"google-crc32c has only its {google_crc32c.implementation!r} implementation here, too slow to write "
        "TFRecords; install a wheel of it that has the C library: pip install --force-reinstall google-crc32c"
    )

FRAME_BYTES = 16
"""What framing adds to a payload."""

_MASK_DELTA = 0xA282EAD8
# Below this a copy is cheaper than two more calls of write and of sha256.
_COPY_BELOW = 16 * 1024
_READ_BYTES = 1 << 20
_HEAD = struct.Struct("<QI")
_length_bytes = struct.Struct("<Q").pack
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


def read_records(file: Readable) -> Iterator[bytes]:
    """The payloads of a TFRecord file, both checksums of each verified.

    Holds one record at a time, and never more than the file has, whatever a damaged length says.

    Raises:
        ValueError: names the record, its offset, and what is wrong with it.
    """
    offset = number = 0
    while head := _read(file, _HEAD.size):
        where = f"record {number} at byte {offset}"
        if len(head) < _HEAD.size:
            raise ValueError(f"{where}: the file ends in its length, after {len(head)} of {_HEAD.size} bytes")
        size, expected = _HEAD.unpack(head)
        if masked_crc32c(head[:8]) != expected:
            raise ValueError(f"{where}: its length, {size}, does not have the checksum stored with it")
        payload = _read(file, size)
        tail = _read(file, FRAME_BYTES - _HEAD.size)
        if len(payload) + len(tail) < size + FRAME_BYTES - _HEAD.size:
            found = _HEAD.size + len(payload) + len(tail)
            raise ValueError(f"{where}: the file ends in it, after {found} of {size + FRAME_BYTES} bytes")
        if _crc_bytes(masked_crc32c(payload)) != tail:
            raise ValueError(f"{where}: its {size} bytes do not have the checksum stored with them")
        yield payload
        offset += size + FRAME_BYTES
        number += 1


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


class RecordWriter:
    """Writes records to a binary file and keeps what its index and its report need.

    The file stays the caller's: open it buffered (a raw file may write less than it is given), flush
    and close it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._write = file.write
        self._digest = hashlib.sha256()
        self._lengths = array.array("Q")
        self._bytes_written = 0

    def write(self, payload: bytes) -> None:
        """Writes one record, framed. An OSError leaves a file that must be thrown away."""
        size = len(payload)
        length = _length_bytes(size)
        head = length + _crc_bytes(masked_crc32c(length))
        tail = _crc_bytes(masked_crc32c(payload))
        if size < _COPY_BELOW:
            frame = head + payload + tail
            self._digest.update(frame)
            self._write(frame)
        else:
            for part in (head, payload, tail):
                self._digest.update(part)
                self._write(part)
        self._lengths.append(size + FRAME_BYTES)
        self._bytes_written += size + FRAME_BYTES

    @property
    def records(self) -> int:
        """Number of records written."""
        return len(self._lengths)

    @property
    def bytes_written(self) -> int:
        """Bytes written, framing included."""
        return self._bytes_written

    @property
    def sha256(self) -> str:
        """SHA-256 of all bytes written, in hex."""
        return self._digest.hexdigest()

    @property
    def lengths(self) -> array.array[int]:
        """Bytes of each whole frame, in order: what `index_lines` takes."""
        return self._lengths
