"""Verifies a shard that another writer wrote, indexes it, and makes its report."""

from __future__ import annotations

import array
import os
import re
import uuid

from recordmill.transforms.examples.framing import FRAME_BYTES, HashedFile, read_records
from recordmill.transforms.examples.tfrecord import index_lines
from recordmill.transforms.records import JobError
from recordmill.transforms.shards.report import ShardFile, ShardReport, WriteStats
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import open_named, write_file

_NAME = re.compile(r"(?P<split>.+)-(?P<shard>\d{5})-of-\d{5}\.tfrecord")


def shard_of_name(path: str) -> tuple[str, int]:
    """Split and number of a shard, from its name."""
    match = _NAME.fullmatch(os.path.basename(path))
    if match is None:
        raise ValueError(f"{path!r} is not named <split>-SSSSS-of-NNNNN.tfrecord")
    return match["split"], int(match["shard"])


def read_back(path: str) -> ShardReport:
    """Reads a shard once, and writes its index next to it, under a name that no other attempt uses.

    Raises:
        JobError: it is damaged or cannot be read, or the index cannot be written.
    """
    split, shard = shard_of_name(path)
    index_path = f"{path.removesuffix('.tfrecord')}-{uuid.uuid4().hex[:12]}.idx"
    lengths = array.array("Q")
    with naming_faults(path), open_named(path) as file:
        hashing = HashedFile(file)
        try:
            lengths.extend(len(payload) + FRAME_BYTES for payload in read_records(hashing))
        except ValueError as error:
            raise JobError(
                f"{path}: {error}; the disk does not give back what was written to it: look after it, then "
                "give the same command"
            ) from error
    system = file_system(path)
    with naming_faults(path):
        if system.working_folder(os.path.dirname(path)) is not None:  # a file of this machine
            system.put(path, path)
    with naming_faults(index_path):
        write_file(index_path, index_lines(lengths))
    stats = WriteStats(written=len(lengths))
    file_of_shard = ShardFile(path, index_path, None, sum(lengths), hashing.digest.hexdigest(), stats)
    return ShardReport(split, shard, file_of_shard)
