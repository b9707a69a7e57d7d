"""What processes do for a verification: a shard a task, then some of its records a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.examples.plain import PLAIN
from recordmill.transforms.examples.schema import FeatureSettings
from recordmill.transforms.framing import DamagedRecordError
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.reading.dataset import ShardEntry
from recordmill.transforms.reading.verify_dataset import Expected
from recordmill.transforms.reading.verify_image import UNDECODABLE
from recordmill.transforms.reading.verify_keys import StoredPlace, key_entry
from recordmill.transforms.reading.verify_record import RecordChecker
from recordmill.transforms.reading.verify_shard import DAMAGED, RecordRange, scan_shard
from recordmill.transforms.reading.verify_tally import Fault, Tally, merged
from recordmill.transforms.records import BadInput, ImageRecord, ImageRef
from recordmill.transforms.shards.beacon import SLOW_TIMES, Step
from recordmill.transforms.shards.part import EncodedBatch, EncodeTask
from recordmill.transforms.shards.record_encoder import Progress, RecordEncoder, RecordSettings
from recordmill.transforms.shards.references import pack_reference
from recordmill.transforms.shards.report import WriteStats
from recordmill.transforms.storage.write_faults import naming_faults

NO_SETTINGS = RecordSettings(ImagePolicy(), PLAIN, FeatureSettings(LabelMap({}, {})), {})
"""What a process is told before its first task: nothing is encoded."""
PIXELS_A_BYTE = 20
"""Pixels assumed for each byte of a record, to limit its processor time: it may have many images."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verified(EncodedBatch):
    """What was found.

    Attributes:
        tally: counts and faults.
        ranges: the records of a shard that can be read.
        keys: `key_entry` of each record, one after the other.
        places: key and packed `StoredPlace` of each, where they are asked for.
    """

    tally: Tally = dataclasses.field(default_factory=Tally)
    ranges: Sequence[RecordRange] = ()
    keys: bytes = b""
    places: Sequence[tuple[str, bytes]] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask(EncodeTask):
    """Reads a shard as a file.

    Attributes:
        entry: of the shard.
        name: of the file.
        shard: its place among all.
    """

    entry: ShardEntry
    name: str
    shard: int

    def run(self, encoder: RecordEncoder, progress: Progress) -> Verified:
        """Reads; an error of the machine is one of the job."""
        with naming_faults(self.entry.path):
            tally, ranges = scan_shard(self.entry, self.name, self.shard)
        progress(tally.checked["records"], tally.checked["bytes"])
        return verified(tally, ranges)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckTask(EncodeTask):
    """Looks at some records of a shard; `references` has one for each.

    Attributes:
        records: of the shard.
        expected: of them.
    """

    records: RecordRange
    expected: Expected

    def run(self, encoder: RecordEncoder, progress: Progress) -> Verified:
        """Looks at each; an image that ends the process is known by its place."""
        tally, keys = Tally(), bytearray()
        encoder.beacon.patience = SLOW_TIMES
        places: list[tuple[str, bytes]] = []
        checker = RecordChecker(self.expected)
        with naming_faults(self.records.path):
            try:
                for at, (offset, payload) in enumerate(self.records.read()):
                    encoder.beacon.start(at)
                    encoder.beacon.step(Step.IMAGE, PIXELS_A_BYTE * len(payload))
                    key = self._check(checker, at, offset, payload, tally)
                    if key and self.expected.is_ours:
                        keys += key_entry(key, self.records.shard, self.records.first + at)
                    if key and self.expected.joins:
                        places.append((key, self._place(at, offset).pack()))
                    encoder.beacon.step(Step.OTHER)
                    progress(1, len(payload))
            except DamagedRecordError as error:
                number = self.records.first + error.number
                offset = self.records.offset + error.offset
                what = "it was whole a moment ago: somebody writes to it, or the disk fails"
                tally.add(Fault(DAMAGED, self.records.name, number, offset, what=what))
        encoder.beacon.clear()  # not where it raises: the image is to blame
        return verified(tally, keys=bytes(keys), places=places)

    def _check(self, checker: RecordChecker, at: int, offset: int, payload: bytes, tally: Tally) -> str:
        """Looks at one record; its key."""
        try:
            with internal_errors("decode"):
                found = checker.check(payload)
        except BadInput as error:
            fault = Fault(UNDECODABLE, self.records.name, self.records.first + at, offset, what=str(error))
            tally.add(fault)
            return ""
        for kind, what in found.faults:
            tally.add(Fault(kind, self.records.name, self.records.first + at, offset, found.key, what))
        tally.checked["images"] += found.images
        tally.checked["masks"] += found.masks
        tally.checked["keys"] += bool(found.key and self.expected.is_ours)
        return found.key

    def _place(self, at: int, offset: int) -> StoredPlace:
        records = self.records
        number = records.first + at
        return StoredPlace(records.path, records.name, records.split, number, offset, records.lengths[at])

    def piece(self, start: int, end: int) -> CheckTask:
        """The same for some of the records."""
        return check_task(self.records.piece(start, end), self.expected)

    def lost(self, error: BadInput) -> Verified:
        """The result of a single record that ends its process."""
        tally = Tally()
        what = f"{error.reason}: {error.detail}"
        tally.add(Fault(UNDECODABLE, self.records.name, self.records.first, self.records.offset, what=what))
        return verified(tally)

    def joined(self, pieces: Sequence[EncodedBatch]) -> Verified:
        """One of all pieces."""
        found = [piece for piece in pieces if isinstance(piece, Verified)]
        return verified(
            merged(one.tally for one in found),
            keys=b"".join(one.keys for one in found),
            places=[place for one in found for place in one.places],
        )


def check_task(records: RecordRange, expected: Expected) -> CheckTask:
    """The task that looks at some records."""
    ref = ImageRef(records.path, records.offset)
    reference = pack_reference(ImageRecord(records.name, ref), 0)
    return CheckTask([reference] * len(records.lengths), records=records, expected=expected)


def scan_task(entry: ShardEntry, name: str, shard: int) -> ScanTask:
    """The task that reads a shard."""
    reference = pack_reference(ImageRecord(name, ImageRef(entry.path)), 0)
    return ScanTask([reference], entry=entry, name=name, shard=shard)


def verified(
    tally: Tally,
    ranges: Sequence[RecordRange] = (),
    keys: bytes = b"",
    places: Sequence[tuple[str, bytes]] = (),
) -> Verified:
    """A result: nothing was encoded."""
    return Verified([], 0, WriteStats(), [], tally, ranges, keys, places)
