"""Verifies what lies beside the shards of a dataset, and tells what its records have to be like."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from recordmill.transforms.examples.framing import HashedFile
from recordmill.transforms.examples.schema import FeatureSpec
from recordmill.transforms.reading.dataset import Dataset, ShardEntry, find_dataset, followed
from recordmill.transforms.reading.verify_tally import Fault, Tally
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
# Qualities at which Pillow is the encoder; see `images.jpeg`.
PRECISE = range(91, 96)
_KEYS = frozenset({"image/filename", "sequence/key"})
_REENCODED = frozenset({"reencoded", "transcoded"})


@dataclasses.dataclass(frozen=True)
class Expected:
    """What records have to be like.

    Attributes:
        features: by stored name, of a sequence its context; None where no manifest tells.
        lists: of a sequence, one step of each.
        labels: class names by stored id.
        renames: our name of a feature by its stored one, where they differ.
        pillow_at: qualities at which simplejpeg may have encoded JPEGs: those are decoded by Pillow.
        joins: the places of records are told, to be joined with their source.
    """

    features: Mapping[str, FeatureSpec] | None = None
    lists: Mapping[str, FeatureSpec] = dataclasses.field(default_factory=dict)
    labels: Mapping[int, str] = dataclasses.field(default_factory=dict)
    renames: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pillow_at: tuple[int, ...] = ()
    joins: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether a manifest of ours tells what there is."""
        return self.features is not None


@dataclasses.dataclass(frozen=True)
class Opened:
    """A dataset before its shards are read.

    Attributes:
        dataset: what is verified.
        expected: of its records.
        tally: faults of the files beside the shards.
    """

    dataset: Dataset
    expected: Expected
    tally: Tally

    def name(self, path: str) -> str:
        """What a file is called in the folder."""
        return path.removeprefix(f"{self.dataset.folder}/")


def open_dataset(path: str) -> Opened:
    """Finds what is to be verified, and verifies all of it but the shards and their indexes.

    A manifest that is damaged is a fault, and the shards are read as if there were none.

    Raises:
        ValueError: there is nothing to read.
        OSError: it may not be read.
    """
    tally = Tally()
    place = followed(path)
    fault = _manifest_fault(place) if is_folder(place) and is_file(f"{place}/{MANIFEST}") else None
    if fault is not None:
        tally.add(Fault(CHANGED, MANIFEST, what=fault))
        tally.notes.add(f"what {MANIFEST} says: it is damaged, and what it says was not looked at")
        dataset = _without_manifest(place)
    else:
        dataset = find_dataset(place)
        manifest = f"{dataset.folder}/{MANIFEST}"
        if dataset.manifest is not None and not is_sealed(read_bytes(manifest)):
            tally.add(Fault(CHANGED, MANIFEST, what="its seal is not the SHA-256 of what it holds"))
    if dataset.manifest is None:
        if fault is None:
            tally.notes.add(
                f"sizes, SHA-256, features, labels and keys: there is no {MANIFEST} that tells of them"
            )
        return Opened(dataset, Expected(), tally)
    if dataset.is_whole:
        for one in _faults(dataset, dataset.manifest, tally):
            tally.add(one)
    else:
        tally.notes.add(f"the other files of {dataset.folder}: only some of its shards were named")
    expected = expected_of(dataset)
    if not has_keys(expected):
        tally.notes.add("whether keys are unique: the schema of the records stores none")
    if not expected.labels:
        tally.notes.add("whether class ids are known: the manifest names no class")
    return Opened(dataset, expected, tally)


def has_keys(expected: Expected) -> bool:
    """Whether every record tells its key."""
    return not _KEYS.isdisjoint(expected.renames.get(name, name) for name in expected.features or ())


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
        pillow_at=tuple(quality for quality in qualities if quality not in PRECISE),
    )


def _manifest_fault(folder: str) -> str | None:
    """What is wrong with the manifest of a folder."""
    if not is_sealed(read_bytes(f"{folder}/{MANIFEST}")):
        return "its seal is not the SHA-256 of what it holds"
    try:
        find_dataset(folder)
    except ValueError as error:
        return str(error)
    return None


def _without_manifest(folder: str) -> Dataset:
    """The files of a folder that are called like shards."""
    beside = set(names_in(f"{folder}/{INDEX}")) if is_folder(f"{folder}/{INDEX}") else set()
    shards = []
    for name in sorted(filter(is_tfrecord_name, names_in(folder))):
        path = f"{folder}/{name}"
        index = f"{name.removesuffix('.tfrecord')}.idx"
        shards.append(
            ShardEntry(
                path,
                split_of(name),
                status_of(path).size,
                f"{folder}/{INDEX}/{index}" if index in beside else None,
            )
        )
    return Dataset(folder, folder, tuple(shards))


def _faults(dataset: Dataset, manifest: Mapping[str, Any], tally: Tally) -> Iterator[Fault]:
    """What is wrong with the files beside the shards of a whole dataset."""
    folder = dataset.folder
    digests = manifest.get("digests", {})
    with_shards = {shard.lineage for shard in dataset.shards}
    for name in sorted(set(digests) - with_shards):
        yield from changed_file(folder, name, digests[name], tally)
    yield from _page_faults(folder, manifest)
    listed = {*manifest.get("files", ()), MANIFEST, REPORT_PAGE, *digests}
    for name in sorted(set(_present(folder, manifest)) - listed):
        yield Fault(EXTRA, name)
    read_here = {shard["file"] for split in manifest["splits"].values() for shard in split["shards"]}
    for name in sorted(set(manifest.get("files", ())) - read_here - set(digests) - {MANIFEST, REPORT_PAGE}):
        # indexes are read with their shards
        if not name.startswith(f"{INDEX}/") and not is_file(f"{folder}/{name}"):
            yield Fault(MISSING, name)
    yield from _count_faults(manifest)
    with contextlib.suppress(FileNotFoundError):
        yield from _info_faults(read_bytes(f"{folder}/{DATASET_INFO}"), manifest)
    with contextlib.suppress(FileNotFoundError):
        yield from _failure_faults(read_bytes(f"{folder}/{FAILURES}"), manifest)


def changed_file(folder: str, name: str, sha256: str, tally: Tally) -> Iterator[Fault]:
    """What is wrong with a file whose SHA-256 the manifest has."""
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


def _page_faults(folder: str, manifest: Mapping[str, Any]) -> Iterator[Fault]:
    """Of report.html, which seals itself."""
    try:
        data = read_bytes(f"{folder}/{REPORT_PAGE}")
    except FileNotFoundError:
        if REPORT_PAGE in manifest.get("files", ()):
            yield Fault(MISSING, REPORT_PAGE)
        return
    if not is_sealed(data):
        yield Fault(CHANGED, REPORT_PAGE, what="its seal is not the SHA-256 of what it holds")


def _present(folder: str, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Names of the files that a reader, or the next version, would take for this dataset's."""
    for name in names_in(folder):
        if is_tfrecord_name(name) or is_metadata_name(name):
            yield name
    lineage = (LINEAGE,) if any(name.startswith(f"{LINEAGE}/") for name in manifest.get("files", ())) else ()
    for below in (INDEX, *lineage):
        if is_folder(f"{folder}/{below}"):
            for name in names_in(f"{folder}/{below}"):
                yield f"{below}/{name}"


def _count_faults(manifest: Mapping[str, Any]) -> Iterator[Fault]:
    """Of the manifest's figures among themselves."""

    def unequal(what: str, found: int, wanted: int) -> Iterator[Fault]:
        if found != wanted:
            yield Fault(COUNTS, MANIFEST, what=f"{what}: {found:,}, and {wanted:,}")

    counts = manifest["counts"]
    left_out = counts["failed"] + counts["skipped"]
    yield from unequal("read, and written + failed + skipped", counts["read"], counts["written"] + left_out)
    splits = manifest["splits"].values()
    yield from unequal("records of all splits, and written", _sum(splits, "records"), counts["written"])
    for name, split in manifest["splits"].items():
        found = _sum(split["shards"], "records")
        yield from unequal(f"records of the shards of {name}, and of {name}", found, split["records"])
        for number, shard in enumerate(split["shards"]):
            wanted = f"{name}-{number:05d}-of-{len(split['shards']):05d}.tfrecord"
            if shard["file"] != wanted:
                yield Fault(COUNTS, MANIFEST, what=f"it lists {shard['file']!r} where {wanted!r} belongs")
    shards = [shard for split in splits for shard in split["shards"]]
    yield from unequal("bytes of all shards, and of each", manifest["bytes"]["shards"], _sum(shards, "bytes"))


def _sum(items: Any, name: str) -> int:
    return sum(int(item[name]) for item in items)


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
            told = json.loads(line)
            if not told.get("kept"):
                counts["skipped" if told.get("skipped") else "failed"] += 1
        except (ValueError, AttributeError, RecursionError) as error:
            yield Fault(CHANGED, FAILURES, what=f"line {number} cannot be read: {error}")
            return
    for name, found in counts.items():
        if found != manifest["counts"][name]:
            what = f"{found:,} inputs {name}; the manifest has {manifest['counts'][name]:,}"
            yield Fault(COUNTS, FAILURES, what=what)
