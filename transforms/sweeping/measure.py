"""Measures an image at each setting: bytes, time and difference from the source; cuts its changed part."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from recordmill.transforms.images import compare
from recordmill.transforms.images.icc import profile_of
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.similarity import (
    CROP_SIDE,
    Displayed,
    Original,
    Similarity,
    cut,
    displayed_image,
    displayed_source,
    displayed_stored,
    most_changed,
    opened_as_stored,
    similarity,
)
from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import BadInput, Failure, StoredImage
from recordmill.transforms.sweeping.results import Crop, Setting
from recordmill.transforms.workers.pool import TAKES_TOO_LONG
from recordmill.transforms.workers.task import SLOW_FACTOR, cpu_seconds

RecordBytes = Callable[[StoredImage], int]
"""The size of the record with an image, including the frame."""

# CPU time of this process: optimisers have their own threads, and other processes run at the same time.
_clock = time.process_time


@dataclasses.dataclass(frozen=True, slots=True)
class Measure:
    """One image, stored by one setting.

    Attributes:
        tfrecord_bytes: of its record, including the frame.
        image_bytes: of the stored image.
        encode_seconds: CPU time to store it.
        decode_seconds: CPU time to decode it.
        similarity: to the source; None if the size differs.
        jpeg_quality: chosen by the setting; 0 if it kept the source.
    """

    tfrecord_bytes: int
    image_bytes: int
    encode_seconds: float
    decode_seconds: float
    similarity: Similarity | None
    jpeg_quality: int | None


def measured(
    original: Original, settings: Sequence[Setting], seen: ImagePolicy, record_bytes: RecordBytes
) -> list[Measure | Failure]:
    """An image at each setting; a Failure if a setting refuses it. Holds one stored image at a time.

    Args:
        original: the image.
        settings: of the sweep.
        seen: the policy of the pixels that are compared.
        record_bytes: returns the size of the record.

    Raises:
        BadInput: the image cannot be decoded, or a setting takes too long for its size.
    """
    source = displayed_source(original, seen)
    limit = SLOW_FACTOR * cpu_seconds(original.opened().pixels)
    similarities: dict[tuple[str, bytes], Similarity | None] = {}
    found: list[Measure | Failure] = []
    for setting in settings:
        start = _clock()
        try:
            with internal_errors("encode"):
                found.append(_measured(original, setting, source, seen, record_bytes, similarities))
        except BadInput as error:
            found.append(error.failure())
        if _clock() - start > limit:
            raise BadInput("decode", TAKES_TOO_LONG, f"{setting.name}: more than {limit:.0f} seconds")
    return found


def warm_up(settings: Sequence[Setting]) -> None:
    """Imports everything that the settings need, so that the first image is not charged for it."""
    rows = np.arange(3 * 16 * 16, dtype=np.uint8).reshape(16, 16, 3)
    original = Original(rows.tobytes(), rows.shape)
    for setting in settings:
        opened_as_stored(original.stored(setting.policy)).decode()
    compare.ssim(rows[:, :, 0], rows[:, :, 1])


def _measured(
    original: Original,
    setting: Setting,
    source: Displayed,
    seen: ImagePolicy,
    record_bytes: RecordBytes,
    similarities: dict[tuple[str, bytes], Similarity | None],
) -> Measure:
    start = _clock()
    stored = original.stored(setting.policy)
    encode_seconds = _clock() - start
    size = record_bytes(stored)
    pixels, decode_seconds = displayed_stored(stored, seen)
    # Many settings give the same bytes, such as all that keep the file.
    content = (stored.image_format, hashlib.sha256(stored.data).digest())
    if content not in similarities:
        if stored.image_format == "raw":
            source = _without_profile(original, source, seen)
        similarities[content] = similarity(source, pixels)
    return Measure(
        size, len(stored.data), encode_seconds, decode_seconds, similarities[content], stored.jpeg_quality
    )


def _without_profile(original: Original, source: Displayed, seen: ImagePolicy) -> Displayed:
    """The source with unconverted pixels: raw pixels have no colour profile."""
    image = original.opened()
    if profile_of(image.data, image.kind) is None:
        return source
    bare = dataclasses.replace(image, kind="pixels", inks=None)
    return displayed_image(bare, image.orientation if seen.exif == "apply" else 1, seen)


class Worst(NamedTuple):
    """An image with a low SSIM; sorted by SSIM, then by key.

    Attributes:
        ssim: the lowest of all settings.
        key: of the image.
        setting: index of the setting with that SSIM.
        reference: to the image, packed.
        ssims: at each setting; None if it was not compared.
    """

    ssim: float
    key: str
    setting: int
    reference: bytes
    ssims: tuple[float | None, ...]


def crops_of(worst: Worst, original: Original, settings: Sequence[Setting], seen: ImagePolicy) -> list[Crop]:
    """The part of an image that its worst setting changed most, at every setting.

    Args:
        worst: the measures of the image.
        original: the image.
        settings: of the sweep; those that were not compared are left out.
        seen: the policy of the pixels that are shown.

    Raises:
        BadInput: the image cannot be decoded any more.
    """
    source = displayed_source(original, seen)
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
