"""PlanDataset: what is decided from the whole list of records, before the first image is written."""

from __future__ import annotations

import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from transforms.config import DatasetConfig
from transforms.failures import AssignSplits
from transforms.records import Failure, ImageRecord, JobError
from transforms.shards import progress
from transforms.shards.hashing import key_digest
from transforms.shards.plan import DatasetPlan, plan_dataset
from transforms.shards.totals import Totals
from transforms.storage.output import FAILURES, free_bytes, start_run, write_failures, write_text

# Room that a disk must have beside the estimate.
_DISK_MARGIN = 1.05
_BUCKETS = 256
_BUCKET_SHIFT = 55
_MOST_BUFFERED = 1 << 18


class TotalsFn(beam.CombineFn):
    """Combines records to their Totals."""

    def __init__(self, untyped: bool) -> None:
        self._untyped = untyped

    def create_accumulator(self) -> Totals:
        """Totals of nothing."""
        return Totals(self._untyped)

    def add_input(self, mutable_accumulator: Totals, element: ImageRecord) -> Totals:
        """Counts a record in."""
        mutable_accumulator.add(element)
        return mutable_accumulator

    def merge_accumulators(self, accumulators: Iterable[Totals]) -> Totals:
        """Sums totals."""
        result = Totals(self._untyped)
        for totals in accumulators:
            result.merge(totals)
        return result

    def extract_output(self, accumulator: Totals) -> Totals:
        """The totals themselves."""
        return accumulator


class PlanDataset(beam.PTransform):
    """PCollection[ImageRecord], with their splits -> PCollection[DatasetPlan], one element.

    Args:
        config: of the dataset.
        failures: what is not in the list; where there is nothing to plan for, it is the reason.
        output: where free space is looked for, and failures.jsonl is written if there is no plan; None
            to write nothing.
        run: folder of the run, made ready for its shards; None to write nothing.
    """

    def __init__(
        self,
        config: DatasetConfig,
        failures: beam.PCollection[Failure],
        output: str | None = None,
        run: str | None = None,
    ) -> None:
        super().__init__()
        self._config = config
        self._failures = failures
        self._output = output
        self._run = run

    def expand(self, records: beam.PCollection[ImageRecord]) -> beam.PCollection[DatasetPlan]:
        """Totals of all records, and the plan that follows from them."""
        totals = records | "SumUp" >> beam.CombineGlobally(TotalsFn(self._config.untyped_features))
        return (
            records.pipeline
            | "Start" >> beam.Impulse()
            | "Plan"
            >> beam.Map(
                make_plan,
                self._config,
                totals=beam.pvalue.AsSingleton(totals),
                failures=beam.pvalue.AsIter(self._failures),
                output=self._output,
                run=self._run,
            ).with_output_types(DatasetPlan)
        )


def make_plan(
    _: bytes,
    config: DatasetConfig,
    totals: Totals,
    failures: Iterable[Failure],
    output: str | None,
    run: str | None,
) -> DatasetPlan:
    """The plan, with the run's folder made ready.

    Raises:
        JobError: no records, an empty split, not enough disk space, …; failures.jsonl is written then.
    """
    try:
        if not totals.records:
            raise JobError(_nothing_to_write(failures, output))
        plan = plan_dataset(totals, config)
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


def _check_space(output: str, plan: DatasetPlan) -> None:
    free = free_bytes(output)
    if plan.estimated_bytes * _DISK_MARGIN > free:
        needed = plan.estimated_bytes / 1e9
        raise JobError(
            f"--output is {output!r}: about {needed:.1f} GB will be written, "
            f"and {free / 1e9:.1f} GB are free there"
        )


def in_global_window(value: Any) -> WindowedValue:
    """A value as `finish_bundle` has to yield it."""
    window = GlobalWindow()
    return WindowedValue(value, window.max_timestamp(), [window])


class CollectKeyHashes(beam.DoFn):
    """ImageRecord -> (bucket, key hashes, packed): thousands of keys in one element."""

    def start_bundle(self) -> None:
        """Nothing collected."""
        self._hashes: defaultdict[int, array[int]] = defaultdict(lambda: array("Q"))
        self._buffered = 0

    def process(self, element: ImageRecord) -> Iterator[tuple[int, bytes]]:
        """One record."""
        hashed = key_digest(element.key)
        self._hashes[hashed >> _BUCKET_SHIFT].append(hashed)
        self._buffered += 1
        if self._buffered >= _MOST_BUFFERED:
            yield from self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """The rest."""
        yield from map(in_global_window, self._flush())

    def _flush(self) -> Iterator[tuple[int, bytes]]:
        for bucket, hashes in self._hashes.items():
            yield bucket, hashes.tobytes()
        self._hashes.clear()
        self._buffered = 0


def repeated_hashes(bucket: int, packed: Iterable[bytes]) -> list[int]:
    """The hashes that occur more than once in a bucket."""
    hashes = np.sort(np.frombuffer(b"".join(packed), dtype=np.uint64))
    repeated = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    return [int(hashed) for hashed in repeated]


class FindRepeatedKeys(beam.PTransform):
    """PCollection[ImageRecord] -> PCollection[int]: hashes of keys that more than one record has."""

    def expand(self, records: beam.PCollection[ImageRecord]) -> beam.PCollection[int]:
        """Groups hashes by bucket: eight bytes a record are shuffled."""
        return (
            records
            | "CollectKeyHashes" >> beam.ParDo(CollectKeyHashes()).with_output_types(tuple[int, bytes])
            | "GroupHashes" >> beam.GroupByKey()
            | "FindRepeated" >> beam.FlatMapTuple(repeated_hashes).with_output_types(int)
        )


class WritePlan(beam.PTransform):
    """PCollection[ImageRecord | Failure] -> the plan in words, as JSON in the file `path`; nothing else."""

    def __init__(self, config: DatasetConfig, path: str) -> None:
        super().__init__()
        self._config = config
        self._path = path

    def expand(self, entries: beam.PCollection[ImageRecord | Failure]) -> beam.PCollection[None]:
        """As far as the plan, as WriteDataset has it."""
        records, failures = entries | "AssignSplits" >> AssignSplits.parting(self._config)
        plan = records | "PlanDataset" >> PlanDataset(self._config, failures)
        return plan | "Write" >> beam.Map(write_plan, beam.pvalue.AsIter(failures), self._path)


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
