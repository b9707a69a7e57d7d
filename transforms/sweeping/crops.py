"""The part of an image that a setting has changed most, at every setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from recordmill.transforms.images import compare
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.similarity import (
    CROP_SIDE,
    Original,
    cut,
    displayed_source,
    displayed_stored,
    most_changed,
)
from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import BadInput
from recordmill.transforms.sweeping.results import Crop, Setting


class Worst(NamedTuple):
    """An image whose likeness to its source is low; the lowest sorts first, and then the first key.

    Attributes:
        ssim: the lowest of all settings.
        key: of the image.
        setting: place of the setting that has it.
        reference: where the image is, packed.
        ssims: at each setting; None where it was not compared.
    """

    ssim: float
    key: str
    setting: int
    reference: bytes
    ssims: tuple[float | None, ...]


def crops_of(worst: Worst, original: Original, settings: Sequence[Setting], seen: ImagePolicy) -> list[Crop]:
    """The same part of an image, where its worst setting has changed it most, at every setting.

    Args:
        worst: what was found of it.
        original: the image.
        settings: of the sweep; those that could not be compared are left out.
        seen: makes the pixels that are shown.

    Raises:
        BadInput: the image cannot be decoded any more.
    """
    source = displayed_source(original, seen)
    changed, _ = displayed_stored(original.stored(settings[worst.setting].policy), seen)
    if changed.pixels.shape[:2] != source.pixels.shape[:2]:
        return []  # the file is another one by now
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
