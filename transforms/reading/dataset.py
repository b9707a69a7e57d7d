"""What lies at a path that people read: a dataset of ours, a folder of TFRecords, some shards, one file."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.transforms.examples.schema import FeatureSpec
from recordmill.transforms.records import Failure
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.tfrecord.files import inputs, is_tfrecord_name, split_of
from recordmill.transforms.storage.files import is_file, is_folder, names_in, read_bytes, status_of
from recordmill.transforms.storage.layout import FORMAT_VERSION, INDEX, LATEST, LINEAGE, MANIFEST, check_name
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.storage.versions import Version, latest_version, published_versions, version_folder

_SHARDED = re.compile(r"(?P<stem>.*)@(?P<count>\d+|\*)(?P<ending>\.[A-Za-z0-9_.]+)?")
_MOST_NAMED = 5
_ENDING = re.compile(r"\.(?:tfrecords?|tfrec|record)(?:\.(?:gz|gzip|zlib|zz))?$", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True)
class ShardEntry:
    """A TFRecord file.

    Attributes:
        path: local or `gs://`.
        split: that the manifest or its name tells; None where neither does.
        size: bytes that it has; None where it is not there.
        index: path of its index; None where there is none.
        records: that the manifest says it has; None without one.
        expected_size: bytes that the manifest says it has; None without one.
        sha256: of the file as the manifest has it, in hex; empty without one.
        lineage: name of its lineage in the folder; None without one.
        lineage_sha256: of that, as the manifest has it.
    """

    path: str
    split: str | None
    size: int | None
    index: str | None = None
    records: int | None = None
    expected_size: int | None = None
    sha256: str = ""
    lineage: str | None = None
    lineage_sha256: str = ""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """What is read.

    Attributes:
        path: absolute, or a URI.
        folder: that its shards lie in; the dataset's own where it is one of ours.
        shards: in the order of the manifest, else of their paths.
        manifest: parsed; None where no manifest tells of these shards.
    """

    path: str
    folder: str
    shards: tuple[ShardEntry, ...]
    manifest: Mapping[str, Any] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether these are all shards of a dataset of ours."""
        return self.manifest is not None and self.path == self.folder

    @property
    def splits(self) -> dict[str, tuple[ShardEntry, ...]]:
        """The shards by split; those without one are `train`."""
        found: dict[str, tuple[ShardEntry, ...]] = {}
        if self.is_whole and self.manifest is not None:
            found = dict.fromkeys(self.manifest["splits"], ())
        for shard in self.shards:
            name = shard.split or "train"
            found[name] = (*found.get(name, ()), shard)
        return found

    @property
    def features(self) -> dict[str, FeatureSpec] | None:
        """What the manifest says of each feature, of a sequence of its context; None without one."""
        return None if self.manifest is None else _specs(self.manifest["features"])

    @property
    def feature_lists(self) -> dict[str, FeatureSpec]:
        """What the manifest says of one step of each feature list; empty where there are none."""
        return {} if self.manifest is None else _specs(self.manifest.get("feature_lists", {}))

    @property
    def labels(self) -> dict[int, str]:
        """Class name by stored id, as the manifest has them; empty without one."""
        if self.manifest is None:
            return {}
        return {int(number): name for number, name in self.manifest["labels"].items()}

    @property
    def renames(self) -> dict[str, str]:
        """The name that our schemas have for a feature, by the name that it is stored under (`--rename`)."""
        if self.manifest is None:
            return {}
        return {new: old for old, new in self.manifest["config"].get("rename", {}).items()}


def find_dataset(path: str) -> Dataset:
    """What there is to read at a path.

    Args:
        path: a folder with manifest.json, a folder of versions of which latest.json names one, another folder
            of TFRecord files, one file, a pattern (`out/train-*`), or shards as Beam and TFDS write them
            (`out/train@16.tfrecord`, `out/train@*`); local or `gs://`.

    Raises:
        ValueError: there is nothing to read, or its manifest is damaged; names the path, and what it may be.
        OSError: it may not be read.
    """
    place = absolute(path)
    if is_folder(place):
        folder = _dataset_folder(place)
        return _folder(place) if folder is None else _published(folder, folder)
    if is_file(place):
        return _some(place, os.path.dirname(place), [os.path.basename(place)])
    return _pattern(place)


def followed(path: str) -> str:
    """The folder of the latest version where a path is one of versions; else the path itself, absolute.

    Raises:
        ValueError: it has versions, and no latest.json that names one of them.
        OSError: it may not be read.
    """
    place = absolute(path)
    return (_dataset_folder(place) if is_folder(place) else None) or place


def _dataset_folder(place: str) -> str | None:
    """The folder that has the manifest: the one given, or that of its latest version; None where none has."""
    if is_file(f"{place}/{MANIFEST}"):
        return place
    try:
        latest = latest_version(place)
    except ValueError as error:
        versions = published_versions(place)
        if versions:
            raise ValueError(f"{error}; {_instead(versions)}") from error
        return None  # somebody else's, beside TFRecords
    if latest is not None and is_file(f"{version_folder(place, latest)}/{MANIFEST}"):
        return version_folder(place, latest)
    versions = published_versions(place)
    if latest is not None:
        raise ValueError(
            f"{f'{place}/{LATEST}'!r} names the version {latest}, which is not there; {_instead(versions)}"
        )
    if versions:
        raise ValueError(f"{place!r} has no {LATEST} that names the version to read; {_instead(versions)}")
    return None


def _instead(versions: Sequence[Version]) -> str:
    """What can be read instead."""
    if not versions:
        return "there is no version"
    more = "…, " if len(versions) > _MOST_NAMED else ""
    return f"give the folder of one: {more}{', '.join(map(str, versions[-_MOST_NAMED:]))}"


def _published(path: str, folder: str) -> Dataset:
    """A dataset of ours, whole."""
    manifest = read_manifest(folder)
    indexes = _names(f"{folder}/{INDEX}")
    sizes = {name: _size(f"{folder}/{name}") for _, shard in _listed(manifest) for name in [shard["file"]]}
    return Dataset(path, folder, _entries(folder, manifest, sizes, indexes), manifest)


def _some(path: str, folder: str, names: list[str]) -> Dataset:
    """Some files of a folder, which may be a dataset of ours."""
    folder = folder or "."
    indexes = _names(f"{folder}/{INDEX}")
    beside = set(names_in(folder))
    if MANIFEST in beside:
        manifest = read_manifest(folder)
        listed = {shard["file"] for _, shard in _listed(manifest)}
        if listed.issuperset(names):
            sizes = {name: _size(f"{folder}/{name}") for name in names}
            return Dataset(path, folder, _entries(folder, manifest, sizes, indexes), manifest)
    entries = []
    for name in names:
        place = f"{folder}/{name}"
        entries.append(ShardEntry(place, split_of(name), _size(place), _index(folder, name, indexes, beside)))
    return Dataset(path, folder, tuple(entries))


def _folder(path: str) -> Dataset:
    """A folder of TFRecord files that no manifest of ours describes."""
    found = inputs(SourceConfig(kind="tfrecord", input=path))
    if not found.files:
        if any(isinstance(item, Failure) for item in found.failures) and not found.others:
            raise ValueError(f"{path!r} has nothing that may be read: {found.failures[0].detail}")
        raise ValueError(
            f"{path!r} has no {MANIFEST}, and no file that is called like TFRecords, such as train.tfrecord "
            "or train-00000-of-00010"
        )
    entries = []
    for file in found.files:
        index = _index_beside(file.key, found.others)
        entries.append(ShardEntry(file.path, split_of(file.key), file.size, index))
    return Dataset(path, path, tuple(entries))


def _pattern(path: str) -> Dataset:
    folder, name = os.path.split(path)
    sharded = _SHARDED.fullmatch(name)
    if sharded is not None:
        count = f"{int(sharded['count']):05d}" if sharded["count"] != "*" else "[0-9]" * 5
        name = f"{sharded['stem']}-{'[0-9]' * 5}-of-{count}{sharded['ending'] or '*'}"
    if not any(mark in name for mark in "*?[") or not is_folder(folder or "."):
        raise ValueError(
            f"{path!r} is not there; give a folder of a dataset, a TFRecord file, or a pattern such as "
            "out/train-*"
        )
    names = sorted(one for one in names_in(folder or ".") if fnmatch.fnmatchcase(one, name))
    if sharded is not None or not all(map(is_tfrecord_name, names)):
        names = [one for one in names if is_tfrecord_name(one)] or names
    if not names:
        raise ValueError(f"{path!r} matches no file in {folder or '.'!r}")
    return _some(path, folder, names)


def read_manifest(folder: str) -> dict[str, Any]:
    """The manifest of a folder.

    Raises:
        ValueError: it is damaged, or of a version that is not read; one line.
    """
    path = f"{folder}/{MANIFEST}"
    try:
        manifest = json.loads(read_bytes(path))
        if manifest["format_version"] != FORMAT_VERSION:
            raise ValueError(f"its format_version is {manifest['format_version']!r}, not {FORMAT_VERSION}")
        for _, shard in _listed(manifest):
            check_name(folder, shard["file"])
            if "/" in shard["file"] or int(shard["records"]) < 0 or int(shard["bytes"]) < 0:
                raise ValueError(f"it lists {shard['file']!r} as a shard")
        _specs(manifest["features"])
        dict(manifest["labels"]), dict(manifest["config"]), dict(manifest.get("digests", {}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        told = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path!r} is no manifest that can be read: {told}") from error
    return dict(manifest)


def _listed(manifest: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Split and entry of each shard."""
    return [(name, shard) for name, split in manifest["splits"].items() for shard in split["shards"]]


def _entries(
    folder: str, manifest: Mapping[str, Any], sizes: Mapping[str, int | None], indexes: set[str]
) -> tuple[ShardEntry, ...]:
    """The entries of the shards that have a size here."""
    digests = manifest.get("digests", {})
    lineages = {
        os.path.basename(name).partition(".")[0]: name for name in digests if name.startswith(f"{LINEAGE}/")
    }
    lineages = {f"{stem}.tfrecord": name for stem, name in lineages.items()}
    return tuple(
        ShardEntry(
            path=f"{folder}/{shard['file']}",
            split=split,
            size=sizes[shard["file"]],
            index=_index(folder, shard["file"], indexes, set()),
            records=shard["records"],
            expected_size=shard["bytes"],
            sha256=shard["sha256"],
            lineage=lineages.get(shard["file"]),
            lineage_sha256=digests.get(lineages.get(shard["file"]), ""),
        )
        for split, shard in _listed(manifest)
        if shard["file"] in sizes
    )


def _names(folder: str) -> set[str]:
    return set(names_in(folder)) if is_folder(folder) else set()


def _index(folder: str, name: str, indexes: set[str], beside: set[str]) -> str | None:
    """Path of the index of a file: in `index/`, or beside it, by the names that DALI's users give it."""
    stem = _ENDING.sub("", name)
    if f"{stem}.idx" in indexes:
        return f"{folder}/{INDEX}/{stem}.idx"
    for candidate in (f"{stem}.idx", f"{name}.idx", f"{name}.index", f"{stem}.index"):
        if candidate in beside:
            return f"{folder}/{candidate}"
    return None


def _index_beside(key: str, beside: Mapping[str, Any]) -> str | None:
    folder, _, name = key.rpartition("/")
    stem = _ENDING.sub("", name)
    for below in (f"{INDEX}/{stem}.idx", f"{stem}.idx", f"{name}.idx", f"{name}.index", f"{stem}.index"):
        found = beside.get(f"{folder}/{below}" if folder else below)
        if found is not None:
            return str(found.path)
    return None


def _size(path: str) -> int | None:
    try:
        return status_of(path).size
    except FileNotFoundError:
        return None


def _specs(features: Mapping[str, Any]) -> dict[str, FeatureSpec]:
    return {name: FeatureSpec(spec["dtype"], tuple(spec["shape"])) for name, spec in features.items()}
