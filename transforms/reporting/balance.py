"""Class balance: how many labels, objects and mask pixels of each class are in each split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from recordmill.transforms.records import IGNORE
from recordmill.transforms.shards.statistics import Statistics

MOST_CLASSES = 40
"""Classes that have a row of their own."""


class Cell(NamedTuple):
    """A class in a split: its number, its share, its bar in per cent of the longest, and its images."""

    number: int
    share: float
    width: float
    images: int | None


class ClassRow(NamedTuple):
    """The cells of a class, by split; the last row may be that of all `others` together."""

    name: str
    cells: list[Cell]
    others: int = 0


class Balance(NamedTuple):
    """The classes of one kind of annotation.

    Attributes:
        title: of this part of the page.
        noun: what is counted: `label`, `object` or `pixel`.
        totals: by split.
        rows: of the largest classes, the largest first; empty if nothing is counted.
        classes: number of classes with a count.
        most: name and count of the largest class.
        least: of the smallest class.
        missing: names of the classes that a split lacks, by split.
        unused: names of the classes that no split has.
        named: number of classes that have a name.
        has_images: whether cells have a number of images.
        ignored: number of pixels with the ignore label, by split; empty if there are none.
        ignored_share: of all pixels.
        ignore_label: class id of ignored pixels.
    """

    title: str
    noun: str
    totals: Mapping[str, int]
    rows: Sequence[ClassRow]
    classes: int
    most: tuple[str, int]
    least: tuple[str, int]
    missing: Sequence[tuple[str, list[str]]]
    unused: Sequence[str]
    named: int
    has_images: bool = False
    ignored: Mapping[str, int] = {}
    ignored_share: float = 0.0
    ignore_label: int = IGNORE

    @property
    def times(self) -> str:
        """How many times as many the largest class has as the smallest."""
        ratio = self.most[1] / self.least[1]
        return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def class_balances(statistics: Mapping[str, Statistics], names: Mapping[int, str]) -> list[Balance]:
    """The balance of labels, objects and pixels; kinds that no split has are left out.

    Args:
        statistics: by split.
        names: of classes, by id.
    """
    labels = {split: one.labels for split, one in statistics.items()}
    objects = {split: one.objects for split, one in statistics.items()}
    found = [
        _balance("Labels of images", "label", labels, names),
        _balance("Objects", "object", objects, names),
        _pixel_balance(statistics, names),
    ]
    return [one for one in found if one.rows or one.ignored]


def _pixel_balance(statistics: Mapping[str, Statistics], names: Mapping[int, str]) -> Balance:
    """Ignored pixels are counted separately. Id 0 is the background if only other ids have names."""
    counts = {split: one.pixels.copy() for split, one in statistics.items()}
    total = sum(found.total() for found in counts.values())
    ignored = {split: found.pop(IGNORE, 0) for split, found in counts.items()}
    names = {one: name for one, name in names.items() if one != IGNORE}
    if names and 0 not in names and any(found[0] for found in counts.values()):
        names = {0: "background", **names}
    images = {split: one.pixel_images for split, one in statistics.items()}
    balance = _balance("Pixels of masks", "pixel", counts, names, images)
    if any(ignored.values()):
        balance = balance._replace(ignored=ignored, ignored_share=sum(ignored.values()) / total)
    return balance


def _balance(
    title: str,
    noun: str,
    counts: Mapping[str, Counter[int]],
    names: Mapping[int, str],
    images: Mapping[str, Counter[int]] | None = None,
) -> Balance:
    """`counts` and `images` are by class id, by split."""
    total = sum(counts.values(), Counter[int]())
    order = sorted(total, key=lambda one: (-total[one], one))
    called = {one: names.get(one, str(one)) for one in (*order, *names)}
    largest, smallest = (order[0], order[-1]) if order else (0, 0)
    return Balance(
        title,
        noun,
        {split: found.total() for split, found in counts.items()},
        _rows(order, counts, called, images or {}),
        len(order),
        (called.get(largest, ""), total[largest]),
        (called.get(smallest, ""), total[smallest]),
        [
            (split, lacking)
            for split, found in counts.items()
            if (lacking := [called[one] for one in order if not found[one]])
        ],
        [called[one] for one in names if not total[one]],
        len(names),
        has_images=bool(images),
    )


def _rows(
    order: Sequence[int],
    counts: Mapping[str, Counter[int]],
    called: Mapping[int, str],
    images: Mapping[str, Counter[int]],
) -> list[ClassRow]:
    shown, others = order[:MOST_CLASSES], order[MOST_CLASSES:]
    totals = {split: found.total() or 1 for split, found in counts.items()}
    longest = max((found[one] / totals[split] for split, found in counts.items() for one in shown), default=1)
    rows = []
    for one in shown:
        cells = []
        for split, found in counts.items():
            share = found[one] / totals[split]
            seen = images[split][one] if found[one] and split in images else None
            cells.append(Cell(found[one], share, 100 * share / longest, seen))
        rows.append(ClassRow(called[one], cells))
    if others:
        rest = {split: sum(found[one] for one in others) for split, found in counts.items()}
        cells = [Cell(count, count / totals[split], 0, None) for split, count in rest.items()]
        rows.append(ClassRow("", cells, len(others)))
    return rows
