"""Publish: reconcile, gate, move the shards, then metadata, manifest.json last; all can be repeated."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from transforms.config import DatasetConfig
from transforms.records import Failure, JobError
from transforms.shards.manifest import Provenance, metadata_files, published_names, shard_name
from transforms.shards.part import write_empty
from transforms.shards.plan import DatasetPlan
from transforms.shards.reconcile import Reconciled, reconcile
from transforms.shards.report import ShardReport
from transforms.storage.output import (
    announce_publication,
    check_output,
    end_runs,
    publish_file,
    write_failures,
    write_text,
)

_SUMMARY = "summary"


class Publish(beam.PTransform):
    """PCollection[ShardReport] -> PCollection[str]: the path of manifest.json, when the dataset is published.

    Args:
        output: folder of the dataset.
        run: folder of the run, with the shards.
        config: of the dataset.
        plan: of the dataset, one element.
        failures: what the source listed and is no record.
        provenance: for the manifest.
    """

    def __init__(
        self,
        output: str,
        run: str,
        config: DatasetConfig,
        plan: beam.PCollection[DatasetPlan],
        failures: beam.PCollection[Failure],
        provenance: Provenance,
    ) -> None:
        super().__init__()
        self._output = output
        self._run = run
        self._config = config
        self._plan = plan
        self._failures = failures
        self._provenance = provenance

    def expand(self, reports: beam.PCollection[ShardReport]) -> beam.PCollection[str]:
        """All reports -> gate -> moves -> all moved -> metadata."""
        moves, summary = (
            reports.pipeline
            | "Start" >> beam.Impulse()
            | "Reconcile"
            >> beam.ParDo(
                Reconcile(self._output, self._run, self._config),
                beam.pvalue.AsSingleton(self._plan),
                beam.pvalue.AsIter(reports),
                beam.pvalue.AsIter(self._failures),
            ).with_outputs(_SUMMARY, main="moves")
        )
        if not self._config.workers:
            # On one machine a move is a rename; elsewhere many workers share them.
            moves = moves | "Spread" >> beam.Reshuffle()
        moved = moves | "MoveShards" >> beam.MapTuple(publish_file)
        return summary | "WriteMetadata" >> beam.Map(
            write_metadata,
            beam.pvalue.AsList(moved),
            output=self._output,
            config=self._config,
            provenance=self._provenance,
        ).with_output_types(str)


class Reconcile(beam.DoFn):
    """Once -> (unpublished path, published path) of each file; the Reconciled to `summary`."""

    def __init__(self, output: str, run: str, config: DatasetConfig) -> None:
        self._output = output
        self._run = run
        self._config = config

    def process(
        self,
        element: bytes,
        plan: DatasetPlan,
        reports: Iterable[ShardReport],
        failures: Iterable[Failure],
    ) -> Iterator[Any]:
        """Once: failures.jsonl is written first, whatever the gate says."""
        try:
            # Another job may have published here since the plan was made.
            check_output(self._output)
        except ValueError as error:
            raise JobError(str(error)) from error
        files = [report.file.failures_path for report in reports]
        write_failures(self._output, failures, [path for path in files if path is not None])
        every = [*reports, *empty_shards(plan, reports, os.path.join(self._run, "shards"))]
        reconciled = reconcile(plan, every, failures, self._config.max_failure_ratio)
        announce_publication(self._run, published_names(reconciled, self._config))
        for report in reconciled.reports:
            name = shard_name(report.split, report.shard, reconciled.num_shards[report.split])
            yield report.file.path, os.path.join(self._output, f"{name}.tfrecord")
            yield report.file.index_path, os.path.join(self._output, "index", f"{name}.idx")
        yield beam.pvalue.TaggedOutput(_SUMMARY, reconciled)


def empty_shards(plan: DatasetPlan, reports: Iterable[ShardReport], folder: str) -> Iterator[ShardReport]:
    """Writes the shards that no record fell into. One that was lost is missed when records are counted."""
    written = {(report.split, report.shard) for report in reports}
    for split, shard in plan.shards():
        if (split, shard) not in written:
            path = os.path.join(folder, f"{split}-{shard:05d}-empty")
            yield ShardReport(split, shard, write_empty(path))


def write_metadata(
    reconciled: Reconciled,
    moved: Iterable[None],
    output: str,
    config: DatasetConfig,
    provenance: Provenance,
) -> str:
    """Writes what describes the dataset, once all its shards are moved; manifest.json last.

    Returns:
        The path of manifest.json.
    """
    path = ""
    for name, text in metadata_files(reconciled, config, provenance).items():
        path = os.path.join(output, name)
        write_text(path, text)
    end_runs(output)
    return path
