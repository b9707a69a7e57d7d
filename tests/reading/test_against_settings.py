"""What a dataset was made by, from its manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.reading.verify_dataset import config_of, source_of_manifest
from recordmill.transforms.sources.config import SourceConfig


def manifest_of(source: SourceConfig, config: DatasetConfig, schema: str) -> dict[str, Any]:
    """A manifest as far as it is read here, through JSON."""
    manifest = {
        "config": {**config.as_json(), "schema": schema},
        "source": {**source.as_json(), "digest": "0" * 32},
    }
    return dict(json.loads(json.dumps(manifest)))


def test_source_and_configuration_come_back() -> None:
    source = SourceConfig(
        "csv",
        "/data/in",
        annotations=("/data/a.csv", "/data/b.csv"),
        image_roots=("/images",),
        image_column="path",
        label_column="label",
        include=("*.jpg",),
        include_annotations=("masks",),
        input_features=(("old", "new"),),
        limit=5,
    )
    config = DatasetConfig(ImagePolicy("jpeg", jpeg_quality=80), boxes="drop", label_names=("a", "b"))
    manifest = manifest_of(source, config, "detection,segmentation")
    assert source_of_manifest(manifest) == source
    found = config_of(manifest, source)
    assert (found.policy, found.boxes, found.label_names) == (config.policy, "drop", ("a", "b"))
    assert found.schema == "detection,segmentation"
    assert found.untyped_features  # cells of a CSV file


def test_paths_of_the_working_directory_are_told_from_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here.csv").touch()
    told = ("here.csv", "inside.csv", "gs://bucket/far.csv")
    found = SourceConfig("csv", "in", annotations=told, image_roots=("images",)).as_json()
    assert found == {
        "kind": "csv",
        "input": str(tmp_path / "in"),
        "annotations": (str(tmp_path / "here.csv"), "inside.csv", "gs://bucket/far.csv"),
        "image_roots": (str(tmp_path / "images"),),
    }


def test_the_schema_of_records_without_images_is_what_they_ask_for() -> None:
    source = SourceConfig("jsonl", "/data/rows.jsonl")
    found = config_of(manifest_of(source, DatasetConfig(), "features"), source)
    assert (found.schema, found.untyped_features) == ("auto", False)


def test_the_output_of_a_run_is_no_setting_of_its_source() -> None:
    source = SourceConfig("folder", "/data", skip_dirs=("/data/out",))
    assert source.as_json() == {"kind": "folder", "input": "/data"}


def test_a_setting_that_this_version_does_not_have() -> None:
    source = SourceConfig("csv", "/data/in")
    manifest = manifest_of(source, DatasetConfig(), "classification")
    manifest["config"]["metadata"] = "keep"
    with pytest.raises(ValueError, match=r"does not have: .*metadata is 'keep'; it may be auto or strip"):
        config_of(manifest, source)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"kind": "pcollection", "input": ""}, "a source of kind 'pcollection', which cannot be read again"),
        (
            {"kind": "csv", "input": "x", "color": 1},
            "the source has the unknown field 'color'",
        ),
        ({"kind": "csv", "input": "x", "limit": -1}, "SourceConfig.limit is -1"),
    ],
)
def test_sources_that_cannot_be_read_again(told: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        source_of_manifest({"source": told})
