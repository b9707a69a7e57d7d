"""Reuse of the previous version: identical shards, and images and masks of records in other shards."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import msgspec

from recordmill.transforms.examples.framing import read_frames
from recordmill.transforms.records import Failure, ImageRecord
from recordmill.transforms.shards.checkpoint import Checkpoint
from recordmill.transforms.shards.fingerprint import source_fingerprint
from recordmill.transforms.shards.lineage import (
    DamagedLineageError,
    EncodedRecord,
    LineageHeader,
    Row,
    read_lineage,
)
from recordmill.transforms.shards.previous import PreviousVersion, ShardPaths
from recordmill.transforms.shards.references import reference_record
from recordmill.transforms.shards.report import ShardFile, ShardReport, WriteStats
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import open_named, read_bytes, status_of, write_file


@dataclasses.dataclass(frozen=True)
class ReusableShard:
    """A shard of the previous version that was made from the same references by the same settings.

    Attributes:
        paths: of its files.
        header: of its lineage.
        lineage_sha256: of the file of its lineage, in hex.
        is_unchanged: whether a rebuild would be identical; False until failed records have been retried, and
            if a file has no version.
        work: operations of the retry.
    """

    paths: ShardPaths
    header: LineageHeader
    lineage_sha256: str
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
        stats = msgspec.structs.replace(self.header.stats, reused=self.header.stats.written, work=self.work)
        failures_path = None
        if self.header.failures:
            failures_path = f"{checkpoint.path}.failures"
            file_system(checkpoint.folder).make_folder(checkpoint.folder)
            write_file(failures_path, (f"{line}\n" for line in self.header.failures))
        file = ShardFile(
            path=self.paths.records_path,
            index_path=self.paths.index_path,
            failures_path=failures_path,
            size=self.header.size,
            sha256=self.header.sha256,
            stats=stats,
            lineage_path=self.paths.lineage_path,
            lineage_sha256=self.lineage_sha256,
        )
        return ShardReport(checkpoint.split, checkpoint.shard, file, from_previous=True, is_unchanged=True)


def reusable_shard(
    previous: PreviousVersion, num_shards: int, checkpoint: Checkpoint
) -> ReusableShard | None:
    """The shard with the same index in the previous version, if its references and settings are the same.

    Args:
        previous: the version.
        num_shards: of the split in the next version.
        checkpoint: of the shard in the next version.
    """
    split = previous.splits.get(checkpoint.split)
    if split is None or split.num_shards != num_shards:
        return None
    paths = previous.paths(checkpoint.split, checkpoint.shard)
    try:
        found = read_lineage(paths.lineage_path)
        header = found.header
        if header.digest != checkpoint.digest:
            return None
        records = status_of(paths.records_path)
        if (records.size, records.stamp) != (header.size, header.stamp):
            return None
        if hashlib.sha256(read_bytes(paths.index_path)).hexdigest() != header.index_sha256:
            return None
        deque(found.packed_rows, maxlen=0)  # damaged lineage must not get into the next version
    except (FileNotFoundError, DamagedLineageError):
        return None
    is_unchanged = not header.stats.failed and not header.stats.unversioned
    return ReusableShard(paths, header, found.sha256, is_unchanged)


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
        """The sort key of a record in its shard."""
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
                sort_key = self.sort_key(reference, record)
                while found is not None and found[0].sort_key < sort_key:
                    found = next(rows, None)
                stored = None
                if found is not None and found[0].sort_key == sort_key:
                    stored = _stored(*found) if found[0].source == source_fingerprint(record) else None
                yield record, stored

    def _rows(self, stack: contextlib.ExitStack) -> Iterator[tuple[Row, int, BinaryIO]]:
        """The rows of all shards that have images, each with its offset in the file of its record."""
        for shard in self.shards:
            with contextlib.suppress(FileNotFoundError, ValueError):  # damaged
                lineage = read_lineage(shard.lineage_path)
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
