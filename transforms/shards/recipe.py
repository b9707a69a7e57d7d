"""The settings and program versions that determine a dataset's bytes, next to its records."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from recordmill import __version__
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.versions import codec_versions

# Settings that determine the number of shards, not their contents.
_OF_SHARDS = ("num_shards", "shard_size", "reader_hosts")
# Flags of settings that have another name.
_FLAGS = {"image_roots": "image_root", "kind": "source"}
# Settings of the Examples, which are always rebuilt, not of images; part of `RecordSettings.digest`.
_OF_EXAMPLES = ("label_names", "label_classes", "label_texts")
# Settings that only dataset_info.json contains.
_OF_METADATA = ("name",)
_PACKAGES = ("recordmill", "protobuf", "pycocotools")


class Recipe(msgspec.Struct, frozen=True):
    """The settings of a job, as plain JSON.

    Attributes:
        config: `DatasetConfig.as_json`.
        versions: of the programs that may change a byte, by name.
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

    def has_same_metadata(self, before: Recipe) -> bool:
        """Whether the settings that only metadata depends on are the same."""
        return all(self.config.get(name) == before.config.get(name) for name in _OF_METADATA)


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
    """Versions of all packages that may change a byte of a shard."""
    return {**codec_versions(), **{package: package_version(package) for package in _PACKAGES}}
