"""What a dataset was made by, from its manifest."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.examples.registry import SCHEMAS
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.registry import SOURCES, source_of


def source_of_manifest(manifest: Mapping[str, Any]) -> SourceConfig:
    """The source that a dataset was made from, as it was told then.

    Raises:
        ValueError: it was made from records that no source of ours has read, or by another version.
    """
    told = {name: value for name, value in manifest["source"].items() if name != "digest"}
    if told["kind"] not in SOURCES:
        raise ValueError(
            f"the dataset was made from a source of kind {told['kind']!r}, which cannot be read again; "
            f"sources are {', '.join(SOURCES)}"
        )
    return SourceConfig.from_json(told)


def config_of(manifest: Mapping[str, Any], source: SourceConfig) -> DatasetConfig:
    """The configuration that a dataset was made by, as far as it decides what is in its records.

    Args:
        manifest: of the dataset.
        source: that it was made from.

    Raises:
        ValueError: this version does not have one of its settings.
    """
    try:
        config = DatasetConfig.from_json(manifest["config"])
    except ValueError as error:
        detail = f"the dataset was made with a setting that this version does not have: {error}"
        raise ValueError(detail) from error
    # What a manifest calls the schema of records without images is no name that people give.
    names = [name.strip() for name in config.schema.split(",")]
    schema = config.schema if SCHEMAS.keys() >= set(names) else "auto"
    return dataclasses.replace(config, schema=schema, untyped_features=source_of(source).untyped)
