"""What writer processes do for a sweep: an image a task, so that one that ends its process is known."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from recordmill.transforms.examples.tfrecord import FRAME_BYTES
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import BadInput, Failure, ImageRecord, StoredImage
from recordmill.transforms.shards.part import EncodedBatch, EncodeTask
from recordmill.transforms.shards.record_encoder import Progress, RecordEncoder, RecordSettings
from recordmill.transforms.shards.references import reference_record
from recordmill.transforms.shards.report import WriteStats
from recordmill.transforms.storage.reader import ImageReader
from recordmill.transforms.storage.write_faults import naming_faults
from recordmill.transforms.sweeping.crops import Worst, crops_of
from recordmill.transforms.sweeping.measure import Measure, Original, measured, warm_up
from recordmill.transforms.sweeping.results import Crop, Setting


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredImage(EncodedBatch):
    """An image at each setting; or its failure, and no measures.

    Attributes:
        key: of the image.
        reference: where it is, packed.
        source_bytes: of its file.
        measures: of each setting, in order.
    """

    key: str = ""
    reference: bytes = b""
    source_bytes: int = 0
    measures: Sequence[Measure | Failure] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class CroppedImage(EncodedBatch):
    """The crops of an image; none where it failed."""

    crops: Sequence[Crop] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _ImageTask(EncodeTask):
    """A task about the only one of `references`.

    Attributes:
        settings: of the sweep.
        seen: makes the pixels that are compared.
    """

    settings: tuple[Setting, ...]
    seen: ImagePolicy

    def read(self) -> tuple[ImageRecord, Original]:
        """The image, from where it is.

        Raises:
            BadInput: it cannot be read.
        """
        reader = ImageReader()
        record = reference_record(self.references[0], reader.read)
        if record.image is None:
            raise BadInput("load", "no image", "the record has features alone")
        with naming_faults(record.image.uri):
            return record, Original(reader.read(record.image), record.image.pixels)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeasureTask(_ImageTask):
    """Measures an image at each setting.

    Attributes:
        records: how records are built of images.
    """

    records: RecordSettings

    def run(self, encoder: RecordEncoder, progress: Progress) -> MeasuredImage:
        """Measures; what is wrong with the image is in the result."""
        _warm_up(self.settings)
        with encoder.beacon.at_the_image():
            record = reference_record(self.references[0])
            try:
                record, original = self.read()
                size = functools.partial(record_bytes, record, RecordEncoder(self.records))
                with internal_errors("encode"):
                    measures = measured(original, self.settings, self.seen, size)
            except BadInput as error:
                result = self.lost(error)
            else:
                result = MeasuredImage(
                    [], 0, WriteStats(), [], record.key, self.references[0], len(original.data), measures
                )
        progress(1, record.size)
        return result

    def lost(self, error: BadInput) -> MeasuredImage:
        """The result of an image that cannot be measured."""
        return MeasuredImage([], 0, WriteStats(), [_failure(error, self.references[0])])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CropTask(_ImageTask):
    """Cuts the same part out of an image at each setting.

    Attributes:
        worst: what was found of the image.
    """

    worst: Worst

    def run(self, encoder: RecordEncoder, progress: Progress) -> CroppedImage:
        """Cuts; an image that cannot be read any more has no crops."""
        with encoder.beacon.at_the_image():
            try:
                _, original = self.read()
                with internal_errors("encode"):
                    crops = crops_of(self.worst, original, self.settings, self.seen)
            except BadInput as error:
                return self.lost(error)
        return CroppedImage([], 0, WriteStats(), [], crops)

    def lost(self, error: BadInput) -> CroppedImage:
        """The result of an image that cannot be read any more."""
        return CroppedImage([], 0, WriteStats(), [_failure(error, self.references[0])])


def record_bytes(record: ImageRecord, encoder: RecordEncoder, stored: StoredImage) -> int:
    """The bytes that a record takes in a TFRecord file.

    Args:
        record: whose image it is.
        encoder: builds all but the image.
        stored: its image.

    Raises:
        BadInput: a feature of the record does not fit.
    """
    with naming_faults(record.key):
        return len(encoder.build(record, stored)[0]) + FRAME_BYTES


@functools.cache
def _warm_up(settings: tuple[Setting, ...]) -> None:
    warm_up(settings)


def _failure(error: BadInput, reference: bytes) -> Failure:
    return error.failure(reference_record(reference).key)
