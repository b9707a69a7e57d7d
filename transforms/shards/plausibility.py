"""Warnings about a dataset whose counts suggest that its input was read wrongly."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from transforms.records import IGNORE
from transforms.shards.brief import quoted, summed
from transforms.shards.statistics import Statistics

_TINY = 1000  # a split of less than 1/1000 of the largest is suspicious
_FEWEST = 5  # below this many records, a class for each record is no surprise
_MOST_GROUPS = 3  # examples of spellings in a message
_MOST_NAMES = 4  # names in an example, and splits in a message
_SEPARATORS = re.compile(r"(?<=[^\W_])[\s_-]+(?=[^\W_])")


@dataclasses.dataclass(frozen=True, slots=True)
class DataWarning:
    """A property of a dataset that is often a sign that its input was read wrongly.

    Attributes:
        kind: a fixed identifier.
        found: what is suspicious, with its counts.
        check: what to check.
    """

    kind: str
    found: str
    check: str

    @property
    def text(self) -> str:
        """Both as one line."""
        return f"{self.found}. {self.check}"

    def as_json(self) -> dict[str, str]:
        """As manifest.json has it."""
        return dataclasses.asdict(self)


def data_warnings(statistics: Mapping[str, Statistics], names: Mapping[int, str]) -> tuple[DataWarning, ...]:
    """The warnings about a dataset, in a fixed order.

    Time and memory are linear in the number of classes; a message names a few of them only.

    Args:
        statistics: by split; only counts of records, labels, objects, boxes and pixels are used.
        names: of the classes, by id.
    """
    return tuple(_warnings(statistics, names))


def _warnings(statistics: Mapping[str, Statistics], names: Mapping[int, str]) -> Iterator[DataWarning]:
    splits = statistics.values()
    labels = summed(one.labels for one in splits)
    objects = summed(one.objects for one in splits)
    records = {name: one.records for name, one in statistics.items()}
    unlabelled = {name: one.unlabelled for name, one in statistics.items()}
    boxes = {name: one.boxes_per_image for name, one in statistics.items()}
    with_boxes = {name: found.total() for name, found in boxes.items()}
    unboxed = {name: found[0] for name, found in boxes.items()}
    if len(labels) == 1 and labels.total() > 1:
        yield _single_class(labels, names)
    pixels = summed(one.pixels for one in splits)
    del pixels[IGNORE]
    if len(pixels) == 1:
        yield _single_mask_class(pixels, names)
    if _is_class_each(labels, sum(records.values()) - sum(unlabelled.values())):
        yield _class_each(labels, "record with a label")
    if _is_class_each(objects, sum(with_boxes.values()) - sum(unboxed.values())):
        yield _class_each(objects, "image with boxes")
    if tiny := _tiny_splits(records):
        yield tiny
    if labels and any(unlabelled.values()):
        yield DataWarning(
            "unlabelled_records",
            _share(unlabelled, records, "record", "label"),
            "Check that their folders, rows or annotation files were found and name a class",
        )
    if spellings := _spellings(labels + objects, names):
        yield spellings
    # Captions alone have no class, and need no box.
    if any(unboxed.values()) and (objects or (names and not labels)):
        yield DataWarning(
            "images_without_boxes",
            _share(unboxed, with_boxes, "image", "box"),
            "Check that their annotations were found. It is right for images that show no object",
        )


def _single_class(labels: Counter[int], names: Mapping[int, str]) -> DataWarning:
    (only,) = labels
    return DataWarning(
        "single_class",
        f"all {labels.total():,} labels are {_name(only, names)}",
        "Check that --input is the folder that holds the folders of the classes, or that --label_column or "
        "--label_pattern finds the class",
    )


def _single_mask_class(pixels: Counter[int], names: Mapping[int, str]) -> DataWarning:
    (only,) = pixels
    return DataWarning(
        "single_class",
        f"all {pixels.total():,} pixels of masks are {_name(only, names)}",
        "Check that the masks are those of classes, and that their values are class ids",
    )


def _is_class_each(counts: Counter[int], carriers: int) -> bool:
    """Whether there are as many classes as records that have one, and most classes occur once."""
    return carriers >= _FEWEST and len(counts) >= carriers and counts.total() < 2 * len(counts)


def _class_each(counts: Counter[int], carrier: str) -> DataWarning:
    return DataWarning(
        "class_for_each_record",
        f"there are {len(counts):,} classes, one for each {carrier}",
        "Check that the label is a class, and not a file name or an identifier",
    )


def _tiny_splits(records: Mapping[str, int]) -> DataWarning | None:
    if not records:
        return None
    largest = max(records, key=records.__getitem__)
    tiny = [name for name, count in records.items() if count * _TINY < records[largest]]
    if not tiny:
        return None
    listed = ", ".join(f"{name!r} has {records[name]:,}" for name in tiny[:_MOST_NAMES])
    more = f" and {len(tiny) - _MOST_NAMES:,} more" if len(tiny) > _MOST_NAMES else ""
    return DataWarning(
        "tiny_split",
        f"split {largest!r} has {records[largest]:,} records, and {listed}{more}",
        "Check that the names of the splits are right, and that no folder or file of a split is missing",
    )


def _spellings(counts: Counter[int], names: Mapping[int, str]) -> DataWarning | None:
    """Classes in use whose names differ in case, white space, hyphens or underscores alone."""
    first: dict[str, int] = {}
    groups: dict[str, list[int]] = {}
    for number, name in names.items():
        if number in counts or not counts:
            common = _normal(name)
            other = first.setdefault(common, number)
            if other != number:
                groups.setdefault(common, [other]).append(number)
    if not groups:
        return None
    shown = "; ".join(_spelled(groups[one], counts, names) for one in sorted(groups)[:_MOST_GROUPS])
    more = f"; and {len(groups) - _MOST_GROUPS:,} more" if len(groups) > _MOST_GROUPS else ""
    noun = "1 class has" if len(groups) == 1 else f"{len(groups):,} classes have"
    return DataWarning(
        "class_spelling",
        f"{noun} more than one spelling: {shown}{more}",
        "Check whether they are the same class. If so, use one spelling in the input",
    )


def _spelled(group: Iterable[int], counts: Counter[int], names: Mapping[int, str]) -> str:
    listed = sorted(group, key=lambda number: names[number])
    shown = [_name(one, names) + (f" ({counts[one]:,})" if counts else "") for one in listed[:_MOST_NAMES]]
    return ", ".join(shown) + (", …" if len(listed) > _MOST_NAMES else "")


def _normal(name: str) -> str:
    """What the spellings of one class have in common; single letters stay as they are."""
    text = unicodedata.normalize("NFC", name).strip()
    return _SEPARATORS.sub(" ", text.casefold()) if len(text) > 1 else text


def _share(part: Mapping[str, int], whole: Mapping[str, int], noun: str, lacking: str) -> str:
    """How many of all lack something, and in which splits where there are several."""
    count = sum(part.values())
    verb = "has" if count == 1 else "have"
    share = f"{count:,} of {sum(whole.values()):,} {noun}s {verb} no {lacking}"
    found = [f"{name} {count:,} of {whole[name]:,}" for name, count in part.items() if count]
    if len(whole) == 1:
        return share
    return f"{share} ({', '.join(found[:_MOST_NAMES])}{', …' if len(found) > _MOST_NAMES else ''})"


def _name(number: int, names: Mapping[int, str]) -> str:
    return quoted(names.get(number, str(number)))
