"""A dataset in words: its source, its classes, and warnings about suspicious counts."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from recordmill.transforms.records import IGNORE
from recordmill.transforms.shards.duplicates import NO_DUPLICATES, Duplicates, shared_images
from recordmill.transforms.shards.statistics import Statistics

_LONGEST_NAME = 60


def source_facts(source: Mapping[str, Any], reason: str) -> dict[str, str]:
    """By title: the kind of source, with the reason for it, if there is one, and the input."""
    facts = {"source": f"{source['kind']} ({reason})" if reason else source["kind"], "input": source["input"]}
    return {title: text for title, text in facts.items() if text}


def class_overview(statistics: Mapping[str, Statistics], names: Mapping[int, str]) -> dict[str, Any]:
    """The classes of `labels` (of images), `objects` and `pixels` (of masks); kinds without any are left out.

    For each: the number of classes in use, and `largest` and `smallest`, each a name and its count.
    """
    counts = {
        "labels": summed(one.labels for one in statistics.values()),
        "objects": summed(one.objects for one in statistics.values()),
        "pixels": summed(one.pixels for one in statistics.values()),
    }
    del counts["pixels"][IGNORE]
    return {kind: _overview(found, names) for kind, found in counts.items() if found}


class PixelShare(NamedTuple):
    """A class in masks.

    Attributes:
        name: empty for the ignored pixels.
        share: of the pixels that are not ignored; for the ignored pixels, of all.
        images: number of images that have it.
    """

    name: str
    share: float
    images: int


def pixel_shares(statistics: Mapping[str, Statistics], names: Mapping[int, str]) -> list[PixelShare]:
    """The classes in masks, the largest first, then the ignored pixels if there are any."""
    pixels = summed(one.pixels for one in statistics.values())
    images = summed(one.pixel_images for one in statistics.values())
    total, ignored = pixels.total(), pixels.pop(IGNORE, 0)
    found = [
        PixelShare(names.get(one, str(one)), pixels[one] / pixels.total(), images[one])
        for one in sorted(pixels, key=lambda one: (-pixels[one], one))
    ]
    return [*found, PixelShare("", ignored / total, images[IGNORE])] if ignored else found


def class_texts(classes: Mapping[str, Any], named: int) -> dict[str, str]:
    """The result of `class_overview` in words, by title; `named` classes have a name, in use or not."""
    titles = {"labels": "classes", "objects": "object classes", "pixels": "mask classes"}
    if not classes:
        return {titles["labels"]: f"{named:,} named" if named else "none"}
    return {titles[kind]: _overview_text(found, kind[:-1]) for kind, found in classes.items()}


def _overview_text(found: Mapping[str, Any], noun: str) -> str:
    most, least = found["largest"], found["smallest"]
    counted = f"{most['count']:,} {noun}{'' if most['count'] == 1 else 's'}"
    if found["classes"] == 1:
        return f"1: {quoted(most['name'])} with {counted}"
    if most["count"] == least["count"]:
        return f"{found['classes']:,}, each with {counted}"
    largest, smallest = (
        f"{quoted(most['name'])} with {counted}",
        f"{quoted(least['name'])} with {least['count']:,}",
    )
    return f"{found['classes']:,}: the largest is {largest}, the smallest is {smallest}"


def _overview(counts: Counter[int], names: Mapping[int, str]) -> dict[str, Any]:
    def order(one: int) -> tuple[int, int]:
        return counts[one], -one

    def shown(number: int) -> dict[str, Any]:
        return {"name": names.get(number, str(number)), "count": counts[number]}

    largest, smallest = max(counts, key=order), min(counts, key=order)
    return {"classes": len(counts), "largest": shown(largest), "smallest": shown(smallest)}


def summed(counters: Iterable[Counter[int]]) -> Counter[int]:
    """The sum of counters, without classes that do not occur."""
    total: Counter[int] = Counter()
    for one in counters:
        total.update(one)
    return +total


def quoted(name: str) -> str:
    """A name in quotes, its control characters escaped."""
    return repr(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…")


_TINY = 1000  # a split of less than 1/1000 of the largest is suspicious
_FEWEST = 5  # records; with fewer, one class for each is common
_MOST_GROUPS = 3  # examples of spellings in a message
_MOST_NAMES = 4  # names in an example, and splits in a message
_SEPARATORS = re.compile(r"(?<=[^\W_])[\s_-]+(?=[^\W_])")


@dataclasses.dataclass(frozen=True, slots=True)
class DataWarning:
    """A property of a dataset that is often a sign that its input was read wrongly.

    `kind` is a fixed identifier, `found` has the counts, `check` says what to do.
    """

    kind: str
    found: str
    check: str

    @property
    def text(self) -> str:
        """`found` and `check` as one line."""
        return f"{self.found}. {self.check}"

    def as_json(self) -> dict[str, str]:
        return dataclasses.asdict(self)


def data_warnings(
    statistics: Mapping[str, Statistics],
    names: Mapping[int, str],
    duplicates: Duplicates = NO_DUPLICATES,
) -> tuple[DataWarning, ...]:
    """The warnings about a dataset, in a fixed order.

    Time and memory are linear in the number of classes. A message names only a few of them.
    """
    splits = statistics.values()
    labels = summed(one.labels for one in splits)
    objects = summed(one.objects for one in splits)
    records = {name: one.records for name, one in statistics.items()}
    unlabelled = {name: one.unlabelled for name, one in statistics.items()}
    with_boxes = {name: one.boxes_per_image.total() for name, one in statistics.items()}
    unboxed = {name: one.boxes_per_image[0] for name, one in statistics.items()}
    found = (
        _single_class(labels, names),
        _single_mask_class(summed(one.pixels for one in splits), names),
        _class_each(labels, sum(records.values()) - sum(unlabelled.values()), "record with a label"),
        _class_each(objects, sum(with_boxes.values()) - sum(unboxed.values()), "image with boxes"),
        _tiny_splits(records),
        _unlabelled(unlabelled, records) if labels else None,
        _spellings(labels + objects, names),
        # Captions alone have no class, and need no box.
        _unboxed(unboxed, with_boxes) if objects or (names and not labels) else None,
        _shared(duplicates) if duplicates.across_splits else None,
    )
    return tuple(one for one in found if one is not None)


def _single_class(labels: Counter[int], names: Mapping[int, str]) -> DataWarning | None:
    if len(labels) != 1 or labels.total() == 1:
        return None
    (only,) = labels
    return DataWarning(
        "single_class",
        f"all {labels.total():,} labels are {_name(only, names)}",
        "Check that --input is the folder that holds the folders of the classes, or that --label_column or "
        "--label_pattern finds the class",
    )


def _single_mask_class(pixels: Counter[int], names: Mapping[int, str]) -> DataWarning | None:
    classes = pixels.keys() - {IGNORE}
    if len(classes) != 1:
        return None
    (only,) = classes
    return DataWarning(
        "single_class",
        f"all {pixels[only]:,} pixels of masks are {_name(only, names)}",
        "Check that the masks are those of classes, and that their values are class ids",
    )


def _class_each(counts: Counter[int], carriers: int, carrier: str) -> DataWarning | None:
    """A warning if there are as many classes as carriers, such as records, and most classes occur once."""
    if carriers < _FEWEST or len(counts) < carriers or counts.total() >= 2 * len(counts):
        return None
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


def _unlabelled(unlabelled: Mapping[str, int], records: Mapping[str, int]) -> DataWarning | None:
    if not any(unlabelled.values()):
        return None
    check = "Check that their folders, rows or annotation files were found and name a class"
    return DataWarning("unlabelled_records", _share(unlabelled, records, "record", "label"), check)


def _unboxed(unboxed: Mapping[str, int], images: Mapping[str, int]) -> DataWarning | None:
    if not any(unboxed.values()):
        return None
    check = "Check that their annotations were found. Ignore this for images that show no object"
    return DataWarning("images_without_boxes", _share(unboxed, images, "image", "box"), check)


def _shared(duplicates: Duplicates) -> DataWarning:
    return DataWarning(
        "images_across_splits",
        shared_images(duplicates),
        "Remove the copies from all splits but one, or results on the other splits are too good; "
        "duplicates.jsonl lists them",
    )


def _spellings(counts: Counter[int], names: Mapping[int, str]) -> DataWarning | None:
    """Classes in use whose names differ only in case, white space, hyphens or underscores."""
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
    """The form that the spellings of one class share; single letters stay as they are."""
    text = unicodedata.normalize("NFC", name).strip()
    return _SEPARATORS.sub(" ", text.casefold()) if len(text) > 1 else text


def _share(part: Mapping[str, int], total: Mapping[str, int], noun: str, lacking: str) -> str:
    """The number of items without a label or box, and the splits if there are several."""
    count = sum(part.values())
    verb = "has" if count == 1 else "have"
    share = f"{count:,} of {sum(total.values()):,} {noun}s {verb} no {lacking}"
    found = [f"{name} {count:,} of {total[name]:,}" for name, count in part.items() if count]
    if len(total) == 1:
        return share
    return f"{share} ({', '.join(found[:_MOST_NAMES])}{', …' if len(found) > _MOST_NAMES else ''})"


def _name(number: int, names: Mapping[int, str]) -> str:
    return quoted(names.get(number, str(number)))
