"""The tasks of a verification: one for each shard, then one for each range of its records."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from recordmill.transforms.examples.framing import DamagedRecordError
from recordmill.transforms.reading.dataset import ShardEntry
from recordmill.transforms.reading.verify_dataset import Expected
from recordmill.transforms.reading.verify_record import UNDECODABLE, RecordChecker
from recordmill.transforms.reading.verify_report import Fault, Tally, merged
from recordmill.transforms.reading.verify_shard import DAMAGED, RecordRange, scan_shard
from recordmill.transforms.records import BadInput
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.workers.task import SLOW_FACTOR, Task, Worker

PIXELS_A_BYTE = 20
"""Pixels assumed for each byte of a record, to limit its processor time: it may have many images."""
REPEATED = "key that another record has"

# Records with equal 128-bit hashes have equal keys: of 10^12 keys, two share one with a chance of 10^-15.
_ENTRY = np.dtype([("high", ">u8"), ("low", ">u8"), ("shard", ">u4"), ("record", ">u8")])
ENTRY_BYTES = _ENTRY.itemsize


class StoredLocation(NamedTuple):
    """Where a record is stored.

    Attributes:
        path: of its shard.
        name: of the shard, in its folder.
        split: of the shard.
        record: its number.
        offset: of its frame.
        length: of its frame.
    """

    path: str
    name: str
    split: str
    record: int
    offset: int
    length: int

    def pack(self) -> bytes:
        """As it is shuffled."""
        return json.dumps(self, ensure_ascii=False).encode("utf-8", "surrogatepass")

    @staticmethod
    def unpack(packed: bytes) -> StoredLocation:
        """The location of the bytes that `pack` returned."""
        return StoredLocation(*json.loads(packed.decode("utf-8", "surrogatepass")))


class Verified(NamedTuple):
    """The result for some records.

    Attributes:
        tally: counts and faults.
        keys: `key_entry` of each record, concatenated.
        locations: key and packed `StoredLocation` of each record, for a comparison with the source.
    """

    tally: Tally
    keys: bytes = b""
    locations: Sequence[tuple[str, bytes]] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ScanTask(Task[Worker, tuple[Tally, list[RecordRange]]]):
    """Reads a shard as a file; no record is decoded.

    Attributes:
        entry: of the shard.
        name: of the file, in its folder.
        shard: its index among all shards.
    """

    entry: ShardEntry
    name: str
    shard: int

    def run(self, worker: Worker) -> tuple[Tally, list[RecordRange]]:
        """Reads the shard."""
        with naming_faults(self.entry.path):
            tally, ranges = scan_shard(self.entry, self.name, self.shard)
        worker.progress(tally.checked["records"], tally.checked["bytes"])
        return tally, ranges

    def lost(self, error: BadInput) -> tuple[Tally, list[RecordRange]]:
        """Not called: a file has no items."""
        raise error


@dataclasses.dataclass(frozen=True, slots=True)
class CheckTask(Task[Worker, Verified]):
    """Checks the records of a range.

    Attributes:
        records: of a shard.
        expected: what they must be like.
        has_locations: whether the result has their locations.
    """

    records: RecordRange
    expected: Expected
    has_locations: bool = False

    @property
    def items(self) -> int:
        """Number of records."""
        return len(self.records.lengths)

    def run(self, worker: Worker) -> Verified:
        """Checks each record."""
        worker.position.cpu_factor = SLOW_FACTOR
        checker, records = RecordChecker(self.expected), self.records
        tally, keys, locations = Tally(), bytearray(), []
        with naming_faults(records.path):
            try:
                for at, (offset, payload) in enumerate(records.read()):
                    key, number = self._check(worker, checker, at, offset, payload, tally), records.first + at
                    if key and self.expected.is_ours:
                        keys += key_entry(key, records.shard, number)
                    if key and self.has_locations:
                        length = records.lengths[at]
                        location = StoredLocation(
                            records.path, records.name, records.split, number, offset, length
                        )
                        locations.append((key, location.pack()))
                    worker.progress(1, len(payload))
            except DamagedRecordError as error:
                what = "it was complete a moment ago: somebody writes to it, or the disk fails"
                tally.add(Fault(DAMAGED, records.name, error.number, error.offset, what=what))
        return Verified(tally, bytes(keys), locations)

    def _check(
        self, worker: Worker, checker: RecordChecker, at: int, offset: int, payload: bytes, tally: Tally
    ) -> str:
        """Checks one record; returns its key."""
        location = (self.records.name, self.records.first + at, offset)
        try:
            with worker.item(at, "decode"):
                worker.position.work(PIXELS_A_BYTE * len(payload))
                found = checker.check(payload)
        except BadInput as error:
            tally.add(Fault(UNDECODABLE, *location, what=str(error)))
            return ""
        tally.add(*(Fault(kind, *location, found.key, what) for kind, what in found.faults))
        tally.checked["images"] += found.images
        tally.checked["masks"] += found.masks
        tally.checked["keys"] += bool(found.key and self.expected.is_ours)
        return found.key

    def lost(self, error: BadInput) -> Verified:
        """The fault of the only record."""
        return Verified(lost_record(self.records.name, self.records.first, self.records.offset, error))

    def split(self, start: int, end: int) -> CheckTask:
        """The same for some of the records."""
        return dataclasses.replace(self, records=self.records.piece(start, end))

    def join(self, results: Iterable[Verified]) -> Verified:
        """The results of all parts as one."""
        parts = list(results)
        return Verified(
            merged(one.tally for one in parts),
            b"".join(one.keys for one in parts),
            [location for one in parts for location in one.locations],
        )


def lost_record(name: str, record: int, offset: int, error: BadInput) -> Tally:
    """The fault of a record that cannot be checked."""
    tally = Tally()
    tally.add(Fault(UNDECODABLE, name, record, offset, what=f"{error.reason}: {error.detail}"))
    return tally


def key_entry(key: str, shard: int, record: int) -> bytes:
    """The hash of a key, and the shard and number of its record."""
    hashed = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return hashed + shard.to_bytes(4, "big") + record.to_bytes(8, "big")


def bucketed(entries: bytes) -> Iterator[tuple[int, bytes]]:
    """Concatenated entries in 256 buckets; each is searched for repeated keys in memory."""
    table = np.frombuffer(entries, _ENTRY)
    numbers = (table["high"] >> np.uint64(56)).astype(np.uint8)
    for number in np.unique(numbers):
        yield int(number), table[numbers == number].tobytes()


def repeated(bucket: tuple[int, Iterable[bytes]], names: Sequence[str]) -> Tally:
    """The records of a bucket whose key an earlier record has; `names` are of all shards."""
    table = np.frombuffer(b"".join(bucket[1]), _ENTRY)
    table = table[np.lexsort((table["record"], table["shard"], table["low"], table["high"]))]
    same = (table["high"][1:] == table["high"][:-1]) & (table["low"][1:] == table["low"][:-1])
    tally = Tally()
    for at in np.flatnonzero(same):
        first, other = table[at], table[at + 1]
        what = f"record {int(first['record'])} of {names[first['shard']]} has the same key"
        tally.add(Fault(REPEATED, names[other["shard"]], int(other["record"]), what=what))
    return tally
