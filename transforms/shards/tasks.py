"""Tasks that encode records or write shards; large shards are written in parts, which are concatenated."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import math
import os
import shutil
from collections.abc import Iterable, Sequence

import msgspec

from recordmill.transforms.examples.tfrecord import RecordWriter, index_lines
from recordmill.transforms.records import BadInput, Failure
from recordmill.transforms.shards.duplicates import HashedImage
from recordmill.transforms.shards.record_encoder import RecordEncoder, RecordSettings
from recordmill.transforms.shards.references import is_versioned, reference_record, source_fingerprint
from recordmill.transforms.shards.report import Checkpoint, ShardFile, WriteStats, merged
from recordmill.transforms.shards.reuse import (
    HashedRow,
    PreviousRecords,
    RowWriter,
    header_of,
    row_of,
    write_lineage,
)
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import Status, file_system
from recordmill.transforms.storage.files import write_file
from recordmill.transforms.storage.layout import LINEAGE_ENDING
from recordmill.transforms.workers.pool import ITEM_SECONDS, ProcessExecutor
from recordmill.transforms.workers.task import SLOW_FACTOR, Progress, R, Task, Worker

_COPY_BYTES = 1 << 20
_WRITE_BYTES = 1 << 18
# Parts for each worker in the last round. More parts cost more than they save; fewer leave a worker idle.
_PARTS_PER_WORKER = 6
_SMALLEST_PART = 8
# References that one process holds at a time: some 10 MB.
_LARGEST_PART = 50_000


def encoder_pool(
    settings: RecordSettings,
    progress: Progress,
    workers: int,
    item_seconds: float | None = None,
    tries: int = 2,
) -> ProcessExecutor[RecordEncoder]:
    """Processes that encode records by `settings`; the other arguments as in `ProcessExecutor`."""
    if item_seconds is None:
        item_seconds = ITEM_SECONDS * (SLOW_FACTOR if settings.is_slow else 1)
    function = settings.map_image.label if settings.map_image is not None else ""
    return ProcessExecutor(
        functools.partial(RecordEncoder, settings), progress, workers, item_seconds, tries, function
    )


def part_count(records: int, shard: int, num_shards: int, workers: int) -> int:
    """The number of parts of a shard of `records` records, the `shard`-th (from 0) that is submitted.

    A shard is one part, unless it has very many records. Only the shards of the last round are split, so that
    no worker waits long for another: joining reads all parts, and copies all but the first.
    """
    last_round = num_shards % workers or workers
    parts = max(math.ceil(records / _LARGEST_PART), 1)
    if workers > 1 and shard >= num_shards - last_round:
        wanted = min(math.ceil(_PARTS_PER_WORKER * workers / last_round), records // _SMALLEST_PART)
        parts = max(parts, wanted)
    return parts


@dataclasses.dataclass(frozen=True, slots=True)
class _RecordsTask(Task[RecordEncoder, R]):
    """A task whose items are records, by their references in order."""

    references: Sequence[bytes]

    @property
    def items(self) -> int:
        return len(self.references)

    def source(self) -> str:
        record = reference_record(self.references[0])
        return record.image.uri if record.image is not None else record.key

    def _failure(self, error: BadInput) -> tuple[Failure, WriteStats]:
        failure = error.failure(reference_record(self.references[0]).key)
        stats = WriteStats()
        stats.add_failure(failure)
        return failure, stats


@dataclasses.dataclass(frozen=True, slots=True)
class PartTask(_RecordsTask[ShardFile]):
    """Writes a shard, or a part of one. A fault of the machine fails the job.

    Attributes:
        path: of its files, without ending.
        checkpoint: of the shard; None for a part of one.
        previous: records of the previous version; None if the dataset has no versions.
        has_images: whether records have images, which are searched for duplicates.
    """

    path: str
    checkpoint: Checkpoint | None = None
    previous: PreviousRecords | None = None
    has_images: bool = False

    @property
    def _has_lineage(self) -> bool:
        return self.has_images or self.previous is not None

    def run(self, encoder: RecordEncoder) -> ShardFile:
        with naming_faults(self.path):
            is_whole = self.checkpoint is not None
            part = write_part(
                self.references, self.path, encoder, self.previous, self.has_images, hashed=is_whole
            )
            return _finished(part, self.checkpoint, encoder.worker)

    def lost(self, error: BadInput) -> ShardFile:
        with naming_faults(self.path):
            failure, stats = self._failure(error)
            empty = write_empty(self.path, has_lineage=self._has_lineage)
            failures_path = _write_failures([failure.to_json()], self.path)
            file = msgspec.structs.replace(empty, failures_path=failures_path, stats=stats)
            return _finished(file, self.checkpoint)

    def split(self, start: int, end: int) -> PartTask:
        path = f"{self.path}-part{start:05d}-{end:05d}"
        return PartTask(self.references[start:end], path, None, self.previous, self.has_images)

    def join(self, results: Iterable[ShardFile]) -> ShardFile:
        with naming_faults(self.path):
            return _finished(join_parts(results, self.path), self.checkpoint)

    def remove_leftovers(self) -> None:
        with naming_faults(self.path):
            _remove(f"{self.path}.{ending}" for ending in ("tfrecord", "idx", "failures", "rows"))


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Encoded records, in order, without those that failed, and their images for a search of duplicates.

    `payloads` and `hashed` are empty if only sizes are needed.
    """

    payloads: list[bytes]
    payload_bytes: int
    stats: WriteStats
    failures: list[Failure]
    hashed: list[HashedImage] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class EncodeTask(_RecordsTask[EncodedBatch]):
    """Encodes records, and returns them, or only their sizes. A fault of the machine fails the job."""

    sizes_only: bool = False

    def run(self, encoder: RecordEncoder) -> EncodedBatch:
        batch = EncodedBatch([], 0, WriteStats(), [])
        size = 0
        with naming_faults("an image"):
            for _, record, encoded in encoder.encode_all(self.references, batch.stats, batch.failures):
                size += len(encoded.payload)
                if not self.sizes_only:
                    batch.payloads.append(encoded.payload)
                    if (hashed := encoder.hashed(record, encoded)) is not None:
                        batch.hashed.append(hashed)
        return dataclasses.replace(batch, payload_bytes=size)

    def lost(self, error: BadInput) -> EncodedBatch:
        failure, stats = self._failure(error)
        return EncodedBatch([], 0, stats, [failure])

    def split(self, start: int, end: int) -> EncodeTask:
        return EncodeTask(self.references[start:end], self.sizes_only)

    def join(self, results: Iterable[EncodedBatch]) -> EncodedBatch:
        batches = list(results)
        return EncodedBatch(
            [payload for batch in batches for payload in batch.payloads],
            sum(batch.payload_bytes for batch in batches),
            merged([batch.stats for batch in batches]),
            [failure for batch in batches for failure in batch.failures],
            [image for batch in batches for image in batch.hashed],
        )


def _finished(file: ShardFile, checkpoint: Checkpoint | None, worker: Worker | None = None) -> ShardFile:
    """Makes a shard durable: its files are in the folder of the run before the checkpoint that names them."""
    if checkpoint is None:
        return file
    system, folder = file_system(checkpoint.folder), checkpoint.folder

    def put(path: str) -> Status:
        return system.put(path, os.path.join(folder, os.path.basename(path)))

    records = put(file.path)  # before its lineage, which holds its stamp
    if file.lineage_path is not None:
        file = _with_lineage(file, file.lineage_path, checkpoint.digest, records.stamp)
    others = system.each(put, file.paths[1:])
    if worker is not None:
        worker.progress(0, 0)  # a worker whose parent is gone ends here
    file = file.in_folder(folder)
    checkpoint.write(file, [status.size for status in (records, *others)])
    return file


def _with_lineage(file: ShardFile, rows: str, digest: str, stamp: str) -> ShardFile:
    """The shard, with its complete lineage instead of the rows of its records."""
    failures: Sequence[str] = ()
    if file.failures_path is not None:
        with open(file.failures_path, encoding="utf-8", newline="\n") as failed:
            failures = [line.rstrip("\n") for line in failed]
    path = f"{rows.removesuffix('.rows')}{LINEAGE_ENDING}"
    with open(file.index_path, "rb") as lines:
        index = hashlib.sha256(lines.read()).hexdigest()
    sha256 = write_lineage(path, header_of(file, digest, stamp, index, failures), rows)
    os.remove(rows)
    return msgspec.structs.replace(file, lineage_path=path, lineage_sha256=sha256)


def write_part(
    references: Sequence[bytes],
    path: str,
    encoder: RecordEncoder,
    previous: PreviousRecords | None = None,
    has_images: bool = False,
    hashed: bool = True,
) -> ShardFile:
    """Encodes `references`, in their order, into `path`.tfrecord, with index and failures next to it.

    With `previous` or `has_images`, each record also writes a row of lineage. What will be joined need not be
    `hashed`.
    """
    has_lineage = has_images or previous is not None
    stats = WriteStats()
    failures: list[Failure] = []
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(f"{path}.tfrecord", "wb", buffering=_WRITE_BYTES))
        writer = RecordWriter(file, hashed)
        rows = None
        if has_lineage:
            rows = RowWriter(stack.enter_context(open(f"{path}.rows", "wb", buffering=_WRITE_BYTES)))
        for number, record, encoded in encoder.encode_all(references, stats, failures, previous):
            writer.write(encoded.payload)
            if rows is not None:
                row = HashedRow(encoder.hashed(record, encoded))
                if previous is not None:
                    sort_key = previous.sort_key(references[number], record)
                    can_reuse = encoded.is_as_listed and encoder.makes_one
                    source = source_fingerprint(record) if can_reuse else ""
                    row = row_of(row.hashed, sort_key, source, encoded)
                rows.write(row)
            stats.unversioned += not (encoded.is_as_listed and is_versioned(record))
        if rows is not None:
            rows.finish()
    with open(f"{path}.idx", "w", encoding="ascii") as index:
        index.writelines(index_lines(writer.lengths))
    failures_path = _write_failures([failure.to_json() for failure in failures], path)
    lineage = f"{path}.rows" if has_lineage else None
    return _shard_file(path, failures_path, writer.bytes_written, writer.sha256, stats, lineage)


def _shard_file(
    path: str, failures: str | None, size: int, sha256: str, stats: WriteStats, lineage: str | None
) -> ShardFile:
    return ShardFile(f"{path}.tfrecord", f"{path}.idx", failures, size, sha256, stats, lineage)


def write_empty(path: str, has_lineage: bool = False) -> ShardFile:
    """A shard without a record: an empty file, since the names of shards contain their number."""
    for ending in ("tfrecord", "idx", "rows") if has_lineage else ("tfrecord", "idx"):
        write_file(f"{path}.{ending}", "")
    lineage = f"{path}.rows" if has_lineage else None
    return _shard_file(path, None, 0, hashlib.sha256().hexdigest(), WriteStats(), lineage)


def join_parts(results: Iterable[ShardFile], path: str) -> ShardFile:
    """Appends the parts to the first, under `path`: TFRecord files concatenate to a TFRecord file.

    Each part is appended, and its file removed, before the next one is awaited.
    """
    hashed = hashlib.sha256()
    size = 0
    parts: list[ShardFile] = []
    with contextlib.ExitStack() as stack:
        index = stack.enter_context(open(f"{path}.idx", "w"))
        for part in results:
            with open(part.index_path) as lines:
                for line in lines:
                    offset, length = line.split()
                    index.write(f"{int(offset) + size} {length}\n")
            if not parts:
                os.replace(part.path, f"{path}.tfrecord")
                file = stack.enter_context(open(f"{path}.tfrecord", "r+b"))
            with open(part.path, "rb") if parts else contextlib.nullcontext(file) as source:
                while block := source.read(_COPY_BYTES):
                    hashed.update(block)
                    size += len(block)
                    if parts:
                        file.write(block)
            if parts:
                os.remove(part.path)
            parts.append(part)
    failures = _concatenated([part.failures_path for part in parts], f"{path}.failures")
    lineage = _concatenated([part.lineage_path for part in parts], f"{path}.rows")
    stats = merged([part.stats for part in parts])
    _remove(path for part in parts for path in part.paths)
    return _shard_file(path, failures, size, hashed.hexdigest(), stats, lineage)


def _concatenated(parts: Sequence[str | None], path: str) -> str | None:
    every = [part for part in parts if part is not None]
    if not every:
        return None
    with open(path, "wb") as file:
        for part in every:
            with open(part, "rb") as lines:
                shutil.copyfileobj(lines, file, _COPY_BYTES)
    return path


def _remove(paths: Iterable[str | None]) -> None:
    for path in paths:
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


def _write_failures(lines: Sequence[str], path: str) -> str | None:
    if not lines:
        return None
    with open(f"{path}.failures", "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
    return f"{path}.failures"
