"""WriteTFRecords: Beam's own WriteToTFRecord, one a split; what it wrote is read back for its reports."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import apache_beam as beam

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.encode import EncodeExamples
from recordmill.transforms.metrics import count
from recordmill.transforms.publish import Written
from recordmill.transforms.shards.dataset_plan import DatasetPlan, beam_splits
from recordmill.transforms.shards.read_back import read_back, shard_of_name
from recordmill.transforms.shards.report import ShardReport
from recordmill.transforms.sink import WriteToTFRecord
from recordmill.transforms.storage.layout import Run
from recordmill.transforms.survey import Surveyed


class WriteTFRecords(beam.PTransform):
    """Surveyed -> Written: complete shards, in the runner's order, unpublished.

    Args:
        config: of the dataset.
        plan: of the dataset, one element.
        run: whose shards they are. They go where no other job's do, for WriteToTFRecord deletes what has
            their names.
    """

    def __init__(self, config: DatasetConfig, plan: beam.PCollection[DatasetPlan], run: Run) -> None:
        super().__init__()
        self._config = config
        self._plan = plan
        self._run = run

    def expand(self, surveyed: Surveyed) -> Written:
        """Encoded records -> files of each split -> their reports."""
        splits = beam_splits(self._config)
        encoded = surveyed | "EncodeExamples" >> EncodeExamples(self._config, self._plan, splits, self._run)
        paths = [
            encoded.payloads[split]
            | f"Write {split}"
            >> WriteToTFRecord(
                os.path.join(self._run.records, split, split), _num_shards(split, self._config)
            )
            for split in splits
        ] | "FlattenPaths" >> beam.Flatten()
        if not self._config.workers:
            # On one machine it is one process that reads; elsewhere many workers share the files.
            paths = paths | "Spread" >> beam.Reshuffle()
        reports = paths | "ReadBack" >> beam.ParDo(
            read_back_planned, beam.pvalue.AsSingleton(self._plan)
        ).with_output_types(ShardReport)
        return Written(reports, encoded.stats, encoded.failures)


def read_back_planned(path: str, plan: DatasetPlan) -> Iterator[ShardReport]:
    """The report of a shard; none for a split without records, of which WriteToTFRecord writes shards too."""
    if shard_of_name(path)[0] in plan.splits:
        report = read_back(path)
        count("shards/read back")
        yield report


def _num_shards(split: str, config: DatasetConfig) -> int:
    """The argument of WriteToTFRecord: 0 leaves the number to the runner."""
    if isinstance(config.num_shards, Mapping):
        return config.num_shards.get(split, 0)
    return config.num_shards or 0
