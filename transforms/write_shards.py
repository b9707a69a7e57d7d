"""WriteShards: references to complete, unpublished shards; images are loaded where their shard is written."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import msgspec

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.metrics import count, count_written
from recordmill.transforms.shards import progress
from recordmill.transforms.shards.dataset_plan import DatasetPlan, shard_index, worker_processes
from recordmill.transforms.shards.record_encoder import RecordEncoder
from recordmill.transforms.shards.references import items, reference_record
from recordmill.transforms.shards.report import Checkpoint, ShardFile, ShardReport, shard_digest
from recordmill.transforms.shards.reuse import PreviousRecords, ReusableShard, reusable_shard
from recordmill.transforms.shards.tasks import EncodedBatch, EncodeTask, PartTask, encoder_pool, part_count
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.layout import Run
from recordmill.transforms.storage.scratch import scratch_folder
from recordmill.transforms.survey import Grouping, GroupReferences, Surveyed, check_unique
from recordmill.transforms.task_fn import TaskFn
from recordmill.transforms.workers.pool import ProcessExecutor


@dataclasses.dataclass(eq=False, repr=False)
class WriteShards(beam.PTransform):
    """Surveyed -> PCollection[ShardReport]: complete, unpublished shards; none without records."""

    config: DatasetConfig
    plan: beam.PCollection[DatasetPlan]
    run: Run

    def expand(self, surveyed: Surveyed) -> beam.PCollection[ShardReport]:
        """(shard, references) -> GroupByKey -> one file a shard."""
        grouped = surveyed | "GroupByShard" >> GroupReferences(
            self.plan, grouping_by_shard, tuple[int, bytes]
        )
        return grouped.groups | "Write" >> beam.ParDo(
            WriteShardsFn(self.config, self.run),
            beam.pvalue.AsSingleton(self.plan),
            beam.pvalue.AsList(grouped.repeated),
        ).with_output_types(ShardReport)


def grouping_by_shard(plan: DatasetPlan) -> Grouping:
    """Groups references by the index of their shard in `DatasetPlan.shards`."""
    first = plan.first_shards()
    only = {split: first[split] for split, planned in plan.splits.items() if planned.num_shards == 1}
    return Grouping(lambda split, reference: first[split] + shard_index(reference, plan.splits[split]), only)


def ordered(batches: Iterable[bytes], by_key: bool) -> list[bytes]:
    """The references of a shard in their final order."""
    references = sorted(items(batches))
    if by_key:
        references.sort(key=lambda reference: reference_record(reference).key)
    return references


@dataclasses.dataclass(frozen=True)
class _Shard:
    """A shard to be written: its references in their final order.

    `previous` is the shard of the previous version that was made from the same references, if there is one.
    """

    checkpoint: Checkpoint
    previous: ReusableShard | None
    references: Sequence[bytes]


class WriteShardsFn(TaskFn[_Shard, EncodedBatch | ShardFile]):
    """(shard, batches of references) -> ShardReport.

    A shard is reused if an earlier run or the previous version has made it from the same references and
    settings. All other shards are written by worker processes.
    """

    def __init__(self, config: DatasetConfig, run: Run) -> None:
        super().__init__(config.workers, progress.add_done)
        self._config = config
        self._run = run
        self._folder = run.shards
        self._scratch: str | None = None

    def start_bundle(self) -> None:
        super().start_bundle()
        self._settings_digest = ""
        self._sizes: Mapping[str, int] = {}
        self._shards: list[tuple[str, int]] = []
        self._reused = self._submitted = 0
        self._plan: DatasetPlan | None = None  # it may differ from the previous bundle's

    def process(
        self,
        element: tuple[int, Iterable[bytes]],
        plan: DatasetPlan,
        repeated: Sequence[tuple[str, str]],
    ) -> Iterator[ShardReport]:
        check_unique(repeated)
        if self._plan is None:
            self._settings_digest = plan.settings.digest()
            self._plan, self._shards = plan, plan.shards()
            lock.keep(self._run.locked, self._run.token)
            with naming_faults(self._folder):
                self._sizes = file_system(self._folder).sizes(self._folder)
        number, batches = element
        split, shard = self._shards[number]
        references = ordered(batches, self._config.order == "key")
        digest = shard_digest(self._settings_digest, references)
        checkpoint = Checkpoint(self._folder, split, shard, digest)
        previous = None
        if plan.previous is not None:
            previous = reusable_shard(plan.previous, plan.splits[split].num_shards, checkpoint)
        planned = _Shard(checkpoint, previous, references)
        if previous is None or not previous.header.stats.failed or previous.header.stats.unversioned:
            yield from self._reused_or_written(planned)
        else:
            # The shard is unchanged if the records that failed fail again.
            lacking = [reference for reference, _ in previous.lacking(references)]
            yield from self.submit(planned, EncodeTask(lacking, sizes_only=True))

    def finish_bundle(self) -> Iterator[Any]:
        yield from super().finish_bundle()
        if self._reused:
            progress.add_note(f"reusing {self._reused} finished shard{'' if self._reused == 1 else 's'}")

    def teardown(self) -> None:
        """Stops the worker processes; removes the scratch folder."""
        super().teardown()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch = None

    def start_pool(self) -> ProcessExecutor[RecordEncoder]:
        """Processes that encode records of the plan."""
        assert self._plan is not None
        workers = worker_processes(self._plan, self._config.workers)
        return encoder_pool(self._plan.settings, progress.add_done, workers)

    def results(self, shard: _Shard, result: EncodedBatch | ShardFile) -> Iterator[ShardReport]:
        """The report of a written shard; or of one whose failed records have been retried."""
        if isinstance(result, EncodedBatch):
            assert shard.previous is not None
            for _, record in shard.previous.lacking(shard.references):
                progress.add_done(-1, -record.size)  # counted with the shard
            previous = shard.previous.retried(result.stats, result.failures)
            yield from self._reused_or_written(dataclasses.replace(shard, previous=previous))
            return
        if result.failures_path is not None:
            self.log.add_file(result.failures_path)
        yield _counted(_report(shard, ShardReport(shard.checkpoint.split, shard.checkpoint.shard, result)))

    def _reused_or_written(self, shard: _Shard) -> Iterator[ShardReport]:
        """The report of a shard that is reused; any other is submitted."""
        report = self._reusable(shard)
        if report is None:
            yield from self._write(shard)
        else:
            progress.add_done(len(shard.references), report.file.stats.source_bytes)
            yield _counted(report)

    def _reusable(self, shard: _Shard) -> ShardReport | None:
        """The report of a shard of the previous version, or of an earlier run; None if it must be written."""
        with naming_faults(shard.checkpoint.path):
            if shard.previous is not None and shard.previous.is_unchanged:
                return shard.previous.report(shard.checkpoint)
            report = shard.checkpoint.reusable(shard.references, self._sizes)
            if report is None:
                shard.checkpoint.discard(self._sizes)
                return None
        self._reused += 1
        return _report(shard, report)

    def _write(self, shard: _Shard) -> Iterator[ShardReport]:
        """Submits a shard, under a name that no other attempt uses."""
        assert self._plan is not None
        checkpoint, references = shard.checkpoint, shard.references
        workers = worker_processes(self._plan, self._config.workers)
        parts = part_count(len(references), self._submitted, len(self._shards), workers)
        name = f"{checkpoint.split}-{checkpoint.shard:05d}-{uuid.uuid4().hex[:12]}"
        path = os.path.join(self._working_folder(), name)
        self._submitted += 1
        previous = self._previous_records(self._plan, checkpoint)
        has_images = self._plan.summary.has_images
        yield from self.submit(shard, PartTask(references, path, checkpoint, previous, has_images), parts)

    def _previous_records(self, plan: DatasetPlan, checkpoint: Checkpoint) -> PreviousRecords | None:
        """The previous version's records of a shard; None if the dataset has no versions."""
        if not self._run.version:
            return None
        split, shards = plan.splits[checkpoint.split], []
        if plan.previous is not None:
            shards = plan.previous.overlapping(
                checkpoint.split, checkpoint.shard, split.num_shards, split.edges
            )
        return PreviousRecords(tuple(shards), self._config.order == "key", plan.masks().name)

    def _working_folder(self) -> str:
        """The folder of this machine in which shards are written until they are finished."""
        folder = file_system(self._folder).working_folder(self._folder)
        if folder is None:
            if self._scratch is None:
                with naming_faults(tempfile.gettempdir()):
                    self._scratch = tempfile.mkdtemp(dir=scratch_folder())
            return self._scratch
        if not self._submitted:
            with naming_faults(folder), contextlib.suppress(FileExistsError):
                os.mkdir(folder)
        return folder


def _report(shard: _Shard, report: ShardReport) -> ShardReport:
    """The report, with whether the shard is identical to the previous version's."""
    is_same = shard.previous is not None and shard.previous.header.sha256 == report.file.sha256
    return msgspec.structs.replace(report, is_unchanged=is_same)


def _counted(report: ShardReport) -> ShardReport:
    """`report`, counted in Beam's metrics."""
    made = "reused" if report.reused else "written"
    count(f"shards/{'taken_over' if report.from_previous else made}")
    if report.file.stats.reused:
        count("taken_over", report.file.stats.reused)
    count_written(report.file.stats, report.file.size)
    return report
