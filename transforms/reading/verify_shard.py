"""Verifies a shard as a file: size, SHA-256, both checksums of every record, its index."""

from __future__ import annotations

import array
import dataclasses
import itertools
from collections.abc import Iterator

from recordmill.transforms.examples.framing import (
    FRAME_BYTES,
    DamagedRecordError,
    DecompressionError,
    Frame,
)
from recordmill.transforms.examples.tfrecord import index_lines
from recordmill.transforms.reading.dataset import ShardEntry
from recordmill.transforms.reading.shard import frames, frames_in, opened
from recordmill.transforms.reading.verify_dataset import MISSING, changed_file
from recordmill.transforms.reading.verify_report import Fault, Tally
from recordmill.transforms.storage.files import read_bytes

DAMAGED = "damaged record"
# A process holds, and is given, at most so much of a range at a time.
_RANGE_BYTES = 4 << 20
_RANGE_RECORDS = 512


@dataclasses.dataclass(frozen=True, slots=True)
class RecordRange:
    """Consecutive records of a shard.

    Attributes:
        path: of the file.
        name: of the file, in its folder.
        shard: index of the file.
        first: number of the first record.
        offset: of the first record.
        lengths: bytes of each frame.
        packed: whether the file is compressed; offsets are then of its decompressed bytes.
        split: of the file.
    """

    path: str
    name: str
    shard: int
    first: int
    offset: int
    lengths: array.array[int]
    packed: bool = False
    split: str = ""

    def piece(self, start: int, end: int) -> RecordRange:
        """Some of these records."""
        offset = self.offset + sum(self.lengths[:start])
        return dataclasses.replace(
            self, first=self.first + start, offset=offset, lengths=self.lengths[start:end]
        )

    def read(self) -> Iterator[Frame]:
        """The records, with their offsets in the file.

        Raises:
            DamagedRecordError: they have changed since they were scanned.
            OSError: they cannot be read.
        """
        if self.packed:
            return itertools.islice(frames(self.path), self.first, self.first + len(self.lengths))
        return frames_in(self.path, self.offset, sum(self.lengths), self.first)


def scan_shard(entry: ShardEntry, name: str, shard: int) -> tuple[Tally, list[RecordRange]]:
    """Reads a shard once and completely, and its index and lineage.

    Args:
        entry: of the shard.
        name: of the file, in its folder.
        shard: its index among all shards.

    Returns:
        What was found, and the records that can be read.

    Raises:
        OSError: the file exists and cannot be read.
    """
    tally = Tally()
    if entry.lineage is not None:
        folder = entry.path.removesuffix(f"/{name}")
        tally.add(*changed_file(folder, entry.lineage, entry.lineage_sha256, tally))
    lengths = array.array("Q")
    is_damaged = False
    try:
        with opened(entry.path, hashed=True) as file:
            hashed, packed = file.hashed, bool(file.compression)
            assert hashed is not None
            try:
                for frame in file.frames():
                    lengths.append(len(frame.payload) + FRAME_BYTES)
            except DamagedRecordError as error:
                is_damaged = True
                start = "the file cannot be unpacked: " if isinstance(error, DecompressionError) else ""
                what = f"{start}{error.fault}; what comes after it was not read"
                tally.add(Fault(DAMAGED, name, error.number, error.offset, what=what))
            hashed.finish()
    except FileNotFoundError:
        tally.add(Fault(MISSING, name))
        return tally, []
    count, sha256 = len(lengths), hashed.digest.hexdigest()
    tally.checked.update(shards=1, records=count, bytes=hashed.size)
    if entry.expected_size is not None and hashed.size != entry.expected_size:
        what = f"it has {hashed.size:,} bytes; the manifest has {entry.expected_size:,}"
        tally.add(Fault("wrong size", name, what=what))
    if entry.sha256 and sha256 != entry.sha256:
        what = f"its SHA-256 is {sha256}; the manifest has {entry.sha256}"
        tally.add(Fault("wrong SHA-256", name, what=what))
    if entry.records is not None and not is_damaged and entry.records != count:
        what = f"it has {count:,} records; the manifest has {entry.records:,}"
        tally.add(Fault("wrong number of records", name, what=what))
    records = RecordRange(entry.path, name, shard, 0, 0, lengths, packed, entry.split or "")
    if packed:
        return tally, [records]  # reading any record of a compressed file reads it from its start
    tally.add(*_index_faults(entry, name, lengths, is_damaged))
    tally.checked["indexes"] += entry.index is not None
    return tally, list(_ranges(records))


def _index_faults(
    entry: ShardEntry, name: str, lengths: array.array[int], is_damaged: bool
) -> Iterator[Fault]:
    """The faults of an index; of a damaged shard only the records before the damage are compared."""
    if entry.index is None:
        if entry.sha256:
            yield Fault(MISSING, f"index/{name.removesuffix('.tfrecord')}.idx", what=f"the index of {name}")
        return
    file = entry.index.removeprefix(entry.path.removesuffix(name))
    wanted = "".join(index_lines(lengths)).encode("ascii")
    found = read_bytes(entry.index)
    if not entry.sha256:  # other programs end lines differently
        wanted, found = (b"\n".join(text.split()) for text in (wanted, found))
    if found == wanted or (is_damaged and found.startswith(wanted)):
        return
    lines = zip(itertools.count(), found.split(b"\n"), wanted.split(b"\n"))
    number = next((at for at, one, other in lines if one != other), min(len(found), len(wanted)))
    what = f"line {number + 1} of it is not what {name} has, or it has other lines than {len(lengths):,}"
    yield Fault("index differs from its shard", file, what=what)


def _ranges(records: RecordRange) -> Iterator[RecordRange]:
    start = offset = size = 0
    for at, length in enumerate((*records.lengths, _RANGE_BYTES)):
        if at > start and (size + length > _RANGE_BYTES or at - start >= _RANGE_RECORDS):
            part = records.lengths[start:at]
            yield dataclasses.replace(records, first=start, offset=offset, lengths=part)
            start, offset, size = at, offset + size, 0
        size += length
