"""Class balance: how many labels and objects of each class each split has, and what is missing where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from recordmill.transforms.records import IGNORE
from recordmill.transforms.reporting.wording import counted, share_text, shown
from recordmill.transforms.shards.statistics import Statistics
from recordmill.transforms.sweeping.markup import joined

MOST_CLASSES = 40
"""Classes that have a line of their own."""

_MOST_NAMED = 12
_LONGEST_NAME = 60


def pixel_balance(statistics: Mapping[str, Statistics], labels: Mapping[int, str]) -> str:
    """Mask pixels by class and split as a table; empty without masks. Ignored pixels are counted separately.

    Args:
        statistics: by split.
        labels: class name by id. Id 0 is the background if only other ids have names.
    """
    title = "Pixels of masks"
    total = sum(one.pixels.total() for one in statistics.values())
    if not total:
        return ""
    counts = {split: _without_ignored(one.pixels) for split, one in statistics.items()}
    images = {split: one.pixel_images for split, one in statistics.items()}
    labels = {one: name for one, name in labels.items() if one != IGNORE}
    if labels and 0 not in labels and any(found[0] for found in counts.values()):
        labels = {0: "background", **labels}
    table = balance(title, "pixel", counts, labels, images) or f"<h3>{title}</h3>\n"
    ignored = {split: one.pixels[IGNORE] for split, one in statistics.items()}
    if not any(ignored.values()):
        return table
    by_split = ", ".join(f"{shown(split)} {count:,}" for split, count in ignored.items())
    share = share_text(sum(ignored.values()) / total)
    line = f"{share} of all pixels have the ignore label {IGNORE} and are not in the table: {by_split}."
    return f'{table}<p class="quiet">{line}</p>\n'


def _without_ignored(pixels: Counter[int]) -> Counter[int]:
    return Counter({one: count for one, count in pixels.items() if one != IGNORE})


def balance(
    title: str,
    noun: str,
    counts: Mapping[str, Counter[int]],
    labels: Mapping[int, str],
    images: Mapping[str, Counter[int]] | None = None,
) -> str:
    """Classes by split as a table with bars, and remarks on it; empty where nothing is counted.

    Args:
        title: of this part.
        noun: what is counted: `label` or `object`.
        counts: by class id, by split.
        labels: class name by id.
        images: number of images in which a class occurs, by split; None if that is not shown.
    """
    total: Counter[int] = Counter()
    for found in counts.values():
        total.update(found)
    order = sorted((one for one in total if total[one]), key=lambda one: (-total[one], one))
    if not order:
        return ""
    remarks = _remarks(order, noun, total, counts, labels)
    return (
        f"<h3>{title}</h3>\n"
        + "".join(f"<p{kind}>{remark}</p>\n" for kind, remark in remarks)
        + _table(order, noun, counts, labels, images)
    )


def _table(
    order: list[int],
    noun: str,
    counts: Mapping[str, Counter[int]],
    labels: Mapping[int, str],
    images: Mapping[str, Counter[int]] | None,
) -> str:
    rows = [
        (
            name_of(one, labels),
            {split: found[one] for split, found in counts.items()},
            {split: found[one] for split, found in (images or {}).items()},
        )
        for one in order
    ]
    rest = rows[MOST_CLASSES:]
    rows = rows[:MOST_CLASSES]
    totals = {split: sum(found.values()) for split, found in counts.items()}
    widest = max(
        count / totals[split] for _, found, _ in rows for split, count in found.items() if totals[split]
    )
    lines = [_line(name, found, totals, widest, occurs) for name, found, occurs in rows]
    if rest:
        found = {split: sum(one[split] for _, one, _ in rest) for split in counts}
        other = counted(len(rest), "other class", "other classes")
        lines.append(_line(f"<i>{other}</i>", found, totals, 0, {}))
    head = "".join(
        f'<th scope="col">{shown(split)}<span>{counted(totals[split], noun)}</span></th>' for split in counts
    )
    return (
        f'<div class="scroll" tabindex="0"><table class="balance{" wide" if images else ""}">\n'
        f'<thead><tr><th scope="col">class</th>{head}'
        f"</tr></thead>\n<tbody>\n{joined(lines)}</tbody>\n</table></div>"
    )


def _line(
    name: str,
    found: Mapping[str, int],
    totals: Mapping[str, int],
    widest: float,
    images: Mapping[str, int],
) -> str:
    cells = []
    for split, count in found.items():
        share = count / totals[split] if totals[split] else 0.0
        bar = f'<i style="width:{100 * share / widest:.1f}%"></i>' if widest else ""
        told = share_text(share) if count else "none"
        occurs = f"<small>in {counted(images[split], 'image')}</small>" if count and split in images else ""
        empty = "" if count else ' class="none"'
        cells.append(
            f'<td{empty}><div class="share"><div>{bar}</div><b>{count:,}</b><span>{told}</span>{occurs}'
            "</div></td>"
        )
    return f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>'


def _remarks(
    order: list[int],
    noun: str,
    total: Counter[int],
    counts: Mapping[str, Counter[int]],
    labels: Mapping[int, str],
) -> list[tuple[str, str]]:
    """Attributes of a paragraph, and its text: what is missing, and how far the classes are apart."""
    found = []
    for split, mine in counts.items():
        lacking = [one for one in order if not mine[one]]
        if lacking and mine:
            what = f"{len(lacking):,} of {len(order):,} classes have no {noun} in <b>{shown(split)}</b>"
            found.append((' class="warning"', f"{what}: {_named(lacking, labels)}."))
        elif lacking:
            found.append((' class="warning"', f"<b>{shown(split)}</b> has no {noun} at all."))
    unused = [one for one in labels if not total[one]]
    if unused:
        what = f"{len(unused):,} of {len(labels):,} named classes have no {noun} at all"
        found.append((' class="quiet"', f"{what}: {_named(unused, labels)}."))
    return [("", _range(order, noun, total, labels)), *found]


def _range(order: list[int], noun: str, total: Counter[int], labels: Mapping[int, str]) -> str:
    """How far the classes are apart."""
    most, least = order[0], order[-1]
    ratio = total[most] / total[least]
    if ratio == 1:
        every = "One class" if len(order) == 1 else f"{len(order):,} classes, each"
        return f"{every} with {counted(total[most], noun)}."
    times = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"
    return (
        f"{len(order):,} classes. {name_of(most, labels)} has the most ({total[most]:,}), "
        f"{name_of(least, labels)} the fewest ({total[least]:,}): "
        f"{times} times as many."
    )


def _named(classes: Iterable[int], labels: Mapping[int, str]) -> str:
    listed = list(classes)
    told = ", ".join(name_of(one, labels) for one in listed[:_MOST_NAMED])
    left = len(listed) - _MOST_NAMED
    return f"{told} and {left:,} more" if left > 0 else told


def name_of(one: int, labels: Mapping[int, str]) -> str:
    """The name of a class as HTML; its id where it has none."""
    return shown(labels[one], _LONGEST_NAME) if one in labels else f"{one}"
