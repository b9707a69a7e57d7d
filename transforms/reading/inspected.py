"""Reads the records of a dataset: all, a sample spread over its files, or single ones.

The records of files that are not read are counted.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import errno
import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from recordmill.transforms.examples.framing import FRAME_BYTES, DamagedRecordError, RecordFile
from recordmill.transforms.reading.dataset import Dataset, ShardEntry, class_names
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
from recordmill.transforms.reading.survey import Survey
from recordmill.transforms.records import BadInput
from recordmill.transforms.storage.file_system import file_system

SAMPLE_RECORDS = 1_000
"""Records of a sample by default."""

MOST_SCANNED = 64 << 20
"""Bytes after damage that are searched for the next record, unless all records are read."""

_SAMPLE_BYTES = 64 << 20
_SAMPLE_VALUES = 2_000_000  # numbers, texts and images in its features: parsing them takes a while
_MOST_FILES = 32  # of a sample
_MOST_SLOW_FILES = 8  # if each call waits for a service
_MOST_HEADS = 1_000_000  # records that are counted head by head, over all files
_MOST_UNCOUNTED = 64 << 20  # bytes that are read from a service only to count their records
_MOST_DAMAGE = 100  # of one file that is kept


class Count(NamedTuple):
    """A number of records.

    Attributes:
        by: how it was determined: from the manifest, from the index, by reading all records, by reading the
            head of each, or from the bytes read and the size of the file.
    """

    records: int
    by: Literal["manifest", "index", "reading", "heads", "estimate"]

    @property
    def exact(self) -> bool:
        """Whether it is not an estimate."""
        return self.by != "estimate"


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How much is read.

    Attributes:
        records: at most; None for all, without any limit.
        size: bytes of records after which nothing more is read.
        values: in their features, after which nothing more is read.
    """

    records: int | None = SAMPLE_RECORDS
    size: int = _SAMPLE_BYTES
    values: int = _SAMPLE_VALUES


@dataclasses.dataclass(slots=True)
class FileFound:
    """One file of a dataset, as far as it was read.

    Attributes:
        packed: whether it is compressed; None if it was not opened.
        used: bytes of the file that they took.
        damage: the first parts; `damaged` is the number of all.
        ended: it was read to its end, or to damage after which nothing can be read.
        faults: what else is wrong with it.
        count: of its records; None if it does not exist, or cannot be read.
    """

    entry: ShardEntry
    packed: bool | None = None
    read: int = 0
    used: int = 0
    ended: bool = False
    damage: list[Damage] = dataclasses.field(default_factory=list)
    damaged: int = 0
    faults: list[str] = dataclasses.field(default_factory=list)
    count: Count | None = None

    def add_damage(self, damage: Damage) -> None:
        self.damaged += 1
        if len(self.damage) < _MOST_DAMAGE:
            self.damage.append(damage)


@dataclasses.dataclass(frozen=True, slots=True)
class Inspected:
    """A dataset, as far as it was read.

    Attributes:
        size: bytes of the records that were read.
        names: of classes by id, from the manifest or files next to the records.
    """

    dataset: Dataset
    files: tuple[FileFound, ...]
    survey: Survey
    size: int
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every file was read to its end."""
        return all(file.ended for file in self.files)

    @property
    def sound(self) -> bool:
        """Whether no fault was found."""
        return not any(file.damaged or file.faults for file in self.files)

    def records(self, files: Sequence[FileFound] | None = None) -> tuple[int, bool]:
        """The number of records in some files, or all, and whether it is exact."""
        counts = [file.count for file in (self.files if files is None else files)]
        found = [count for count in counts if count is not None]
        exact = len(found) == len(counts) and all(count.exact for count in found)
        return sum(count.records for count in found), exact


def inspected(dataset: Dataset, limits: Limits, progress: Callable[[int], object] | None = None) -> Inspected:
    """Reads a dataset, or a sample of it.

    Args:
        progress: called with the bytes of each record that was read.
    """
    files = tuple(FileFound(entry) for entry in dataset.shards)
    names = class_names(dataset)
    notes = (f"names of classes are not known: {names.fault}",) if names.fault else ()
    reading = _Reading(Survey(dataset.renames, names.shown), limits, progress)
    for file in files:
        entry = file.entry
        if entry.size is None:
            file.faults.append("is not there, though the manifest lists it")
        elif entry.expected_size not in (None, entry.size):
            file.faults.append(f"has {entry.size:,} bytes; the manifest says {entry.expected_size:,}")
    existing = [file for file in files if file.entry.size is not None]
    if limits.records is None:
        for file in existing:
            collections.deque(reading.records(file), maxlen=0)
    else:
        is_slow = bool(existing) and file_system(existing[0].entry.path).has_latency
        sampled = spread(len(existing), _MOST_SLOW_FILES if is_slow else _MOST_FILES)
        reading.in_turns([existing[at] for at in sampled])
    _count(existing)
    return Inspected(dataset, files, reading.survey, reading.size, names.shown, notes)


def spread(count: int, most: int) -> list[int]:
    """At most `most` of the numbers below `count`, evenly, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [at * (count - 1) // max(most - 1, 1) for at in range(most)]


class _Reading:
    """Reads files into a survey; `size` is the bytes of the records that were read."""

    def __init__(self, survey: Survey, limits: Limits, progress: Callable[[int], object] | None) -> None:
        self.survey = survey
        self.size = 0
        self._limits = limits
        self._progress = progress
        self._values = 0

    def records(self, file: FileFound) -> Generator[None, None, None]:
        """Reads a file; each step ends after a record."""
        most = None if self._limits.records is None else MOST_SCANNED
        try:
            with opened(file.entry.path) as stream:
                file.packed = bool(stream.compression)
                for item in records_and_damage(stream, file.entry.size or 0, most):
                    file.used = _used(stream, item, file.used)
                    if isinstance(item, Damage):
                        file.add_damage(item)
                        continue
                    file.read += 1
                    self.size += item.size
                    self._values += self.survey.add(item)
                    if self._progress is not None:
                        self._progress(item.size)
                    yield
            file.ended = True
        except OSError as error:
            file.faults.append(_cannot_be_read(error))

    def in_turns(self, files: Sequence[FileFound]) -> None:
        """Reads a record of each file in turn, as far as the limits allow."""
        with contextlib.ExitStack() as stack:
            turns = collections.deque(
                stack.enter_context(contextlib.closing(self.records(file))) for file in files
            )
            limits = self._limits
            while turns and (
                self.survey.records < (limits.records or 0)
                and self.size < limits.size
                and self._values < limits.values
            ):
                records = turns.popleft()
                with contextlib.suppress(StopIteration):
                    next(records)
                    turns.append(records)
        for file in files:
            file.ended = file.ended or (not file.packed and file.used == file.entry.size)


def _cannot_be_read(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"


def _used(stream: RecordFile, item: Record | Damage, before: int) -> int:
    """Bytes of a file that were read up to the end of a record or of damage."""
    if stream.compression:
        return stream.file.tell()
    if isinstance(item, Record):
        return item.offset + item.size + FRAME_BYTES
    return before if item.resumed is None else item.resumed


def _count(files: Sequence[FileFound]) -> None:
    """Counts the records of each file, by the cheapest way that applies."""
    heads = _MOST_HEADS
    uncounted = 0
    for file in files:
        file.count = _without_reading(file)
        if file.count is None and not file.damaged and not file.packed:
            uncounted += file.entry.size or 0
            is_costly = file_system(file.entry.path).has_latency and uncounted > _MOST_UNCOUNTED
            if heads > 0 and not is_costly:
                file.count = _by_heads(file, heads)
                heads -= file.count.records if file.count is not None else 0
    read = sum(file.read for file in files)
    used = sum(file.used for file in files)
    for file in files:
        if file.count is None:
            own = (file.read, file.used) if file.read else (read, used)
            file.count = estimated(*own, file.entry.size or 0)


def _without_reading(file: FileFound) -> Count | None:
    """The number of records if all were read, or from the manifest or the index."""
    entry = file.entry
    if file.ended:
        if not file.damaged and entry.records not in (None, file.read):
            file.faults.append(f"has {file.read:,} records; the manifest says {entry.records:,}")
        return Count(file.read, "reading")
    if entry.records is not None:
        return Count(entry.records, "manifest")
    if entry.index is None:
        return None
    try:
        found = index_count(entry.index, entry.size or 0)
    except OSError as error:
        file.faults.append(f"has an index that {_cannot_be_read(error)}")
        return None
    if found is None:
        file.faults.append(f"is not the file that its index {entry.index} is of: they end elsewhere")
        return None
    return Count(found, "index")


def _by_heads(file: FileFound, most: int) -> Count | None:
    """The number of records by their heads; None if the file cannot be read, or is compressed."""
    path, size = file.entry.path, file.entry.size or 0
    try:
        if file.packed is None:
            with opened(path) as stream:
                file.packed = bool(stream.compression)
        return None if file.packed else head_count(path, size, most)
    except DamagedRecordError as error:
        file.add_damage(Damage(error.number, error.offset, error.fault, None))
        return estimated(error.number, error.offset, size)
    except OSError as error:
        fault = _cannot_be_read(error)
        if fault not in file.faults:  # reading the sample may have found it
            file.faults.append(fault)
        return None


def head_count(path: str, size: int, most: int | None) -> Count:
    """The number of records of an uncompressed file, by their heads; an estimate after the first `most`.

    Raises DamagedRecordError, OSError.
    """
    number, end = 0, 0
    for offset, length in itertools.islice(locations(path, size), most):
        number += 1
        end = offset + length
    return Count(number, "heads") if end >= size else estimated(number, end, size)


def estimated(records: int, used: int, size: int) -> Count:
    """The number of records of a file in which the first `records` take `used` bytes."""
    return Count(max(round(records * size / used), records) if used else records, "estimate")


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
        if entry.records is not None and number >= before + entry.records:
            before += entry.records
            continue
        found = _numbered(entry, number - before)
        if isinstance(found, Record):
            return Taken(entry, found)
        before += found
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
    """Whether single records can be found without reading those before them."""
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

    Of a file without random access, the first ones. Raises OSError.
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
    found = _locations(entry)
    number = -1
    for wanted in numbers:
        try:
            location = next(itertools.islice(found, wanted - number - 1, None), None)
        except DamagedRecordError as error:  # after a damaged length there are no more locations
            yield BadInput("load", "damaged TFRecord", str(error))
            return
        if location is None:
            return
        number = wanted
        try:
            yield Taken(entry, _at(entry, number, location))
        except DamagedRecordError as error:
            yield BadInput("load", "damaged TFRecord", str(error))
