"""Reads TFRecord framing: uint64 length, masked crc32c of it, payload, masked crc32c of that; little endian.

A file is plain, or compressed by gzip or zlib as a whole. Sources of the format:
tensorflow/core/lib/io/record_{writer,reader}.h. Imports nothing of Beam.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import struct
import zlib
from collections.abc import Iterator
from typing import Literal, NamedTuple, Protocol

import google_crc32c

# google_crc32c falls back, with a mere warning, to a Python loop of some 20 ms for each 70 KB image.
if google_crc32c.implementation != "c":
    raise ImportError(
        f"google-crc32c has only its {google_crc32c.implementation!r} implementation here, too slow for "
        "TFRecords; install a wheel of it that has the C library: pip install --force-reinstall google-crc32c"
    )

FRAME_BYTES = 16
"""Bytes that framing adds to a payload."""

HEAD_BYTES = 12
"""Bytes of a frame before its payload."""

Compression = Literal["", "GZIP", "ZLIB"]
"""The compression of a file, as tf.data.TFRecordDataset names it."""

_MASK_DELTA = 0xA282EAD8
_READ_BYTES = 1 << 20
_CHUNK = 1 << 16
_ANY_HEADER = 32 + zlib.MAX_WBITS  # gzip's or zlib's
_MOST_BYTES = 1 << 31  # protobuf has no larger message; a compressed file may claim, and have, any number
_HEAD = struct.Struct("<QI")
_crc_bytes = struct.Struct("<I").pack
_crc32c = google_crc32c.value


def masked_crc32c(data: bytes) -> int:
    """The CRC-32C of `data`, rotated and offset as TFRecord stores it."""
    crc: int = _crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, none at the end."""


class HashedFile:
    """A file that is hashed while it is read.

    Args:
        file: at its start.

    Attributes:
        size: number of bytes read.
        digest: SHA-256 of them.
    """

    def __init__(self, file: Readable) -> None:
        self._file = file
        self.size = 0
        self.digest = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, none at the end."""
        data = self._file.read(size)
        self.digest.update(data)
        self.size += len(data)
        return data

    def finish(self) -> None:
        """Reads the rest of the file."""
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
    """A record that cannot be read.

    Args:
        number: of the record in its file, from 0.
        offset: where its frame begins; in a compressed file, after decompression.
        fault: a description of the damage.
    """

    def __init__(self, number: int, offset: int, fault: str) -> None:
        super().__init__(f"record {number} at byte {offset}: {fault}")
        self.number = number
        self.offset = offset
        self.fault = fault

    @classmethod
    def cut_off(cls, number: int, offset: int, found: int, length: int) -> DamagedRecordError:
        """The error for a frame of `length` bytes of which the file has only `found`."""
        return cls(number, offset, f"the file ends in it, after {found} of {length} bytes")


class DecompressionError(DamagedRecordError):
    """A compressed file that is cut off or damaged; the arguments describe the record being read."""

    def __str__(self) -> str:
        return self.fault


def is_head(head: bytes) -> bool:
    """Whether bytes can precede a payload: a length and its checksum."""
    return len(head) == HEAD_BYTES and masked_crc32c(head[:8]) == _HEAD.unpack(head)[1]


def payload_size(head: bytes, number: int, offset: int) -> int:
    """Bytes of the payload that follows a head. Raises DamagedRecordError."""
    if len(head) < HEAD_BYTES:
        fault = f"the file ends in its length, after {len(head)} of {HEAD_BYTES} bytes"
        raise DamagedRecordError(number, offset, fault)
    size: int = _HEAD.unpack(head)[0]
    if not is_head(head):
        fault = f"its length, {size}, does not have the checksum stored with it"
        raise DamagedRecordError(number, offset, fault)
    return size


def read_payload(file: Readable, size: int, number: int, offset: int, most: int = _MOST_BYTES) -> bytes:
    """The payload of `size` bytes that comes next, verified. Raises DamagedRecordError."""
    if size > most:
        raise DamagedRecordError(number, offset, f"its length is {size} bytes; up to {most} are read")
    payload = read_fully(file, size)
    tail = read_fully(file, FRAME_BYTES - HEAD_BYTES)
    if len(payload) + len(tail) < size + FRAME_BYTES - HEAD_BYTES:
        found = HEAD_BYTES + len(payload) + len(tail)
        raise DamagedRecordError.cut_off(number, offset, found, size + FRAME_BYTES)
    if _crc_bytes(masked_crc32c(payload)) != tail:
        fault = f"its {size} bytes do not have the checksum stored with them"
        raise DamagedRecordError(number, offset, fault)
    return payload


def read_fully(file: Readable, size: int) -> bytes:
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


def read_frames(file: Readable, most: int = _MOST_BYTES, first: int = 0, offset: int = 0) -> Iterator[Frame]:
    """The records of a TFRecord file, in order; both checksums of each are verified.

    Holds one record at a time, and never more than the file has, even if a damaged length is larger.

    Args:
        file: open at the start of a record, decompressed.
        most: bytes that a payload may have.
        first: number of the record at which `file` is.
        offset: of that record in its file.

    Raises:
        DamagedRecordError: names the record, its offset, and the damage. A DecompressionError if
            `Inflated` cannot decompress the file.
    """
    for number in itertools.count(first):
        try:
            head = read_fully(file, HEAD_BYTES)
            if not head:
                return
            payload = read_payload(file, payload_size(head, number, offset), number, offset, most)
        except (EOFError, zlib.error) as error:
            raise DecompressionError(number, offset, str(error)) from error
        yield Frame(offset, payload)
        offset += len(payload) + FRAME_BYTES


def read_records(file: Readable) -> Iterator[bytes]:
    """The payloads of a TFRecord file; see `read_frames`."""
    return (frame.payload for frame in read_frames(file))


class Inflated:
    """A gzip or zlib stream, decompressed as it is read; several streams in a row are read as one."""

    def __init__(self, packed: Readable) -> None:
        self._packed = packed
        self._left = b""
        self._stream = zlib.decompressobj(_ANY_HEADER)
        self._begun = False

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, none at the end.

        Raises:
            EOFError: it is cut off.
            zlib.error: it is damaged.
        """
        while size > 0:
            if self._stream.eof:
                self._left = self._stream.unused_data
                self._stream = zlib.decompressobj(_ANY_HEADER)
                self._begun = False
            self._left = self._left or self._packed.read(_CHUNK)
            if not self._left and not self._begun:
                break
            data = self._stream.decompress(self._left, size)
            if not self._left and not data and not self._stream.eof:
                raise EOFError("the compressed file is cut off")
            self._begun, self._left = True, self._stream.unconsumed_tail
            if data:
                return data
        return b""


class RecordFile:
    """An open TFRecord file, plain or compressed.

    Args:
        file: at its start; the caller closes it.
        hashed: whether to hash its bytes while they are read.

    Attributes:
        file: that was given.
        hashed: the same file, hashed; None unless asked for.
        compression: empty for a plain file.
        stream: its bytes after decompression.
    """

    def __init__(self, file: io.BufferedReader, hashed: bool = False) -> None:
        self.file = file
        self.compression = _compression(file)
        self.hashed = HashedFile(file) if hashed else None
        stored = self.hashed or file
        self.stream: Readable = Inflated(stored) if self.compression else stored

    def frames(self, most: int = _MOST_BYTES) -> Iterator[Frame]:
        """All records in order, as `read_frames`."""
        return read_frames(self.stream, most)

    def begins_with_record(self) -> bool:
        """Whether the file, at its start, begins with the head of a record."""
        try:
            return is_head(read_fully(self.stream, HEAD_BYTES))
        except (EOFError, zlib.error):
            return False


def _compression(file: io.BufferedReader) -> Compression:
    """The compression of a file, which is at its start before and after."""
    head = file.read(HEAD_BYTES)
    file.seek(0)
    # the first bytes of a valid length may look like those of a compressed file
    if is_head(head):
        return ""
    if head[:2] == b"\x1f\x8b":
        return "GZIP"
    is_zlib = len(head) > 1 and head[0] == 0x78 and int.from_bytes(head[:2], "big") % 31 == 0
    return "ZLIB" if is_zlib else ""
