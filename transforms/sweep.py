"""MeasureSettings: from records to a folder with the costs and savings of each image setting.

with beam.Pipeline() as p:
    entries = p | ReadSource(SourceConfig(kind="folder", input="photos/"))
    entries | MeasureSettings("sweep/", SweepConfig(), DatasetConfig(), SweptSource("photos/", "folder"))
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.versions import codec_versions
from recordmill.transforms.metrics import count, count_left_out
from recordmill.transforms.records import Failure, JobError
from recordmill.transforms.shards import progress
from recordmill.transforms.shards.dataset_plan import record_settings
from recordmill.transforms.shards.record_encoder import RecordSettings
from recordmill.transforms.shards.references import items
from recordmill.transforms.shards.totals import Totals, merged_totals
from recordmill.transforms.storage.owner import utc_now
from recordmill.transforms.survey import SurveyRecords
from recordmill.transforms.sweeping import page, plot, tables
from recordmill.transforms.sweeping.measure import CropTask, MeasuredImage, MeasureTask, Worst
from recordmill.transforms.sweeping.output import SWEEP_JSON, prepare_output, write_sweep
from recordmill.transforms.sweeping.results import Crop, Sweep, without_idle_conversions
from recordmill.transforms.sweeping.settings import SweepConfig, notes, settings
from recordmill.transforms.sweeping.sums import SweepSum
from recordmill.transforms.task_fn import E, TaskFn
from recordmill.transforms.workers.pool import ITEM_SECONDS
from recordmill.transforms.workers.task import SLOW_FACTOR, Progress, R, no_progress

_FAILURES = "failures"


@dataclasses.dataclass(frozen=True)
class SweptSource:
    """The source of the measured images; the folder `scratch` in the output is removed at the end."""

    input: str
    kind: str
    scratch: str | None = None
    started: str = dataclasses.field(default_factory=utc_now)


@dataclasses.dataclass(eq=False, repr=False)
class MeasureSettings(beam.PTransform):
    """PCollection[ImageRecord | Failure] -> PCollection[str]: the path of sweep.json, once it is written.

    Args:
        dataset: how records are built, the number of processes, and whether an existing sweep is replaced;
            its policy is not used.
    """

    output: str
    config: SweepConfig
    dataset: DatasetConfig
    source: SweptSource

    def expand(self, entries: beam.PCollection[Any]) -> beam.PCollection[str]:
        config, workers = self.config, self.dataset.workers
        surveyed = entries | "SurveyRecords" >> SurveyRecords(self.dataset)
        records = (
            entries.pipeline
            | "Start" >> beam.Impulse()
            | "PrepareRecords"
            >> beam.Map(
                prepare_records,
                self.dataset,
                self.output,
                totals=beam.pvalue.AsIter(surveyed.totals),
                failures=beam.pvalue.AsIter(surveyed.failures),
            ).with_output_types(RecordSettings)
        )
        side = beam.pvalue.AsSingleton(records)
        measured = (
            surveyed.references
            | "TakeReferences" >> beam.FlatMapTuple(lambda _, batch: items([batch])).with_output_types(bytes)
            | "SpreadReferences" >> beam.Reshuffle()
            | "MeasureImages"
            >> beam.ParDo(MeasureFn(config, workers, progress.add_done), side)
            .with_output_types(MeasuredImage, **{_FAILURES: Failure})
            .with_outputs(_FAILURES, main="measured")
        )
        total = measured["measured"] | "AddUp" >> beam.CombineGlobally(AddUpFn(config.worst))
        crops = (
            total
            | "TakeWorst" >> beam.FlatMap(lambda total: total.worst).with_output_types(Worst)
            | "SpreadWorst" >> beam.Reshuffle()
            | "CutCrops" >> beam.ParDo(CropFn(config, workers)).with_output_types(tuple[Worst, list[Crop]])
        )
        failures = (
            (surveyed.failures, measured[_FAILURES])
            | "GatherFailures" >> beam.Flatten()
            | "DropSkipped" >> beam.Filter(lambda failure: not failure.skipped)
            | "NameReasons" >> beam.Map(reason_of).with_output_types(str)
            | "CountReasons" >> beam.combiners.Count.PerElement()
        )
        return total | "WriteSweep" >> beam.Map(
            write_files,
            beam.pvalue.AsList(crops),
            beam.pvalue.AsIter(failures),
            beam.pvalue.AsList(surveyed.repeated),
            self.output,
            config,
            self.source,
        ).with_output_types(str)


def reason_of(failure: Failure) -> str:
    return f"{failure.stage}: {failure.reason}"


def prepare_records(
    _: bytes, config: DatasetConfig, output: str, totals: Iterable[Totals], failures: Iterable[Failure]
) -> RecordSettings:
    """The settings by which `convert` would build records; makes the folder of the sweep.

    Raises:
        JobError: there is no image, labels or columns do not fit, or the folder cannot take a sweep.
    """
    prepare_output(output, config.overwrite)
    total = merged_totals(totals, config.untyped_features)
    if not total.with_image:
        reasons = Counter(reason_of(failure) for failure in failures if not failure.skipped)
        raise JobError(nothing_measured(reasons))
    progress.set_totals(total.records, total.source_bytes)
    return record_settings(total, config)


def nothing_measured(reasons: Counter[str]) -> str:
    message = f"there is no image to measure: {reasons.total()} inputs failed"
    if reasons:
        reason, times = reasons.most_common(1)[0]
        message += f"; most often, {times} times, {reason}"
    return message


class _SweepFn(TaskFn[E, R]):
    """One task for each image; its time limit grows with the number of settings."""

    def __init__(self, config: SweepConfig, workers: int, progress: Progress = no_progress) -> None:
        self._settings = settings(config)
        self._seen = config.seen
        super().__init__(workers, progress, ITEM_SECONDS * SLOW_FACTOR * len(self._settings))


class MeasureFn(_SweepFn[None, MeasuredImage | Failure]):
    """Reference -> MeasuredImage; `Failure` to `failures`."""

    def process(self, reference: bytes, records: RecordSettings) -> Iterator[Any]:
        yield from self.submit(None, MeasureTask(reference, self._settings, self._seen, records))

    def results(self, _: None, found: MeasuredImage | Failure) -> Iterator[Any]:
        if isinstance(found, Failure):
            self.log.add(found)
            count_left_out(found)
            yield beam.pvalue.TaggedOutput(_FAILURES, found)
        else:
            count("measured")
            yield found


class CropFn(_SweepFn[Worst, list[Crop]]):
    """Worst -> (Worst, its crops)."""

    def process(self, worst: Worst) -> Iterator[Any]:
        yield from self.submit(worst, CropTask(worst.reference, self._settings, self._seen, worst))

    def results(self, worst: Worst, crops: list[Crop]) -> Iterator[Any]:
        yield worst, crops


class AddUpFn(beam.CombineFn):
    """MeasuredImages to SweepSum."""

    def __init__(self, worst: int) -> None:
        self._worst = worst

    def create_accumulator(self) -> SweepSum:
        return SweepSum(self._worst)

    def add_input(self, total: SweepSum, image: MeasuredImage) -> SweepSum:
        total.add(image)
        return total

    def merge_accumulators(self, totals: Iterable[SweepSum]) -> SweepSum:
        merged = self.create_accumulator()
        for total in totals:
            merged.merge(total)
        return merged

    def extract_output(self, total: SweepSum) -> SweepSum:
        return total


def write_files(
    total: SweepSum,
    crops: Sequence[tuple[Worst, list[Crop]]],
    failures: Iterable[tuple[str, int]],
    repeated: Sequence[int],
    output: str,
    config: SweepConfig,
    source: SweptSource,
) -> str:
    """Writes all files of the sweep; returns the path of sweep.json. Raises JobError."""
    reasons = Counter(dict(failures))
    if not total.images:
        raise JobError(nothing_measured(reasons))
    ordered = sorted(crops, key=lambda pair: pair[0][:4])
    every = total.rows(settings(config))
    rows = without_idle_conversions(every)
    names = {row.setting.name for row in rows}
    sweep = Sweep(
        input=source.input,
        source_kind=source.kind,
        images=total.images,
        failures=dict(sorted(reasons.items())),
        started=source.started,
        rows=rows,
        crops=tuple(crop for _, found in ordered for crop in found if crop.setting in names),
        notes=notes(config, total.refused(), len(repeated), converts=len(rows) == len(every)),
        packages=codec_versions(),
    )
    pictures = plot.render(sweep)
    contents = {
        **pictures,
        "sweep.csv": tables.csv_text(sweep).encode(),
        "sweep.html": page.html_text(sweep, pictures["sweep.svg"].decode()).encode(),
        SWEEP_JSON: tables.json_text(sweep).encode(),
    }
    return write_sweep(output, contents, source.scratch)
