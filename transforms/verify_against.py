"""CompareWithSource: the records of a dataset and those that its source lists now, joined by key."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.metrics import count
from recordmill.transforms.read import ReadSource
from recordmill.transforms.reading.against import DIFFERS, CompareTask, class_differences, failed_keys
from recordmill.transforms.reading.verify_dataset import Expected
from recordmill.transforms.reading.verify_report import Fault, Tally
from recordmill.transforms.reading.verify_tasks import StoredPlace
from recordmill.transforms.shards.dataset_plan import record_settings
from recordmill.transforms.shards.record_encoder import RecordSettings
from recordmill.transforms.shards.references import items, reference_record
from recordmill.transforms.shards.totals import Totals, merged_totals
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.storage.layout import FAILURES, MANIFEST
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.survey import SurveyRecords
from recordmill.transforms.task_fn import TaskFn, in_window

NOT_IN_SOURCE = "record missing from the source"
NOT_STORED = "input that is neither in the dataset nor in failures.jsonl"
_UNMATCHED = "unmatched"
_STORED, _SOURCE, _FAILED = "stored", "source", "failed"
# Records of a task.
_AT_ONCE = 32

Pair = tuple[bytes, bytes]
"""A packed StoredPlace, and the reference of the same record in the source."""


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


class CompareWithSource(beam.PTransform):
    """(PCollection of keys and packed locations, PCollection[Expected]) -> PCollections of Tally.

    Args:
        path: of the dataset.
        against: its source.
        workers: processes of this machine.
    """

    def __init__(self, path: str, against: SourceAgain, workers: int) -> None:
        super().__init__()
        self._path = absolute(path)
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
            | "StartFailures" >> beam.Impulse()
            | "ReadFailures" >> beam.FlatMap(failed_pairs, self._path).with_output_types(tuple[str, bytes])
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


def failed_pairs(_: bytes, folder: str) -> Iterator[tuple[str, bytes]]:
    """The keys that failures.jsonl names."""
    for key in failed_keys(folder):
        yield key, b""


def compare_classes(expected: Expected, settings: RecordSettings) -> Tally:
    """Faults where the classes of the manifest differ from those of the source."""
    tally = Tally()
    tally.add(*(Fault(DIFFERS, MANIFEST, what=one) for one in class_differences(expected.labels, settings)))
    return tally


def count_faults(tally: Tally) -> None:
    """For the runner's console."""
    for kind, times in tally.faults.items():
        count(f"faults/{kind}", times)


class PairFn(beam.DoFn):
    """Key and the records that have it -> Pair; to `unmatched` a Tally."""

    def process(self, joined: tuple[str, Mapping[str, Iterable[bytes]]]) -> Iterator[Any]:
        """One key."""
        key, found = joined
        references = list(found[_SOURCE])
        locations = sorted(found[_STORED])
        tally = Tally()
        if not references:
            for place in map(StoredPlace.unpack, locations):
                tally.add(Fault(NOT_IN_SOURCE, place.name, place.record, place.offset, key))
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
        if len(self._held) >= _AT_ONCE:
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
        if not held or self._settings is None:
            return
        task = CompareTask(
            [reference for _, reference in held],
            places=[StoredPlace.unpack(location) for location, _ in held],
            settings=self._settings,
            config=self._config,
        )
        yield from self.submit(None, task)
