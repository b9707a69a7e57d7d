"""The previous version: whether it can be reused, and where its shards lie."""

from __future__ import annotations

import bisect
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.shards.lineage import ENDING
from recordmill.transforms.shards.recipe import Recipe
from recordmill.transforms.storage import files
from recordmill.transforms.storage.layout import FAILURES, FORMAT_VERSION, INDEX, LATEST, LINEAGE, MANIFEST
from recordmill.transforms.storage.versions import latest_version, published_versions, version_folder

SETTINGS = f"{LINEAGE}/settings.json"
"""In a version: its recipe, and where its shards begin."""
_SETTINGS_VERSION = 2


_T = TypeVar("_T")


class ShardPaths(NamedTuple):
    """The files of a published shard."""

    records_path: str
    index_path: str
    lineage_path: str


class PreviousSplit(msgspec.Struct, frozen=True):
    """A split of the previous version.

    Attributes:
        records: that it holds.
        num_shards: number of its shards.
        size: bytes of all of them.
        edges: as in `SplitPlan`.
    """

    records: int
    num_shards: int
    size: int
    edges: tuple[str, ...] = ()


class MaskMap(msgspec.Struct, frozen=True):
    """The ids that the values of masks of classes are stored as.

    Attributes:
        ids: by value, as `LabelMap.mask_ids`.
        offset: likewise.
        name: of this map and of those that have come from it by more classes: masks that were made by any of
            them are the same.
    """

    ids: dict[int, int] | None
    offset: int
    name: str

    @staticmethod
    def of(labels: LabelMap, before: MaskMap | None) -> MaskMap:
        """The map of a dataset, given that of the previous version."""
        ids = None if labels.mask_ids is None else dict(sorted(labels.mask_ids.items()))
        offset = labels.offset
        if before is not None and ids is not None and before.ids is not None:
            is_more = before.ids.items() <= ids.items()
        else:
            is_more = before is not None and ids is before.ids is None and offset == before.offset
        if before is not None and is_more:
            return MaskMap(ids, offset, before.name)
        # A map that comes back, after one with more classes, is another one: masks may have those.
        parts = [None if ids is None else list(ids.items()), offset, before and before.name]
        return MaskMap(ids, offset, hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16])


class PreviousVersion(msgspec.Struct, frozen=True):
    """A version that can be reused.

    Attributes:
        version: `x.y.z`.
        folder: of it.
        splits: by name.
        failures: SHA-256 of its failures.jsonl, in hex.
        same_shards: whether the number of shards stays.
        masks: the ids that the values of its masks were stored as.
        same_metadata: whether the settings that only metadata depends on are the same.
    """

    version: str
    folder: str
    splits: dict[str, PreviousSplit]
    failures: str
    same_shards: bool
    masks: MaskMap
    same_metadata: bool = True

    def paths(self, split: str, shard: int) -> ShardPaths:
        """The files of one of its shards."""
        name = shard_name(split, shard, self.splits[split].num_shards)
        records = os.path.join(self.folder, f"{name}.tfrecord")
        index = os.path.join(self.folder, INDEX, f"{name}.idx")
        return ShardPaths(records, index, os.path.join(self.folder, LINEAGE, f"{name}{ENDING}"))

    def overlapping(
        self, split: str, shard: int, num_shards: int, edges: Sequence[str] = ()
    ) -> list[ShardPaths]:
        """The shards, in order, that may hold records of a shard as it is to be."""
        before = self.splits.get(split)
        if before is None:
            return []
        if edges or before.edges:
            first = bisect.bisect_right(before.edges, edges[shard - 1]) if shard else 0
            last = (
                bisect.bisect_right(before.edges, edges[shard]) if shard < len(edges) else len(before.edges)
            )
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
    """The version that the next one can reuse.

    Returns:
        The version that latest.json names, if it can be reused; its number; and why it cannot be reused.
    """
    try:
        version = latest_version(home)
    except ValueError as error:
        return None, "", str(error)
    if version is None:
        return None, "", f"{os.path.join(home, LATEST)} is not there" if published_versions(home) else ""
    folder = version_folder(home, version)
    try:
        manifest = _read(os.path.join(folder, MANIFEST), _Manifest, FORMAT_VERSION)
        settings = _read(os.path.join(folder, SETTINGS), _Settings, _SETTINGS_VERSION)
        failures = manifest.digests[FAILURES]
    except FileNotFoundError as error:
        return None, str(version), f"{error.filename or folder} is not there"
    except (ValueError, KeyError, RecursionError) as error:
        return None, str(version), str(error)
    if reason := recipe.difference(settings.recipe):
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
        failures=failures,
        same_shards=recipe.asks_for_same_shards(settings.recipe),
        masks=settings.masks,
        same_metadata=recipe.has_same_metadata(settings.recipe),
    )
    return previous, str(version), ""


def _read(path: str, kind: type[_T], format_version: int) -> _T:
    """A JSON file of a version.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, or of another format.
    """
    data = files.read_bytes(path)
    try:
        found = msgspec.json.decode(data, type=dict[str, Any])
        if (written := found["format_version"]) == format_version:
            return msgspec.convert(found, kind, str_keys=True)
    except (ValueError, KeyError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error})") from error
    raise ValueError(f"another version of recordmill wrote {path} (format {written}, not {format_version})")
