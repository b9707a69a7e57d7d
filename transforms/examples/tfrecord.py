"""TFRecord files, written and indexed; `transforms.examples.framing` describes how a record is framed.

Files of records concatenate byte for byte.
"""

from __future__ import annotations

import array
import functools
import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from recordmill.transforms.examples.framing import FRAME_BYTES, masked_crc32c

# Below this a copy is cheaper than two more calls of write and of sha256.
_COPY_BELOW = 16 * 1024
_length_bytes = struct.Struct("<Q").pack
_crc_bytes = struct.Struct("<I").pack


class RecordWriter:
    """Writes records to a binary file, and keeps the values for its index and report.

    The file stays the caller's: open it buffered (a raw file may write less than it is given), flush
    and close it.

    Args:
        hashed: whether `sha256` is needed.

    Attributes:
        lengths: bytes of each frame, in order, for `index_lines`.
        bytes_written: framing included.
    """

    def __init__(self, file: BinaryIO, hashed: bool = True) -> None:
        self._write = file.write
        self._digest = hashlib.sha256() if hashed else None
        self.lengths = array.array("Q")
        self.bytes_written = 0

    def write(self, payload: bytes) -> None:
        """Writes one record, framed. An OSError leaves a file that must be thrown away."""
        size = len(payload)
        head = _head(size)
        tail = _crc_bytes(masked_crc32c(payload))
        for part in (head + payload + tail,) if size < _COPY_BELOW else (head, payload, tail):
            if self._digest is not None:
                self._digest.update(part)
            self._write(part)
        self.lengths.append(size + FRAME_BYTES)
        self.bytes_written += size + FRAME_BYTES

    @property
    def sha256(self) -> str:
        """SHA-256 of all bytes written, in hex; empty if they are not hashed."""
        return self._digest.hexdigest() if self._digest is not None else ""


@functools.lru_cache
def _head(size: int) -> bytes:
    """The head of a frame; small records often have the same size."""
    length = _length_bytes(size)
    return length + _crc_bytes(masked_crc32c(length))


def index_lines(lengths: Iterable[int], start: int = 0) -> Iterator[str]:
    """A line `<offset> <length>` for each frame (payload and framing), the first of which is at `start`."""
    offset = start
    for length in lengths:
        yield f"{offset} {length}\n"
        offset += length
