"""Verifies all files of a dataset but its shards, and reads from its manifest what records must be like."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.examples.framing import HashedFile
from recordmill.transforms.examples.registry import SCHEMAS
from recordmill.transforms.examples.schema import FeatureSpec
from recordmill.transforms.reading.dataset import Dataset, ShardEntry, find_dataset, followed
from recordmill.transforms.reading.verify_report import Fault, Tally
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.registry import SOURCES, source_of
from recordmill.transforms.sources.tfrecord.files import is_metadata_name, is_tfrecord_name, split_of
from recordmill.transforms.storage.files import (
    is_file,
    is_folder,
    names_in,
    open_named,
    read_bytes,
    status_of,
)
from recordmill.transforms.storage.layout import DATASET_INFO, FAILURES, INDEX, LINEAGE, MANIFEST
from recordmill.transforms.storage.sealed import is_sealed

REPORT_PAGE = "report.html"
MISSING, EXTRA, CHANGED = "file is missing", "file that the manifest does not list", "file was changed"
COUNTS = "counts do not add up"
_UNSEALED = "its seal is not the SHA-256 of what it holds"
# Qualities at which Pillow is the encoder; see `images.jpeg`.
_PILLOW = range(91, 96)
_KEYS = frozenset({"image/filename", "sequence/key"})
_REENCODED = frozenset({"reencoded", "transcoded"})


@dataclasses.dataclass(frozen=True)
class Expected:
    """What records must be like.

    Attributes:
        features: by stored name, of a sequence its context; None without a manifest.
        lists: of a sequence, one step of each.
        labels: class names by stored id.
        renames: our name of a feature by its stored one, if they differ.
        pillow_at: qualities at which simplejpeg may have encoded JPEGs: Pillow decodes those.
    """

    features: Mapping[str, FeatureSpec] | None = None
    lists: Mapping[str, FeatureSpec] = dataclasses.field(default_factory=dict)
    labels: Mapping[int, str] = dataclasses.field(default_factory=dict)
    renames: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pillow_at: tuple[int, ...] = ()

    @property
    def is_ours(self) -> bool:
        """Whether a manifest describes the records."""
        return self.features is not None

    @property
    def has_keys(self) -> bool:
        """Whether every record stores its key."""
        return not _KEYS.isdisjoint(self.renames.get(name, name) for name in self.features or ())


def open_dataset(path: str) -> tuple[Dataset, Expected, Tally]:
    """Finds a dataset, and verifies all of it but the shards and their indexes.

    A damaged manifest is a fault; the shards are then read as if there were none.

    Raises:
        ValueError: there is nothing to read.
        OSError: it cannot be read.
    """
    tally = Tally()
    path = followed(path)
    manifest_path = f"{path}/{MANIFEST}"
    has_manifest = is_folder(path) and is_file(manifest_path)
    try:
        if has_manifest and not is_sealed(read_bytes(manifest_path)):
            raise ValueError(_UNSEALED)
        dataset = find_dataset(path)
    except ValueError as error:
        if not has_manifest:
            raise
        tally.add(Fault(CHANGED, MANIFEST, what=str(error)))
        tally.notes.add(f"the contents of {MANIFEST}: it is damaged")
        return _without_manifest(path), Expected(), tally
    if dataset.manifest is None:
        tally.notes.add(f"sizes, SHA-256, features, labels and keys: there is no {MANIFEST}")
        return dataset, Expected(), tally
    if dataset.is_whole:
        tally.add(*_faults(dataset, dataset.manifest, tally))
    else:
        tally.notes.add(f"the other files of {dataset.folder}: only some of its shards were named")
        if not is_sealed(read_bytes(f"{dataset.folder}/{MANIFEST}")):
            tally.add(Fault(CHANGED, MANIFEST, what=_UNSEALED))
    expected = expected_of(dataset)
    if not expected.has_keys:
        tally.notes.add("whether keys are unique: the schema of the records stores none")
    if not expected.labels:
        tally.notes.add("whether class ids are known: the manifest names no class")
    return dataset, expected, tally


def expected_of(dataset: Dataset) -> Expected:
    """What the manifest of a dataset says of its records."""
    manifest = dataset.manifest or {}
    config = manifest.get("config", {})
    qualities: tuple[int, ...] = ()
    if _REENCODED & set(manifest.get("actions", {})):
        searched = config.get("target_ssim") is not None
        qualities = tuple(range(1, 101)) if searched else (int(config.get("jpeg_quality", 90)),)
    return Expected(
        features=dataset.features,
        lists=dataset.feature_lists,
        labels=dataset.labels,
        renames=dataset.renames,
        pillow_at=tuple(quality for quality in qualities if quality not in _PILLOW),
    )


def source_of_manifest(manifest: Mapping[str, Any]) -> SourceConfig:
    """The source that a dataset was made from.

    Raises:
        ValueError: it cannot be read again, or is described by another version.
    """
    described = {name: value for name, value in manifest["source"].items() if name != "digest"}
    if described["kind"] not in SOURCES:
        raise ValueError(
            f"the dataset was made from a source of kind {described['kind']!r}, which cannot be read again; "
            f"sources are {', '.join(SOURCES)}"
        )
    return SourceConfig.from_json(described)


def config_of(manifest: Mapping[str, Any], source: SourceConfig) -> DatasetConfig:
    """The configuration of a dataset: the part that determines its records.

    Args:
        manifest: of the dataset.
        source: that it was made from.

    Raises:
        ValueError: this version lacks one of its settings.
    """
    try:
        config = DatasetConfig.from_json(manifest["config"])
    except ValueError as error:
        detail = f"the dataset was made with a setting that this version does not have: {error}"
        raise ValueError(detail) from error
    # Users cannot name the schema of records without images.
    names = [name.strip() for name in config.schema.split(",")]
    schema = config.schema if SCHEMAS.keys() >= set(names) else "auto"
    return dataclasses.replace(config, schema=schema, untyped_features=source_of(source).untyped)


def _without_manifest(folder: str) -> Dataset:
    """The files of a folder that are named like shards."""
    indexes = set(names_in(f"{folder}/{INDEX}")) if is_folder(f"{folder}/{INDEX}") else set()
    shards = []
    for name in sorted(filter(is_tfrecord_name, names_in(folder))):
        path = f"{folder}/{name}"
        index = f"{name.removesuffix('.tfrecord')}.idx"
        index_path = f"{folder}/{INDEX}/{index}" if index in indexes else None
        shards.append(ShardEntry(path, split_of(name), status_of(path).size, index_path))
    return Dataset(folder, folder, tuple(shards))


def _faults(dataset: Dataset, manifest: Mapping[str, Any], tally: Tally) -> Iterator[Fault]:
    """The faults of all files of a complete dataset but its shards and their indexes."""
    folder = dataset.folder
    digests, files = manifest.get("digests", {}), set(manifest.get("files", ()))
    with_shards = {shard.lineage for shard in dataset.shards}
    for name in sorted(set(digests) - with_shards):
        yield from changed_file(folder, name, digests[name], tally)
    try:
        if not is_sealed(read_bytes(f"{folder}/{REPORT_PAGE}")):
            yield Fault(CHANGED, REPORT_PAGE, what=_UNSEALED)
    except FileNotFoundError:
        if REPORT_PAGE in files:
            yield Fault(MISSING, REPORT_PAGE)
    checked = {MANIFEST, REPORT_PAGE, *digests}
    for name in sorted(set(_present(folder, files)) - files - checked):
        yield Fault(EXTRA, name)
    shards = {shard["file"] for split in manifest["splits"].values() for shard in split["shards"]}
    for name in sorted(files - shards - checked):
        # Indexes are read with their shards.
        if not name.startswith(f"{INDEX}/") and not is_file(f"{folder}/{name}"):
            yield Fault(MISSING, name)
    yield from _count_faults(manifest)
    with contextlib.suppress(FileNotFoundError):
        yield from _info_faults(read_bytes(f"{folder}/{DATASET_INFO}"), manifest)
    with contextlib.suppress(FileNotFoundError):
        yield from _failure_faults(read_bytes(f"{folder}/{FAILURES}"), manifest)


def changed_file(folder: str, name: str, sha256: str, tally: Tally) -> Iterator[Fault]:
    """The fault of a file whose SHA-256 is in the manifest."""
    try:
        with open_named(f"{folder}/{name}") as file:
            hashed = HashedFile(file)
            hashed.finish()
    except FileNotFoundError:
        yield Fault(MISSING, name)
        return
    tally.checked["other files"] += 1
    tally.checked["bytes"] += hashed.size
    if (found := hashed.digest.hexdigest()) != sha256:
        yield Fault(CHANGED, name, what=f"its SHA-256 is {found}; the manifest has {sha256}")


def _present(folder: str, files: set[str]) -> Iterator[str]:
    """Names of the files that a reader, or the next version, would take for this dataset's."""
    for name in names_in(folder):
        if is_tfrecord_name(name) or is_metadata_name(name):
            yield name
    lineage = (LINEAGE,) if any(name.startswith(f"{LINEAGE}/") for name in files) else ()
    for below in (INDEX, *lineage):
        if is_folder(f"{folder}/{below}"):
            for name in names_in(f"{folder}/{below}"):
                yield f"{below}/{name}"


def _count_faults(manifest: Mapping[str, Any]) -> Iterator[Fault]:
    """Figures of the manifest that contradict each other."""

    def total(items: Iterable[Mapping[str, Any]], name: str) -> int:
        return sum(int(item[name]) for item in items)

    counts, splits = manifest["counts"], manifest["splits"]
    shards = [shard for split in splits.values() for shard in split["shards"]]
    added = counts.get("added", 0)
    used = counts["written"] - added + counts["failed"] + counts["skipped"]
    without = " - added" if added else ""
    figures = [
        (f"read, and written{without} + failed + skipped", counts["read"], used),
        ("records of all splits, and written", total(splits.values(), "records"), counts["written"]),
        ("bytes of all shards, and of each", manifest["bytes"]["shards"], total(shards, "bytes")),
    ]
    for name, split in splits.items():
        records = total(split["shards"], "records")
        figures.append((f"records of the shards of {name}, and of {name}", records, split["records"]))
        for number, shard in enumerate(split["shards"]):
            wanted = f"{name}-{number:05d}-of-{len(split['shards']):05d}.tfrecord"
            if shard["file"] != wanted:
                yield Fault(COUNTS, MANIFEST, what=f"it lists {shard['file']!r} where {wanted!r} belongs")
    for what, one, other in figures:
        if one != other:
            yield Fault(COUNTS, MANIFEST, what=f"{what}: {one:,}, and {other:,}")


def _info_faults(data: bytes, manifest: Mapping[str, Any]) -> Iterator[Fault]:
    """Of dataset_info.json, which TFDS reads, against the manifest."""
    try:
        info = {
            split["name"]: [int(length) for length in split["shardLengths"]]
            for split in json.loads(data)["splits"]
        }
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        yield Fault(CHANGED, DATASET_INFO, what=f"it cannot be read: {error}")
        return
    for name in sorted({*info, *manifest["splits"]}):
        shards = manifest["splits"].get(name, {}).get("shards", [])
        lengths = [shard["records"] for shard in shards]
        if info.get(name) != lengths:
            what = f"split {name!r}: shardLengths {info.get(name)}; the manifest has {lengths}"
            yield Fault(COUNTS, DATASET_INFO, what=what[:500])


def _failure_faults(data: bytes, manifest: Mapping[str, Any]) -> Iterator[Fault]:
    """Of failures.jsonl against the manifest's counts."""
    counts = {"failed": 0, "skipped": 0}
    for number, line in enumerate(filter(None, data.split(b"\n")), 1):
        try:
            failure = json.loads(line)
            if not failure.get("kept"):
                counts["skipped" if failure.get("skipped") else "failed"] += 1
        except (ValueError, AttributeError, RecursionError) as error:
            yield Fault(CHANGED, FAILURES, what=f"line {number} cannot be read: {error}")
            return
    for name, found in counts.items():
        if found != manifest["counts"][name]:
            what = f"{found:,} inputs {name}; the manifest has {manifest['counts'][name]:,}"
            yield Fault(COUNTS, FAILURES, what=what)
