"""The tasks of a sweep, one for each image."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from recordmill.transforms.examples.framing import FRAME_BYTES
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.similarity import Original
from recordmill.transforms.records import BadInput, Failure, ImageRecord, StoredImage
from recordmill.transforms.shards.record_encoder import RecordEncoder, RecordSettings
from recordmill.transforms.shards.references import reference_record
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.reader import ImageReader
from recordmill.transforms.sweeping.measure import Measure, Worst, crops_of, measured, warm_up
from recordmill.transforms.sweeping.results import Crop, Setting
from recordmill.transforms.workers.task import R, Task, Worker


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredImage:
    """An image at each setting.

    Attributes:
        key: of the image.
        reference: to the image, packed.
        source_bytes: of its file.
        measures: of each setting, in order.
    """

    key: str
    reference: bytes
    source_bytes: int
    measures: Sequence[Measure | Failure]


@dataclasses.dataclass(frozen=True, slots=True)
class _ImageTask(Task[Worker, R]):
    """A task about one image.

    Its processor time is not limited: a timer would make the CPU clock coarse that sweeps measure with.

    Attributes:
        reference: of the image, packed.
        settings: of the sweep.
        seen: the policy of the pixels that are compared.
    """

    reference: bytes
    settings: tuple[Setting, ...]
    seen: ImagePolicy

    def read(self) -> tuple[ImageRecord, Original]:
        """Reads the image.

        Raises:
            BadInput: it cannot be read.
        """
        reader = ImageReader()
        record = reference_record(self.reference, reader.read)
        if record.image is None:
            raise BadInput("load", "no image", "the record has only features")
        with naming_faults(record.image.uri):
            return record, Original(reader.read(record.image), record.image.pixels)


@dataclasses.dataclass(frozen=True, slots=True)
class MeasureTask(_ImageTask[MeasuredImage | Failure]):
    """Measures an image at each setting.

    Attributes:
        records: settings of the records.
    """

    records: RecordSettings

    def run(self, worker: Worker) -> MeasuredImage | Failure:
        """Measures the image."""
        _warm_up(self.settings)
        try:
            with worker.item(0):
                record, original = self.read()
                size = functools.partial(record_bytes, record, RecordEncoder(self.records))
                measures = measured(original, self.settings, self.seen, size)
                found = MeasuredImage(record.key, self.reference, len(original.data), measures)
        except BadInput as error:
            return self.lost(error)
        finally:
            worker.progress(1, reference_record(self.reference).size)
        return found

    def lost(self, error: BadInput) -> Failure:
        """The failure of an image that cannot be measured."""
        return error.failure(reference_record(self.reference).key)


@dataclasses.dataclass(frozen=True, slots=True)
class CropTask(_ImageTask[list[Crop]]):
    """Cuts the same part out of an image at each setting.

    Attributes:
        worst: the measures of the image.
    """

    worst: Worst

    def run(self, worker: Worker) -> list[Crop]:
        """Cuts the crops."""
        with worker.item(0):
            _, original = self.read()
            return crops_of(self.worst, original, self.settings, self.seen)

    def lost(self, error: BadInput) -> list[Crop]:
        """No crops: the image cannot be read any more."""
        return []


def record_bytes(record: ImageRecord, encoder: RecordEncoder, stored: StoredImage) -> int:
    """The bytes of a record in a TFRecord file.

    Args:
        record: the record.
        encoder: builds its features.
        stored: its image.

    Raises:
        BadInput: a feature of the record does not fit.
    """
    with naming_faults(record.key):
        return len(encoder.build(record, stored)) + FRAME_BYTES


@functools.cache
def _warm_up(settings: tuple[Setting, ...]) -> None:
    warm_up(settings)
