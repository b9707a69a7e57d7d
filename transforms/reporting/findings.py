"""The findings that report.html shows: manifest, figures, failures, and pictures of some records."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from recordmill.transforms.reading.dataset import Dataset, ShardEntry
from recordmill.transforms.records import Failure
from recordmill.transforms.reporting.count import Count, RecordLocation, count_records
from recordmill.transforms.reporting.samples import Sample, pictures, place_of, places_in, samples
from recordmill.transforms.shards.duplicates import NO_DUPLICATES, DuplicateGroup, Duplicates, first_groups
from recordmill.transforms.shards.statistics import Statistics
from recordmill.transforms.storage.files import open_named, short_lines
from recordmill.transforms.storage.layout import DUPLICATES, INDEX, REPORT_FORMAT_VERSION

MOST_FAILURES = 50
"""Lines of failures.jsonl of each kind that the page shows."""

_VERSION = re.compile(r"\d+\.\d+\.\d+")


class Crop(NamedTuple):
    """The same part of an image before and after its encoding, as PNGs; the other values are of the image."""

    key: str
    ssim: float | None
    before: bytes
    after: bytes
    source_bytes: int
    stored_bytes: int


@dataclasses.dataclass(frozen=True)
class Findings:
    """The content of the page.

    Attributes:
        name: of the dataset, from its manifest; otherwise of its folder or file.
        manifest: of the complete dataset; None if there is none.
        statistics: by split, in the order of the manifest.
        shards: in their order; without a manifest, `records` are those that were counted.
        failures: the first lines of failures.jsonl, by kind: `failed`, `skipped`, `changed`.
        duplicates: with the first groups of duplicates.jsonl.
        copies: pictures of some of these groups, by number.
    """

    name: str
    manifest: Mapping[str, Any] | None
    labels: Mapping[int, str]
    statistics: Mapping[str, Statistics]
    shards: tuple[ShardEntry, ...]
    failures: Mapping[str, tuple[Failure, ...]]
    crops: tuple[Crop, ...] = ()
    samples: tuple[Sample, ...] = ()
    duplicates: Duplicates = NO_DUPLICATES
    copies: Mapping[int, Sample] = dataclasses.field(default_factory=dict)
    damages: tuple[tuple[str, str], ...] = ()
    faults: Mapping[str, int] = dataclasses.field(default_factory=dict)


def gather(
    dataset: Dataset,
    report: Mapping[str, Any] | None,
    failures_path: str | None,
    has_samples: bool = True,
) -> Findings:
    """The findings of a dataset; a few records of a few shards are read.

    Args:
        report: report.json, parsed; None if there is none. Without it, or if an earlier program version
            wrote it, all records are read and counted.

    Raises:
        OSError: something cannot be read now.
        ValueError: `report` or failures.jsonl is damaged; one line.
    """
    manifest = dataset.manifest if dataset.is_whole else None
    statistics, crops = (None, ()) if report is None else parse_report(report)
    count, labels = None, dataset.labels
    if statistics is None:
        count = count_records(dataset)
        statistics, labels = count.statistics, count.labels
    places = places_in(dataset) if count is None else count.locations
    duplicates = _duplicates(dataset, manifest or {})
    folder, name = os.path.split(dataset.path)
    if _VERSION.fullmatch(name):  # a version folder of TFDS
        name = f"{os.path.basename(folder)} {name}"
    return Findings(
        name=(manifest or {}).get("config", {}).get("name") or name or dataset.path,
        manifest=manifest,
        labels=labels,
        statistics=statistics,
        shards=tuple(_shards(dataset, count)),
        failures=read_failures(failures_path) if failures_path is not None else {},
        crops=crops,
        samples=samples(places, labels, dataset.renames) if has_samples else (),
        duplicates=duplicates,
        copies=_copies(dataset, labels, duplicates) if has_samples else {},
        damages=tuple((os.path.basename(path), one) for path, one in count.damages) if count else (),
        faults=count.faults if count else {},
    )


def _duplicates(dataset: Dataset, manifest: Mapping[str, Any]) -> Duplicates:
    """The duplicates of a complete dataset; without a group if their list is damaged."""
    groups: tuple[DuplicateGroup, ...] = ()
    with contextlib.suppress(ValueError, FileNotFoundError):
        if DUPLICATES in manifest.get("files", ()):
            groups = first_groups(f"{dataset.folder}/{DUPLICATES}")
    return Duplicates(**manifest.get("duplicates", {}), first=groups)


def _copies(dataset: Dataset, labels: Mapping[int, str], duplicates: Duplicates) -> dict[int, Sample]:
    """A picture of the first record of each group, by number; the others look the same."""
    places: dict[int, RecordLocation] = {}
    for number, group in enumerate(duplicates.first):
        one = group.records[0]
        if one.shard is not None and one.record is not None:
            place = place_of(dataset, one.split, one.shard, one.record)
            if place is not None:
                places[number] = place
    drawn = pictures(list(places.values()), labels, dataset.renames)
    return {number: drawn[place] for number, place in places.items() if place in drawn}


def unpublished(folder: str, manifest: Mapping[str, Any]) -> Dataset:
    """A dataset that is complete but for its manifest."""
    shards = tuple(
        ShardEntry(
            path=f"{folder}/{shard['file']}",
            split=split,
            size=shard["bytes"],
            index=f"{folder}/{INDEX}/{shard['file'].removesuffix('.tfrecord')}.idx",
            records=shard["records"],
            sha256=shard["sha256"],
        )
        for split, described in manifest["splits"].items()
        for shard in described["shards"]
    )
    return Dataset(folder, folder, shards, manifest)


def _shards(dataset: Dataset, count: Count | None) -> Iterator[ShardEntry]:
    """Shards with their splits, and their file names as paths."""
    for split, shards in dataset.splits.items():
        for shard in shards:
            records = shard.records if count is None else count.records.get(shard.path)
            name = os.path.basename(shard.path)
            yield dataclasses.replace(shard, path=name, split=split, records=records)


def parse_report(report: Mapping[str, Any]) -> tuple[dict[str, Statistics] | None, tuple[Crop, ...]]:
    """The figures by split, and the crops, of report.json.

    There are no figures if an earlier program version wrote it: those of version 1 lack pixel counts.

    Raises:
        ValueError: it is damaged; one line.
    """
    try:
        statistics = None
        if int(report["format_version"]) >= REPORT_FORMAT_VERSION:
            statistics = {split: Statistics.from_json(found) for split, found in report["splits"].items()}
        crops = tuple(
            Crop(
                str(crop["key"]),
                None if crop["ssim"] is None else float(crop["ssim"]),
                base64.b64decode(crop["before"], validate=True),
                base64.b64decode(crop["after"], validate=True),
                int(crop["source_bytes"]),
                int(crop["stored_bytes"]),
            )
            for crop in report.get("crops", ())
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"report.json is damaged: {error!r}") from error
    return statistics, crops


def read_failures(path: str) -> dict[str, tuple[Failure, ...]]:
    """The first lines of failures.jsonl of each kind: `failed`, `skipped`, `changed`; the file may be long.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: it is damaged; one line.
    """
    found: dict[str, list[Failure]] = {"failed": [], "skipped": [], "changed": []}
    try:
        with open_named(path) as file:
            for line in short_lines(file):
                fields = json.loads(line)
                failure = Failure(
                    str(fields["key"]),
                    str(fields["stage"]),
                    str(fields["reason"]),
                    str(fields.get("detail", "")),
                    bool(fields.get("skipped", False)),
                    bool(fields.get("kept", False)),
                )
                kind = "skipped" if failure.skipped else "changed" if failure.kept else "failed"
                if len(found[kind]) < MOST_FAILURES:
                    found[kind].append(failure)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path!r} is damaged: {error!r}") from error
    return {kind: tuple(failures) for kind, failures in found.items()}
