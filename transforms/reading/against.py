"""Compares stored records with their source."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.examples.features import build_sequence_example
from recordmill.transforms.examples.framing import DamagedRecordError
from recordmill.transforms.examples.schema import SequenceSchema
from recordmill.transforms.reading.against_features import (
    Difference,
    counted,
    feature_differences,
    shown,
    stored_images,
)
from recordmill.transforms.reading.against_images import ImageMatch, match_image
from recordmill.transforms.reading.dataset import followed
from recordmill.transforms.reading.shard import record_at
from recordmill.transforms.reading.verify_report import Fault, Likeness, Tally, merged
from recordmill.transforms.reading.verify_shard import DAMAGED
from recordmill.transforms.reading.verify_tasks import PIXELS_A_BYTE, StoredLocation, lost_record
from recordmill.transforms.records import BadInput, ImageRecord, ImageRef, Mapped, StoredImage
from recordmill.transforms.shards.record_encoder import RecordEncoder, RecordSettings
from recordmill.transforms.shards.references import reference_record, with_split
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.storage.layout import FAILURES
from recordmill.transforms.storage.reader import ImageReader
from recordmill.transforms.workers.task import SLOW_FACTOR, Task, Worker

IMAGE_DIFFERS, DIFFERS = "image differs from its source", "record differs from its source"
WRONG_SPLIT = "record in another split than the source says"
_IMAGES = ("image/encoded", "image_raw")
# From the least similar to the most.
_ACTIONS = ("lossy", "lossless", "kept")
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """The comparison of one record with its source.

    Attributes:
        action: `kept` if the stored image is the source's bytes, `lossless` if other bytes hold the same
            pixels, `lossy` if the pixels may differ; of a sequence that of its least similar frame; empty
            without an image, or if it could not be compared.
        ssim: of luma, of a lossy image; the lowest of a sequence. None if no image is lossy.
        psnr: in dB, likewise; never infinite.
        differences: from the source; empty for a sound record.
    """

    action: str = ""
    ssim: float | None = None
    psnr: float | None = None
    differences: tuple[Difference, ...] = ()


class SourceComparer:
    """Compares records with their source; keeps files open between records. It cannot be pickled.

    Args:
        settings: of the encoding of the dataset: `record_settings` of the totals of the source
            and `verify_dataset.config_of` of the manifest.
    """

    def __init__(self, settings: RecordSettings) -> None:
        self.reader = ImageReader()
        self._settings = settings
        self._encoder = RecordEncoder(settings)
        own = "image_raw" if settings.schema.name == "plain" else "image/encoded"
        self._image_name = settings.rename.get(own, own)

    def compare(self, payload: bytes, record: ImageRecord) -> Compared:
        """Compares one record.

        Args:
            payload: a serialised Example or SequenceExample.
            record: the record of the source with the same key.

        Raises:
            OSError: the source cannot be read now. A source that is missing or cannot be decoded is a
                difference, because it makes no record.
        """
        try:
            images = stored_images(payload, self._image_name)
        except BadInput as error:
            return Compared(differences=(Difference("", "an Example", str(error)),))
        refs = _images_of(record)
        if len(refs) != len(images):
            numbers = counted(len(refs), "image"), counted(len(images), "image")
            return Compared(differences=(Difference("", *numbers),))
        try:
            return self._compared(payload, record, list(zip(refs, images, strict=True)))
        except BadInput as error:
            return Compared(differences=(_makes_none(error),))

    def _compared(
        self, payload: bytes, record: ImageRecord, pairs: Sequence[tuple[ImageRef, bytes]]
    ) -> Compared:
        matches: list[ImageMatch] = []
        differences: list[Difference] = []
        for number, (ref, stored) in enumerate(pairs):
            match = match_image(stored, self.reader.read(ref), ref.pixels, self._settings.policy)
            matches.append(match)
            if match.difference is not None:
                step = f"step {number}" if record.annotations.steps is not None else ""
                where = ", ".join(filter(None, (step, match.difference.where)))
                differences.append(
                    dataclasses.replace(match.difference, feature=self._image_name, where=where)
                )
        images = [match.stored for match in matches if match.stored is not None]
        if len(images) == len(pairs):
            differences += feature_differences(self._rebuilt(record, images), payload, self._image_name)
        actions = {match.action for match in matches}
        action = "" if "" in actions else next((one for one in _ACTIONS if one in actions), "")
        likenesses = [match.likeness for match in matches if match.likeness is not None]
        ssim = min((one.ssim for one in likenesses), default=None)
        psnr = min((one.psnr for one in likenesses if math.isfinite(one.psnr)), default=None)
        return Compared(action, ssim, psnr, tuple(differences))

    def _rebuilt(self, record: ImageRecord, images: Sequence[StoredImage]) -> bytes:
        """The payload that the source makes with the stored images."""
        if record.annotations.steps is None:
            return self._encoder.build(record, images[0] if images else None)
        schema, features = self._settings.schema, self._settings.features
        if not isinstance(schema, SequenceSchema):
            raise ValueError(f"record {record.key!r} is a sequence, which schema {schema.name!r} cannot hold")
        context = schema.features(record, None, Mapped(), features)
        lists = schema.feature_lists(record, images, features)
        return build_sequence_example(self._renamed(context), self._renamed(lists))

    def _renamed(self, items: Mapping[str, _T]) -> dict[str, _T]:
        return {self._settings.rename.get(name, name): item for name, item in items.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class CompareTask(Task[Worker, Tally]):
    """Compares stored records with their source.

    Attributes:
        references: of the records in the source.
        locations: of the same records in the dataset.
        settings: of their encoding.
        config: of the dataset.
    """

    references: Sequence[bytes]
    locations: Sequence[StoredLocation]
    settings: RecordSettings
    config: DatasetConfig

    @property
    def items(self) -> int:
        """Number of records."""
        return len(self.locations)

    def run(self, worker: Worker) -> Tally:
        """Compares each record."""
        tally = Tally()
        comparer = SourceComparer(self.settings)
        worker.position.cpu_factor = SLOW_FACTOR
        for at, (reference, location) in enumerate(zip(self.references, self.locations, strict=True)):
            with naming_faults(location.path), worker.item(at):
                worker.position.work(PIXELS_A_BYTE * location.length)
                self._compare(comparer, reference, location, tally)
        return tally

    def _compare(
        self, comparer: SourceComparer, reference: bytes, location: StoredLocation, tally: Tally
    ) -> None:
        try:
            payload = record_at(location.path, location.offset, location.length)
        except DamagedRecordError as error:
            tally.add(Fault(DAMAGED, location.name, location.record, location.offset, what=str(error)))
            return
        key = ""
        try:
            record = reference_record(reference, comparer.reader.read)
        except BadInput as error:
            differences: tuple[Difference, ...] = (_makes_none(error),)
        else:
            key = record.key
            compared = comparer.compare(payload, record)
            tally.checked["compared"] += 1
            if compared.action:
                tally.checked[f"images {compared.action}"] += 1
            if compared.ssim is not None:
                tally.likeness.add(
                    Likeness(compared.ssim, compared.psnr, key, location.name, location.record)
                )
            differences = (*compared.differences, *split_differences(record, location.split, self.config))
        images = {self.settings.rename.get(name, name) for name in _IMAGES}
        for one in differences:
            kind = (
                WRONG_SPLIT if one.feature == "split" else IMAGE_DIFFERS if one.feature in images else DIFFERS
            )
            tally.add(Fault(kind, location.name, location.record, location.offset, key, str(one)))

    def lost(self, error: BadInput) -> Tally:
        """The fault of the only record."""
        (location,) = self.locations
        return lost_record(location.name, location.record, location.offset, error)

    def split(self, start: int, end: int) -> CompareTask:
        """The same for some of the records."""
        return dataclasses.replace(
            self, references=self.references[start:end], locations=self.locations[start:end]
        )

    def join(self, results: Iterable[Tally]) -> Tally:
        """The sum of all."""
        return merged(results)


def split_differences(record: ImageRecord, split: str, config: DatasetConfig) -> tuple[Difference, ...]:
    """The difference of a record that is stored in the split of another; empty for a sound record.

    Args:
        record: of the source.
        split: in which the record is stored.
        config: of the dataset.
    """
    pattern = None if config.group_pattern is None else re.compile(config.group_pattern)
    try:
        expected = with_split(record, config, pattern).split
    except BadInput as error:
        return (_makes_none(error),)
    return () if expected == split else (Difference("split", str(expected), split),)


def class_differences(labels: Mapping[int, str], settings: RecordSettings) -> Iterator[str]:
    """The differences between the classes of a manifest and those that the source makes.

    Args:
        labels: name by stored id, from the manifest.
        settings: of the totals of the source.
    """
    wanted = settings.features.labels.labels
    for number in sorted(wanted.keys() | labels.keys()):
        if wanted.get(number) != labels.get(number):
            expected, found = (
                shown(names[number]) if number in names else "no class" for names in (wanted, labels)
            )
            yield f"labels id {number}: expected {expected}, found {found}"


def failed_keys(folder: str) -> Iterator[str]:
    """The keys that failures.jsonl lists as not in the dataset."""
    try:
        lines = read_bytes(f"{followed(folder)}/{FAILURES}").split(b"\n")
    except FileNotFoundError:
        return
    for line in filter(None, lines):
        try:
            failure = json.loads(line)
            if not failure.get("kept"):
                yield str(failure["key"])
        except (ValueError, KeyError, AttributeError):
            return  # a damaged file is a fault that is already reported


def _images_of(record: ImageRecord) -> Sequence[ImageRef]:
    """Its images in the source: the frames of a sequence, otherwise one or none."""
    if record.annotations.steps is not None:
        return record.annotations.steps.frames
    return () if record.image is None else (record.image,)


def _makes_none(error: BadInput) -> Difference:
    return Difference("", "a record that the source still makes", str(error))
