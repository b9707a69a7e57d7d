"""Single records of a dataset: the first ones, one by its number, some spread evenly over all."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recordmill.transforms.examples.framing import FRAME_BYTES, DamagedRecordError
from recordmill.transforms.reading.dataset import Dataset, ShardEntry
from recordmill.transforms.reading.inspected import MOST_SCANNED, FileFound, spread
from recordmill.transforms.reading.shard import (
    LARGEST,
    Damage,
    Location,
    Record,
    index_count,
    locations,
    opened,
    read_index,
    record_at,
    records_and_damage,
)
from recordmill.transforms.records import BadInput
from recordmill.transforms.storage.file_system import file_system


class Taken(NamedTuple):
    """A record of a dataset, and its file."""

    entry: ShardEntry
    record: Record


def first_records(dataset: Dataset, most: int) -> Iterator[Taken]:
    """The first records of a dataset that can be read. Raises OSError."""
    existing = (entry for entry in dataset.shards if entry.size is not None)
    return itertools.islice(itertools.chain.from_iterable(map(_readable, existing)), most)


def _readable(entry: ShardEntry) -> Iterator[Taken]:
    with opened(entry.path) as file:
        for item in records_and_damage(file, entry.size or 0, MOST_SCANNED):
            if isinstance(item, Record):
                yield Taken(entry, item)


def numbered_record(entries: Sequence[ShardEntry], number: int) -> Taken:
    """The record with a number, from 0, counted over some files.

    Raises:
        IndexError: there are fewer records; its one argument is their number.
        DamagedRecordError: it is damaged, or a record before it, without which it cannot be found.
        OSError: it cannot be read.
    """
    before = 0
    for entry in entries:
        if entry.size is None:
            raise FileNotFoundError(errno.ENOENT, "the manifest lists it, and it is not there", entry.path)
        count = entry.records
        if count is None or number < before + count:
            found = _numbered(entry, number - before)
            if isinstance(found, Record):
                return Taken(entry, found)
            count = found
        before += count
    raise IndexError(before)


def _numbered(entry: ShardEntry, number: int) -> Record | int:
    """A record of a file by its number, or the number of records if there are fewer."""
    count = 0
    if _has_random_access(entry):
        for count, location in enumerate(_locations(entry), 1):
            if count > number:
                return _at(entry, number, location)
        return count
    with opened(entry.path) as file:
        for item in records_and_damage(file, entry.size or 0):
            if isinstance(item, Damage):
                raise DamagedRecordError(item.number, item.offset, item.fault)
            if item.number == number:
                return item
            count += 1
    return count


def _has_random_access(entry: ShardEntry) -> bool:
    """Whether single records of a file can be found without reading those before."""
    with opened(entry.path) as file:
        return not file.compression and (entry.index is not None or not file_system(entry.path).has_latency)


def _locations(entry: ShardEntry) -> Iterator[Location]:
    """The locations of the records of an uncompressed file; from its index if that is of this file."""
    size = entry.size or 0
    if entry.index is None or index_count(entry.index, size) is None:
        return locations(entry.path, size)
    try:
        index = read_index(entry.index)
    except ValueError:
        return locations(entry.path, size)
    return map(Location, index.offsets, index.lengths)


def _at(entry: ShardEntry, number: int, location: Location) -> Record:
    """A record of an uncompressed file. Raises DamagedRecordError, OSError."""
    offset, length = location
    payload = record_at(entry.path, offset, length, number) if length <= LARGEST + FRAME_BYTES else None
    return Record(number, offset, length - FRAME_BYTES, payload)


def spread_records(files: Sequence[FileFound], most: int) -> Iterator[Taken | BadInput]:
    """Some records spread evenly over a dataset, in its order; a BadInput for a damaged one.

    Of a file without random access, the first ones.

    Raises:
        OSError: they cannot be read.
    """
    counts = [0 if file.count is None else file.count.records for file in files]
    wanted = spread(sum(counts), most)
    start = 0
    for file, count in zip(files, counts, strict=True):
        numbers = [number - start for number in wanted if start <= number < start + count]
        start += count
        if not numbers:
            continue
        if _has_random_access(file.entry) and (file.entry.index is not None or not file.damaged):
            yield from _at_numbers(file.entry, numbers)
        else:
            yield from itertools.islice(_readable(file.entry), len(numbers))


def _at_numbers(entry: ShardEntry, numbers: Sequence[int]) -> Iterator[Taken | BadInput]:
    wanted = set(numbers)
    try:
        for number, location in enumerate(itertools.islice(_locations(entry), numbers[-1] + 1)):
            if number in wanted:
                yield _at_or_damage(entry, number, location)
    except DamagedRecordError as error:  # after a damaged length there are no more locations
        yield _damage(error)


def _at_or_damage(entry: ShardEntry, number: int, location: Location) -> Taken | BadInput:
    try:
        return Taken(entry, _at(entry, number, location))
    except DamagedRecordError as error:
        return _damage(error)


def _damage(error: DamagedRecordError) -> BadInput:
    return BadInput("load", "damaged TFRecord", str(error))
