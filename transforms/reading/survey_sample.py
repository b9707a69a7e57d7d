"""Reads as much of a dataset as is asked for, evenly over its files, and counts the rest."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Generator, Mapping, Sequence

from recordmill.transforms.examples.framing import FRAME_BYTES, DamagedRecordError, RecordFile
from recordmill.transforms.reading.class_names import class_names
from recordmill.transforms.reading.dataset import Dataset, ShardEntry
from recordmill.transforms.reading.shard import (
    Damage,
    Record,
    index_count,
    opened,
    records_and_damage,
)
from recordmill.transforms.reading.survey import Survey
from recordmill.transforms.reading.survey_counts import Count, estimated, head_count
from recordmill.transforms.storage.file_system import file_system

SAMPLE_RECORDS = 1_000
"""Records of a sample, unless the user says otherwise."""

SAMPLE_BYTES = 64 << 20
"""Bytes of records after which a sample ends, however few they are."""

MOST_SCANNED = 64 << 20
"""Bytes behind damage that are looked through, unless all is to be read."""

_SAMPLE_VALUES = 2_000_000  # numbers, texts and images in its features: parsing them takes a while
_MOST_FILES = 32  # that a sample is taken from
_MOST_SLOW_FILES = 8  # where each call waits for a service
_MOST_HEADS = 1_000_000  # records that are counted head by head, over all files
_MOST_UNCOUNTED = 64 << 20  # bytes that are read from a service only to count their records
_MOST_DAMAGE = 100  # of one file that is kept


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How much is read.

    Attributes:
        records: at most; None for all, whatever they take.
        size: bytes of records after which nothing more is read.
        values: in their features, likewise.
    """

    records: int | None = SAMPLE_RECORDS
    size: int = SAMPLE_BYTES
    values: int = _SAMPLE_VALUES


@dataclasses.dataclass(slots=True)
class FileFound:
    """What is known of one file.

    Attributes:
        entry: of the dataset.
        packed: whether it is compressed; None where it was not opened.
        read: records that were read.
        used: bytes of the file that they took.
        ended: it was read to its end, or to where nothing more can be read.
        damage: the first of it.
        damaged: number of damaged places.
        faults: what else is wrong with it.
        count: of its records; None where nothing tells.
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


@dataclasses.dataclass(frozen=True, slots=True)
class Inspected:
    """What is known of a dataset.

    Attributes:
        dataset: that was looked at.
        files: of it, in its order.
        survey: of the records that were read.
        size: bytes of the records that were read.
        names: of classes by id, as the manifest or what lies beside the files tells them.
        notes: what else has to be known.
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
        """Whether nothing wrong was seen."""
        return not any(file.damaged or file.faults for file in self.files)

    def records(self, files: Sequence[FileFound] | None = None) -> tuple[int, bool]:
        """The number of records in some files, or all, and whether it is exact."""
        counts = [file.count for file in (self.files if files is None else files)]
        known = [count for count in counts if count is not None]
        exact = len(known) == len(counts) and all(count.exact for count in known)
        return sum(count.records for count in known), exact


def inspected(dataset: Dataset, limits: Limits, progress: Callable[[int], object] | None = None) -> Inspected:
    """Reads a dataset, or a sample of it.

    Args:
        dataset: that is read.
        limits: of what is read.
        progress: is told the bytes of each record that was read.
    """
    files = tuple(FileFound(entry) for entry in dataset.shards)
    names = class_names(dataset)
    notes = (f"names of classes are not known: {names.fault}",) if names.fault else ()
    reading = _Reading(dataset, names.shown, limits, progress)
    for file in files:
        _check_size(file)
    there = [file for file in files if file.entry.size is not None]
    if limits.records is None:
        for file in there:
            collections.deque(reading.records(file), maxlen=0)
    else:
        reading.by_turns(_spread(there))
    _count(there)
    return Inspected(dataset, files, reading.survey, reading.size, names.shown, notes)


def _check_size(file: FileFound) -> None:
    entry = file.entry
    if entry.size is None:
        file.faults.append("is not there, though the manifest lists it")
    elif entry.expected_size is not None and entry.size != entry.expected_size:
        file.faults.append(f"has {entry.size:,} bytes; the manifest says {entry.expected_size:,}")


def _spread(files: list[FileFound]) -> list[FileFound]:
    """Some of many files, the first and the last among them; fewer where opening one takes its time."""
    is_slow = bool(files) and file_system(files[0].entry.path).has_latency
    return [files[at] for at in spread(len(files), _MOST_SLOW_FILES if is_slow else _MOST_FILES)]


def spread(count: int, most: int) -> list[int]:
    """At most so many of the numbers below `count`, evenly, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [at * (count - 1) // max(most - 1, 1) for at in range(most)]


class _Reading:
    """Reads files, and counts what is in their records."""

    def __init__(
        self,
        dataset: Dataset,
        names: Mapping[int, str],
        limits: Limits,
        progress: Callable[[int], object] | None,
    ) -> None:
        self.survey = Survey(dataset.renames, names)
        self.size = 0
        self._limits = limits
        self._progress = progress
        self._values = 0

    def records(self, file: FileFound) -> Generator[bool, None, None]:
        """Takes in the records of a file, one at each step, which gives True."""
        most = None if self._limits.records is None else MOST_SCANNED
        assert file.entry.size is not None
        try:
            with opened(file.entry.path) as stream:
                file.packed = bool(stream.compression)
                for item in records_and_damage(stream, file.entry.size, most):
                    file.used = _used(stream, item, file.used)
                    if isinstance(item, Damage):
                        self._add_damage(file, item)
                    else:
                        self._add(file, item)
                        yield True
            file.ended = True
        except OSError as error:
            file.faults.append(f"cannot be read: {error.strerror or error}")

    def by_turns(self, files: Sequence[FileFound]) -> None:
        """Takes in records of files, one of each in turn, as far as the limits allow."""
        with contextlib.ExitStack() as stack:
            turns = collections.deque(
                stack.enter_context(contextlib.closing(self.records(file))) for file in files
            )
            while turns and not self._is_enough():
                records = turns.popleft()
                if next(records, False):
                    turns.append(records)
        for file in files:
            file.ended = file.ended or (not file.packed and file.used == file.entry.size)

    def _is_enough(self) -> bool:
        limits = self._limits
        return limits.records is not None and (
            self.survey.records >= limits.records or self.size >= limits.size or self._values >= limits.values
        )

    def _add(self, file: FileFound, record: Record) -> None:
        file.read += 1
        self.size += record.size
        if record.payload is None:
            self.survey.add_size(record.size)
        else:
            self._values += self.survey.add(record.payload)
        if self._progress is not None:
            self._progress(record.size)

    def _add_damage(self, file: FileFound, damage: Damage) -> None:
        file.damaged += 1
        if len(file.damage) < _MOST_DAMAGE:
            file.damage.append(damage)


def _used(stream: RecordFile, item: Record | Damage, before: int) -> int:
    """Bytes of a file that were read up to the end of a record or of damage."""
    if stream.compression:
        return stream.file.tell()
    if isinstance(item, Record):
        return item.offset + item.size + FRAME_BYTES
    return before if item.resumed is None else item.resumed


def _count(files: Sequence[FileFound]) -> None:
    """Counts the records of each file: by what was read, the manifest, its index, its heads, or its size."""
    heads = _MOST_HEADS
    unknown = 0
    for file in files:
        file.count = _told(file)
        if file.count is None and not file.damaged and not file.packed:
            unknown += file.entry.size or 0
            is_costly = file_system(file.entry.path).has_latency and unknown > _MOST_UNCOUNTED
            if heads > 0 and not is_costly:
                file.count = _by_heads(file, heads)
                heads -= file.count.records if file.count is not None else 0
    read = sum(file.read for file in files)
    used = sum(file.used for file in files)
    for file in files:
        if file.count is None:
            own = (file.read, file.used) if file.read else (read, used)
            file.count = estimated(*own, file.entry.size or 0)


def _told(file: FileFound) -> Count | None:
    """The number of records where reading, the manifest or the index tells it."""
    entry = file.entry
    assert entry.size is not None
    if file.ended:
        if not file.damaged and entry.records not in (None, file.read):
            file.faults.append(f"has {file.read:,} records; the manifest says {entry.records:,}")
        return Count(file.read, "reading")
    if entry.records is not None:
        return Count(entry.records, "manifest")
    if entry.index is None:
        return None
    try:
        found = index_count(entry.index, entry.size)
    except OSError as error:
        file.faults.append(f"has an index that cannot be read: {error.strerror or error}")
        return None
    if found is None:
        file.faults.append(f"is not the file that its index {entry.index} is of: they end elsewhere")
        return None
    return Count(found, "index")


def _by_heads(file: FileFound, most: int) -> Count | None:
    """The number of records by their heads; None where those cannot be read."""
    path, size = file.entry.path, file.entry.size or 0
    try:
        if file.packed is None:
            with opened(path) as stream:
                file.packed = bool(stream.compression)
        return None if file.packed else head_count(path, size, most)
    except DamagedRecordError as error:
        file.damaged += 1
        file.damage.append(Damage(error.number, error.offset, error.fault, None))
        return estimated(error.number, error.offset, size)
    except OSError as error:
        fault = f"cannot be read: {error.strerror or error}"
        if fault not in file.faults:  # the sample told it
            file.faults.append(fault)
        return None
