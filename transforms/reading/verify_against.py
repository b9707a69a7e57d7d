"""What processes do to hold stored records against their source; and what of it is a fault."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.examples.framing import DamagedRecordError
from recordmill.transforms.reading.against import Compared, SourceComparer, split_difference
from recordmill.transforms.reading.against_difference import Difference
from recordmill.transforms.reading.dataset import followed
from recordmill.transforms.reading.shard import record_at
from recordmill.transforms.reading.verify_keys import StoredPlace
from recordmill.transforms.reading.verify_likeness import Likeness
from recordmill.transforms.reading.verify_shard import DAMAGED
from recordmill.transforms.reading.verify_tally import Fault, Tally, merged
from recordmill.transforms.reading.verify_tasks import PIXELS_A_BYTE, Verified, lost_record
from recordmill.transforms.records import BadInput
from recordmill.transforms.shards.record_encoder import RecordSettings
from recordmill.transforms.shards.references import reference_record
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.storage.layout import FAILURES
from recordmill.transforms.storage.reader import ImageReader
from recordmill.transforms.workers.position import SLOW_FACTOR
from recordmill.transforms.workers.task import Task, Worker

IMAGE_DIFFERS, DIFFERS = "image differs from its source", "record differs from its source"
WRONG_SPLIT = "record in another split than the source says"
NOT_IN_SOURCE = "record that the source has not"
NOT_STORED = "input that is neither in the dataset nor in failures.jsonl"
_IMAGES = ("image/encoded", "image_raw")


@dataclasses.dataclass(frozen=True, slots=True)
class CompareTask(Task[Worker, Verified]):
    """Holds stored records against their source.

    Attributes:
        references: of the records in the source.
        places: of the same records.
        settings: that they are built by.
        config: of the dataset.
    """

    references: Sequence[bytes]
    places: Sequence[StoredPlace]
    settings: RecordSettings
    config: DatasetConfig

    @property
    def items(self) -> int:
        """Number of records."""
        return len(self.places)

    def run(self, worker: Worker) -> Verified:
        """Compares each record."""
        tally = Tally()
        comparer = SourceComparer(self.settings)
        reader = ImageReader()
        worker.position.cpu_factor = SLOW_FACTOR
        for at, (reference, place) in enumerate(zip(self.references, self.places, strict=True)):
            with naming_faults(place.path), worker.item(at):
                worker.position.work(PIXELS_A_BYTE * place.length)
                self._compare(comparer, reader, reference, place, tally)
        return Verified(tally)

    def _compare(
        self,
        comparer: SourceComparer,
        reader: ImageReader,
        reference: bytes,
        place: StoredPlace,
        tally: Tally,
    ) -> None:
        try:
            payload = record_at(place.path, place.offset, place.length)
        except DamagedRecordError as error:
            tally.add(Fault(DAMAGED, place.name, place.record, place.offset, what=str(error)))
            return
        try:
            record = reference_record(reference, reader.read)
        except BadInput as error:
            told = Difference("", "", "a record that the source still makes", str(error))
            tally.add(fault_of(told, place, self.settings))
            return
        add_compared(comparer.compare(payload, record), place, self.settings, tally)
        difference = split_difference(record, place.split, self.config)
        if difference is not None:
            tally.add(fault_of(difference, place, self.settings))

    def lost(self, error: BadInput) -> Verified:
        """The fault of the only record."""
        (place,) = self.places
        return lost_record(place.name, place.record, place.offset, error)

    def split(self, start: int, end: int) -> CompareTask:
        """The same for some of the records."""
        return dataclasses.replace(self, references=self.references[start:end], places=self.places[start:end])

    def join(self, results: Sequence[Verified]) -> Verified:
        """All that was found."""
        return Verified(merged(one.tally for one in results))


def add_compared(compared: Compared, place: StoredPlace, settings: RecordSettings, tally: Tally) -> None:
    """Counts what a comparison has found."""
    tally.checked["compared"] += 1
    if compared.action:
        tally.checked[f"images {compared.action}"] += 1
    if compared.ssim is not None:
        tally.likeness.add(Likeness(compared.ssim, compared.psnr, compared.key, place.name, place.record))
    for difference in compared.differences:
        tally.add(fault_of(difference, place, settings))


def fault_of(difference: Difference, place: StoredPlace, settings: RecordSettings) -> Fault:
    """A difference as a fault of the record at a place."""
    images = {settings.rename.get(name, name) for name in _IMAGES}
    kind = IMAGE_DIFFERS if difference.feature in images else DIFFERS
    if difference.feature == "split":
        kind = WRONG_SPLIT
    what = f"expected {difference.expected}, found {difference.found}"
    where = ", ".join(part for part in (difference.feature, difference.where) if part)
    told = f"{where}: {what}" if where else what
    return Fault(kind, place.name, place.record, place.offset, difference.key, told)


def failed_keys(folder: str) -> Iterator[str]:
    """The keys that failures.jsonl names as not in the dataset."""
    try:
        lines = read_bytes(f"{followed(folder)}/{FAILURES}").split(b"\n")
    except FileNotFoundError:
        return
    for line in filter(None, lines):
        try:
            told = json.loads(line)
            if not told.get("kept"):
                yield str(told["key"])
        except (ValueError, KeyError, AttributeError):
            return  # it is damaged, which has been told


def unmatched(key: str, places: Iterable[StoredPlace], is_in_source: bool, is_failed: bool) -> Tally:
    """What is wrong with a key that only one side has."""
    tally = Tally()
    found = list(places)
    if not is_in_source:
        for place in found:
            tally.add(Fault(NOT_IN_SOURCE, place.name, place.record, place.offset, key))
    elif not found and not is_failed:
        tally.add(Fault(NOT_STORED, FAILURES, key=key, what="the source has it"))
    return tally
