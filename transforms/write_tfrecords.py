"""WriteTFRecords: encodes Examples, and writes them with Beam's WriteToTFRecord, one for each split.

The shards are then read back for their reports.
"""

from __future__ import annotations

import dataclasses
import math
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io import filebasedsink, iobase
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.window import GlobalWindow, TimestampedValue

from recordmill.transforms.beam_credentials import spare_search
from recordmill.transforms.config import MIB, DatasetConfig
from recordmill.transforms.duplicates import FindDuplicates, images_of_batch
from recordmill.transforms.examples.framing import FRAME_BYTES
from recordmill.transforms.metrics import count, count_written
from recordmill.transforms.publish import Written
from recordmill.transforms.records import Failure, JobError
from recordmill.transforms.shards import progress
from recordmill.transforms.shards.dataset_plan import DatasetPlan, beam_splits, worker_processes
from recordmill.transforms.shards.memory import shuffle_warning
from recordmill.transforms.shards.read_back import read_back, shard_of_name
from recordmill.transforms.shards.record_encoder import RecordEncoder
from recordmill.transforms.shards.references import encode, items, reference_record, reference_shard
from recordmill.transforms.shards.report import ShardReport, WriteStats
from recordmill.transforms.shards.tasks import EncodedBatch, EncodeTask, encoder_pool
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.faults import fault, naming_faults
from recordmill.transforms.storage.layout import Run
from recordmill.transforms.survey import Grouping, GroupReferences, Surveyed, check_unique
from recordmill.transforms.task_fn import TaskFn, in_window
from recordmill.transforms.workers.pool import ProcessExecutor

_FAILURES, _IMAGES = "failures", "images"
_GROUP_RECORDS = 64  # on average
_TASK_BYTES = 16 * MIB


def group_of_reference(reference: bytes, records: int) -> int:
    """The group of a reference, by its hash, in a split of `records` records.

    Records that are listed next to each other are mostly alike; those of a group are not.
    """
    return reference_shard(reference, math.ceil(records / _GROUP_RECORDS))


def source_bytes_of_task(plan: DatasetPlan) -> int:
    """The most source bytes of a task: small enough that neither images nor records take much memory."""
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


@dataclasses.dataclass(eq=False, repr=False)
class WriteTFRecords(beam.PTransform):
    """Surveyed -> Written: complete, unpublished shards, in the runner's order.

    Images are loaded where they are encoded. The shards of `run` get a folder of their own, because
    WriteToTFRecord deletes files of the same names.
    """

    config: DatasetConfig
    plan: beam.PCollection[DatasetPlan]
    run: Run

    def expand(self, surveyed: Surveyed) -> Written:
        """References -> GroupByKey -> encoded records by split -> files -> their reports."""
        grouped = surveyed | "GroupReferences" >> GroupReferences(
            self.plan, grouping_by_hash, tuple[tuple[str, int], bytes]
        )
        tags = {split: _tag(split) for split in beam_splits(self.config)}
        types = {_FAILURES: Failure, _IMAGES: tuple[str, bytes], **dict.fromkeys(tags.values(), bytes)}
        encoded = grouped.groups | "Encode" >> beam.ParDo(
            EncodeExamplesFn(self.config, self.run),
            beam.pvalue.AsSingleton(self.plan),
            beam.pvalue.AsList(grouped.repeated),
        ).with_output_types(tuple[str, WriteStats], **types).with_outputs(*types, main="stats")
        paths = [
            encoded[tag]
            | f"Write {split}"
            >> WriteToTFRecord(os.path.join(self.run.records, split, split), _num_shards(split, self.config))
            for split, tag in tags.items()
        ] | "FlattenPaths" >> beam.Flatten()
        if not self.config.workers:
            # On one machine it is one process that reads; elsewhere many workers share the files.
            paths = paths | "Spread" >> beam.Reshuffle()
        reports = paths | "ReadBack" >> beam.ParDo(
            read_back_planned, beam.pvalue.AsSingleton(self.plan)
        ).with_output_types(ShardReport)
        duplicates = encoded[_IMAGES] | "FindDuplicates" >> FindDuplicates(images_of_batch)
        return Written(reports, duplicates, encoded["stats"], encoded[_FAILURES])


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


def grouping_by_hash(plan: DatasetPlan) -> Grouping:
    """Groups references of a split by their hashes: (split, number)."""
    records = {split: planned.records for split, planned in plan.splits.items()}
    return Grouping(
        lambda split, reference: (split, group_of_reference(reference, records[split])),
        {split: (split, 0) for split, number in records.items() if number <= _GROUP_RECORDS},
    )


class EncodeExamplesFn(TaskFn[str, EncodedBatch]):
    """((split, group), batches of references) -> payloads to the tag of the split, `Failure` to `failures`,
    (split, hashed images) to `images`.

    The main output is (split, WriteStats), when the bundle ends. Groups are passed to worker processes as
    they come; their results are yielded as soon as they are ready, so that few are held.
    """

    def __init__(self, config: DatasetConfig, run: Run) -> None:
        super().__init__(config.workers, progress.add_done)
        self._config = config
        self._run = run

    def start_bundle(self) -> None:
        super().start_bundle()
        self._stats: dict[str, WriteStats] = {}
        self._plan: DatasetPlan | None = None  # it may differ from the previous bundle's
        self._task_bytes = 0

    def process(
        self,
        element: tuple[tuple[str, int], Iterable[bytes]],
        plan: DatasetPlan,
        repeated: Sequence[tuple[str, str]],
    ) -> Iterator[beam.pvalue.TaggedOutput]:
        check_unique(repeated)
        if self._plan is None:
            self._plan, self._task_bytes = plan, source_bytes_of_task(plan)
        (split, _), batches = element
        for task in encode_tasks(items(batches), self._task_bytes):
            yield from self.submit(split, task)

    def finish_bundle(self) -> Iterator[Any]:
        yield from super().finish_bundle()
        yield from map(in_window, self._stats.items())

    def start_pool(self) -> ProcessExecutor[RecordEncoder]:
        """Processes that encode records of the plan."""
        assert self._plan is not None
        lock.keep(self._run.locked, self._run.token)
        warning = shuffle_warning(self._config, self._plan)
        if warning is not None:
            progress.add_note(warning)
        workers = worker_processes(self._plan, self._config.workers)
        return encoder_pool(self._plan.settings, progress.add_done, workers)

    def results(self, split: str, batch: EncodedBatch) -> Iterator[beam.pvalue.TaggedOutput]:
        """The payloads of a batch, and its failures."""
        self._stats.setdefault(split, WriteStats()).merge(batch.stats)
        count_written(batch.stats, batch.payload_bytes + batch.stats.written * FRAME_BYTES)
        for payload in batch.payloads:
            yield beam.pvalue.TaggedOutput(_tag(split), payload)
        if batch.hashed:
            yield beam.pvalue.TaggedOutput(_IMAGES, (split, encode(batch.hashed)))
        for failure in batch.failures:
            self.log.add(failure)
            yield beam.pvalue.TaggedOutput(_FAILURES, failure)


def _tag(split: str) -> str:
    """The tag of a split's payloads; no split's name makes it one of the other tags."""
    return f"payloads-{split}"


class WriteToTFRecord(beam.io.WriteToTFRecord):
    """PCollection[bytes] -> PCollection[str]: the paths of the shards.

    It creates nothing before the first record, and its errors name the file. It deletes all files with the
    names of its shards: give it a folder of its own.

    Args:
        prefix: of the paths.
        num_shards: 0 for a file of each bundle.
    """

    def __init__(self, prefix: str, num_shards: int) -> None:
        super().__init__(
            prefix,
            file_name_suffix=".tfrecord",
            num_shards=num_shards,
            compression_type=CompressionTypes.UNCOMPRESSED,
        )
        self._prefix = prefix

    def expand(self, payloads: beam.PCollection[bytes]) -> beam.PCollection[str]:
        # Beam dates its results after the end of the global window, where Prism has no side inputs.
        return (
            payloads
            | iobase.Write(NamingSink(self._sink, self._prefix))
            | "DateInWindow"
            >> beam.Map(
                lambda path: TimestampedValue(path, GlobalWindow().max_timestamp())
            ).with_output_types(str)
        )


class NamingSink(iobase.Sink):
    """A sink of Beam that creates nothing before the first record, and whose OSErrors are JobErrors."""

    def __init__(self, sink: filebasedsink.FileBasedSink, prefix: str) -> None:
        self._sink = sink
        self._prefix = prefix
        self.num_shards = sink.num_shards
        self.convert_fn = sink.convert_fn

    def display_data(self) -> dict[str, Any]:
        shown: dict[str, Any] = self._sink.display_data()
        return shown

    def initialize_write(self) -> str:
        """Names a folder of unfinished files.

        This step waits for nothing, not even for the job to hold its output: the first file makes the folder.
        """
        folder, _ = FileSystems.split(self._prefix)
        return str(FileSystems.join(folder, f"beam-temp-{uuid.uuid4().hex}"))

    def open_writer(self, init_result: str, uid: str) -> NamingWriter:
        spare_search(self._prefix)
        with naming_faults(init_result):
            return NamingWriter(self._sink.open_writer(init_result, uid))

    def pre_finalize(self, init_result: str, writer_results: Iterable[str]) -> None:
        """Deletes files that have the shards' names."""
        spare_search(self._prefix)
        with naming_faults(self._prefix):
            self._sink.pre_finalize(init_result, writer_results)

    def finalize_write(
        self, init_result: str, writer_results: Iterable[str], pre_finalize_result: None
    ) -> Iterator[str]:
        """Gives the finished files their names."""
        spare_search(self._prefix)
        try:
            with naming_faults(self._prefix):
                yield from self._sink.finalize_write(init_result, writer_results, pre_finalize_result)
        except JobError:
            raise
        except Exception as error:  # a plain Exception is what Beam makes of files that it cannot rename
            raise JobError(f"{self._prefix}: the finished shards cannot be renamed: {error}") from error


class NamingWriter(iobase.Writer):
    """A writer of Beam, whose OSErrors become JobErrors."""

    def __init__(self, writer: filebasedsink.FileBasedSinkWriter) -> None:
        self._writer = writer

    def write(self, value: bytes) -> None:
        """Writes one record."""
        try:
            self._writer.write(value)
        except OSError as error:
            raise fault(error, self._writer.temp_shard_path) from error

    def at_capacity(self) -> bool:
        return False

    def close(self) -> str:
        """Finishes the file; returns its path."""
        with naming_faults(self._writer.temp_shard_path):
            return str(self._writer.close())
