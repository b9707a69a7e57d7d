"""What is said where the shards are too few for all workers."""

import dataclasses
import logging
from pathlib import Path

import pytest

from recordmill.pipelines.convert_job import run
from recordmill.pipelines.options.convert import parse_convert
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.shards import progress
from recordmill.transforms.shards.dataset_plan import fewest_shards, slots_warning
from tests.shards.planned import plan


@pytest.mark.parametrize(
    ("shards", "slots", "writer", "message"),
    [
        (1, 1, "shards", "there is 1 shard for the 1 cores"),
        (79, 40, "shards", "there are 79 shards for the 40 cores that workers may have"),
        (80, 40, "shards", ""),
        (1, 0, "shards", ""),
        (1, 40, "beam", ""),
    ],
)
def test_fewer_shards_than_the_workers_could_write(
    shards: int, slots: int, writer: str, message: str
) -> None:
    config = DatasetConfig(num_shards=shards, worker_slots=slots, writer=writer)
    warning = slots_warning(config, len(plan(config).shards()))
    assert bool(warning) is bool(message)
    assert str(warning or "").startswith(message)


@pytest.mark.parametrize(
    ("config", "shards"),
    [
        (DatasetConfig(), None),
        (DatasetConfig(shard_size=1), None),
        (DatasetConfig(num_shards=4), 4),
        (DatasetConfig(num_shards=4, expected_splits=("train", "val")), 8),
        (DatasetConfig(num_shards=4, splits={"train": 0.5, "val": 0.25, "test": 0.25}), 12),
        (DatasetConfig(num_shards={"train": 7, "val": 2}), 9),
    ],
)
def test_what_the_launcher_knows(config: DatasetConfig, shards: int | None) -> None:
    assert fewest_shards(config) == shards


@pytest.mark.slow
def test_it_is_told_and_logged(photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = parse_convert([f"--input={photos}", f"--output={tmp_path / 'out'}", "--num_shards=2"], "x")
    dataset = dataclasses.replace(options.dataset, worker_slots=2, max_failure_ratio=0.1)
    assert dataset.digest({}) == dataclasses.replace(dataset, worker_slots=0).digest({})
    with caplog.at_level(logging.WARNING, "recordmill.transforms.plan"):
        assert run(dataclasses.replace(options, dataset=dataset, quiet=True)) == 0
    (note,) = progress.snapshot().notes
    assert note.startswith("there are 2 shards for the 2 cores")
    assert [each.getMessage() for each in caplog.records if each.name == "recordmill.transforms.plan"] == [
        note
    ]
