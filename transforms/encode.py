"""EncodeExamples: references to serialised Examples, in the order in which they are finished."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.transforms import coders as _coders  # noqa: F401  (registers the coders)
from recordmill.transforms.config import MIB, DatasetConfig
from recordmill.transforms.examples.tfrecord import FRAME_BYTES
from recordmill.transforms.failures import FailureLog
from recordmill.transforms.metrics import count_written
from recordmill.transforms.records import Failure, JobError
from recordmill.transforms.repeated import REPEATED, if_repeated, repeated_keys
from recordmill.transforms.shards import progress
from recordmill.transforms.shards.batching import Batches, items
from recordmill.transforms.shards.dataset_plan import DatasetPlan, writer_processes
from recordmill.transforms.shards.memory import shuffle_warning
from recordmill.transforms.shards.part import EncodedBatch, EncodeTask
from recordmill.transforms.shards.record_encoder import RecordEncoder
from recordmill.transforms.shards.references import reference_record, reference_shard
from recordmill.transforms.shards.report import WriteStats
from recordmill.transforms.shards.writer import encoder_pool
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.layout import Run
from recordmill.transforms.survey import Surveyed, in_global_window
from recordmill.transforms.task_fn import TaskFn
from recordmill.transforms.workers.pool import ProcessExecutor

_FAILURES = "failures"
_GROUP_RECORDS = 64  # on average
_TASK_BYTES = 16 * MIB


def group_of_reference(reference: bytes, records: int) -> int:
    """The group of a reference, by its hash, in a split of `records` records.

    Records that are listed next to each other are mostly alike; those of a group are not.
    """
    return reference_shard(reference, math.ceil(records / _GROUP_RECORDS))


def source_bytes_of_task(plan: DatasetPlan) -> int:
    """The most source bytes of a task: neither they nor what is made of them are many."""
    growth = plan.estimated_bytes / plan.source_bytes if plan.source_bytes else 1
    return int(_TASK_BYTES / max(growth, 1))


def encode_tasks(references: Iterable[bytes], most_bytes: int) -> Iterator[EncodeTask]:
    """The tasks of a group: in order of the hash, each of at most `most_bytes` of source, or one record."""
    task: list[bytes] = []
    source_bytes = 0
    for reference in sorted(references):
        size = reference_record(reference).size
        if task and source_bytes + size > most_bytes:
            yield EncodeTask(task)
            task, source_bytes = [], 0
        task.append(reference)
        source_bytes += size
    if task:
        yield EncodeTask(task)


class EncodedExamples(NamedTuple):
    """What encoding yields.

    Attributes:
        payloads: serialised Examples, by split.
        stats: (split, counts), a few elements.
        failures: the records that failed.
    """

    payloads: Mapping[str, beam.PCollection[bytes]]
    stats: beam.PCollection[tuple[str, WriteStats]]
    failures: beam.PCollection[Failure]


class EncodeExamples(beam.PTransform):
    """Surveyed -> EncodedExamples.

    Only references are shuffled before it, and by their hash: what is listed side by side is not encoded
    side by side. Images are loaded where they are encoded.

    Args:
        config: of the dataset.
        plan: of the dataset, one element.
        splits: every split that a record may be in.
        run: that the records are for; its lock is kept.
    """

    def __init__(
        self,
        config: DatasetConfig,
        plan: beam.PCollection[DatasetPlan],
        splits: Sequence[str],
        run: Run,
    ) -> None:
        super().__init__()
        self._run = run
        self._config = config
        self._plan = plan
        self._splits = splits

    def expand(self, surveyed: Surveyed) -> EncodedExamples:
        """((split, group), references) -> GroupByKey -> one payload a record, by split."""
        plan = beam.pvalue.AsSingleton(self._plan)
        spread, named = surveyed.references | "SpreadReferences" >> beam.ParDo(
            SpreadReferences(), plan, beam.pvalue.AsList(surveyed.repeated)
        ).with_output_types(tuple[tuple[str, int], bytes], **{REPEATED: tuple[str, str]}).with_outputs(
            REPEATED, main="spread"
        )
        tags = {split: _tag(split) for split in self._splits}
        types = {_FAILURES: Failure, **dict.fromkeys(tags.values(), bytes)}
        encoded = (
            spread
            | "GroupReferences" >> beam.GroupByKey()
            | "Encode"
            >> beam.ParDo(EncodeExamplesFn(self._config, self._run), plan, beam.pvalue.AsList(named))
            .with_output_types(tuple[str, WriteStats], **types)
            .with_outputs(*types, main="stats")
        )
        payloads = {split: encoded[tag] for split, tag in tags.items()}
        return EncodedExamples(payloads, encoded["stats"], encoded[_FAILURES])


class SpreadReferences(beam.DoFn):
    """(split, references) -> ((split, group), references); repeated keys to `REPEATED`."""

    def start_bundle(self) -> None:
        """Nothing collected."""
        self._batches: Batches[tuple[str, int]] = Batches()

    def process(
        self, element: tuple[str, bytes], plan: DatasetPlan, repeated: Sequence[int]
    ) -> Iterator[Any]:
        """One batch."""
        split, batch = element
        records = plan.splits[split].records
        hashes = frozenset(repeated)
        for reference in items([batch]):
            if hashes:
                yield from if_repeated(reference, hashes)
            key = (split, group_of_reference(reference, records))
            full = self._batches.add(key, reference)
            if full is not None:
                yield key, full

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """The rest."""
        yield from map(in_global_window, self._batches.rest())


class EncodeExamplesFn(TaskFn[str, EncodedBatch]):
    """((split, group), batches of references) -> payloads to the tag of the split, `Failure` to `failures`.

    The main output is (split, WriteStats), when the bundle ends. Groups are handed to worker processes as
    they come; what these give back is yielded as soon as it is there, so that few are held.

    Args:
        config: of the dataset.
        run: that the records are for.
    """

    def __init__(self, config: DatasetConfig, run: Run) -> None:
        super().__init__(config.workers, progress.add_done)
        self._config = config
        self._run = run

    def start_bundle(self) -> None:
        """Nothing encoded; the plan may be another one."""
        super().start_bundle()
        self._stats: dict[str, WriteStats] = {}
        self._plan: DatasetPlan | None = None
        self._task_bytes = 0
        self._log = FailureLog()

    def process(
        self,
        element: tuple[tuple[str, int], Iterable[bytes]],
        plan: DatasetPlan,
        named: Sequence[tuple[str, str]],
    ) -> Iterator[beam.pvalue.TaggedOutput]:
        """One group."""
        if message := repeated_keys(named):
            raise JobError(message)
        if self._plan is None:
            self._plan, self._task_bytes = plan, source_bytes_of_task(plan)
        (split, _), batches = element
        for task in encode_tasks(items(batches), self._task_bytes):
            yield from self.submit(split, task)

    def finish_bundle(self) -> Iterator[Any]:
        """Waits for what is still encoded."""
        try:
            yield from super().finish_bundle()
        finally:
            self._log.finish()
        yield from map(in_global_window, self._stats.items())

    def start_pool(self) -> ProcessExecutor[RecordEncoder]:
        """Processes that encode records of the plan."""
        assert self._plan is not None
        lock.keep(self._run.locked, self._run.token)
        warning = shuffle_warning(self._config, self._plan)
        if warning is not None:
            progress.add_note(warning)
        workers = writer_processes(self._plan, self._config.workers)
        return encoder_pool(self._plan.settings, progress.add_done, workers)

    def results(self, split: str, batch: EncodedBatch) -> Iterator[beam.pvalue.TaggedOutput]:
        """The payloads of a batch, and its failures."""
        self._stats.setdefault(split, WriteStats()).merge(batch.stats)
        count_written(batch.stats, batch.payload_bytes + batch.stats.written * FRAME_BYTES)
        for payload in batch.payloads:
            yield beam.pvalue.TaggedOutput(_tag(split), payload)
        for failure in batch.failures:
            self._log.add(failure)
            yield beam.pvalue.TaggedOutput(_FAILURES, failure)


def _tag(split: str) -> str:
    """The tag of a split's payloads; no split's name makes it one of the other tags."""
    return f"payloads-{split}"
