"""How alike lossy images are to their source: distributions, and the worst ones."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

MOST_WORST = 10
_SSIM_STEPS, _PSNR_STEPS = 10_000, 10
_PERCENTILES = (1, 5, 25, 50, 75)


@dataclasses.dataclass(frozen=True, slots=True)
class Likeness:
    """One image and its source.

    Attributes:
        ssim: of luma.
        psnr: in dB.
        key: of the record.
        file: that it is in.
        record: its number there.
    """

    ssim: float
    psnr: float | None
    key: str
    file: str
    record: int

    def place(self) -> tuple[float, str]:
        """Sorts the worst first."""
        return self.ssim, self.key


@dataclasses.dataclass(slots=True)
class Likenesses:
    """Many of them; mergeable, of bounded size.

    Attributes:
        ssim: images by 10,000 times their SSIM, cut.
        psnr: images by ten times their PSNR, cut.
        worst: those of the least SSIM.
    """

    ssim: Counter[int] = dataclasses.field(default_factory=Counter)
    psnr: Counter[int] = dataclasses.field(default_factory=Counter)
    worst: list[Likeness] = dataclasses.field(default_factory=list)

    def add(self, one: Likeness) -> None:
        """One image more."""
        self.ssim[int(one.ssim * _SSIM_STEPS)] += 1
        if one.psnr is not None:
            self.psnr[int(one.psnr * _PSNR_STEPS)] += 1
        self._take([one])

    def merge(self, other: Likenesses) -> None:
        """Takes in others, which are not changed."""
        self.ssim.update(other.ssim)
        self.psnr.update(other.psnr)
        self._take(other.worst)

    def as_json(self) -> dict[str, Any]:
        """Percentiles, rounded down, and the worst."""
        return {
            "images": self.ssim.total(),
            "ssim": _percentiles(self.ssim, _SSIM_STEPS),
            "psnr": _percentiles(self.psnr, _PSNR_STEPS),
            "worst": [dataclasses.asdict(one) for one in self.worst],
        }

    def _take(self, more: list[Likeness]) -> None:
        self.worst = sorted([*self.worst, *more], key=Likeness.place)[:MOST_WORST]


def _percentiles(counts: Counter[int], steps: int) -> dict[str, float]:
    """The least value, and those that so many images of a hundred are at or below."""
    if not counts:
        return {}
    found = {"least": min(counts) / steps}
    for percent in _PERCENTILES:
        wanted, seen = counts.total() * percent / 100, 0
        for value in sorted(counts):
            seen += counts[value]
            if seen >= wanted:
                found[f"p{percent}"] = value / steps
                break
    return found
