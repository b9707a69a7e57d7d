"""The findings that report.html shows: manifest, figures, failures, and pictures of some records."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from recordmill.transforms.reading.dataset import Dataset, ShardEntry
from recordmill.transforms.records import Failure
from recordmill.transforms.reporting.count import Count, count_records
from recordmill.transforms.reporting.samples import Sample, locations_in, samples
from recordmill.transforms.shards.statistics import Statistics
from recordmill.transforms.storage.files import open_named
from recordmill.transforms.storage.layout import INDEX, REPORT_FORMAT_VERSION

MOST_FAILURES = 50
"""Lines of failures.jsonl of each kind that the page shows."""

_MOST_LINE = 1 << 20
_VERSION = re.compile(r"\d+\.\d+\.\d+")


@dataclasses.dataclass(frozen=True, slots=True)
class Crop:
    """The same part of an image before and after its encoding.

    Attributes:
        key: of the record.
        ssim: of the complete image.
        before: PNG.
        after: PNG, of the same size.
        source_bytes: of the complete image.
        stored_bytes: likewise.
    """

    key: str
    ssim: float | None
    before: bytes
    after: bytes
    source_bytes: int
    stored_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """A file of records.

    Attributes:
        file: its name.
        split: that it is of.
        records: in it; None if unknown.
        size: bytes; None if the file is missing.
        sha256: in hex; empty without a manifest.
    """

    file: str
    split: str
    records: int | None
    size: int | None
    sha256: str


@dataclasses.dataclass(frozen=True)
class Findings:
    """The content of the page.

    Attributes:
        name: of the dataset, from its manifest; else of its folder or file.
        manifest: parsed; None if there is none.
        labels: class name by id.
        statistics: by split, in the order of the manifest.
        shards: in their order.
        failures: the first lines of failures.jsonl, by what they are: `failed`, `skipped`, `changed`.
        crops: of re-encoded images.
        samples: by class.
        damages: name of a shard, and why it could not be read.
        faults: records that could not be understood, by reason.
    """

    name: str
    manifest: Mapping[str, Any] | None
    labels: Mapping[int, str]
    statistics: Mapping[str, Statistics]
    shards: tuple[Shard, ...]
    failures: Mapping[str, tuple[Failure, ...]]
    crops: tuple[Crop, ...] = ()
    samples: tuple[Sample, ...] = ()
    damages: tuple[tuple[str, str], ...] = ()
    faults: Mapping[str, int] = dataclasses.field(default_factory=dict)


def gather(
    location: str | Dataset,
    manifest: Mapping[str, Any] | None,
    report: Mapping[str, Any] | None,
    failures_path: str | None,
    has_samples: bool = True,
) -> Findings:
    """The findings of a dataset; a few records of a few shards are read.

    Args:
        location: folder of the dataset, which may have no manifest yet; or a result of `find_dataset`.
        manifest: parsed; None if there is none.
        report: report.json, parsed; None if there is none. Without it, or if an earlier program version
            wrote it, all records are read and counted.
        failures_path: of failures.jsonl; None if there is none.
        has_samples: whether records are drawn.

    Raises:
        OSError: something cannot be read now.
        ValueError: `report` or failures.jsonl is damaged; one line.
    """
    dataset = location if isinstance(location, Dataset) else _dataset(location, manifest)
    complete = manifest if dataset.is_whole else None
    count = count_records(dataset) if report is None or _is_old(report) else None
    labels = dataset.labels if count is None else count.labels
    locations = locations_in(dataset) if count is None else count.locations
    return Findings(
        name=(complete or {}).get("config", {}).get("name") or _called(dataset.path),
        manifest=complete,
        labels=labels,
        statistics=count.statistics if count is not None else _statistics(report or {}),
        shards=_shards(dataset, count),
        failures=read_failures(failures_path) if failures_path is not None else {},
        crops=_crops(report or {}),
        samples=samples(locations, labels, dataset.renames) if has_samples else (),
        damages=tuple((_name(path), damage) for path, damage in count.damages) if count is not None else (),
        faults=count.faults if count is not None else {},
    )


def _called(path: str) -> str:
    """The name of a file or a folder; for a version folder of TFDS, with that of the dataset."""
    folder, name = os.path.split(path)
    return f"{os.path.basename(folder)} {name}" if _VERSION.fullmatch(name) else name or path


def _dataset(folder: str, manifest: Mapping[str, Any] | None) -> Dataset:
    """A dataset whose manifest may not have been written yet."""
    if manifest is None:
        raise ValueError(f"{folder!r} is no dataset without a manifest")
    shards = []
    for split, described in manifest["splits"].items():
        for shard in described["shards"]:
            name = shard["file"].removesuffix(".tfrecord")
            shards.append(
                ShardEntry(
                    path=f"{folder}/{shard['file']}",
                    split=split,
                    size=shard["bytes"],
                    index=f"{folder}/{INDEX}/{name}.idx",
                    records=shard["records"],
                    expected_size=shard["bytes"],
                    sha256=shard["sha256"],
                )
            )
    return Dataset(folder, folder, tuple(shards), manifest)


def check_report(report: Mapping[str, Any]) -> None:
    """Raises ValueError, one line, if report.json is damaged."""
    if not _is_old(report):
        _statistics(report)
    _crops(report)


def _is_old(report: Mapping[str, Any]) -> bool:
    """Whether an earlier program version wrote report.json. Version 1 has no pixel counts."""
    try:
        return int(report["format_version"]) < REPORT_FORMAT_VERSION
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"report.json is damaged: {error!r}") from error


def _statistics(report: Mapping[str, Any]) -> dict[str, Statistics]:
    try:
        return {split: Statistics.from_json(found) for split, found in report["splits"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"report.json is damaged: {error!r}") from error


def _crops(report: Mapping[str, Any]) -> tuple[Crop, ...]:
    try:
        return tuple(
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


def _shards(dataset: Dataset, count: Count | None) -> tuple[Shard, ...]:
    return tuple(
        Shard(
            _name(shard.path),
            split,
            shard.records if count is None else count.records.get(shard.path),
            shard.size,
            shard.sha256,
        )
        for split, shards in dataset.splits.items()
        for shard in shards
    )


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def read_failures(path: str) -> dict[str, tuple[Failure, ...]]:
    """The first lines of failures.jsonl of each kind: `failed`, `skipped`, `changed`; the file may be long.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: it is damaged; one line.
    """
    found: dict[str, list[Failure]] = {"failed": [], "skipped": [], "changed": []}
    try:
        with open_named(path) as file:
            for line in _short_lines(file):
                failure = _failure(line)
                kind = "skipped" if failure.skipped else "changed" if failure.kept else "failed"
                if len(found[kind]) < MOST_FAILURES:
                    found[kind].append(failure)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path!r} is damaged: {error!r}") from error
    return {kind: tuple(failures) for kind, failures in found.items()}


def _short_lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines of a file, without those that are too long to be shown."""
    is_complete = True
    while line := file.readline(_MOST_LINE):
        was_complete, is_complete = is_complete, len(line) < _MOST_LINE or line.endswith(b"\n")
        if was_complete and is_complete:
            yield line


def _failure(line: bytes) -> Failure:
    fields = json.loads(line)
    return Failure(
        str(fields["key"]),
        str(fields["stage"]),
        str(fields["reason"]),
        str(fields.get("detail", "")),
        bool(fields.get("skipped", False)),
        bool(fields.get("kept", False)),
    )
