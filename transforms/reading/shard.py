"""Reads one TFRecord file: in order, or single records by its index."""

from __future__ import annotations

import array
import contextlib
import io
from collections.abc import Iterator
from typing import NamedTuple

from recordmill.transforms.framing import (
    FRAME_BYTES,
    DamagedRecordError,
    Frame,
    Readable,
    read_frames,
    read_records,
)
from recordmill.transforms.sources.tfrecord.files import unpacked
from recordmill.transforms.storage.files import open_named, read_bytes


class Index(NamedTuple):
    """Where the records of an uncompressed file lie.

    Attributes:
        offsets: of each frame.
        lengths: bytes of each, its frame among them.
    """

    offsets: array.array[int]
    lengths: array.array[int]

    def __len__(self) -> int:
        return len(self.offsets)


def read_index(path: str) -> Index:
    """An index as DALI and the `tfrecord` package have it: a line `<offset> <length>` a record.

    Raises:
        ValueError: a line is not of that form; names file and line.
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


@contextlib.contextmanager
def opened(path: str) -> Iterator[tuple[Readable, bool]]:
    """A file of TFRecords to be read in order, unpacked, and whether it is compressed.

    Raises:
        OSError: it cannot be opened.
    """
    with open_named(path) as stored:
        yield unpacked(stored)


def compression(path: str) -> str:
    """How a file is compressed, as tf.data.TFRecordDataset names it; empty if it is not.

    Raises:
        OSError: it cannot be read.
    """
    with opened(path) as (_, is_packed):
        if not is_packed:
            return ""
    with open_named(path) as file:
        return "GZIP" if file.read(2) == b"\x1f\x8b" else "ZLIB"


def frames(path: str) -> Iterator[Frame]:
    """The records of a file, compressed or not, in order; both checksums of each are verified.

    Raises:
        DamagedRecordError: names record and offset; in a compressed file the offset is of what it unpacks to.
        EOFError, zlib.error: a compressed file is cut off or damaged.
        OSError: it cannot be read.
    """
    with opened(path) as (file, _):
        yield from read_frames(file)


def record_at(path: str, offset: int, length: int) -> bytes:
    """The payload of one record of an uncompressed file.

    Args:
        path: of the file.
        offset: of the frame.
        length: bytes of the frame.

    Raises:
        DamagedRecordError: it is damaged, or no record begins and ends there.
        OSError: it cannot be read.
    """
    with open_named(path) as file:
        file.seek(offset)
        payload = next(read_records(io.BytesIO(file.read(length))), b"")
    if len(payload) + FRAME_BYTES != length:
        raise DamagedRecordError(0, offset, f"no record of {length} bytes is there")
    return payload
