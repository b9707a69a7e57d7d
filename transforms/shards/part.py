"""Writes whole shards, or parts of them, as files; parts concatenate byte for byte to a shard."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence

from transforms.examples.index import index_lines
from transforms.examples.tfrecord import RecordWriter
from transforms.records import BadInput, JobError
from transforms.shards.packing import reference_record
from transforms.shards.record_encoder import RecordEncoder
from transforms.shards.report import ShardFile, WriteStats, merged

# Called with the records and the source bytes done since the last call.
Progress = Callable[[int, int], None]

_COPY_BYTES = 1 << 20
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_WRITE_BYTES = 1 << 18


@dataclasses.dataclass(frozen=True, slots=True)
class PartTask:
    """References, in their final order, and the path without ending to write them under."""

    references: Sequence[bytes]
    path: str

    def run(self, encoder: RecordEncoder, progress: Progress) -> ShardFile:
        """Writes the part; an error of the machine is one of the job."""
        with _naming(self.path):
            return write_part(self.references, self.path, encoder, progress)


@dataclasses.dataclass(frozen=True, slots=True)
class JoinTask:
    """Finished parts of one shard, in order, and the path without ending to join them under."""

    parts: Sequence[ShardFile]
    path: str

    def run(self, encoder: RecordEncoder, progress: Progress) -> ShardFile:
        """Joins the parts and removes them; an error of the machine is one of the job."""
        with _naming(self.path):
            return join_parts(self.parts, self.path)


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Turns an OSError into a JobError that says which file, and what to do."""
    try:
        yield
    except OSError as error:
        remedy = "; free space there, or give another --output" if error.errno in _DISK_FULL else ""
        raise JobError(f"{error.filename or path}: {error.strerror}{remedy}") from error


def write_part(
    references: Sequence[bytes], path: str, encoder: RecordEncoder, progress: Progress
) -> ShardFile:
    """Encodes `references`, in their order, into `path`.tfrecord; index and failures beside it."""
    stats = WriteStats()
    failures: list[str] = []
    with open(f"{path}.tfrecord", "wb", buffering=_WRITE_BYTES) as file:
        writer = RecordWriter(file)
        for reference in references:
            record = reference_record(reference)
            try:
                encoded = encoder.encode(record)
            except BadInput as error:
                failure = error.failure(record.key)
                failures.append(failure.to_json())
                stats.add_failure(failure)
            else:
                writer.write(encoded.payload)
                stats.add(encoded.image, encoded.source_bytes)
            progress(1, record.size)
    with open(f"{path}.idx", "w", encoding="ascii") as index:
        index.writelines(index_lines(writer.lengths))
    return ShardFile(
        path=f"{path}.tfrecord",
        index_path=f"{path}.idx",
        failures_path=_write_failures(failures, path),
        size=writer.bytes_written,
        sha256=writer.sha256,
        stats=stats,
    )


def write_empty(path: str) -> ShardFile:
    """A shard without a record: a file all the same, since its name is in the others' names."""
    for ending in ("tfrecord", "idx"):
        with open(f"{path}.{ending}", "wb"):
            pass
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
    os.replace(parts[0].path, f"{path}.tfrecord")
    os.replace(parts[0].index_path, f"{path}.idx")
    with open(f"{path}.tfrecord", "rb") as first:
        while block := first.read(_COPY_BYTES):
            hashed.update(block)
            size += len(block)
    with open(f"{path}.tfrecord", "ab") as file, open(f"{path}.idx", "a") as index:
        for part in parts[1:]:
            with open(part.index_path) as lines:
                for line in lines:
                    offset, length = line.split()
                    index.write(f"{int(offset) + size} {length}\n")
            with open(part.path, "rb") as source:
                while block := source.read(_COPY_BYTES):
                    hashed.update(block)
                    file.write(block)
                    size += len(block)
            os.remove(part.path)
            os.remove(part.index_path)
    failures = []
    for part in parts:
        if part.failures_path is not None:
            with open(part.failures_path, encoding="utf-8", newline="\n") as lines:
                failures += [line.rstrip("\n") for line in lines]
            os.remove(part.failures_path)
    return ShardFile(
        path=f"{path}.tfrecord",
        index_path=f"{path}.idx",
        failures_path=_write_failures(failures, path),
        size=size,
        sha256=hashed.hexdigest(),
        stats=merged([part.stats for part in parts]),
    )


def _write_failures(lines: Sequence[str], path: str) -> str | None:
    if not lines:
        return None
    with open(f"{path}.failures", "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
    return f"{path}.failures"
