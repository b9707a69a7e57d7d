"""PlanDataset: what is decided from the whole list of records, before the first image is written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

import apache_beam as beam

from transforms.config import DatasetConfig
from transforms.records import Failure, ImageRecord, JobError
from transforms.shards import progress
from transforms.shards.plan import DatasetPlan, plan_dataset
from transforms.shards.totals import Totals, merged_totals
from transforms.storage.output import (
    FAILURES,
    check_output,
    free_bytes,
    start_run,
    write_failures,
    write_text,
)
from transforms.survey import Surveyed, SurveyRecords

# Room that a disk must have beside the estimate.
_DISK_MARGIN = 1.05


class PlanDataset(beam.PTransform):
    """Surveyed -> PCollection[DatasetPlan], one element.

    Args:
        config: of the dataset.
        output: where free space is looked for, and failures.jsonl is written if there is no plan; None
            to write nothing.
        run: folder of the run, made ready for its shards; None to write nothing.
    """

    def __init__(self, config: DatasetConfig, output: str | None = None, run: str | None = None) -> None:
        super().__init__()
        self._config = config
        self._output = output
        self._run = run

    def expand(self, surveyed: Surveyed) -> beam.PCollection[DatasetPlan]:
        """All totals, and the plan that follows from them."""
        return (
            surveyed.totals.pipeline
            | "Start" >> beam.Impulse()
            | "Plan"
            >> beam.Map(
                make_plan,
                self._config,
                totals=beam.pvalue.AsIter(surveyed.totals),
                failures=beam.pvalue.AsIter(surveyed.failures),
                output=self._output,
                run=self._run,
            ).with_output_types(DatasetPlan)
        )


def make_plan(
    _: bytes,
    config: DatasetConfig,
    totals: Iterable[Totals],
    failures: Iterable[Failure],
    output: str | None,
    run: str | None,
) -> DatasetPlan:
    """The plan, with the run's folder made ready.

    Raises:
        JobError: no records, an empty split, not enough disk space, …; failures.jsonl is written then.
    """
    total = merged_totals(totals, config.untyped_features)
    if output is not None:
        _check_output(output)
    try:
        if not total.records:
            raise JobError(_nothing_to_write(failures, output))
        plan = plan_dataset(total, config)
        if output is not None:
            _check_space(output, plan)
    except JobError:
        if output is not None:
            write_failures(output, failures)
        raise
    if output is not None and run is not None:
        start_run(output, run)
    progress.set_totals(plan.records, plan.source_bytes)
    return plan


def _nothing_to_write(failures: Iterable[Failure], output: str | None) -> str:
    failed = skipped = 0
    for failure in failures:
        failed += not failure.skipped
        skipped += failure.skipped
    message = f"there is no record to write: {failed} inputs failed, {skipped} were skipped"
    return f"{message}; {output}/{FAILURES} says why" if output else message


def _check_output(output: str) -> None:
    try:
        check_output(output)
    except ValueError as error:
        raise JobError(str(error)) from error


def _check_space(output: str, plan: DatasetPlan) -> None:
    free = free_bytes(output)
    if plan.estimated_bytes * _DISK_MARGIN > free:
        needed = plan.estimated_bytes / 1e9
        raise JobError(
            f"--output is {output!r}: about {needed:.1f} GB will be written, "
            f"and {free / 1e9:.1f} GB are free there"
        )


class WritePlan(beam.PTransform):
    """PCollection[ImageRecord | Failure] -> the plan in words, as JSON in the file `path`; nothing else."""

    def __init__(self, config: DatasetConfig, path: str) -> None:
        super().__init__()
        self._config = config
        self._path = path

    def expand(self, entries: beam.PCollection[ImageRecord | Failure]) -> beam.PCollection[None]:
        """As far as the plan, as WriteDataset has it."""
        surveyed = entries | "SurveyRecords" >> SurveyRecords(self._config)
        plan = surveyed | "PlanDataset" >> PlanDataset(self._config)
        return plan | "Write" >> beam.Map(write_plan, beam.pvalue.AsIter(surveyed.failures), self._path)


def write_plan(plan: DatasetPlan, failures: Iterable[Failure], path: str) -> None:
    """Writes what `convert --plan` prints."""
    left_out = Counter((failure.skipped, failure.stage, failure.reason) for failure in failures)
    described = {
        "records": plan.records,
        "source_bytes": plan.source_bytes,
        "estimated_bytes": plan.estimated_bytes,
        "schema": plan.settings.schema.name,
        "labels": len(plan.settings.labels.labels),
        "columns": {
            name: [column.kind, list(column.shape)] for name, column in plan.settings.columns.items()
        },
        "splits": {
            name: {"records": split.records, "bytes": split.estimated_bytes, "shards": split.num_shards}
            for name, split in plan.splits.items()
        },
        "left_out": [[*key, count] for key, count in sorted(left_out.items())],
    }
    write_text(path, json.dumps(described))
