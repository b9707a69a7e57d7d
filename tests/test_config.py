"""What a configuration refuses."""

import dataclasses
import json
from typing import Any

import pytest

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.policy import ImagePolicy


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"writer": "tfds"}, "DatasetConfig.writer is 'tfds'; it may be shards or beam"),
        ({"order": "key"}, "DatasetConfig.order is 'key', which only DatasetConfig.writer=shards uses"),
        ({"seed": 3}, "DatasetConfig.seed is 3, which only DatasetConfig.writer=shards uses"),
        (
            {"shard_size": 1000},
            "DatasetConfig.shard_size is 1000, which only DatasetConfig.writer=shards uses",
        ),
        (
            {"reader_hosts": 2},
            "DatasetConfig.reader_hosts is 2, which only DatasetConfig.writer=shards uses",
        ),
        ({"num_shards": {"../x": 1}}, "DatasetConfig.num_shards names a split '../x'"),
        ({"num_shards": {"train": 0}}, "DatasetConfig.num_shards is 0; it may be 1 to 99999"),
        ({"num_shards": 100_000}, "DatasetConfig.num_shards is 100000; it may be 1 to 99999"),
    ],
)
def test_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DatasetConfig(**{"writer": "beam", **fields})


def test_what_only_one_writer_can_do_is_that_one_s() -> None:
    for fields in ({"order": "key"}, {"seed": 3}, {"shard_size": 1000}, {"reader_hosts": 2}):
        assert DatasetConfig(**fields).writer == "shards"  # type: ignore[arg-type]


def test_each_writer_has_a_digest_and_the_splits_of_the_layout_have_none() -> None:
    digests = {DatasetConfig(writer=writer).digest({}) for writer in ("shards", "beam")}
    assert len(digests) == 2
    assert DatasetConfig(writer="beam", split_names=("a", "b")).digest({}) in digests


EVERY_KIND: tuple[dict[str, Any], ...] = (
    {},
    {
        "label_names": ("cat", "dog"),
        "num_shards": {"train": 2, "val": 1},
        "splits": {"train": 0.5, "val": 0.5},
    },
    {"label_classes": {1: "cat", 7: "dog"}, "label_texts": {"cat": "a cat"}, "label_offset": 3},
    {"writer": "beam", "num_shards": 3, "schema": "detection,segmentation", "boxes": "drop"},
    {"mask_values": {"11": "255", "car": "road"}},
    {"duplicates": "drop", "splits": {"x": 1.0}, "group_by": "content"},
    {"seed": 5, "order": "key", "rename": {"a": "b"}, "splits": {"x": 1.0}, "group_pattern": "(.)"},
    {"policy": ImagePolicy("png", size=(10, 20), fit="pad", background=(1, 2, 3), optimize="lossless")},
    {"policy": ImagePolicy("jpeg", target_ssim=0.9, alpha="flatten", exif="ignore", metadata="strip")},
)


@pytest.mark.parametrize("fields", EVERY_KIND)
def test_a_configuration_comes_back_from_a_manifest(fields: dict[str, Any]) -> None:
    config = DatasetConfig(**fields)
    assert DatasetConfig.from_json(json.loads(json.dumps(config.as_json()))) == config


def test_what_does_not_decide_the_bytes_is_not_in_a_manifest() -> None:
    config = DatasetConfig(
        workers=3, overwrite=True, max_failure_ratio=0.5, strict=True, untyped_features=True
    )
    assert DatasetConfig.from_json(config.as_json()) == DatasetConfig()


def test_every_field_is_changed_by_one_of_them() -> None:
    changed = {"shard_size", "reader_hosts", "group_by", "name"}  # plain texts and numbers
    for fields in EVERY_KIND:
        changed |= fields.keys()
    told = DatasetConfig(duplicates="drop").as_json().keys() | {"policy", "mask_values"}
    assert changed == {field.name for field in dataclasses.fields(DatasetConfig)} & told


def test_a_configuration_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="the configuration has 'jpeg_magic', which this version does not"):
        DatasetConfig.from_json({**DatasetConfig().as_json(), "jpeg_magic": 1})
    with pytest.raises(ValueError, match="DatasetConfig.boxes is 'keep'"):
        DatasetConfig.from_json({**DatasetConfig().as_json(), "boxes": "keep"})
