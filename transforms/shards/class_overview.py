"""The source and the classes of a dataset in a few words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from recordmill.transforms.records import IGNORE
from recordmill.transforms.shards.statistics import Statistics

_LONGEST_NAME = 60


def source_facts(source: Mapping[str, Any], reason: str) -> dict[str, str]:
    """By title: the kind of source, with the reason for it, if there is one, and the input."""
    facts = {"source": f"{source['kind']} ({reason})" if reason else source["kind"], "input": source["input"]}
    return {title: text for title, text in facts.items() if text}


def class_overview(statistics: Mapping[str, Statistics], names: Mapping[int, str]) -> dict[str, Any]:
    """The classes of `labels` (of images), `objects` and `pixels` (of masks); kinds without any are left out.

    Args:
        statistics: by split; only counts of records, labels, objects and pixels are used.

    Returns:
        For each: the number of classes in use, and `largest` and `smallest`, each a name and its count.
    """
    counts = {
        "labels": summed(one.labels for one in statistics.values()),
        "objects": summed(one.objects for one in statistics.values()),
        "pixels": summed(one.pixels for one in statistics.values()),
    }
    del counts["pixels"][IGNORE]
    return {kind: _overview(found, names) for kind, found in counts.items() if found}


def class_texts(classes: Mapping[str, Any], named: int) -> dict[str, str]:
    """The result of `class_overview` in words, by title.

    Args:
        named: number of classes that have a name, in use or not.
    """
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

    largest, smallest = max(counts, key=order), min(counts, key=order)
    return {
        "classes": len(counts),
        "largest": _class(largest, counts, names),
        "smallest": _class(smallest, counts, names),
    }


def _class(number: int, counts: Counter[int], names: Mapping[int, str]) -> dict[str, Any]:
    return {"name": names.get(number, str(number)), "count": counts[number]}


def summed(counters: Iterable[Counter[int]]) -> Counter[int]:
    """The sum of counters, without classes that do not occur."""
    total: Counter[int] = Counter()
    for one in counters:
        total.update(one)
    return +total


def quoted(name: str) -> str:
    """A name in quotes, its control characters escaped."""
    return repr(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…")
