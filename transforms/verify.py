"""VerifyShards: reads all of a dataset, or any TFRecords, and writes a report of their faults.

with beam.Pipeline() as p:
    p | VerifyShards("out/", "report.json", workers=2)
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from recordmill.transforms.metrics import count
from recordmill.transforms.reading.dataset import ShardEntry, followed
from recordmill.transforms.reading.verify_dataset import Expected, open_dataset
from recordmill.transforms.reading.verify_report import Tally, merged, report_of, write_report
from recordmill.transforms.reading.verify_shard import RecordRange
from recordmill.transforms.reading.verify_tasks import (
    ENTRY_BYTES,
    CheckTask,
    ScanTask,
    Verified,
    bucketed,
    repeated,
)
from recordmill.transforms.records import JobError
from recordmill.transforms.shards import progress
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.owner import remove_marked_folder
from recordmill.transforms.task_fn import TaskFn, in_window
from recordmill.transforms.verify_against import CompareWithSource, SourceAgain, count_faults

_SHARDS, _NAMES, _TALLIES, _KEYS, _LOCATIONS = "shards", "names", "tallies", "keys", "locations"
_KEYS_HELD = 1 << 20

Shard = tuple[int, str, ShardEntry]
"""Index of the shard, its name in the folder, and its location."""


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
            ).with_outputs(_KEYS, _LOCATIONS, main="tallies")
        )
        again = (
            checked[_KEYS]
            | "TypeKeys" >> beam.Map(_same).with_output_types(tuple[int, bytes])
            | "GroupKeys" >> beam.GroupByKey()
            | "FindRepeated" >> beam.Map(repeated, beam.pvalue.AsSingleton(opened[_NAMES]))
        )
        tallies = [opened[_TALLIES], scanned[_TALLIES], checked["tallies"], again]
        scratch = None
        if self._against is not None:
            scratch = self._against.scratch
            locations = checked[_LOCATIONS] | "TypeLocations" >> beam.Map(_same).with_output_types(
                tuple[str, bytes]
            )
            compare = CompareWithSource(self._path, self._against, self._workers)
            tallies += (locations, opened["expected"]) | "CompareWithSource" >> compare
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
        has_places: whether there are locations.
    """

    def __init__(self, workers: int, has_places: bool) -> None:
        super().__init__(workers, progress.add_done)
        self._has_places = has_places

    def start_bundle(self) -> None:
        """No task submitted, no key seen."""
        super().start_bundle()
        self._keys = bytearray()

    def process(self, records: RecordRange, expected: Expected) -> Iterator[Any]:
        """Some records."""
        yield from self.submit(None, CheckTask(records, expected, self._has_places))

    def finish_bundle(self) -> Iterator[Any]:
        """Waits for the tasks that are running."""
        yield from super().finish_bundle()
        yield from map(in_window, self._parted())

    def results(self, _: None, found: Verified) -> Iterator[Any]:
        """What was found in them."""
        count("verified", len(found.keys) // ENTRY_BYTES)
        count_faults(found.tally)
        yield found.tally
        for pair in found.places:
            yield beam.pvalue.TaggedOutput(_LOCATIONS, pair)
        self._keys += found.keys
        if len(self._keys) >= _KEYS_HELD:
            yield from self._parted()

    def _parted(self) -> Iterator[Any]:
        entries, self._keys = bytes(self._keys), bytearray()
        for pair in bucketed(entries):
            yield beam.pvalue.TaggedOutput(_KEYS, pair)


def write_tally(tally: Tally, path: str, report: str, started: str, scratch: str | None) -> str:
    """Writes the report, removes the scratch folder; returns the path of the report."""
    if scratch is not None:
        with naming_faults(scratch):
            remove_marked_folder(scratch)
    write_report(report, report_of(tally, path, started, _now()))
    return report


def _same(pair: tuple[Any, bytes]) -> tuple[Any, bytes]:
    """Tagged outputs have no types of their own, which groups need."""
    return pair


def _now() -> str:
    """UTC, ISO 8601."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
