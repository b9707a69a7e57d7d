"""WriteShards: references to complete, unpublished shards; images are loaded where their shard is written."""

from __future__ import annotations

import collections
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.failures import FailureLog
from recordmill.transforms.metrics import count, count_written
from recordmill.transforms.records import ImageRecord, JobError
from recordmill.transforms.repeated import REPEATED, if_repeated, repeated_keys
from recordmill.transforms.shards import progress
from recordmill.transforms.shards.batching import Batches, items
from recordmill.transforms.shards.dataset_plan import DatasetPlan, shard_index, writer_processes
from recordmill.transforms.shards.part import EncodedBatch, EncodeTask
from recordmill.transforms.shards.previous import MaskMap
from recordmill.transforms.shards.record_encoder import RecordEncoder
from recordmill.transforms.shards.references import reference_record
from recordmill.transforms.shards.report import ShardReport
from recordmill.transforms.shards.reuse import TakeOver, WholeShard, whole_shard
from recordmill.transforms.shards.state import ShardState, shard_digest
from recordmill.transforms.shards.writer import ShardWriter, encoder_pool
from recordmill.transforms.storage import files, lock
from recordmill.transforms.storage.layout import Run
from recordmill.transforms.storage.paths import is_remote
from recordmill.transforms.storage.scratch import scratch_folder
from recordmill.transforms.storage.write_faults import naming_faults
from recordmill.transforms.survey import Surveyed, in_global_window
from recordmill.transforms.workers.pool import ProcessExecutor

# Shards whose references are held while some of their records are tried again.
_RETRIES_AHEAD = 16


class WriteShards(beam.PTransform):
    """Surveyed -> PCollection[ShardReport]: complete shards, in order, unpublished.

    A shard that gets no record has no report.

    Only references are shuffled: images are loaded where their shard is written.

    Args:
        config: of the dataset.
        plan: of the dataset, one element.
        run: whose shards they are.
    """

    def __init__(self, config: DatasetConfig, plan: beam.PCollection[DatasetPlan], run: Run) -> None:
        super().__init__()
        self._config = config
        self._plan = plan
        self._run = run

    def expand(self, surveyed: Surveyed) -> beam.PCollection[ShardReport]:
        """(shard, references) -> GroupByKey -> one file a shard."""
        plan = beam.pvalue.AsSingleton(self._plan)
        assigned, named = surveyed.references | "AssignShards" >> beam.ParDo(
            AssignShards(), plan, beam.pvalue.AsList(surveyed.repeated)
        ).with_outputs(REPEATED, main="assigned").with_output_types(tuple[int, bytes])
        return (
            assigned
            | "GroupByShard" >> beam.GroupByKey()
            | "Write"
            >> beam.ParDo(
                WriteShardsFn(self._config, self._run),
                plan,
                beam.pvalue.AsList(named),
            ).with_output_types(ShardReport)
        )


class AssignShards(beam.DoFn):
    """(split, references) -> (shard, references); key and origin of repeated keys to `repeated`."""

    def start_bundle(self) -> None:
        """Nothing collected; the plan may be another one."""
        self._batches: Batches[int] = Batches()
        self._first: dict[str, int] | None = None
        self._repeated: frozenset[int] = frozenset()

    def process(
        self, element: tuple[str, bytes], plan: DatasetPlan, repeated: Sequence[int]
    ) -> Iterator[Any]:
        """One batch."""
        if self._first is None:
            self._first = plan.first_shards()
            self._repeated = frozenset(repeated)
        split, batch = element
        first, split_plan = self._first[split], plan.splits[split]
        for reference in items([batch]):
            if self._repeated:
                yield from if_repeated(reference, self._repeated)
            number = first + shard_index(reference, split_plan)
            full = self._batches.add(number, reference)
            if full is not None:
                yield number, full
        if self._batches.full:
            yield from self._batches.rest()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """The rest."""
        yield from map(in_global_window, self._batches.rest())


def ordered(batches: Iterable[bytes], by_key: bool) -> list[bytes]:
    """The references of a shard in their final order."""
    references = sorted(items(batches))
    if by_key:
        references.sort(key=lambda reference: reference_record(reference).key)
    return references


class _Retry(NamedTuple):
    """A shard of the previous version, while the records that it lacks are retried.

    Attributes:
        state: of the shard as it is to be.
        before: the shard.
        references: of all its records.
        records: that it lacks.
        batch: what comes of them.
    """

    state: ShardState
    before: WholeShard
    references: Sequence[bytes]
    records: Sequence[ImageRecord]
    batch: Future[EncodedBatch]


class WriteShardsFn(beam.DoFn):
    """(shard, batches of references) -> ShardReport.

    A shard that an earlier run or the previous version has made from the same references and settings is not
    written again. The others are handed to worker processes as they come, and reported
    when the bundle ends.

    Args:
        config: of the dataset.
        run: whose shards they are; it is shown to live.
    """

    def __init__(self, config: DatasetConfig, run: Run) -> None:
        self._config = config
        self._run = run
        self._folder = run.shards
        self._executor: ProcessExecutor[RecordEncoder] | None = None
        self._writer: ShardWriter | None = None
        self._scratch: str | None = None
        self._settings_digest = ""

    def start_bundle(self) -> None:
        """No shard seen; the plan may be another one."""
        self._settings_digest = ""
        self._sizes: Mapping[str, int] = {}
        self._shards: list[tuple[str, int]] = []
        self._reused = 0
        self._before: dict[tuple[str, int], str] = {}
        self._retries: collections.deque[_Retry] = collections.deque()
        self._plan: DatasetPlan | None = None
        self._log = FailureLog()

    def process(
        self,
        element: tuple[int, Iterable[bytes]],
        plan: DatasetPlan,
        named: Sequence[tuple[str, str]],
    ) -> Iterator[ShardReport]:
        """One shard."""
        if message := repeated_keys(named):
            raise JobError(message)
        if not self._settings_digest:
            self._settings_digest = plan.settings.digest()
            self._plan, self._shards = plan, plan.shards()
            lock.keep(self._run.locked, self._run.token)
            with naming_faults(self._folder):
                self._sizes = files.sizes(self._folder)
        number, batches = element
        split, shard = self._shards[number]
        references = ordered(batches, self._config.order == "key")
        digest = shard_digest(self._settings_digest, references)
        state = ShardState(self._folder, split, shard, digest)
        try:
            report = self._begun(state, plan, references)
            if report is not None:
                yield _counted(report)
        except BaseException:
            self.teardown()
            raise

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Waits for the shards that are still written."""
        try:
            while self._retries:
                if (report := self._tried_again()) is not None:
                    yield in_global_window(_counted(report))
            for report in self._writer.finish() if self._writer is not None else ():
                before = self._before.get((report.split, report.shard))
                report = msgspec.structs.replace(report, is_same=before == report.file.sha256)
                if report.file.failures_path is not None:
                    self._log.add_file(report.file.failures_path)
                yield in_global_window(_counted(report))
        finally:
            self.teardown()
            self._log.finish()
        if self._reused:
            progress.add_note(f"reusing {self._reused} finished shard{'' if self._reused == 1 else 's'}")

    def teardown(self) -> None:
        """Lets the processes go."""
        if self._executor is not None:
            self._executor.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self._executor = self._writer = self._scratch = None

    def _begun(self, state: ShardState, plan: DatasetPlan, references: Sequence[bytes]) -> ShardReport | None:
        """The report of a shard, or of one before it that had to wait, where nothing has to be written."""
        before = None
        if plan.previous is not None:
            before = whole_shard(plan.previous, plan.splits[state.split].num_shards, state)
        if before is None or not before.header.stats.failed or before.header.stats.unknown:
            return self._report(state, before, plan, references)
        # The records that it lacks are retried: if they fail again, it is the same.
        if self._writer is None:
            self._start(plan)
        assert self._executor is not None
        lacking = before.lacking(references)
        task = EncodeTask([reference for reference, _ in lacking], sizes_only=True)
        records = [record for _, record in lacking]
        self._retries.append(_Retry(state, before, references, records, self._executor.submit(task)))
        return self._tried_again() if len(self._retries) > _RETRIES_AHEAD else None

    def _tried_again(self) -> ShardReport | None:
        """The report of the shard that has waited longest, where it is the same."""
        assert self._plan is not None
        state, before, references, records, batch = self._retries.popleft()
        result = batch.result()
        before = before.tried_again(result.stats, result.failures)
        progress.add_done(-len(records), -sum(record.size for record in records))  # counted with the shard
        return self._report(state, before, self._plan, references)

    def _report(
        self,
        state: ShardState,
        before: WholeShard | None,
        plan: DatasetPlan,
        references: Sequence[bytes],
    ) -> ShardReport | None:
        """The report of a shard that need not be written; None of one that is handed to be."""
        report = self._finished(state, before, references)
        if report is not None:
            progress.add_done(len(references), report.file.stats.source_bytes)
            return report
        writer = self._writer or self._start(plan)
        writer.submit(state, references, self._take_over(plan, state.split, state.shard))
        return None

    def _finished(
        self, state: ShardState, before: WholeShard | None, references: Sequence[bytes]
    ) -> ShardReport | None:
        """The report of a shard that an earlier run has written, or the previous version."""
        if before is not None and before.is_same:
            with naming_faults(state.path):
                return before.report(state)
        with naming_faults(state.path):
            report = state.reusable(references, self._sizes)
            if report is None:
                state.discard(self._sizes)
        if before is not None:
            self._before[state.split, state.shard] = before.header.sha256
        if report is not None:
            self._reused += 1
            is_same = before is not None and before.header.sha256 == report.file.sha256
            report = msgspec.structs.replace(report, is_same=is_same)
        return report

    def _take_over(self, plan: DatasetPlan, split: str, shard: int) -> TakeOver | None:
        """The previous version's records of a shard; None where there are no versions."""
        if not self._run.version:
            return None
        previous, by_key = plan.previous, self._config.order == "key"
        labels = plan.settings.features.labels
        if previous is None:
            return TakeOver((), by_key, MaskMap.of(labels, None).name)
        made = plan.splits[split]
        before = previous.overlapping(split, shard, made.num_shards, made.edges)
        return TakeOver(tuple(before), by_key, MaskMap.of(labels, previous.masks).name)

    def _start(self, plan: DatasetPlan) -> ShardWriter:
        workers = writer_processes(plan, self._config.workers)
        folder = self._working_folder()
        self._executor = encoder_pool(plan.settings, progress.add_done, workers)
        self._writer = ShardWriter(self._executor, folder, len(plan.shards()), workers)
        return self._writer

    def _working_folder(self) -> str:
        """Where shards are made: those of a bucket on this machine, until they are finished."""
        if is_remote(self._folder):
            with naming_faults(tempfile.gettempdir()):
                self._scratch = tempfile.mkdtemp(dir=scratch_folder())
            return self._scratch
        with naming_faults(self._folder), contextlib.suppress(FileExistsError):
            os.mkdir(self._folder)
        return self._folder


def _counted(report: ShardReport) -> ShardReport:
    """`report`, counted in Beam's metrics."""
    made = "reused" if report.reused else "written"
    count(f"shards/{'taken_over' if report.taken_whole else made}")
    if report.file.stats.taken_over:
        count("taken_over", report.file.stats.taken_over)
    count_written(report.file.stats, report.file.size)
    return report
