"""The output of `recordmill inspect --json`: one object, whose keys are stable.

    format_version  1; it changes if a reader would break
    path            absolute
    kind            `dataset` (written by recordmill, complete), `part` (files of one) or `tfrecord` (others)
    dataset         of ours: `recordmill` (its version), `schema`, `name`, and `version` of the dataset or
                    null; else null
    sound           whether no fault was found; if not, the exit status is 1
    records         `count`, and whether it is `exact`
    read            `records` and their `bytes`, and whether these are all: `whole`
    splits          by name: `files`, `bytes`, `records` and whether the number is `exact`
    files           each with `file`, `split`, `bytes`, `compressed`, `index`, `read` (records), `records`
                    with `count`, `exact` and `by` (manifest, index, reading, heads, estimate), `faults`, and
                    `damage`: `record` and `offset` where it begins, `fault`, `resumed` where the next
                    readable record begins, or null, and `lost` bytes; `damaged`: number of damaged parts
    kinds           numbers of records: `examples`, `sequence_examples`, `without_features`, `others`,
                    `not_looked_into`
    record_bytes    `min` and `max`
    features        by key: `dtype`s, `records` that have it, their `share`, `length` (values a record, min
                    and max), number of `values`; `range` and `not_finite` of numbers; `bytes` of each value,
                    and whether all are `text`; `distinct` values with their `count` if there are few;
                    `images` with `count`, `formats`, `height`, `width`, `channels`, the commonest `sizes`,
                    `turned_by_exif` and `faults`
    feature_lists   likewise for the steps of SequenceExamples, with `steps` a record
    classes         by key of ours: `label`, `name` if there is one, and `count`
    images_misdeclared  images whose height or width differs from the features of their record
    first           the first records, as `shown_record` has them, with their `file`
    sheet           path of the contact sheet; null without one
    notes           sentences

With `--record`, the one object is the record, with its `file`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from recordmill.transforms.reading.dataset import Dataset, ShardEntry
from recordmill.transforms.reading.inspected import FileFound, Inspected

FORMAT_VERSION = 1


def as_json(found: Inspected, first: Sequence[dict[str, Any]], sheet: str | None) -> dict[str, Any]:
    """The complete JSON object."""
    count, exact = found.records()
    dataset = found.dataset
    return {
        "format_version": FORMAT_VERSION,
        "path": dataset.path,
        "kind": "dataset" if dataset.is_whole else "tfrecord" if dataset.manifest is None else "part",
        "dataset": _ours(dataset),
        "sound": found.sound,
        "records": {"count": count, "exact": exact},
        "read": {"records": found.survey.records, "bytes": found.size, "whole": found.whole},
        "splits": {name: _split(found, files) for name, files in by_split(found).items()},
        "files": [_file(dataset, file) for file in found.files],
        **found.survey.as_json(),
        "first": list(first),
        "sheet": sheet,
        "notes": list(found.notes),
    }


def by_split(found: Inspected) -> dict[str, list[FileFound]]:
    """The files by split, as `Dataset.splits`."""
    by_entry = {file.entry: file for file in found.files}
    return {name: [by_entry[one] for one in entries] for name, entries in found.dataset.splits.items()}


def _ours(dataset: Dataset) -> dict[str, Any] | None:
    manifest = dataset.manifest
    if manifest is None:
        return None
    config = {name: manifest["config"].get(name) for name in ("schema", "name")}
    return {"recordmill": manifest.get("recordmill"), **config, "version": manifest.get("version")}


def _split(found: Inspected, files: Sequence[FileFound]) -> dict[str, Any]:
    count, exact = found.records(files)
    size = sum(file.entry.size or 0 for file in files)
    return {"files": len(files), "bytes": size, "records": count, "exact": exact}


def file_name(dataset: Dataset, entry: ShardEntry) -> str:
    """Path of a file in the dataset's folder, as `--record` has it."""
    within = entry.path.removeprefix(f"{dataset.folder}/")
    return os.path.basename(within) if within == entry.path else within


def _file(dataset: Dataset, file: FileFound) -> dict[str, Any]:
    count = file.count
    counted = count and {"count": count.records, "exact": count.exact, "by": count.by}
    return {
        "file": file_name(dataset, file.entry),
        "split": file.entry.split,
        "bytes": file.entry.size,
        "compressed": file.packed,
        "index": file.entry.index is not None,
        "read": file.read,
        "records": counted,
        "faults": file.faults,
        "damaged": file.damaged,
        "damage": [
            {"record": one.number, **dict(zip(one._fields[1:], one[1:], strict=True)), "lost": one.lost}
            for one in file.damage
        ],
    }
