"""The previous version of a dataset: where its shards lie, and whether the next one can reuse it."""

from __future__ import annotations

import bisect
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from recordmill import __version__
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.images.versions import codec_versions
from recordmill.transforms.storage import files
from recordmill.transforms.storage.layout import (
    FAILURES,
    FORMAT_VERSION,
    INDEX,
    LATEST,
    LINEAGE,
    LINEAGE_ENDING,
    MANIFEST,
)
from recordmill.transforms.storage.sealed import is_sealed
from recordmill.transforms.storage.versions import latest_version, published_versions, version_folder

SETTINGS = f"{LINEAGE}/settings.json"
"""In a version: its recipe, and where its shards begin."""
_SETTINGS_VERSION = 2

# Settings that determine the number of shards, not their contents.
_OF_SHARDS = ("num_shards", "shard_size", "reader_hosts")
# Settings of the Examples, which are always rebuilt, not of images; part of `RecordSettings.digest`.
_OF_EXAMPLES = ("label_names", "label_classes", "label_texts", "mask_values")
# Settings that only dataset_info.json contains.
_OF_METADATA = ("name",)
# Flags of settings that have another name.
_FLAGS = {"image_roots": "image_root", "kind": "source"}
_PACKAGES = ("recordmill", "pycocotools")

_T = TypeVar("_T")


def package_version(package: str) -> str:
    """The version of this package or of another one that is installed."""
    if package == "recordmill":
        return __version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # installed without metadata


def program_versions() -> dict[str, str]:
    """Versions of all packages that may change a byte of a shard."""
    return {**codec_versions(), **{package: package_version(package) for package in _PACKAGES}}


class Recipe(msgspec.Struct, frozen=True):
    """The settings and program versions that determine a dataset's bytes, as plain JSON.

    Attributes:
        config: `DatasetConfig.as_json`.
        versions: of programs, by name.
        source: settings of the source.
    """

    config: dict[str, Any]
    versions: dict[str, str]
    source: dict[str, Any]

    @staticmethod
    def of(config: DatasetConfig, versions: Mapping[str, str], source: Mapping[str, object]) -> Recipe:
        """The recipe of a job."""
        return Recipe(*json.loads(json.dumps([config.as_json(), dict(versions), dict(source)])))

    def difference(self, before: Recipe) -> str:
        """Why images that another recipe made cannot be reused; empty where they can."""
        changes = _changes("", before.versions, self.versions)
        changes += _changes("--", before.source, self.source)
        changes += _changes("--", _of_images(before.config), _of_images(self.config))
        return "; ".join(changes)

    def asks_for_same_shards(self, before: Recipe) -> bool:
        """Whether the flags set no number of shards, or the same as before."""
        default = DatasetConfig().as_json()
        now, then, unasked = (
            [config.get(name) for name in _OF_SHARDS] for config in (self.config, before.config, default)
        )
        return now in (then, unasked)


def _changes(prefix: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"{prefix}{_FLAGS.get(name, name)} was {_shown(before.get(name))}, is {_shown(now.get(name))}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]


def _of_images(config: Mapping[str, Any]) -> dict[str, Any]:
    others = (*_OF_SHARDS, *_OF_EXAMPLES, *_OF_METADATA)
    return {name: value for name, value in config.items() if name not in others}


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 90 else f"{text[:87]}…"


class MaskMap(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ids that the values of class masks are stored as.

    Attributes:
        ids: by value, as `LabelMap.mask_ids`.
        offset: as `LabelMap.offset`.
        name: shared with the maps that this one extends by more classes: their masks can be reused.
        values: as `LabelMap.mask_values`, if there are no `ids`, which contain them.
    """

    ids: dict[int, int] | None
    offset: int
    name: str
    values: dict[int, int] = {}

    @staticmethod
    def of(labels: LabelMap, before: MaskMap | None) -> MaskMap:
        """The map of a dataset, given that of the previous version."""
        ids, values, offset = None, dict(sorted(labels.mask_values.items())), labels.offset
        if labels.mask_ids is not None:
            ids, values = dict(sorted({**labels.mask_ids, **values}.items())), {}
        if before is not None and ids is not None and before.ids is not None:
            extends = before.ids.items() <= ids.items()
        else:
            same = before is not None and (offset, values) == (before.offset, before.values)
            extends = before is not None and ids is before.ids is None and same
        if before is not None and extends:
            return MaskMap(ids, offset, before.name, values)
        # A map that comes back after one with more classes gets another name: masks may have those classes.
        parts = [None if ids is None else list(ids.items()), offset, before and before.name]
        if values:
            parts.append(list(values.items()))
        name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        return MaskMap(ids, offset, name, values)


class ShardPaths(NamedTuple):
    """The files of a published shard, and the SHA-256 of its lineage in manifest.json."""

    records_path: str
    index_path: str
    lineage_path: str
    lineage_sha256: str


class PreviousSplit(msgspec.Struct, frozen=True):
    """A split of the previous version: `size` is the bytes of all its shards, `edges` as in `SplitPlan`."""

    records: int
    num_shards: int
    size: int
    edges: tuple[str, ...] = ()


class PreviousVersion(msgspec.Struct, frozen=True):
    """A version that can be reused.

    Attributes:
        version: `x.y.z`.
        folder: its path.
        splits: by name.
        digests: SHA-256 of its failures.jsonl and of the lineage of each shard, in hex, by name.
        same_shards: whether the number of shards stays.
        masks: the ids in its masks.
        same_metadata: whether the settings that only metadata depends on are the same.
    """

    version: str
    folder: str
    splits: dict[str, PreviousSplit]
    digests: dict[str, str]
    same_shards: bool
    masks: MaskMap
    same_metadata: bool = True

    def paths(self, split: str, shard: int) -> ShardPaths:
        """The files of one of its shards."""
        name = shard_name(split, shard, self.splits[split].num_shards)
        records = os.path.join(self.folder, f"{name}.tfrecord")
        index = os.path.join(self.folder, INDEX, f"{name}.idx")
        lineage = f"{LINEAGE}/{name}{LINEAGE_ENDING}"
        return ShardPaths(records, index, os.path.join(self.folder, lineage), self.digests.get(lineage, ""))

    def overlapping(
        self, split: str, shard: int, num_shards: int, edges: Sequence[str] = ()
    ) -> list[ShardPaths]:
        """The shards, in order, that may hold records of a shard of the next version's `num_shards`."""
        before = self.splits.get(split)
        if before is None:
            return []
        if edges or before.edges:
            last = len(before.edges)
            first = bisect.bisect_right(before.edges, edges[shard - 1]) if shard else 0
            if shard < len(edges):
                last = bisect.bisect_right(before.edges, edges[shard])
        else:
            # Shards are ranges of the hash, all equally wide.
            first = shard * before.num_shards // num_shards
            last = -(-(shard + 1) * before.num_shards // num_shards) - 1
        return [self.paths(split, number) for number in range(first, last + 1)]


def shard_name(split: str, shard: int, num_shards: int) -> str:
    """The name of a shard, without its ending."""
    return f"{split}-{shard:05d}-of-{num_shards:05d}"


class _Settings(msgspec.Struct):
    """The contents of `state/settings.json`."""

    format_version: int
    recipe: Recipe
    edges: dict[str, tuple[str, ...]]
    masks: MaskMap


class _Shard(msgspec.Struct):
    bytes: int


class _Split(msgspec.Struct):
    records: int
    shards: list[_Shard]


class _Manifest(msgspec.Struct):
    """The fields of manifest.json that are read here."""

    splits: dict[str, _Split]
    digests: dict[str, str]


def settings_text(recipe: Recipe, edges: Mapping[str, Sequence[str]], masks: MaskMap) -> str:
    """The text of `state/settings.json`."""
    every_edge = {split: tuple(keys) for split, keys in edges.items()}
    packed = msgspec.json.encode(_Settings(_SETTINGS_VERSION, recipe, every_edge, masks))
    return f"{msgspec.json.format(packed, indent=1).decode()}\n"


def find_previous(home: str, recipe: Recipe) -> tuple[PreviousVersion | None, str, str]:
    """The version in the folder `home` that latest.json names, for a next version with this recipe.

    Returns:
        The version, if it can be reused; its number; and why it cannot be reused.
    """
    try:
        version = latest_version(home)
    except ValueError as error:
        return None, "", str(error)
    if version is None:
        return None, "", f"{os.path.join(home, LATEST)} is not there" if published_versions(home) else ""
    folder = version_folder(home, version)
    try:
        manifest = _read(os.path.join(folder, MANIFEST), _Manifest, FORMAT_VERSION, is_sealed)
        digests = manifest.digests
        settings_digest = digests.get(SETTINGS)
        settings = _read(
            os.path.join(folder, SETTINGS),
            _Settings,
            _SETTINGS_VERSION,
            lambda data: hashlib.sha256(data).hexdigest() == settings_digest,
        )
        endings = (FAILURES, LINEAGE_ENDING)
        kept = {name: digest for name, digest in digests.items() if name.endswith(endings)}
    except FileNotFoundError as error:
        return None, str(version), f"{error.filename or folder} is not there"
    except (ValueError, KeyError, RecursionError) as error:
        return None, str(version), str(error)
    before = settings.recipe
    if reason := recipe.difference(before):
        return None, str(version), reason
    splits = {
        name: PreviousSplit(
            split.records,
            len(split.shards),
            sum(shard.bytes for shard in split.shards),
            settings.edges.get(name, ()),
        )
        for name, split in manifest.splits.items()
    }
    previous = PreviousVersion(
        version=str(version),
        folder=folder,
        splits=splits,
        digests=kept,
        same_shards=recipe.asks_for_same_shards(before),
        masks=settings.masks,
        same_metadata=all(recipe.config.get(name) == before.config.get(name) for name in _OF_METADATA),
    )
    return previous, str(version), ""


def _read(path: str, kind: type[_T], format_version: int, is_unchanged: Callable[[bytes], bool]) -> _T:
    """A JSON file of a version.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, of another format, or changed since it was published.
    """
    data = files.read_bytes(path)
    try:
        found = msgspec.json.decode(data, type=dict[str, Any])
        if (written := found["format_version"]) == format_version:
            contents = msgspec.convert(found, kind, str_keys=True)
            if is_unchanged(data):
                return contents
            raise ValueError("it has changed since it was published")
    except (ValueError, KeyError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error})") from error
    raise ValueError(f"another version of recordmill wrote {path} (format {written}, not {format_version})")
