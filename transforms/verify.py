"""VerifyShards: reads all of a dataset, or any TFRecords, and writes a report of their faults.

with beam.Pipeline() as p:
    p | VerifyShards("out/", "report.json", workers=2)
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.identify import IdentifyImages
from recordmill.transforms.metrics import count
from recordmill.transforms.read import ReadSource
from recordmill.transforms.reading.against import DIFFERS, CompareTask, class_differences, failed_keys
from recordmill.transforms.reading.dataset import ShardEntry, followed
from recordmill.transforms.reading.verify_dataset import Expected, open_dataset
from recordmill.transforms.reading.verify_report import Fault, Tally, merged, report_of, write_report
from recordmill.transforms.reading.verify_shard import RecordRange
from recordmill.transforms.reading.verify_tasks import (
    ENTRY_BYTES,
    CheckTask,
    ScanTask,
    StoredLocation,
    Verified,
    bucketed,
    repeated,
)
from recordmill.transforms.records import JobError
from recordmill.transforms.shards import progress
from recordmill.transforms.shards.dataset_plan import record_settings
from recordmill.transforms.shards.record_encoder import RecordSettings
from recordmill.transforms.shards.references import items, reference_record
from recordmill.transforms.shards.totals import Totals, merged_totals
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.layout import FAILURES, MANIFEST
from recordmill.transforms.storage.owner import remove_marked_folder
from recordmill.transforms.survey import SurveyRecords
from recordmill.transforms.task_fn import TaskFn, in_window

_SHARDS, _NAMES, _TALLIES, _KEYS, _LOCATIONS = "shards", "names", "tallies", "keys", "locations"
_KEYS_HELD = 1 << 20
NOT_IN_SOURCE = "record missing from the source"
NOT_STORED = "input that is neither in the dataset nor in failures.jsonl"
_UNMATCHED = "unmatched"
_STORED, _SOURCE, _FAILED = "stored", "source", "failed"
_COMPARED_AT_ONCE = 32  # records of a task

Shard = tuple[int, str, ShardEntry]
"""Index of the shard, its name in the folder, and its location."""
Pair = tuple[bytes, bytes]
"""A packed StoredLocation, and the reference of the same record in the source."""


@dataclasses.dataclass(frozen=True)
class SourceAgain:
    """The source and settings of a dataset.

    Attributes:
        source: as it is listed now.
        config: of the dataset.
        scratch: folder for what has to be decompressed, removed at the end; None for one of this machine.
        parts: that it is listed in, as of `ReadSource`.
    """

    source: SourceConfig
    config: DatasetConfig
    scratch: str | None = None
    parts: int = 1


class VerifyShards(beam.PTransform):
    """PBegin -> PCollection[str]: the path of the report, once it is written.

    Args:
        path: what is verified, as `find_dataset` takes it; of versions the latest.
        report: path of the report, a JSON file.
        workers: processes of this machine; 0 where the runner's own workers are many.
        against: source that the records are compared with; None to verify only the dataset.
    """

    def __init__(self, path: str, report: str, workers: int = 0, against: SourceAgain | None = None) -> None:
        super().__init__()
        self._against = against
        self._path = followed(path)  # one version, whatever is published meanwhile
        self._report = report
        self._workers = workers

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[str]:
        """The dataset to its shards, to ranges of records, to counts and faults, to a report."""
        opened = (
            begin
            | "Start" >> beam.Impulse()
            | "OpenDataset"
            >> beam.ParDo(OpenFn(self._path)).with_outputs(_SHARDS, _NAMES, _TALLIES, main="expected")
        )
        scanned = (
            opened[_SHARDS]
            | "SpreadShards" >> beam.Reshuffle()
            | "ScanShards" >> beam.ParDo(ScanFn(self._workers)).with_outputs(_TALLIES, main="ranges")
        )
        checked = (
            scanned["ranges"]
            | "SpreadRanges" >> beam.Reshuffle()
            | "CheckRecords"
            >> beam.ParDo(
                CheckFn(self._workers, self._against is not None), beam.pvalue.AsSingleton(opened["expected"])
            )
            .with_output_types(Tally, **{_KEYS: tuple[int, bytes], _LOCATIONS: tuple[str, bytes]})
            .with_outputs(_KEYS, _LOCATIONS, main="tallies")
        )
        again = (
            checked[_KEYS]
            | "GroupKeys" >> beam.GroupByKey()
            | "FindRepeated" >> beam.Map(repeated, beam.pvalue.AsSingleton(opened[_NAMES]))
        )
        tallies = [opened[_TALLIES], scanned[_TALLIES], checked["tallies"], again]
        scratch = None
        if self._against is not None:
            scratch = self._against.scratch
            compare = CompareWithSource(self._path, self._against, self._workers)
            tallies += (checked[_LOCATIONS], opened["expected"]) | "CompareWithSource" >> compare
        return (
            tallies
            | "GatherTallies" >> beam.Flatten()
            | "AddUp" >> beam.CombineGlobally(merged)
            | "WriteReport"
            >> beam.Map(write_tally, self._path, self._report, _now(), scratch).with_output_types(str)
        )


class OpenFn(beam.DoFn):
    """An impulse -> Expected; to `shards` each Shard, to `names` all their names, to `tallies` a Tally.

    Args:
        path: of the dataset.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def process(self, _: bytes) -> Iterator[Any]:
        """The dataset.

        Raises:
            JobError: there is nothing to read.
        """
        with naming_faults(self._path):
            try:
                dataset, expected, tally = open_dataset(self._path)
            except ValueError as error:
                raise JobError(str(error)) from error
        names = [shard.path.removeprefix(f"{dataset.folder}/") for shard in dataset.shards]
        yield expected
        yield beam.pvalue.TaggedOutput(_TALLIES, tally)
        yield beam.pvalue.TaggedOutput(_NAMES, names)
        for index, (name, shard) in enumerate(zip(names, dataset.shards, strict=True)):
            yield beam.pvalue.TaggedOutput(_SHARDS, (index, name, shard))


class ScanFn(TaskFn[None, tuple[Tally, list[RecordRange]]]):
    """Shard -> RecordRanges; to `tallies` what was found."""

    def process(self, shard: Shard) -> Iterator[Any]:
        """One shard."""
        index, name, entry = shard
        yield from self.submit(None, ScanTask(entry, name, index))

    def results(self, _: None, found: tuple[Tally, list[RecordRange]]) -> Iterator[Any]:
        """Its records, and the faults of the file."""
        tally, ranges = found
        progress.add_total(sum(len(records.lengths) for records in ranges))
        count_faults(tally)
        yield from ranges
        yield beam.pvalue.TaggedOutput(_TALLIES, tally)


class CheckFn(TaskFn[None, Verified]):
    """RecordRange -> Tally; to `keys` hashes of keys, by bucket; to `locations` keys and their locations.

    Args:
        workers: processes at most.
        has_locations: whether there are locations.
    """

    def __init__(self, workers: int, has_locations: bool) -> None:
        super().__init__(workers, progress.add_done)
        self._has_locations = has_locations

    def start_bundle(self) -> None:
        """No task submitted, no key seen."""
        super().start_bundle()
        self._keys = bytearray()

    def process(self, records: RecordRange, expected: Expected) -> Iterator[Any]:
        """Some records."""
        yield from self.submit(None, CheckTask(records, expected, self._has_locations))

    def finish_bundle(self) -> Iterator[Any]:
        """Waits for the tasks that are running."""
        yield from super().finish_bundle()
        yield from map(in_window, self._parted())

    def results(self, _: None, found: Verified) -> Iterator[Any]:
        """What was found in them."""
        count("verified", len(found.keys) // ENTRY_BYTES)
        count_faults(found.tally)
        yield found.tally
        for pair in found.locations:
            yield beam.pvalue.TaggedOutput(_LOCATIONS, pair)
        self._keys += found.keys
        if len(self._keys) >= _KEYS_HELD:
            yield from self._parted()

    def _parted(self) -> Iterator[Any]:
        entries, self._keys = bytes(self._keys), bytearray()
        for pair in bucketed(entries):
            yield beam.pvalue.TaggedOutput(_KEYS, pair)


class CompareWithSource(beam.PTransform):
    """(PCollection of keys and packed locations, PCollection[Expected]) -> PCollections of Tally.

    Args:
        path: of the dataset.
        against: its source.
        workers: processes of this machine.
    """

    def __init__(self, path: str, against: SourceAgain, workers: int) -> None:
        super().__init__()
        self._path = path
        self._against = against
        self._workers = workers

    def expand(self, stored: tuple[Any, Any]) -> tuple[Any, ...]:
        """The source to references, joined with locations by key, to comparisons."""
        locations, expected = stored
        against = self._against
        config = against.config
        pipeline = locations.pipeline
        entries = pipeline | "ReadSource" >> ReadSource(
            against.source, against.scratch, against.parts, is_located=True
        )
        if config.identifies_images:
            here = dataclasses.replace(config, workers=self._workers, shuffles_in_memory=self._workers > 0)
            entries = (entries | "IdentifyImages" >> IdentifyImages(here)).entries
        surveyed = entries | "SurveyRecords" >> SurveyRecords(config)
        settings = (
            pipeline
            | "Start" >> beam.Impulse()
            | "PrepareRecords"
            >> beam.Map(
                prepare_records, config, totals=beam.pvalue.AsIter(surveyed.totals)
            ).with_output_types(RecordSettings)
        )
        listed = surveyed.references | "KeyReferences" >> beam.FlatMap(keyed).with_output_types(
            tuple[str, bytes]
        )
        failed = (
            pipeline
            | "StartFailures" >> beam.Create([self._path])
            | "ReadFailures" >> beam.FlatMap(failed_pairs).with_output_types(tuple[str, bytes])
        )
        joined = (
            {_STORED: locations, _SOURCE: listed, _FAILED: failed}
            | "JoinByKey" >> beam.CoGroupByKey()
            | "PairUp" >> beam.ParDo(PairFn()).with_outputs(_UNMATCHED, main="pairs")
        )
        compared = (
            joined["pairs"]
            | "SpreadPairs" >> beam.Reshuffle()
            | "CompareRecords"
            >> beam.ParDo(CompareFn(config, self._workers), beam.pvalue.AsSingleton(settings))
        )
        classes = expected | "CompareClasses" >> beam.Map(compare_classes, beam.pvalue.AsSingleton(settings))
        return compared, joined[_UNMATCHED], classes


def prepare_records(_: bytes, config: DatasetConfig, totals: Iterable[Totals]) -> RecordSettings:
    """The settings that records would be built by now."""
    return record_settings(merged_totals(totals, config.untyped_features), config)


def keyed(batch: tuple[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Key and reference of each record of a batch."""
    for reference in items([batch[1]]):
        yield reference_record(reference).key, reference


def failed_pairs(folder: str) -> Iterator[tuple[str, bytes]]:
    """The keys that failures.jsonl lists."""
    return ((key, b"") for key in failed_keys(folder))


def compare_classes(expected: Expected, settings: RecordSettings) -> Tally:
    """Faults where the classes of the manifest differ from those of the source."""
    tally = Tally()
    tally.add(*(Fault(DIFFERS, MANIFEST, what=one) for one in class_differences(expected.labels, settings)))
    return tally


class PairFn(beam.DoFn):
    """Key and the records that have it -> Pair; to `unmatched` a Tally."""

    def process(self, joined: tuple[str, Mapping[str, Iterable[bytes]]]) -> Iterator[Any]:
        """One key."""
        key, found = joined
        references = list(found[_SOURCE])
        locations = sorted(found[_STORED])
        tally = Tally()
        if not references:
            for one in map(StoredLocation.unpack, locations):
                tally.add(Fault(NOT_IN_SOURCE, one.name, one.record, one.offset, key))
        elif not locations and not any(True for _ in found[_FAILED]):
            tally.add(Fault(NOT_STORED, FAILURES, key=key, what="the source has it"))
        if tally.faults:
            yield beam.pvalue.TaggedOutput(_UNMATCHED, tally)
        elif references:
            for location in locations:
                yield location, references[0]


class CompareFn(TaskFn[None, Tally]):
    """Pair -> Tally.

    Args:
        config: of the dataset.
        workers: processes at most.
    """

    def __init__(self, config: DatasetConfig, workers: int) -> None:
        super().__init__(workers)
        self._config = config

    def start_bundle(self) -> None:
        """No task submitted, nothing held."""
        super().start_bundle()
        self._held: list[Pair] = []
        self._settings: RecordSettings | None = None

    def process(self, pair: Pair, settings: RecordSettings) -> Iterator[Any]:
        """One record; several are submitted as one task."""
        self._settings = settings
        self._held.append(pair)
        if len(self._held) >= _COMPARED_AT_ONCE:
            yield from self._submit_held()

    def finish_bundle(self) -> Iterator[Any]:
        """Submits the held records, and waits for all tasks."""
        early = list(self._submit_held())
        yield from map(in_window, early)
        yield from super().finish_bundle()

    def results(self, _: None, tally: Tally) -> Iterator[Any]:
        """The faults of some records."""
        count_faults(tally)
        yield tally

    def _submit_held(self) -> Iterator[Any]:
        held, self._held = self._held, []
        if held and self._settings is not None:
            references = [reference for _, reference in held]
            locations = [StoredLocation.unpack(location) for location, _ in held]
            yield from self.submit(None, CompareTask(references, locations, self._settings, self._config))


def count_faults(tally: Tally) -> None:
    """For the runner's console."""
    for kind, times in tally.faults.items():
        count(f"faults/{kind}", times)


def write_tally(tally: Tally, path: str, report: str, started: str, scratch: str | None) -> str:
    """Writes the report, removes the scratch folder; returns the path of the report."""
    if scratch is not None:
        with naming_faults(scratch):
            remove_marked_folder(scratch)
    write_report(report, report_of(tally, path, started, _now()))
    return report


def _now() -> str:
    """UTC, ISO 8601."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
