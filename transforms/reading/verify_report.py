"""What a verification has counted and found: mergeable, of bounded size, and written as a JSON file."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from recordmill.transforms.storage.files import replace_own
from recordmill.transforms.storage.paths import absolute

FORMAT_VERSION = 1
"""Of the report: changes when a reader would break."""
MOST_NAMED = 1000
"""Faults of a kind that are named; all are counted."""
MOST_WORST = 10
"""Lossy images that are named."""

_SSIM_STEPS, _PSNR_STEPS = 10_000, 10
_PERCENTILES = (1, 5, 25, 50, 75)


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong.

    Attributes:
        kind: a few words without particulars: faults are counted by it.
        file: name in the dataset's folder.
        record: its number in the file, from 0; None for a fault of the file.
        offset: byte of the file at which the record begins; None if unknown.
        key: of the record; empty if unknown.
        what: the particulars.
    """

    kind: str
    file: str
    record: int | None = None
    offset: int | None = None
    key: str = ""
    what: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Likeness:
    """How similar a lossy image is to its source.

    Attributes:
        ssim: of luma.
        psnr: in dB; None if it is infinite.
        key: of the record.
        file: name of the shard.
        record: its number in the shard.
    """

    ssim: float
    psnr: float | None
    key: str
    file: str
    record: int


@dataclasses.dataclass(slots=True)
class Likenesses:
    """The similarities of many images.

    Attributes:
        ssim: images by 10,000 times their SSIM, rounded down.
        psnr: images by ten times their PSNR, rounded down.
        worst: those of the lowest SSIM.
    """

    ssim: Counter[int] = dataclasses.field(default_factory=Counter)
    psnr: Counter[int] = dataclasses.field(default_factory=Counter)
    worst: list[Likeness] = dataclasses.field(default_factory=list)

    def add(self, one: Likeness) -> None:
        """Adds one image."""
        psnr = Counter() if one.psnr is None else Counter([int(one.psnr * _PSNR_STEPS)])
        self.merge(Likenesses(Counter([int(one.ssim * _SSIM_STEPS)]), psnr, [one]))

    def merge(self, other: Likenesses) -> None:
        """Adds the images of `other`, which is not changed."""
        self.ssim.update(other.ssim)
        self.psnr.update(other.psnr)
        worst = sorted([*self.worst, *other.worst], key=lambda one: (one.ssim, one.key))
        self.worst = worst[:MOST_WORST]

    def as_json(self) -> dict[str, Any]:
        """Percentiles, rounded down, and the worst images."""
        return {
            "images": self.ssim.total(),
            "ssim": _percentiles(self.ssim, _SSIM_STEPS),
            "psnr": _percentiles(self.psnr, _PSNR_STEPS),
            "worst": [dataclasses.asdict(one) for one in self.worst],
        }


def _percentiles(counts: Counter[int], steps: int) -> dict[str, float]:
    """The least value, and the smallest that so many per cent of the images do not exceed."""
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


@dataclasses.dataclass(slots=True)
class Tally:
    """Counts and faults of a part of what is verified.

    Attributes:
        checked: figures by name: `shards`, `records`, `images`, `bytes`, ….
        faults: number of each kind.
        named: the first faults of each kind, fewer than twice `MOST_NAMED`.
        notes: what could not be checked, and why.
        likeness: of lossy images to their source.
    """

    checked: Counter[str] = dataclasses.field(default_factory=Counter)
    faults: Counter[str] = dataclasses.field(default_factory=Counter)
    named: dict[str, list[Fault]] = dataclasses.field(default_factory=dict)
    notes: set[str] = dataclasses.field(default_factory=set)
    likeness: Likenesses = dataclasses.field(default_factory=Likenesses)

    def add(self, *faults: Fault) -> None:
        """Adds faults."""
        for fault in faults:
            self.faults[fault.kind] += 1
            self._name(fault.kind, [fault])

    def merge(self, other: Tally) -> None:
        """Adds another tally, which is not changed."""
        self.checked.update(other.checked)
        self.faults.update(other.faults)
        self.notes |= other.notes
        self.likeness.merge(other.likeness)
        for kind, faults in other.named.items():
            self._name(kind, faults)

    def first(self, kind: str) -> list[Fault]:
        """The first faults of a kind, by file and record."""
        return sorted(
            self.named.get(kind, ()),
            key=lambda fault: (
                fault.file,
                -1 if fault.record is None else fault.record,
                fault.what,
                fault.key,
            ),
        )[:MOST_NAMED]

    def as_json(self) -> dict[str, Any]:
        """For the report."""
        return {
            "checked": dict(sorted(self.checked.items())),
            "not_checked": sorted(self.notes),
            "likeness": self.likeness.as_json(),
            "faults": dict(sorted(self.faults.items(), key=lambda item: (-item[1], item[0]))),
            "named": [dataclasses.asdict(fault) for kind in sorted(self.named) for fault in self.first(kind)],
        }

    def _name(self, kind: str, faults: Iterable[Fault]) -> None:
        named = self.named.setdefault(kind, [])
        named.extend(faults)
        if len(named) >= 2 * MOST_NAMED:
            self.named[kind] = self.first(kind)


def merged(tallies: Iterable[Tally]) -> Tally:
    """The sum of tallies."""
    total = Tally()
    for tally in tallies:
        total.merge(tally)
    return total


def report_of(tally: Tally, path: str, started: str, finished: str) -> dict[str, Any]:
    """The report.

    Args:
        tally: the sum of all.
        path: that was verified.
        started: UTC, ISO 8601.
        finished: likewise.
    """
    return {
        "format_version": FORMAT_VERSION,
        "path": absolute(path),
        "sound": not tally.faults,
        "started": started,
        "finished": finished,
        **tally.as_json(),
    }


def is_report(data: bytes) -> bool:
    """Whether a file has the contents of a report that `write_report` wrote."""
    try:
        return bool({"format_version", "path", "sound", "started"} <= json.loads(data).keys())
    except (ValueError, AttributeError, RecursionError):
        return False


def write_report(path: str, report: Mapping[str, Any]) -> None:
    """Writes a report; an earlier one is replaced.

    Raises:
        JobError: it cannot be written, or another file has appeared at the path.
    """
    replace_own(absolute(path), f"{json.dumps(report, indent=1, ensure_ascii=False)}\n", is_report)
