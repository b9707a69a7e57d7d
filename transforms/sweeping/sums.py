"""The sums of a sweep: mergeable, and independent of the order of the images (but for the seconds)."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence

from recordmill.transforms.records import Failure
from recordmill.transforms.sweeping.measure import Measure, MeasuredImage, Worst
from recordmill.transforms.sweeping.results import Row, Setting

# Sums of floats depend on their order; sums of integers do not.
_UNITS = 1 << 40


@dataclasses.dataclass(slots=True)
class SettingSum:
    """The sums of one setting; see Row. SSIM and PSNR are integers, in 1 / _UNITS."""

    images: int = 0
    source_bytes: int = 0
    tfrecord_bytes: int = 0
    image_bytes: int = 0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0
    compared: int = 0
    ssim: int = 0
    worst: tuple[float, str] | None = None
    psnr: int = 0
    differing: int = 0
    identical: int = 0
    qualities: Counter[int] = dataclasses.field(default_factory=Counter)
    refused: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, key: str, source_bytes: int, measure: Measure | Failure) -> None:
        if isinstance(measure, Failure):
            self.refused[f"{measure.stage}: {measure.reason}"] += 1
            return
        self.images += 1
        self.source_bytes += source_bytes
        self.tfrecord_bytes += measure.tfrecord_bytes
        self.image_bytes += measure.image_bytes
        self.encode_seconds += measure.encode_seconds
        self.decode_seconds += measure.decode_seconds
        if measure.jpeg_quality is not None:
            self.qualities[measure.jpeg_quality] += 1
        if measure.similarity is None:
            return
        self.compared += 1
        self.ssim += round(measure.similarity.ssim * _UNITS)
        self.worst = _lower(self.worst, (measure.similarity.ssim, key))
        self.identical += measure.similarity.identical
        if math.isfinite(measure.similarity.psnr):
            self.psnr += round(measure.similarity.psnr * _UNITS)
            self.differing += 1

    def merge(self, other: SettingSum) -> None:
        for field in dataclasses.fields(self):
            if field.name != "worst":
                total = getattr(self, field.name) + getattr(other, field.name)
                setattr(self, field.name, total)
        if other.worst is not None:
            self.worst = _lower(self.worst, other.worst)

    def row(self, setting: Setting) -> Row:
        return Row(
            **{name: getattr(self, name) for name in _SAME},
            setting=setting,
            failed=self.refused.total(),
            ssim_mean=self.ssim / self.compared / _UNITS if self.compared else None,
            ssim_worst=self.worst[0] if self.worst else None,
            ssim_worst_key=self.worst[1] if self.worst else None,
            psnr_mean=self.psnr / self.differing / _UNITS if self.differing else None,
            qualities=dict(sorted(self.qualities.items())),
        )


@dataclasses.dataclass(slots=True)
class SweepSum:
    """The sums of all settings, and the worst images."""

    worst_size: int  # the number of worst images to keep
    images: int = 0
    # In the order of the sweep; empty before the first image.
    settings: list[SettingSum] = dataclasses.field(default_factory=list)
    worst: list[Worst] = dataclasses.field(default_factory=list)  # ascending

    def add(self, image: MeasuredImage) -> None:
        self.images += 1
        self._grow(len(image.measures))
        for total, measure in zip(self.settings, image.measures, strict=True):
            total.add(image.key, image.source_bytes, measure)
        ssims = tuple(_ssim(measure) for measure in image.measures)
        compared = [(ssim, index) for index, ssim in enumerate(ssims) if ssim is not None]
        if compared and min(compared)[0] < 1:
            ssim, index = min(compared)
            self._remember([Worst(ssim, image.key, index, image.reference, ssims)])

    def merge(self, other: SweepSum) -> None:
        self.images += other.images
        self._grow(len(other.settings))
        for mine, theirs in zip(self.settings, other.settings, strict=bool(other.settings)):
            mine.merge(theirs)
        self._remember(other.worst)

    def rows(self, settings: Sequence[Setting]) -> tuple[Row, ...]:
        return tuple(total.row(one) for one, total in zip(settings, self.settings, strict=True))

    def refused(self) -> Counter[str]:
        """Refused images by reason, as counted by the setting that refused most for that reason."""
        most: Counter[str] = Counter()
        for total in self.settings:
            most |= total.refused
        return most

    def _grow(self, size: int) -> None:
        self.settings += [SettingSum() for _ in range(size - len(self.settings))]

    def _remember(self, worst: Iterable[Worst]) -> None:
        # The reference decides if two images have the same key.
        self.worst = heapq.nsmallest(self.worst_size, [*self.worst, *worst], key=lambda one: one[:4])


# Of a SettingSum and of its Row.
_SAME = (
    *("images", "source_bytes", "tfrecord_bytes", "image_bytes"),
    *("encode_seconds", "decode_seconds", "compared", "identical"),
)


def _ssim(measure: Measure | Failure) -> float | None:
    if isinstance(measure, Failure) or measure.similarity is None:
        return None
    return measure.similarity.ssim


def _lower(one: tuple[float, str] | None, other: tuple[float, str]) -> tuple[float, str]:
    return other if one is None else min(one, other)
