"""What decides a dataset's bytes beside its records: by it, one version may take over from another."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
from collections.abc import Mapping
from typing import Any

from recordmill import __version__
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.versions import codec_versions

_FORMAT_VERSION = 1
# What decides how many shards there are, and nothing about what is in them.
_OF_SHARDS = ("num_shards", "shard_size", "reader_hosts")
# Of settings that are not called as their flags.
_FLAGS = {"image_roots": "image_root", "kind": "source"}
# What decides the Examples, which are made anew in any case, and no image: `RecordSettings.digest` has it.
_OF_EXAMPLES = ("label_names", "label_classes", "label_texts")
# What only dataset_info.json tells.
_OF_METADATA = ("name",)
_DECIDING = ("recordmill", "protobuf", "pycocotools")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of a job, as plain JSON knows them.

    Attributes:
        config: `DatasetConfig.as_json`.
        versions: of the programs that may change a byte, by name.
        source: what the source was told.
    """

    config: Mapping[str, Any]
    versions: Mapping[str, str]
    source: Mapping[str, Any]

    @staticmethod
    def of(config: DatasetConfig, versions: Mapping[str, str], source: Mapping[str, object]) -> Recipe:
        """The recipe of a job."""
        return Recipe(*json.loads(json.dumps([config.as_json(), dict(versions), dict(source)])))

    def as_json(self) -> dict[str, Any]:
        """As `state/settings.json` has it."""
        return {"format_version": _FORMAT_VERSION, **dataclasses.asdict(self)}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Recipe:
        """What `as_json` made.

        Raises:
            ValueError, KeyError, TypeError: it did not make that.
        """
        if found["format_version"] != _FORMAT_VERSION:
            raise ValueError(f"format_version is {found['format_version']!r}, not {_FORMAT_VERSION}")
        return Recipe(dict(found["config"]), dict(found["versions"]), dict(found["source"]))

    def difference(self, before: Recipe) -> str:
        """Why what was made by another recipe is no use for this one; empty where it is."""
        told = _changes("", before.versions, self.versions)
        told += _changes("--", before.source, self.source)
        told += _changes("--", _of_images(before.config), _of_images(self.config))
        return "; ".join(told)

    def asks_for_same_shards(self, before: Recipe) -> bool:
        """Whether the number of shards is not asked for, or is asked for as it was."""
        default = DatasetConfig().as_json()
        now, then, unasked = (
            [config.get(name) for name in _OF_SHARDS] for config in (self.config, before.config, default)
        )
        return now in (then, unasked)

    def has_same_metadata(self, before: Recipe) -> bool:
        """Whether what no shard tells is as it was."""
        return all(self.config.get(name) == before.config.get(name) for name in _OF_METADATA)


def _changes(prefix: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"{prefix}{_FLAGS.get(name, name)} was {_told(before.get(name))}, is {_told(now.get(name))}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]


def _of_images(config: Mapping[str, Any]) -> dict[str, Any]:
    others = (*_OF_SHARDS, *_OF_EXAMPLES, *_OF_METADATA)
    return {name: value for name, value in config.items() if name not in others}


def _told(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


def package_version(package: str) -> str:
    """The version of this package or of another one that is installed."""
    if package == "recordmill":
        return __version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # installed without metadata


def program_versions() -> dict[str, str]:
    """Versions of all that may change a byte of a shard."""
    return {**codec_versions(), **{package: package_version(package) for package in _DECIDING}}
