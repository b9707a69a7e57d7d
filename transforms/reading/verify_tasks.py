"""The tasks of a verification: one for each shard, then one for some of its records at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from recordmill.transforms.examples.framing import DamagedRecordError
from recordmill.transforms.reading.dataset import ShardEntry
from recordmill.transforms.reading.verify_dataset import Expected
from recordmill.transforms.reading.verify_image import UNDECODABLE
from recordmill.transforms.reading.verify_keys import StoredPlace, key_entry
from recordmill.transforms.reading.verify_record import RecordChecker
from recordmill.transforms.reading.verify_shard import DAMAGED, RecordRange, scan_shard
from recordmill.transforms.reading.verify_tally import Fault, Tally, merged
from recordmill.transforms.records import BadInput
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.workers.position import SLOW_FACTOR
from recordmill.transforms.workers.task import Task, Worker

PIXELS_A_BYTE = 20
"""Pixels assumed for each byte of a record, to limit its processor time: it may have many images."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verified:
    """What was found.

    Attributes:
        tally: counts and faults.
        ranges: the records of a shard that can be read.
        keys: `key_entry` of each record, one after the other.
        places: key and packed `StoredPlace` of each, for a comparison with the source.
    """

    tally: Tally
    ranges: Sequence[RecordRange] = ()
    keys: bytes = b""
    places: Sequence[tuple[str, bytes]] = ()


def lost_record(records_name: str, record: int, offset: int, error: BadInput) -> Verified:
    """The result for a record that cannot be looked at."""
    tally = Tally()
    tally.add(Fault(UNDECODABLE, records_name, record, offset, what=f"{error.reason}: {error.detail}"))
    return Verified(tally)


@dataclasses.dataclass(frozen=True, slots=True)
class ScanTask(Task[Worker, Verified]):
    """Reads a shard as a file.

    Attributes:
        entry: of the shard.
        name: of the file.
        shard: its index among all.
    """

    entry: ShardEntry
    name: str
    shard: int

    def run(self, worker: Worker) -> Verified:
        """Reads; no record is decoded."""
        with naming_faults(self.entry.path):
            tally, ranges = scan_shard(self.entry, self.name, self.shard)
        worker.progress(tally.checked["records"], tally.checked["bytes"])
        return Verified(tally, ranges)

    def lost(self, error: BadInput) -> Verified:
        """Not called: a file has no items."""
        raise error


@dataclasses.dataclass(frozen=True, slots=True)
class CheckTask(Task[Worker, Verified]):
    """Looks at some records of a shard.

    Attributes:
        records: of the shard.
        expected: of them.
    """

    records: RecordRange
    expected: Expected

    @property
    def items(self) -> int:
        """Number of records."""
        return len(self.records.lengths)

    def run(self, worker: Worker) -> Verified:
        """Looks at each record."""
        worker.position.cpu_factor = SLOW_FACTOR
        checker, records = RecordChecker(self.expected), self.records
        tally, keys, places = Tally(), bytearray(), []
        with naming_faults(records.path):
            try:
                for at, (offset, payload) in enumerate(records.read()):
                    key, number = self._check(worker, checker, at, offset, payload, tally), records.first + at
                    if key and self.expected.is_ours:
                        keys += key_entry(key, records.shard, number)
                    if key and self.expected.joins:
                        length = records.lengths[at]
                        place = StoredPlace(records.path, records.name, records.split, number, offset, length)
                        places.append((key, place.pack()))
                    worker.progress(1, len(payload))
            except DamagedRecordError as error:
                what = "it was complete a moment ago: somebody writes to it, or the disk fails"
                tally.add(Fault(DAMAGED, records.name, error.number, error.offset, what=what))
        return Verified(tally, keys=bytes(keys), places=places)

    def _check(
        self, worker: Worker, checker: RecordChecker, at: int, offset: int, payload: bytes, tally: Tally
    ) -> str:
        """Looks at one record; its key."""
        place = (self.records.name, self.records.first + at, offset)
        try:
            with worker.item(at, "decode"):
                worker.position.work(PIXELS_A_BYTE * len(payload))
                found = checker.check(payload)
        except BadInput as error:
            tally.add(Fault(UNDECODABLE, *place, what=str(error)))
            return ""
        for kind, what in found.faults:
            tally.add(Fault(kind, *place, found.key, what))
        tally.checked["images"] += found.images
        tally.checked["masks"] += found.masks
        tally.checked["keys"] += bool(found.key and self.expected.is_ours)
        return found.key

    def lost(self, error: BadInput) -> Verified:
        """The fault of the only record."""
        return lost_record(self.records.name, self.records.first, self.records.offset, error)

    def split(self, start: int, end: int) -> CheckTask:
        """The same for some of the records."""
        return CheckTask(self.records.piece(start, end), self.expected)

    def join(self, results: Sequence[Verified]) -> Verified:
        """All that was found."""
        return Verified(
            merged(one.tally for one in results),
            keys=b"".join(one.keys for one in results),
            places=[place for one in results for place in one.places],
        )
