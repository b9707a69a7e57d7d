"""One image at one setting: what it takes, how long, and how far its pixels are from the source's."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from recordmill.transforms.images import compare
from recordmill.transforms.images.icc import profile_of
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.similarity import (
    Displayed,
    Original,
    Similarity,
    displayed_image,
    displayed_source,
    displayed_stored,
    opened_as_stored,
    similarity,
)
from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import BadInput, Failure, StoredImage
from recordmill.transforms.sweeping.results import Setting
from recordmill.transforms.workers.pool import TAKES_TOO_LONG
from recordmill.transforms.workers.position import SLOW_FACTOR, cpu_seconds

RecordBytes = Callable[[StoredImage], int]
"""The bytes of the record that an image makes, frame and all."""

# CPU time of this process: optimisers have their own threads, and other processes run at the same time.
_clock = time.process_time


@dataclasses.dataclass(frozen=True, slots=True)
class Measure:
    """One image, stored by one setting.

    Attributes:
        tfrecord_bytes: of its record, frame and all.
        image_bytes: of the stored image.
        encode_seconds: of CPU time, to store it.
        decode_seconds: of CPU time, to decode it.
        likeness: None where it has not the size of its source.
        jpeg_quality: that the setting has chosen; 0 where it kept the source.
    """

    tfrecord_bytes: int
    image_bytes: int
    encode_seconds: float
    decode_seconds: float
    likeness: Similarity | None
    jpeg_quality: int | None


def measured(
    original: Original, settings: Sequence[Setting], seen: ImagePolicy, record_bytes: RecordBytes
) -> list[Measure | Failure]:
    """An image at each setting; a Failure where a setting refuses it. Holds one stored image at a time.

    Args:
        original: the image.
        settings: to store it by.
        seen: makes the pixels that are compared.
        record_bytes: returns the size of the record.

    Raises:
        BadInput: the image cannot be decoded, or a setting takes too long for its size.
    """
    source = displayed_source(original, seen)
    limit = SLOW_FACTOR * cpu_seconds(original.opened().pixels)
    likenesses: dict[tuple[str, bytes], Similarity | None] = {}
    found: list[Measure | Failure] = []
    for setting in settings:
        start = _clock()
        try:
            with internal_errors("encode"):
                found.append(_measured(original, setting, source, seen, record_bytes, likenesses))
        except BadInput as error:
            found.append(error.failure())
        if _clock() - start > limit:
            raise BadInput("decode", TAKES_TOO_LONG, f"{setting.name}: more than {limit:.0f} seconds")
    return found


def warm_up(settings: Sequence[Setting]) -> None:
    """Has everything imported that the settings need, or the first image would be charged for it."""
    rows = np.arange(3 * 16 * 16, dtype=np.uint8).reshape(16, 16, 3)
    for _ in _stored(Original(rows.tobytes(), rows.shape), settings):
        pass
    compare.ssim(rows[:, :, 0], rows[:, :, 1])


def _stored(original: Original, settings: Sequence[Setting]) -> Iterator[StoredImage]:
    for setting in settings:
        stored = original.stored(setting.policy)
        opened_as_stored(stored).decode()
        yield stored


def _measured(
    original: Original,
    setting: Setting,
    source: Displayed,
    seen: ImagePolicy,
    record_bytes: RecordBytes,
    likenesses: dict[tuple[str, bytes], Similarity | None],
) -> Measure:
    start = _clock()
    stored = original.stored(setting.policy)
    encode_seconds = _clock() - start
    size = record_bytes(stored)
    pixels, decode_seconds = displayed_stored(stored, seen)
    # Many settings give the same bytes: every one that keeps the file does.
    which = (stored.image_format, hashlib.sha256(stored.data).digest())
    if which not in likenesses:
        if stored.image_format == "raw":
            source = _without_profile(original, source, seen)
        likenesses[which] = similarity(source, pixels)
    return Measure(
        size, len(stored.data), encode_seconds, decode_seconds, likenesses[which], stored.jpeg_quality
    )


def _without_profile(original: Original, source: Displayed, seen: ImagePolicy) -> Displayed:
    """The source with its pixels taken as they are: raw ones have no profile to be seen by."""
    image = original.opened()
    if profile_of(image.data, image.kind) is None:
        return source
    bare = dataclasses.replace(image, kind="pixels", inks=None)
    return displayed_image(bare, image.orientation if seen.exif == "apply" else 1, seen)
