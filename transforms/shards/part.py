"""Writes whole shards, or parts of them, as files; parts concatenate byte for byte to a shard."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import IO

from transforms.examples.index import index_lines
from transforms.examples.tfrecord import RecordWriter
from transforms.records import BadInput, Failure
from transforms.shards.packing import reference_record
from transforms.shards.record_encoder import Progress, RecordEncoder
from transforms.shards.report import ShardFile, WriteStats, merged
from transforms.shards.state import ShardState
from transforms.storage import objects
from transforms.storage.durable import write_text
from transforms.storage.paths import is_remote
from transforms.storage.write_faults import naming_faults

_COPY_BYTES = 1 << 20
_WRITE_BYTES = 1 << 18


@dataclasses.dataclass(frozen=True, slots=True)
class JoinTask:
    """Joins finished parts of one shard, and removes them.

    Attributes:
        parts: in order.
        path: to join them under, without ending.
        state: to be written once the shard is finished; None where this is a part of one.
    """

    parts: Sequence[ShardFile]
    path: str
    state: ShardState | None = None

    def run(self, encoder: RecordEncoder, progress: Progress) -> ShardFile:
        """Joins; an error of the machine is one of the job."""
        with naming_faults(self.path):
            return _finished(join_parts(self.parts, self.path), self.state, progress)


@dataclasses.dataclass(frozen=True, slots=True)
class PartTask:
    """Writes a shard, or a part of one.

    Attributes:
        references: in their final order.
        path: to write them under, without ending.
        state: as in `JoinTask`.
    """

    references: Sequence[bytes]
    path: str
    state: ShardState | None = None

    def run(self, encoder: RecordEncoder, progress: Progress) -> ShardFile:
        """Writes; an error of the machine is one of the job."""
        with naming_faults(self.path):
            return _finished(write_part(self.references, self.path, encoder, progress), self.state, progress)

    def piece(self, start: int, end: int) -> PartTask:
        """The same for some of the references."""
        return PartTask(self.references[start:end], f"{self.path}-piece{start:05d}-{end:05d}")

    def abandon(self) -> None:
        """Removes what a try has left that was cut off."""
        with naming_faults(self.path):
            _remove(f"{self.path}.{ending}" for ending in ("tfrecord", "idx", "failures"))

    def lost(self, error: BadInput) -> ShardFile:
        """What is written of a single record that cannot be tried again."""
        with naming_faults(self.path):
            failure = error.failure(reference_record(self.references[0]).key)
            stats = WriteStats()
            stats.add_failure(failure)
            file = dataclasses.replace(
                write_empty(self.path),
                failures_path=_write_failures([failure.to_json()], self.path),
                stats=stats,
            )
            return _finished(file, self.state)

    def joined(self, pieces: Sequence[ShardFile]) -> JoinTask:
        """What makes one of all pieces, in order."""
        return JoinTask(pieces, self.path, self.state)


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Encoded records, in order.

    Attributes:
        payloads: serialised Examples, without those that failed; none where only sizes were asked for.
        payload_bytes: of all of them.
        stats: counts.
        failures: the records that failed.
    """

    payloads: list[bytes]
    payload_bytes: int
    stats: WriteStats
    failures: list[Failure]


@dataclasses.dataclass(frozen=True, slots=True)
class EncodeTask:
    """Encodes records, and gives them back.

    Attributes:
        references: in order.
        sizes_only: leave the payloads out.
    """

    references: Sequence[bytes]
    sizes_only: bool = False

    def run(self, encoder: RecordEncoder, progress: Progress) -> EncodedBatch:
        """Encodes; an error of the machine is one of the job."""
        batch = EncodedBatch([], 0, WriteStats(), [])
        size = 0
        with naming_faults("an image"):
            for payload in encoder.encode_all(self.references, batch.stats, batch.failures, progress):
                size += len(payload)
                if not self.sizes_only:
                    batch.payloads.append(payload)
        return dataclasses.replace(batch, payload_bytes=size)

    def piece(self, start: int, end: int) -> EncodeTask:
        """The same for some of the references."""
        return EncodeTask(self.references[start:end], self.sizes_only)

    def abandon(self) -> None:
        """A try leaves nothing."""

    def lost(self, error: BadInput) -> EncodedBatch:
        """The result of a single record that cannot be tried again."""
        failure = error.failure(reference_record(self.references[0]).key)
        stats = WriteStats()
        stats.add_failure(failure)
        return EncodedBatch([], 0, stats, [failure])

    def joined(self, pieces: Sequence[EncodedBatch]) -> EncodedBatch:
        """One of all pieces, in order."""
        return EncodedBatch(
            [payload for piece in pieces for payload in piece.payloads],
            sum(piece.payload_bytes for piece in pieces),
            merged([piece.stats for piece in pieces]),
            [failure for piece in pieces for failure in piece.failures],
        )


def _finished(file: ShardFile, state: ShardState | None, progress: Progress | None = None) -> ShardFile:
    """Makes a shard last: its files are on disk, or in the bucket, before the state that names them."""
    if state is None:
        return file
    sizes = [os.path.getsize(path) for path in file.paths]
    if is_remote(state.folder):
        file = _uploaded(file, state.folder)
    else:
        for path in file.paths:
            with open(path, "rb") as finished:
                os.fsync(finished.fileno())
    if progress is not None:
        progress(0, 0)  # a writer whose parent is gone ends here
    state.write(file, sizes)
    return file


def _uploaded(file: ShardFile, folder: str) -> ShardFile:
    """A shard's file in a bucket, where it has the same names; those of this machine are removed."""
    objects.in_parallel(functools.partial(_upload, folder), file.paths)
    _remove(file.paths)
    return dataclasses.replace(
        file,
        path=_placed(folder, file.path),
        index_path=_placed(folder, file.index_path),
        failures_path=file.failures_path and _placed(folder, file.failures_path),
    )


def _upload(folder: str, path: str) -> None:
    objects.upload(path, _placed(folder, path))


def _placed(folder: str, path: str) -> str:
    return os.path.join(folder, os.path.basename(path))


def write_part(
    references: Sequence[bytes], path: str, encoder: RecordEncoder, progress: Progress
) -> ShardFile:
    """Encodes `references`, in their order, into `path`.tfrecord; index and failures beside it."""
    stats = WriteStats()
    failures: list[Failure] = []
    with open(f"{path}.tfrecord", "wb", buffering=_WRITE_BYTES) as file:
        writer = RecordWriter(file)
        for payload in encoder.encode_all(references, stats, failures, progress):
            writer.write(payload)
    with open(f"{path}.idx", "w", encoding="ascii") as index:
        index.writelines(index_lines(writer.lengths))
    return ShardFile(
        path=f"{path}.tfrecord",
        index_path=f"{path}.idx",
        failures_path=_write_failures([failure.to_json() for failure in failures], path),
        size=writer.bytes_written,
        sha256=writer.sha256,
        stats=stats,
    )


def write_empty(path: str) -> ShardFile:
    """A shard without a record: a file all the same, since its name is in the others' names."""
    for ending in ("tfrecord", "idx"):
        write_text(f"{path}.{ending}", "")
    return ShardFile(
        path=f"{path}.tfrecord",
        index_path=f"{path}.idx",
        failures_path=None,
        size=0,
        sha256=hashlib.sha256().hexdigest(),
        stats=WriteStats(),
    )


def join_parts(parts: Sequence[ShardFile], path: str) -> ShardFile:
    """Appends the parts to the first, under `path`: TFRecord files concatenate to a TFRecord file."""
    hashed = hashlib.sha256()
    size = 0
    if os.path.exists(parts[0].path):  # else it has been moved by a try that was cut off
        os.replace(parts[0].path, f"{path}.tfrecord")
    with open(f"{path}.tfrecord", "r+b") as file, open(f"{path}.idx", "w") as index:
        file.truncate(parts[0].size)
        for part in parts:
            with open(part.index_path) as lines:
                index.writelines(_shifted(lines, size))
            first = part is parts[0]
            with contextlib.nullcontext(file) if first else open(part.path, "rb") as source:
                while block := source.read(_COPY_BYTES):
                    hashed.update(block)
                    size += len(block)
                    if not first:
                        file.write(block)
    failures = []
    for part in parts:
        if part.failures_path is not None:
            with open(part.failures_path, encoding="utf-8", newline="\n") as failed:
                failures += [line.rstrip("\n") for line in failed]
    result = ShardFile(
        path=f"{path}.tfrecord",
        index_path=f"{path}.idx",
        failures_path=_write_failures(failures, path),
        size=size,
        sha256=hashed.hexdigest(),
        stats=merged([part.stats for part in parts]),
    )
    # The first has been moved.
    _remove(path for part in parts for path in (part.path, part.index_path, part.failures_path))
    return result


def _shifted(lines: IO[str], start: int) -> Iterable[str]:
    """The lines of an index, for records that begin at `start`."""
    for line in lines:
        offset, length = line.split()
        yield f"{int(offset) + start} {length}\n"


def _remove(paths: Iterable[str | None]) -> None:
    """Removes files, as far as they are there."""
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
