"""The version before: what of it can be taken over, and where that lies."""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.shards.recipe import Recipe
from recordmill.transforms.shards.record_state import ENDING
from recordmill.transforms.storage import files
from recordmill.transforms.storage.layout import FAILURES, FORMAT_VERSION, INDEX, LATEST, MANIFEST, STATE
from recordmill.transforms.storage.versions import latest_version, published_versions, version_folder

SETTINGS = f"{STATE}/settings.json"
"""In a version: its recipe, and where its shards begin."""

_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class ShardPaths(NamedTuple):
    """The files of a published shard."""

    records_path: str
    index_path: str
    state_path: str


@dataclasses.dataclass(frozen=True)
class PreviousSplit:
    """A split of the version before.

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


@dataclasses.dataclass(frozen=True)
class MaskMap:
    """The ids that the values of masks of classes are stored as.

    Attributes:
        ids: by value, as `LabelMap.mask_ids`.
        offset: likewise.
        name: of this map and of those that have come from it by more classes: masks that were made by any of
            them are the same.
    """

    ids: Mapping[int, int] | None
    offset: int
    name: str

    @staticmethod
    def of(labels: LabelMap, before: MaskMap | None) -> MaskMap:
        """The map of a dataset, given that of the version before."""
        ids, offset = labels.mask_ids, labels.offset
        if before is not None and ids is not None and before.ids is not None:
            is_more = before.ids.items() <= ids.items()
        else:
            is_more = before is not None and ids is before.ids is None and offset == before.offset
        if before is not None and is_more:
            return MaskMap(ids, offset, before.name)
        # A map that comes back, after one with more classes, is another one: masks may have those.
        told = [sorted(ids.items()) if ids is not None else None, offset, before and before.name]
        return MaskMap(ids, offset, hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16])

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> MaskMap:
        """What `dataclasses.asdict` made, once it was JSON."""
        ids = found["ids"]
        return MaskMap(
            None if ids is None else {int(value): int(number) for value, number in ids.items()},
            int(found["offset"]),
            str(found["name"]),
        )


@dataclasses.dataclass(frozen=True)
class PreviousVersion:
    """A version that can be taken over from.

    Attributes:
        version: `x.y.z`.
        folder: of it.
        splits: by name.
        failures: SHA-256 of its failures.jsonl, in hex.
        same_shards: their number is not asked to be another one.
        same_metadata: what no shard tells is not asked to be another one.
        masks: the ids that the values of its masks were stored as.
    """

    version: str
    folder: str
    splits: Mapping[str, PreviousSplit]
    failures: str
    same_shards: bool
    masks: MaskMap
    same_metadata: bool = True

    def paths(self, split: str, shard: int) -> ShardPaths:
        """The files of one of its shards."""
        name = shard_name(split, shard, self.splits[split].num_shards)
        records = os.path.join(self.folder, f"{name}.tfrecord")
        index = os.path.join(self.folder, INDEX, f"{name}.idx")
        return ShardPaths(records, index, os.path.join(self.folder, STATE, f"{name}{ENDING}"))

    def overlapping(
        self, split: str, shard: int, num_shards: int, edges: Sequence[str] = ()
    ) -> list[ShardPaths]:
        """The shards, in order, that may hold records of a shard as it is to be.

        Args:
            split: of it.
            shard: number of it.
            num_shards: of the split, as they are to be.
            edges: likewise, as in `SplitPlan`.
        """
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


def settings_text(recipe: Recipe, edges: Mapping[str, Sequence[str]], masks: MaskMap) -> str:
    """The text of `state/settings.json`."""
    settings = {**recipe.as_json(), "edges": edges, "masks": dataclasses.asdict(masks)}
    return json.dumps(settings, indent=1, ensure_ascii=False) + "\n"


def find_previous(home: str, recipe: Recipe) -> tuple[PreviousVersion | None, str, str]:
    """What there is to take over from.

    Args:
        home: folder of the versions.
        recipe: of the version that is to be.

    Returns:
        The version that latest.json names, where it can be taken over from; its number, where there is one;
        and why not.
    """
    try:
        version = latest_version(home)
    except ValueError as error:
        return None, "", str(error)
    if version is None:
        return None, "", f"{os.path.join(home, LATEST)} is not there" if published_versions(home) else ""
    folder = version_folder(home, version)
    try:
        manifest = json.loads(files.read_bytes(os.path.join(folder, MANIFEST)))
        settings = json.loads(files.read_bytes(os.path.join(folder, SETTINGS)))
        if manifest["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format_version is {manifest['format_version']!r}, not {FORMAT_VERSION}")
        before = Recipe.from_json(settings)
        splits = {name: _split(split, settings["edges"]) for name, split in _named(manifest)}
        failures = str(manifest["digests"][FAILURES])
        masks = MaskMap.from_json(settings["masks"])
    except FileNotFoundError as error:
        return None, str(version), f"{error.filename or folder} is not there"
    except _DAMAGED as error:
        return None, str(version), f"{folder}: {MANIFEST} or {SETTINGS} is damaged ({error})"
    if reason := recipe.difference(before):
        return None, str(version), reason
    same = recipe.asks_for_same_shards(before)
    named = recipe.has_same_metadata(before)
    return PreviousVersion(str(version), folder, splits, failures, same, masks, named), str(version), ""


def _named(manifest: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, {**split, "name": name}) for name, split in manifest["splits"].items()]


def _split(split: Mapping[str, Any], edges: Mapping[str, Sequence[str]]) -> PreviousSplit:
    shards = split["shards"]
    return PreviousSplit(
        int(split["records"]),
        len(shards),
        sum(int(shard["bytes"]) for shard in shards),
        tuple(map(str, edges.get(split["name"], ()))),
    )
