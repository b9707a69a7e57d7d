"""Verifies a shard as a file: size, SHA-256, both checksums of every record, its index."""

from __future__ import annotations

import array
import dataclasses
import itertools
from collections.abc import Iterator

from recordmill.transforms.examples.framing import FRAME_BYTES, DamagedRecordError, DecompressionError, Frame
from recordmill.transforms.examples.tfrecord import index_lines
from recordmill.transforms.reading.dataset import ShardEntry
from recordmill.transforms.reading.shard import frames, frames_in, opened
from recordmill.transforms.reading.verify_dataset import MISSING, changed_file
from recordmill.transforms.reading.verify_tally import Fault, Tally
from recordmill.transforms.storage.files import read_bytes

DAMAGED = "damaged record"
# Of a range: what a process holds, and is told of, at a time.
_RANGE_BYTES = 4 << 20
_RANGE_RECORDS = 512


@dataclasses.dataclass(frozen=True, slots=True)
class RecordRange:
    """Some records of a shard, one after the other.

    Attributes:
        path: of the file.
        name: of the file, in its folder.
        shard: place of the file among all.
        first: number of the first record.
        offset: at which that begins.
        lengths: bytes of each frame.
        packed: the file is compressed, and offsets are of what it unpacks to.
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
        """The records, offsets as of their file.

        Raises:
            DamagedRecordError: they are not what they were a moment ago.
            OSError: they cannot be read.
        """
        if self.packed:
            yield from itertools.islice(frames(self.path), self.first, self.first + len(self.lengths))
            return
        yield from frames_in(self.path, self.offset, sum(self.lengths), self.first)


def scan_shard(entry: ShardEntry, name: str, shard: int) -> tuple[Tally, list[RecordRange]]:
    """Reads a shard once, whole, and what lies beside it.

    Args:
        entry: of the shard.
        name: of the file, in its folder.
        shard: its place among all.

    Returns:
        What was found, and the records that can be read.

    Raises:
        OSError: the file is there and cannot be read.
    """
    tally = Tally()
    if entry.lineage is not None:
        folder = entry.path.removesuffix(f"/{name}")
        for fault in changed_file(folder, entry.lineage, entry.lineage_sha256, tally):
            tally.add(fault)
    try:
        lengths, packed, damage = _read(entry, name, tally)
    except FileNotFoundError:
        tally.add(Fault(MISSING, name))
        return tally, []
    tally.checked["shards"] += 1
    tally.checked["records"] += len(lengths)
    if damage is not None:
        tally.add(damage)
    if entry.records is not None and damage is None and entry.records != len(lengths):
        what = f"it has {len(lengths):,} records; the manifest has {entry.records:,}"
        tally.add(Fault("wrong number of records", name, what=what))
    if not packed:
        for fault in _index_faults(entry, name, lengths, damage is None):
            tally.add(fault)
        tally.checked["indexes"] += entry.index is not None
    return tally, list(
        _ranges(RecordRange(entry.path, name, shard, 0, 0, lengths, packed, entry.split or ""))
    )


def _read(entry: ShardEntry, name: str, tally: Tally) -> tuple[array.array[int], bool, Fault | None]:
    """The frame of each record, whether they are packed, and what is wrong with the next one."""
    lengths = array.array("Q")
    damage = None
    with opened(entry.path, hashed=True) as file:
        counted, packed = file.hashed, bool(file.compression)
        assert counted is not None
        try:
            for frame in file.frames():
                lengths.append(len(frame.payload) + FRAME_BYTES)
        except DamagedRecordError as error:
            is_packed = isinstance(error, DecompressionError)
            what = f"{'the file cannot be unpacked: ' if is_packed else ''}{error.fault}"
            what = f"{what}; what comes after it was not read"
            damage = Fault(DAMAGED, name, error.number, error.offset, what=what)
        counted.finish()
    tally.checked["bytes"] += counted.size
    found = counted.digest.hexdigest()
    if entry.expected_size is not None and counted.size != entry.expected_size:
        what = f"it has {counted.size:,} bytes; the manifest has {entry.expected_size:,}"
        tally.add(Fault("wrong size", name, what=what))
    if entry.sha256 and found != entry.sha256:
        what = f"its SHA-256 is {found}; the manifest has {entry.sha256}"
        tally.add(Fault("wrong SHA-256", name, what=what))
    return lengths, packed, damage


def _index_faults(entry: ShardEntry, name: str, lengths: array.array[int], is_whole: bool) -> Iterator[Fault]:
    """Of the index against the frames; of a damaged shard, as far as they were read."""
    if entry.index is None:
        if entry.sha256:
            yield Fault(MISSING, f"index/{name.removesuffix('.tfrecord')}.idx", what=f"the index of {name}")
        return
    file = entry.index.removeprefix(entry.path.removesuffix(name))
    wanted = "".join(index_lines(lengths)).encode("ascii")
    found = read_bytes(entry.index)
    if not entry.sha256:  # others end lines in other ways
        wanted, found = (b"\n".join(text.split()) for text in (wanted, found))
    if found == wanted or (not is_whole and found.startswith(wanted)):
        return
    lines = zip(itertools.count(), found.split(b"\n"), wanted.split(b"\n"))
    number = next((at for at, one, other in lines if one != other), min(len(found), len(wanted)))
    what = f"line {number + 1} of it is not what {name} has, or it has other lines than {len(lengths):,}"
    yield Fault("index differs from its shard", file, what=what)


def _ranges(all_records: RecordRange) -> Iterator[RecordRange]:
    """The records, some at a time; those of a compressed file at once, which is read from its start."""
    lengths = all_records.lengths
    if all_records.packed:
        yield all_records
        return
    start = offset = size = 0
    for at, length in enumerate(lengths):
        if at > start and (size + length > _RANGE_BYTES or at - start >= _RANGE_RECORDS):
            part = lengths[start:at]
            yield dataclasses.replace(all_records, first=start, offset=offset, lengths=part)
            start, offset, size = at, offset + size, 0
        size += length
    if len(lengths) > start:
        yield dataclasses.replace(all_records, first=start, offset=offset, lengths=lengths[start:])
