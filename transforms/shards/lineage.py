"""The lineage of a published shard: what each record was made from, so that the next version can reuse it.

A gzipped TFRecord file, whose records are msgpack: a header, then a row for each record of the shard, in the
same order.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple, cast

import msgspec

from recordmill.transforms.examples.framing import (
    FRAME_BYTES,
    DamagedRecordError,
    masked_crc32c,
    read_records,
)
from recordmill.transforms.examples.tfrecord import RecordWriter
from recordmill.transforms.images.tensor import varint
from recordmill.transforms.records import Mapped, StoredImage
from recordmill.transforms.shards.report import ShardFile, WriteStats
from recordmill.transforms.shards.statistics import Counted, decode_counter, in_order
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import read_bytes

FORMAT_VERSION = 3
ENDING = ".rows.gz"
"""Of the files of lineage in a version's folder `state/`."""
_LEVEL = 5
_READ_BYTES = 1 << 20
_HEAD_BYTES = 64
# Of `value` of a `BytesList`: field 1, with a length.
_BYTES_VALUE = b"\x0a"

Span = tuple[int, int]
"""Start within a payload, and length."""


class DamagedLineageError(ValueError):
    """A file that `write_lineage` did not write, or that is damaged."""


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedRecord:
    """A serialised Example and its images, annotations and counts.

    Attributes:
        payload: the bytes; empty where they are those of the previous version.
        images: that it stores: one, none, or a frame a step.
        source_bytes: of them in the source.
        mapped: its annotations in the image; of the previous version, only masks.
        counted: classes and boxes in its features.
        annotations: fingerprint of the inputs of its masks; empty if it has none.
        is_as_listed: whether its files were read as they were listed; false where one has changed since.
    """

    payload: bytes
    images: tuple[StoredImage, ...]
    source_bytes: int
    mapped: Mapped = Mapped()
    counted: Counted = Counted()
    annotations: str = ""
    is_as_listed: bool = True


class LineageHeader(msgspec.Struct, frozen=True):
    """The lineage of a shard without its records.

    Attributes:
        digest: of its settings and references, as `shard_digest` has it.
        size: bytes of the shard.
        sha256: of the shard, in hex.
        stamp: of the shard, as `stamp_of` has it.
        index_sha256: of its index, in hex.
        stats: counts, without the work of the run.
        failures: lines of failures.jsonl.
        format_version: of the file.
    """

    digest: str
    size: int
    sha256: str
    stamp: str
    index_sha256: str
    stats: WriteStats
    failures: list[str]
    format_version: int = FORMAT_VERSION


class Row(msgspec.Struct, array_like=True, frozen=True):
    """One record.

    Attributes:
        sort_key: the order of records in the shard: their hash in hex, or with `--order=key` their key.
        source: fingerprint of the inputs of its images; empty if nothing can be reused.
        size: bytes of its payload.
        checksum: of its payload, as the frame has it.
        source_bytes: of its images in the source.
        images: where each lies in the payload, and the image without its bytes.
        annotations: fingerprint of the inputs of its masks; empty if it has none.
        masks: where each lies, by name.
        object_masks: likewise, in order.
    """

    sort_key: str
    source: str
    size: int
    checksum: int
    source_bytes: int
    images: list[tuple[Span, StoredImage]] = []
    annotations: str = ""
    masks: dict[str, Span] = {}
    object_masks: list[Span] = []

    def stored(self, payload: bytes) -> EncodedRecord | None:
        """The images and masks of the record, given its payload; None for the payload of another record."""
        if masked_crc32c(payload) != self.checksum:
            return None
        images = (dataclasses.replace(image, data=_part(payload, span)) for span, image in self.images)
        masks = {name: _part(payload, span) for name, span in self.masks.items()}
        object_masks = (_part(payload, span) for span in self.object_masks)
        mapped = Mapped((), masks, tuple(object_masks))
        return EncodedRecord(b"", tuple(images), self.source_bytes, mapped, annotations=self.annotations)


_headers = msgspec.msgpack.Decoder(LineageHeader, dec_hook=decode_counter)
_rows = msgspec.msgpack.Decoder(Row)


def _part(payload: bytes, span: Span) -> bytes:
    start, length = span
    return payload[start : start + length]


class Spans:
    """Finds parts of a payload. The search for each part starts at the end of the previous one.

    Any occurrence of the bytes will do.
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._end = 0

    def of(self, part: bytes) -> Span:
        """Where a part is.

        Raises:
            ValueError: it is not in the payload.
        """
        start = self._found(part, self._end)
        if start < 0 and (start := self._found(part, 0)) < 0:
            raise ValueError("a part of a record is not in it")
        self._end = start + len(part)
        return start, len(part)

    def _found(self, part: bytes, start: int) -> int:
        """Where a part begins, behind `start`; -1 where it does not.

        Its length, which stands before it, and its first bytes are looked for: to look for all of a large one
        takes a hundred times as long.
        """
        before = _BYTES_VALUE + varint(len(part))
        head = before + part[:_HEAD_BYTES]
        while (start := self._payload.find(head, start)) >= 0:
            start += len(before)
            if self._payload.startswith(part, start):
                return start
        return -1


def row_bytes(sort_key: str, source: str, record: EncodedRecord) -> bytes:
    """The row of a record, whatever its position in the file.

    Args:
        sort_key: as in `Row`.
        source: as in `Row`.
        record: that has been written.
    """
    payload = record.payload
    row = Row(sort_key, source, len(payload), masked_crc32c(payload), record.source_bytes)
    if source:
        spans = Spans(payload)
        images = [(spans.of(image.data), dataclasses.replace(image, data=b"")) for image in record.images]
        row = msgspec.structs.replace(row, images=images)
        if record.annotations:
            masks = {name: spans.of(mask) for name, mask in record.mapped.masks.items()}
            object_masks = [spans.of(mask) for mask in record.mapped.object_masks]
            row = msgspec.structs.replace(
                row, annotations=record.annotations, masks=masks, object_masks=object_masks
            )
    return msgspec.msgpack.encode(row)


def header_of(
    file: ShardFile, digest: str, stamp: str, index_sha256: str, failures: Sequence[str]
) -> LineageHeader:
    """The header of a finished shard: but for `stamp` the same, however much of the shard was reused."""
    statistics = msgspec.structs.replace(file.stats.statistics, reencoded=[])
    stats = msgspec.structs.replace(file.stats, work=Counter(), reused=0, statistics=statistics)
    return LineageHeader(digest, file.size, file.sha256, stamp, index_sha256, in_order(stats), list(failures))


def write_lineage(path: str, header: LineageHeader, rows: str) -> str:
    """Writes a file of lineage of this machine.

    Args:
        path: of it.
        header: of the shard.
        rows: path of a TFRecord file of rows, as `row_bytes` makes them.

    Returns:
        Its SHA-256, in hex.
    """
    with (
        open(path, "wb") as file,
        gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed,
        open(rows, "rb") as every_row,
    ):
        RecordWriter(cast(BinaryIO, packed)).write(msgspec.msgpack.encode(header))
        shutil.copyfileobj(every_row, packed, _READ_BYTES)
    return file_system(path).sha256(path)


class Lineage(NamedTuple):
    """The lineage of a shard.

    Attributes:
        header: of the shard.
        packed_rows: the rows, in order, as msgpack, read as they are asked for. Raises DamagedLineageError.
        sha256: of the file, in hex.
    """

    header: LineageHeader
    packed_rows: Iterator[bytes]
    sha256: str

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Each row, and the offset of its record's frame in the shard. Raises DamagedLineageError."""
        offset = 0
        for packed in self.packed_rows:
            row = _rows.decode(packed)
            yield offset, row
            offset += row.size + FRAME_BYTES


def read_lineage(path: str) -> Lineage:
    """Reads a file of lineage. Each row has a checksum, and the file at its end another one.

    Raises:
        DamagedLineageError: its header is damaged, or of another format.
        FileNotFoundError: there is none.
    """
    data = read_bytes(path)
    records = _records(data, path)
    packed_header = next(records, b"")
    try:
        header = _headers.decode(packed_header)
        if header.format_version != FORMAT_VERSION:
            raise ValueError(f"format_version is {header.format_version}, not {FORMAT_VERSION}")
    except (ValueError, RecursionError) as error:
        raise DamagedLineageError(f"{path} is damaged: {error}") from error
    return Lineage(header, records, hashlib.sha256(data).hexdigest())


def _records(data: bytes, path: str) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            yield from read_records(file)
    except (gzip.BadGzipFile, DamagedRecordError) as error:
        raise DamagedLineageError(f"{path} is damaged: {error}") from error
