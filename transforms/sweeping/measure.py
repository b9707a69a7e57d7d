"""Measures an image at each setting: bytes, time and difference from the source; cuts its changed part."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.transforms.examples.framing import FRAME_BYTES
from recordmill.transforms.images import compare
from recordmill.transforms.images.icc import profile_of
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.similarity import (
    CROP_SIDE,
    Displayed,
    Original,
    Similarity,
    cut,
    displayed_source,
    displayed_stored,
    most_changed,
    opened_as_stored,
    similarity,
)
from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import BadInput, Failure, ImageRecord, StoredImage
from recordmill.transforms.shards.record_encoder import RecordEncoder, RecordSettings
from recordmill.transforms.shards.references import reference_record
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.reader import ImageReader
from recordmill.transforms.sweeping.results import Crop, Setting
from recordmill.transforms.workers.pool import TAKES_TOO_LONG
from recordmill.transforms.workers.task import SLOW_FACTOR, R, Task, Worker, cpu_seconds

# CPU time of this process: optimisers have their own threads, and other processes run at the same time.
_clock = time.process_time


@dataclasses.dataclass(frozen=True, slots=True)
class Measure:
    """One image, stored by one setting."""

    tfrecord_bytes: int  # of its record, including the frame
    image_bytes: int
    encode_seconds: float
    decode_seconds: float
    similarity: Similarity | None  # to the source; None if the size differs
    jpeg_quality: int | None  # chosen by the setting; 0 if it kept the source


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredImage:
    """An image at each setting."""

    key: str
    reference: bytes  # to the image, packed
    source_bytes: int  # of its file
    measures: Sequence[Measure | Failure]


class Worst(NamedTuple):
    """An image with a low SSIM; sorted by SSIM, then by key."""

    ssim: float  # the lowest of all settings
    key: str
    setting: int  # index of the setting with that SSIM
    reference: bytes  # to the image, packed
    ssims: tuple[float | None, ...]  # at each setting; None if it was not compared


@dataclasses.dataclass(frozen=True, slots=True)
class _ImageTask(Task[Worker, R]):
    """A task about one image.

    Its processor time is not limited: a timer would make the CPU clock coarse that sweeps measure with.
    """

    reference: bytes  # of the image, packed
    settings: tuple[Setting, ...]
    seen: ImagePolicy  # the policy of the pixels that are compared

    def read(self) -> tuple[ImageRecord, Original]:
        """Reads the image. Raises BadInput."""
        reader = ImageReader()
        record = reference_record(self.reference, reader.read)
        if record.image is None:
            raise BadInput("load", "no image", "the record has only features")
        with naming_faults(record.image.uri):
            return record, Original(reader.read(record.image), record.image.pixels)


@dataclasses.dataclass(frozen=True, slots=True)
class MeasureTask(_ImageTask[MeasuredImage | Failure]):
    """Measures an image at each setting."""

    records: RecordSettings

    def run(self, worker: Worker) -> MeasuredImage | Failure:
        _warm_up(self.settings)
        try:
            with worker.item(0):
                record, original = self.read()
                encoder = RecordEncoder(self.records)

                def record_bytes(stored: StoredImage) -> int:
                    with naming_faults(record.key):
                        return len(encoder.build(record, stored)) + FRAME_BYTES

                measures = measured(original, self.settings, self.seen, record_bytes)
                return MeasuredImage(record.key, self.reference, len(original.data), measures)
        except BadInput as error:
            return self.lost(error)
        finally:
            worker.progress(1, reference_record(self.reference).size)

    def lost(self, error: BadInput) -> Failure:
        return error.failure(reference_record(self.reference).key)


@dataclasses.dataclass(frozen=True, slots=True)
class CropTask(_ImageTask[list[Crop]]):
    """Cuts the same part out of an image at each setting."""

    worst: Worst

    def run(self, worker: Worker) -> list[Crop]:
        with worker.item(0):
            _, original = self.read()
            return crops_of(self.worst, original, self.settings, self.seen)

    def lost(self, error: BadInput) -> list[Crop]:
        return []


@functools.cache
def _warm_up(settings: tuple[Setting, ...]) -> None:
    """Imports everything that the settings need, so that the first image is not charged for it."""
    rows = np.arange(3 * 16 * 16, dtype=np.uint8).reshape(16, 16, 3)
    original = Original(rows.tobytes(), rows.shape)
    for setting in settings:
        opened_as_stored(original.stored(setting.policy)).decode()
    compare.ssim(rows[:, :, 0], rows[:, :, 1])


def measured(
    original: Original,
    settings: Sequence[Setting],
    seen: ImagePolicy,
    record_bytes: Callable[[StoredImage], int],
) -> list[Measure | Failure]:
    """An image at each setting; a Failure if a setting refuses it. Holds one stored image at a time.

    Args:
        original: the image.
        settings: of the sweep.
        seen: the policy of the pixels that are compared.
        record_bytes: returns the size of the record with a stored image, including the frame.

    Raises:
        BadInput: the image cannot be decoded, or a setting takes too long for its size.
    """
    image = original.opened()
    source = displayed_source(image, seen)
    limit = SLOW_FACTOR * cpu_seconds(image.pixels)
    # Many settings give the same bytes, such as all that keep the file.
    similarities: dict[tuple[str, bytes], Similarity | None] = {}

    def measure(setting: Setting, start: float) -> Measure:
        stored = original.stored(setting.policy)
        encode_seconds = _clock() - start
        size = record_bytes(stored)
        pixels, decode_seconds = displayed_stored(stored, seen)
        content = (stored.image_format, hashlib.sha256(stored.data).digest())
        if content not in similarities:
            is_raw = stored.image_format == "raw"
            shown = _without_profile(original, source, seen) if is_raw else source
            similarities[content] = similarity(shown, pixels)
        return Measure(
            size,
            len(stored.data),
            encode_seconds,
            decode_seconds,
            similarities[content],
            stored.jpeg_quality,
        )

    found: list[Measure | Failure] = []
    for setting in settings:
        start = _clock()
        try:
            with internal_errors("encode"):
                found.append(measure(setting, start))
        except BadInput as error:
            found.append(error.failure())
        if _clock() - start > limit:
            raise BadInput("decode", TAKES_TOO_LONG, f"{setting.name}: more than {limit:.0f} seconds")
    return found


def _without_profile(original: Original, source: Displayed, seen: ImagePolicy) -> Displayed:
    """The source with unconverted pixels: raw pixels have no colour profile."""
    image = original.opened()
    if profile_of(image.data, image.kind) is None:
        return source
    bare = msgspec.structs.replace(image, kind="pixels", inks=None)
    return displayed_source(bare, seen)


def crops_of(worst: Worst, original: Original, settings: Sequence[Setting], seen: ImagePolicy) -> list[Crop]:
    """The part of an image that its worst setting changed most, at every setting that was compared.

    Args:
        worst: the measures of the image.
        original: the image.
        settings: of the sweep.
        seen: the policy of the pixels that are shown.

    Raises:
        BadInput: the image can no longer be decoded.
    """
    source = displayed_source(original.opened(), seen)
    changed, _ = displayed_stored(original.stored(settings[worst.setting].policy), seen)
    if changed.pixels.shape[:2] != source.pixels.shape[:2]:
        return []  # the file was replaced
    box = most_changed(compare.luma(source.pixels), compare.luma(changed.pixels), CROP_SIDE)
    source_png = cut(source, box)
    crops = []
    for setting, ssim in zip(settings, worst.ssims, strict=True):
        if ssim is None:
            continue
        try:
            with internal_errors("encode"):
                stored = original.stored(setting.policy)
                pixels, _ = displayed_stored(stored, seen)
        except BadInput:
            continue
        png = cut(pixels, box)
        crops.append(Crop(worst.key, setting.name, ssim, png, source_png, box, len(stored.data)))
    return crops
