"""Lineage of shards: what each record was made from, for the next version, and for a search of duplicates.

Lineage is a gzipped TFRecord file for each shard, whose records are msgpack: a header, then lists of rows, a
row for each record of the shard, in the same order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import io
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from recordmill.transforms.examples.framing import (
    FRAME_BYTES,
    DamagedRecordError,
    masked_crc32c,
    read_frames,
    read_records,
)
from recordmill.transforms.examples.tfrecord import RecordWriter
from recordmill.transforms.images.tensor import varint
from recordmill.transforms.records import Failure, ImageRecord, Mapped, StoredImage
from recordmill.transforms.shards.duplicates import HashedImage
from recordmill.transforms.shards.previous import PreviousVersion, ShardPaths
from recordmill.transforms.shards.references import reference_record, source_fingerprint
from recordmill.transforms.shards.report import Checkpoint, ShardFile, ShardReport, WriteStats
from recordmill.transforms.shards.statistics import Counted, decode_counter, in_order
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import open_named, read_bytes, status_of, write_file

_FORMAT_VERSION = 4
_LEVEL = 1
_READ_BYTES = 1 << 20
_HEAD_BYTES = 64
_ROWS_AT_ONCE = 1024
# Of `value` of a `BytesList`: field 1, with a length.
_BYTES_VALUE = b"\x0a"

Span = tuple[int, int]
"""Start within a payload, and length."""


class DamagedLineageError(ValueError):
    """A file that `write_lineage` did not write, or that is damaged."""


class EncodedRecord(msgspec.Struct, frozen=True):
    """A serialised Example and its images, annotations and counts.

    Attributes:
        payload: the bytes; empty for a record of the previous version.
        images: that it stores: one, none, or a frame a step.
        source_bytes: of the images in the source.
        mapped: its annotations in the image; of the previous version, only masks.
        counted: classes and boxes in its features.
        annotations: fingerprint of the inputs of its masks; empty if it has none.
        is_as_listed: whether its files are unchanged since they were listed.
        hashes: of its image, `content` and `decoded` of `HashedImage`; None without one, and for a sequence.
    """

    payload: bytes
    images: tuple[StoredImage, ...]
    source_bytes: int
    mapped: Mapped = Mapped()
    counted: Counted = Counted()
    annotations: str = ""
    is_as_listed: bool = True
    hashes: tuple[bytes, bytes] | None = None


class LineageHeader(msgspec.Struct, frozen=True):
    """The lineage of a shard without its records.

    Attributes:
        digest: of its settings and references, as `shard_digest` has it.
        stamp: `Status.stamp` of the shard.
        stats: counts, without the work of the run.
        failures: lines of failures.jsonl.
    """

    digest: str
    size: int
    sha256: str
    stamp: str
    index_sha256: str
    stats: WriteStats
    failures: list[str]
    format_version: int = _FORMAT_VERSION


class HashedRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The start of a row, for a search of duplicates; all of it if the dataset has no versions.

    Attributes:
        hashed: the image of the record; None without one, and for a sequence.
    """

    hashed: HashedImage | None


class Row(HashedRow, array_like=True, frozen=True, gc=False):
    """One record.

    Attributes:
        sort_key: the order of records in the shard: their hash in hex, or with `--order=key` their key.
        source: fingerprint of the inputs of its images; empty if nothing can be reused.
        size: bytes of its payload.
        checksum: of its payload, as the frame has it; 0 if nothing can be reused.
        source_bytes: of its images in the source.
        images: the location of each in the payload, and the image without its bytes.
        annotations: fingerprint of the inputs of its masks; empty if it has none.
        masks: the location of each, by name.
        object_masks: the location of each, in order.
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

        def part(span: Span) -> bytes:
            return payload[span[0] : span[0] + span[1]]

        images = tuple(replace(image, data=part(span)) for span, image in self.images)
        masks = {name: part(span) for name, span in self.masks.items()}
        mapped = Mapped((), masks, tuple(map(part, self.object_masks)))
        hashes = None if self.hashed is None else (self.hashed.content, self.hashed.decoded)
        return EncodedRecord(
            b"", images, self.source_bytes, mapped, annotations=self.annotations, hashes=hashes
        )


_headers = msgspec.msgpack.Decoder(LineageHeader, dec_hook=decode_counter)
_rows = msgspec.msgpack.Decoder(list[Row])
_hashed_rows = msgspec.msgpack.Decoder(list[HashedRow])


class Spans:
    """Finds parts of a payload; any occurrence of the bytes will do.

    The search for each part starts at the end of the previous one.
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._end = 0

    def of(self, part: bytes) -> Span:
        """The location of a part. Raises ValueError if it is not in the payload."""
        start = self._found(part, self._end)
        if start < 0 and (start := self._found(part, 0)) < 0:
            raise ValueError("a part of a record is not in it")
        self._end = start + len(part)
        return start, len(part)

    def _found(self, part: bytes, start: int) -> int:
        """The start of a part, not before `start`; -1 if there is none.

        Searches for its length, which comes before it, and its first bytes: a search for all bytes of a large
        part takes a hundred times as long.
        """
        before = _BYTES_VALUE + varint(len(part))
        head = before + part[:_HEAD_BYTES]
        while (start := self._payload.find(head, start)) >= 0:
            start += len(before)
            if self._payload.startswith(part, start):
                return start
        return -1


def row_of(hashed: HashedImage | None, sort_key: str, source: str, record: EncodedRecord) -> Row:
    """The row of a record that has been written, whatever its position in the file."""
    payload = record.payload
    checksum = masked_crc32c(payload) if source else 0
    row = Row(hashed, sort_key, source, len(payload), checksum, record.source_bytes)
    if source:
        spans = Spans(payload)
        images = [
            (spans.of(image.data), replace(image, data=b"", decoded_hash=b"")) for image in record.images
        ]
        row = replace(row, images=images)
        if record.annotations:
            masks = {name: spans.of(mask) for name, mask in record.mapped.masks.items()}
            object_masks = [spans.of(mask) for mask in record.mapped.object_masks]
            row = replace(row, annotations=record.annotations, masks=masks, object_masks=object_masks)
    return row


class RowWriter:
    """Writes rows to a TFRecord file, many in each of its records. It does not close the file."""

    def __init__(self, file: BinaryIO) -> None:
        self._writer = RecordWriter(file)
        self._rows: list[HashedRow] = []

    def write(self, row: HashedRow) -> None:
        self._rows.append(row)
        if len(self._rows) == _ROWS_AT_ONCE:
            self.finish()

    def finish(self) -> None:
        """Writes the rows that are left."""
        if self._rows:
            self._writer.write(msgspec.msgpack.encode(self._rows))
            self._rows.clear()


def header_of(
    file: ShardFile, digest: str, stamp: str, index_sha256: str, failures: Sequence[str]
) -> LineageHeader:
    """The header of a finished shard: except `stamp` the same, however much of the shard was reused."""
    statistics = replace(file.stats.statistics, reencoded=[])
    stats = replace(file.stats, work=Counter(), reused=0, statistics=statistics)
    return LineageHeader(digest, file.size, file.sha256, stamp, index_sha256, in_order(stats), list(failures))


def write_lineage(path: str, header: LineageHeader, rows: str) -> str:
    """Writes a file of lineage on this machine; returns its SHA-256, in hex.

    `rows` is the path of the file of a `RowWriter`.
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
        packed_rows: lists of rows, in order, as msgpack; read lazily. Raises DamagedLineageError.
    """

    header: LineageHeader
    packed_rows: Iterator[bytes]
    sha256: str

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Each row, and the offset of its record's frame in the shard. Raises DamagedLineageError."""
        offset = 0
        for packed in self.packed_rows:
            for row in _rows.decode(packed):
                yield offset, row
                offset += row.size + FRAME_BYTES

    def images(self) -> Iterator[HashedImage | None]:
        """The image of each row. Raises DamagedLineageError."""
        for packed in self.packed_rows:
            for row in _hashed_rows.decode(packed):
                yield row.hashed


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
        if header.format_version != _FORMAT_VERSION:
            raise ValueError(f"format_version is {header.format_version}, not {_FORMAT_VERSION}")
    except (ValueError, RecursionError) as error:
        raise DamagedLineageError(f"{path} is damaged: {error}") from error
    return Lineage(header, records, hashlib.sha256(data).hexdigest())


def _records(data: bytes, path: str) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            yield from read_records(file)
    except (gzip.BadGzipFile, DamagedRecordError) as error:
        raise DamagedLineageError(f"{path} is damaged: {error}") from error


@dataclasses.dataclass(frozen=True)
class ReusableShard:
    """A shard of the previous version that was made from the same references by the same settings.

    Attributes:
        is_unchanged: whether a rebuild would be identical; False until failed records have been retried, and
            if a file has no version.
        work: operations of the retry.
    """

    paths: ShardPaths
    header: LineageHeader
    is_unchanged: bool
    work: Counter[str] = dataclasses.field(default_factory=Counter)

    def failures(self) -> list[Failure]:
        """The failures of the records that it lacks."""
        every = [Failure(**msgspec.json.decode(line)) for line in self.header.failures]
        return [failure for failure in every if not failure.kept]

    def lacking(self, references: Iterable[bytes]) -> list[tuple[bytes, ImageRecord]]:
        """The records that it lacks, with their references."""
        keys = {failure.key for failure in self.failures()}
        every = ((reference, reference_record(reference)) for reference in references)
        return [(reference, record) for reference, record in every if record.key in keys]

    def retried(self, stats: WriteStats, failures: Sequence[Failure]) -> ReusableShard:
        """The same, once the records that it lacks have been retried."""
        is_unchanged = not stats.written and list(failures) == self.failures()
        return dataclasses.replace(self, is_unchanged=is_unchanged, work=stats.work)

    def report(self, checkpoint: Checkpoint) -> ShardReport:
        """Its report; writes its failures into a file of the run."""
        header, failures_path = self.header, None
        if header.failures:
            failures_path = f"{checkpoint.path}.failures"
            file_system(checkpoint.folder).make_folder(checkpoint.folder)
            write_file(failures_path, (f"{line}\n" for line in header.failures))
        file = ShardFile(
            path=self.paths.records_path,
            index_path=self.paths.index_path,
            failures_path=failures_path,
            size=header.size,
            sha256=header.sha256,
            stats=replace(header.stats, reused=header.stats.written, work=self.work),
            lineage_path=self.paths.lineage_path,
            lineage_sha256=self.paths.lineage_sha256,
        )
        return ShardReport(checkpoint.split, checkpoint.shard, file, from_previous=True, is_unchanged=True)


def reusable_shard(
    previous: PreviousVersion, num_shards: int, checkpoint: Checkpoint
) -> ReusableShard | None:
    """The shard with the same index in the previous version, if its references and settings are the same.

    `num_shards` are those of the split in the next version.
    """
    split = previous.splits.get(checkpoint.split)
    if split is None or split.num_shards != num_shards:
        return None
    paths = previous.paths(checkpoint.split, checkpoint.shard)
    try:
        found = read_lineage(paths.lineage_path)
        header = found.header
        if header.digest != checkpoint.digest or found.sha256 != paths.lineage_sha256:
            return None
        records = status_of(paths.records_path)
        if (records.size, records.stamp) != (header.size, header.stamp):
            return None
        if hashlib.sha256(read_bytes(paths.index_path)).hexdigest() != header.index_sha256:
            return None
    except (FileNotFoundError, DamagedLineageError):
        return None
    is_unchanged = not header.stats.failed and not header.stats.unversioned
    return ReusableShard(paths, header, is_unchanged)


@dataclasses.dataclass(frozen=True, slots=True)
class PreviousRecords:
    """The shards of the previous version that may have the records of a shard, or of a part of one.

    Attributes:
        shards: of the previous version, in order; none where there is nothing to reuse.
        by_key: records are ordered by their keys, not by their hashes.
        mask_map: name of the `MaskMap`.
    """

    shards: tuple[ShardPaths, ...] = ()
    by_key: bool = False
    mask_map: str = ""

    def sort_key(self, reference: bytes, record: ImageRecord) -> str:
        return record.key if self.by_key else reference[:8].hex()

    def found(
        self, records: Iterable[tuple[bytes, ImageRecord]]
    ) -> Iterator[tuple[ImageRecord, EncodedRecord | None]]:
        """Yields each record, and its images and masks in the previous version if they can be reused.

        Reads both in one pass; `records` are (reference, record), in the order of the shard.
        """
        with contextlib.ExitStack() as stack:
            rows = self._rows(stack)
            found = next(rows, None)
            for reference, record in records:
                sort_key = "" if found is None else self.sort_key(reference, record)
                while found is not None and found[0].sort_key < sort_key:
                    found = next(rows, None)
                stored = None
                if found is not None and found[0].sort_key == sort_key:
                    stored = _stored(*found) if found[0].source == source_fingerprint(record) else None
                yield record, stored

    def _rows(self, stack: contextlib.ExitStack) -> Iterator[tuple[Row, int, BinaryIO]]:
        """The rows of all shards that have images, each with its record's offset and file."""
        for shard in self.shards:
            with contextlib.suppress(FileNotFoundError, ValueError):  # damaged
                lineage = read_lineage(shard.lineage_path)
                if lineage.sha256 != shard.lineage_sha256:
                    continue
                file = stack.enter_context(open_named(shard.records_path))
                for offset, row in lineage.rows():
                    if row.source:
                        yield row, offset, file


def _stored(row: Row, offset: int, file: BinaryIO) -> EncodedRecord | None:
    """The images and masks of the record of a row; None if it is damaged."""
    file.seek(offset)
    try:
        payload = next(read_frames(file)).payload
    except (StopIteration, ValueError):  # a DamagedRecordError among them
        return None
    return row.stored(payload)
