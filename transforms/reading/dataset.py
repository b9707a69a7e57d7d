"""Finds the TFRecord files at a path, in a dataset of ours or elsewhere, and the names of their classes."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from recordmill.transforms.examples.schema import FeatureSpec
from recordmill.transforms.records import ClassNames, Failure, JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.tfrecord.files import (
    defined_classes,
    inputs,
    is_tfrecord_name,
    read_manifests,
    split_of,
)
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
        split: from the manifest or its name; None if neither has one.
        index: path of its index; None if there is none.
        sha256: of the file in the manifest, in hex; empty without one.
        lineage: name of its lineage file in the folder; None without one.
        lineage_sha256: of the lineage file in the manifest.
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
    """TFRecord files that are read together.

    Attributes:
        path: absolute, or a URI.
        manifest: parsed; None if no manifest lists these shards.
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
        """The shards by split; those without one are in `train`."""
        found: dict[str, tuple[ShardEntry, ...]] = {}
        if self.manifest is not None and self.is_whole:
            found = dict.fromkeys(self.manifest["splits"], ())
        for shard in self.shards:
            name = shard.split or "train"
            found[name] = (*found.get(name, ()), shard)
        return found

    @property
    def features(self) -> dict[str, FeatureSpec] | None:
        """The features in the manifest, of a sequence those of its context; None without one."""
        return None if self.manifest is None else _specs(self.manifest["features"])

    @property
    def feature_lists(self) -> dict[str, FeatureSpec]:
        """One step of each feature list in the manifest."""
        return {} if self.manifest is None else _specs(self.manifest.get("feature_lists", {}))

    @property
    def labels(self) -> dict[int, str]:
        """Class names by stored id in the manifest; empty without one."""
        return {int(number): name for number, name in (self.manifest or {}).get("labels", {}).items()}

    @property
    def renames(self) -> dict[str, str]:
        """Our name of each renamed feature, by its stored name (`--rename`)."""
        config = {} if self.manifest is None else self.manifest["config"]
        return {new: old for old, new in config.get("rename", {}).items()}


class NamesFound(NamedTuple):
    """Names of classes.

    Attributes:
        names: by stored id, in the order of the ids.
        texts: display text by name, for classes whose names are codes.
    """

    names: dict[int, str]
    texts: dict[str, str]
    fault: str = ""

    @property
    def shown(self) -> dict[int, str]:
        """The display text, or else the name, of each class by id."""
        return {number: self.texts.get(name, name) for number, name in self.names.items()}


def class_names(dataset: Dataset) -> NamesFound:
    """The classes that the manifest, else label maps, else a label file of TFDS define. Raises OSError."""
    if dataset.manifest is not None or not dataset.shards:
        return NamesFound(dataset.labels, {})
    path = dataset.folder if dataset.path == dataset.folder else dataset.shards[0].path
    try:
        others = inputs(SourceConfig(kind="tfrecord", input=path)).others
        found = defined_classes(others, read_manifests(others)) or ClassNames({})
    except JobError as error:
        return NamesFound({}, {}, str(error))
    return NamesFound(dict(sorted(found.names.items())), dict(found.texts))


def find_dataset(path: str) -> Dataset:
    """The TFRecord files at a path.

    Args:
        path: a folder with manifest.json, a folder of versions of which latest.json names one, another folder
            of TFRecord files, one file, a pattern (`out/train-*`), or shards as Beam and TFDS write them
            (`out/train@16.tfrecord`, `out/train@*`); local or `gs://`.

    Raises:
        ValueError: there are none, or the manifest is damaged; names the path, and the valid forms.
        OSError: it cannot be read.
    """
    path = absolute(path)
    if is_folder(path):
        folder = _dataset_folder(path)
        return _folder(path) if folder is None else _published(folder)
    if is_file(path):
        return _some(path, os.path.dirname(path), [os.path.basename(path)])
    return _pattern(path)


def followed(path: str) -> str:
    """The folder of the latest version, if a path is a folder of versions; else the absolute path.

    Raises:
        ValueError: it has versions, and no latest.json that names one of them.
        OSError: it cannot be read.
    """
    path = absolute(path)
    return (_dataset_folder(path) if is_folder(path) else None) or path


def _dataset_folder(path: str) -> str | None:
    """The folder with the manifest: this one, or that of its latest version; None if neither has one."""
    if is_file(f"{path}/{MANIFEST}"):
        return path
    try:
        latest = latest_version(path)
    except ValueError as error:
        if versions := published_versions(path):
            raise ValueError(f"{error}; {_instead(versions)}") from error
        return None  # latest.json of another program
    if latest is not None and is_file(f"{version_folder(path, latest)}/{MANIFEST}"):
        return version_folder(path, latest)
    versions = published_versions(path)
    if latest is not None:
        fault = f"{f'{path}/{LATEST}'!r} names the version {latest}, which is not there"
    elif versions:
        fault = f"{path!r} has no {LATEST} that names the version to read"
    else:
        return None
    raise ValueError(f"{fault}; {_instead(versions)}")


def _instead(versions: Sequence[Version]) -> str:
    """A remedy: the versions that can be read."""
    if not versions:
        return "there is no version"
    more = "…, " if len(versions) > _MOST_NAMED else ""
    return f"give the folder of one: {more}{', '.join(map(str, versions[-_MOST_NAMED:]))}"


def _published(folder: str) -> Dataset:
    """A complete dataset of ours."""
    manifest = read_manifest(folder)
    names = {shard["file"] for _, shard in _listed(manifest)}
    return Dataset(folder, folder, _entries(folder, manifest, names), manifest)


def _some(path: str, folder: str, names: list[str]) -> Dataset:
    """Some files of a folder, which may be a dataset of ours."""
    folder = folder or "."
    siblings = set(names_in(folder))
    if MANIFEST in siblings:
        manifest = read_manifest(folder)
        if {shard["file"] for _, shard in _listed(manifest)}.issuperset(names):
            return Dataset(path, folder, _entries(folder, manifest, names), manifest)
    others = {name: f"{folder}/{name}" for name in siblings} | _indexes(folder)
    paths = ((name, f"{folder}/{name}") for name in names)
    entries = (ShardEntry(one, split_of(name), _size(one), _index(name, others)) for name, one in paths)
    return Dataset(path, folder, tuple(entries))


def _folder(path: str) -> Dataset:
    """A folder of TFRecord files without a manifest of ours."""
    found = inputs(SourceConfig(kind="tfrecord", input=path))
    if not found.files:
        if any(isinstance(item, Failure) for item in found.failures) and not found.others:
            raise ValueError(f"{path!r} has nothing that may be read: {found.failures[0].detail}")
        raise ValueError(
            f"{path!r} has no {MANIFEST}, and no file named like a TFRecord file, such as train.tfrecord "
            "or train-00000-of-00010"
        )
    others = {key: other.path for key, other in found.others.items()}
    files = ((file, _index(file.key, others)) for file in found.files)
    entries = (ShardEntry(file.path, split_of(file.key), file.size, index) for file, index in files)
    return Dataset(path, path, tuple(entries))


def _pattern(path: str) -> Dataset:
    folder, name = os.path.split(path)
    if (sharded := _SHARDED.fullmatch(name)) is not None:
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
        ValueError: it is damaged, or has an unknown format_version; one line.
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
        dict(manifest["labels"]), dict(manifest["config"])
        for name in ("digests", "source", "provenance"):
            dict(manifest.get(name, {}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        fault = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path!r} is no manifest that can be read: {fault}") from error
    return dict(manifest)


def _listed(manifest: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Split and entry of each shard."""
    return [(name, shard) for name, split in manifest["splits"].items() for shard in split["shards"]]


def _entries(folder: str, manifest: Mapping[str, Any], names: Collection[str]) -> tuple[ShardEntry, ...]:
    """The entries of some shards of a manifest."""
    digests = manifest.get("digests", {})
    lineages = {
        f"{os.path.basename(name).partition('.')[0]}.tfrecord": name
        for name in digests
        if name.startswith(f"{LINEAGE}/")
    }
    indexes = _indexes(folder)
    return tuple(
        ShardEntry(
            path=f"{folder}/{shard['file']}",
            split=split,
            size=_size(f"{folder}/{shard['file']}"),
            index=_index(shard["file"], indexes),
            records=shard["records"],
            expected_size=shard["bytes"],
            sha256=shard["sha256"],
            lineage=lineages.get(shard["file"]),
            lineage_sha256=digests.get(lineages.get(shard["file"]), ""),
        )
        for split, shard in _listed(manifest)
        if shard["file"] in names
    )


def _indexes(folder: str) -> dict[str, str]:
    """The paths of the files in `index/` of a folder, by their names in the folder."""
    within = f"{folder}/{INDEX}"
    return {f"{INDEX}/{name}": f"{within}/{name}" for name in names_in(within)} if is_folder(within) else {}


def _index(key: str, others: Mapping[str, str]) -> str | None:
    """Path of the index of a file: in `index/`, or next to it, by the names that users of DALI give it.

    Args:
        key: of the file.
        others: paths by key.
    """
    folder, slash, name = key.rpartition("/")
    stem = _ENDING.sub("", name)
    candidates = (f"{INDEX}/{stem}.idx", f"{stem}.idx", f"{name}.idx", f"{name}.index", f"{stem}.index")
    return next(filter(None, (others.get(f"{folder}{slash}{one}") for one in candidates)), None)


def _size(path: str) -> int | None:
    try:
        return status_of(path).size
    except FileNotFoundError:
        return None


def _specs(features: Mapping[str, Any]) -> dict[str, FeatureSpec]:
    return {name: FeatureSpec(spec["dtype"], tuple(spec["shape"])) for name, spec in features.items()}
