"""What a verification has counted, and the faults that it has found: mergeable, of bounded size."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from recordmill.transforms.reading.verify_likeness import Likenesses

MOST_NAMED = 1000
"""Faults of a kind that are named; all are counted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """Something that is not as it should be.

    Attributes:
        kind: a few words without particulars: faults are counted by it.
        file: name in the dataset's folder.
        record: its number in the file, from 0; None where the fault is the file's.
        offset: byte of the file at which the record begins; None where it is not known.
        key: of the record; empty where it is not known.
        what: the particulars.
    """

    kind: str
    file: str
    record: int | None = None
    offset: int | None = None
    key: str = ""
    what: str = ""

    def place(self) -> tuple[str, int, str]:
        """Sorts faults of a kind: by file, then record."""
        return self.file, -1 if self.record is None else self.record, self.what


@dataclasses.dataclass(slots=True)
class Tally:
    """Counts and faults of a part of what is verified.

    Attributes:
        checked: figures by name: `shards`, `records`, `images`, `bytes`, ….
        faults: number of each kind.
        named: the first faults of each kind, at most `MOST_NAMED`.
        notes: what could not be checked, and why.
        likeness: of lossy images to their source.
    """

    checked: Counter[str] = dataclasses.field(default_factory=Counter)
    faults: Counter[str] = dataclasses.field(default_factory=Counter)
    named: dict[str, list[Fault]] = dataclasses.field(default_factory=dict)
    notes: set[str] = dataclasses.field(default_factory=set)
    likeness: Likenesses = dataclasses.field(default_factory=Likenesses)

    def add(self, fault: Fault) -> None:
        """One fault more."""
        self.faults[fault.kind] += 1
        found = self.named.setdefault(fault.kind, [])
        found.append(fault)
        if len(found) >= 2 * MOST_NAMED:
            self._cut(fault.kind)

    def merge(self, other: Tally) -> None:
        """Takes in another one, which is not changed."""
        self.checked.update(other.checked)
        self.faults.update(other.faults)
        self.notes |= other.notes
        self.likeness.merge(other.likeness)
        for kind, faults in other.named.items():
            self.named.setdefault(kind, []).extend(faults)
            if len(self.named[kind]) >= 2 * MOST_NAMED:
                self._cut(kind)

    def first(self, kind: str, most: int = MOST_NAMED) -> list[Fault]:
        """The first faults of a kind, by file and record."""
        return sorted(self.named.get(kind, ()), key=Fault.place)[: min(most, MOST_NAMED)]

    def as_json(self) -> dict[str, Any]:
        """For the report."""
        return {
            "checked": dict(sorted(self.checked.items())),
            "not_checked": sorted(self.notes),
            "likeness": self.likeness.as_json(),
            "faults": dict(self.faults.most_common()),
            "named": [dataclasses.asdict(fault) for kind in sorted(self.named) for fault in self.first(kind)],
        }

    def _cut(self, kind: str) -> None:
        self.named[kind] = self.first(kind)


def merged(tallies: Iterable[Tally]) -> Tally:
    """The sum of some."""
    total = Tally()
    for tally in tallies:
        total.merge(tally)
    return total


def tally_of(report: Mapping[str, Any]) -> Tally:
    """The tally of a report that `Tally.as_json` is part of."""
    total = Tally(Counter(report["checked"]), Counter(report["faults"]), notes=set(report["not_checked"]))
    for one in report["named"]:
        fault = Fault(**one)
        total.named.setdefault(fault.kind, []).append(fault)
    return total
