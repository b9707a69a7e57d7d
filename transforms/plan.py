"""PlanDataset: all decisions that need the complete list of records, before the first image is written."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import apache_beam as beam
from rich.filesize import decimal

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.identify import IdentifyImages
from recordmill.transforms.records import ClassNames, Failure, ImageRecord, JobError
from recordmill.transforms.repeated_hashes import RepeatedHashes
from recordmill.transforms.shards import progress
from recordmill.transforms.shards.dataset_plan import (
    DatasetPlan,
    plan_dataset,
    planned_statistics,
    slots_warning,
)
from recordmill.transforms.shards.identity import HashWork
from recordmill.transforms.shards.memory import shuffle_warning
from recordmill.transforms.shards.overview import class_overview, data_warnings
from recordmill.transforms.shards.previous import Recipe, find_previous, package_version, program_versions
from recordmill.transforms.shards.reconcile import most_often
from recordmill.transforms.shards.totals import Totals, merged_totals
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import write_file
from recordmill.transforms.storage.hash_cache import remove_other_hashes
from recordmill.transforms.storage.layout import Run, hashes_folder
from recordmill.transforms.storage.output import recheck_output, write_failures
from recordmill.transforms.storage.publication import published_dataset
from recordmill.transforms.storage.runs import failures_path, kept_bytes, mark_run, recover_runs
from recordmill.transforms.storage.versions import parse_version, published_versions, recover_versions
from recordmill.transforms.survey import Surveyed, SurveyRecords

_LOGGER = logging.getLogger(__name__)
# Free space that a disk must have, relative to the estimate.
_DISK_MARGIN = 1.05


@dataclasses.dataclass(eq=False, repr=False)
class PlanDataset(beam.PTransform):
    """Surveyed -> PCollection[DatasetPlan], one element.

    Attributes:
        run: whose folder is made; None to write nothing at all.
        recipe: of the dataset; None if it has no versions.
    """

    config: DatasetConfig
    output: str
    run: Run | None
    recipe: Recipe | None = None

    def expand(self, surveyed: Surveyed) -> beam.PCollection[DatasetPlan]:
        """All totals, and the plan that follows from them."""
        return (
            surveyed.totals.pipeline
            | "Start" >> beam.Impulse()
            | "Plan"
            >> beam.Map(
                make_plan,
                self.config,
                totals=beam.pvalue.AsIter(surveyed.totals),
                failures=beam.pvalue.AsIter(surveyed.failures),
                output=self.output,
                run=self.run,
                recipe=self.recipe,
            ).with_output_types(DatasetPlan)
        )


def make_plan(
    _: bytes,
    config: DatasetConfig,
    totals: Iterable[Totals],
    failures: Iterable[Failure],
    output: str,
    run: Run | None,
    recipe: Recipe | None = None,
) -> DatasetPlan:
    """The plan, with the run's folder made ready, and failures.jsonl with the failures of the listing.

    Raises:
        JobError: another job is at work there, no records, an empty split, not enough disk space, …
    """
    if config.dataset_version is None:  # a complete version is published first
        recheck_output(output, config.overwrite)
    if run is not None:
        with naming_faults(output):
            _begin(run, config)
    previous, before, not_reused = None, "", ""
    if recipe is not None:
        home = output if run is None else run.home
        with naming_faults(home):
            previous, before, not_reused = find_previous(home, recipe)
    try:
        total = merged_totals(totals, config.untyped_features)
        if not total.records:
            raise JobError(nothing_to_write(failures, failures_path(run) if run is not None else ""))
        plan = plan_dataset(total, config, run.sample if run is not None else None, previous)
    except JobError:
        if run is not None:
            with naming_faults(output):
                write_failures(run, failures)  # they may be why
        raise
    replaces = ""
    with naming_faults(output):
        if run is not None:
            if outdated := recover_runs(run):
                _warn(
                    "starting over: an earlier version of recordmill wrote the finished shards of an "
                    f"interrupted run ({outdated})"
                )
            write_failures(run, failures)
            # While the job has the lock: a dataset that is published later is another job's.
            if (replaced := published_dataset(run.output)) is not None:
                replaces = replaced.sha256
        _check_space(output, plan)
    if (warning := slots_warning(config, len(plan.shards()))) is not None:
        _warn(warning)
    if not_reused:
        _warn(f"nothing of {f'version {before}' if before else 'a previous version'} is reused: {not_reused}")
    progress.set_totals(plan.records, plan.source_bytes)
    return dataclasses.replace(plan, replaces=replaces, previous_version=before, not_reused=not_reused)


def _warn(text: str) -> None:
    progress.add_note(text)
    _LOGGER.warning(text)


def _begin(run: Run, config: DatasetConfig) -> None:
    """Locks the output for this job; leftovers of other jobs stay until there is a plan."""
    lock.acquire(run.locked, run.token, run.command)
    # The job that had it may just have published.
    if run.version:
        for version in recover_versions(run.home, run.version):
            progress.add_note(f"published version {version}, which an earlier job had finished")
        present = [one for one in published_versions(run.home) if one >= parse_version(run.version)]
        if present:
            raise JobError(
                f"--output is {run.home!r}, where version {present[-1]} is published by now, and this job "
                f"was to make {run.version}; --dataset_version=auto makes the next one"
            )
    recheck_output(run.output, config.overwrite, run.work)
    mark_run(run, package_version("recordmill"))
    if config.identifies_images and config.shuffles_in_memory:
        remove_other_hashes(run.hashes, run.token)


def nothing_to_write(failures: Iterable[Failure], path: str) -> str:
    """The message of a job without records: counts by reason, and an example of the most frequent reason."""
    failed: Counter[tuple[str, str]] = Counter()
    skipped: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], tuple[str, str]] = {}
    for failure in failures:
        reason = failure.stage, failure.reason
        (skipped if failure.skipped else failed)[reason] += 1
        example = failure.key, failure.detail
        first[reason] = min(example, first.get(reason, example))
    message = f"there is no record to write: {failed.total()} inputs failed, {skipped.total()} were skipped"
    if counts := failed or skipped:
        key, detail = first[min(counts, key=lambda reason: (-counts[reason], reason))]
        message += f"; {most_often(counts)}; such as {key!r}{f' ({detail})' if detail else ''}"
    return f"{message}; {path} names each" if path else message


def _check_space(output: str, plan: DatasetPlan) -> None:
    free = file_system(output).free_bytes(output)
    if free is None:
        return
    needed = plan.estimated_bytes - kept_bytes(output)
    if needed * _DISK_MARGIN > free:
        if plan.previous is not None:  # unchanged shards need no room
            progress.add_note(f"up to {decimal(needed)} will be written, and {decimal(free)} are free there")
            return
        raise JobError(
            f"--output is {output!r}: about {decimal(needed)} will be written, "
            f"and {decimal(free)} are free there; free space on that disk, or give another --output"
        )


@dataclasses.dataclass(eq=False, repr=False)
class WritePlan(beam.PTransform):
    """PCollection[ImageRecord | Failure | ClassNames] -> the plan in words, as JSON in the file `path`."""

    config: DatasetConfig
    output: str
    path: str
    source: Mapping[str, object]

    def expand(self, entries: beam.PCollection[ImageRecord | Failure | ClassNames]) -> beam.PCollection[None]:
        """The same steps as in WriteDataset, up to the plan."""
        config, recipe = self.config, None
        if config.dataset_version is not None:
            recipe = Recipe.of(config, program_versions(), self.source)
        scratch, works = f"{self.path}.scratch", []
        if config.identifies_images:
            hashes = hashes_folder(file_system(self.output).absolute(self.output))
            identify = IdentifyImages(config, scratch, hashes, reads=False)
            entries, work = entries | "IdentifyImages" >> identify
            works.append(beam.pvalue.AsList(work))
        surveyed = entries | "SurveyRecords" >> SurveyRecords(config, scratch)
        plan = surveyed | "PlanDataset" >> PlanDataset(config, self.output, run=None, recipe=recipe)
        return plan | "Write" >> beam.Map(
            write_plan,
            beam.pvalue.AsIter(surveyed.totals),
            beam.pvalue.AsIter(surveyed.failures),
            beam.pvalue.AsList(surveyed.repeated),
            config,
            self.path,
            *works,
        )


def write_plan(
    plan: DatasetPlan,
    totals: Iterable[Totals],
    failures: Iterable[Failure],
    repeated: Sequence[bytes],
    config: DatasetConfig,
    path: str,
    works: Sequence[HashWork] = (),
) -> None:
    """Writes what `convert --plan` prints."""
    statistics = planned_statistics(merged_totals(totals, config.untyped_features), plan.settings)
    names = plan.settings.features.labels.labels
    left_out = Counter((failure.skipped, failure.stage, failure.reason) for failure in failures)
    described = {
        "records": plan.records,
        "has_images": plan.summary.has_images,
        "source_bytes": plan.source_bytes,
        "estimated_bytes": plan.estimated_bytes,
        "schema": plan.settings.schema.name,
        "labels": len(names),
        "classes": class_overview(statistics, names),
        "warnings": [one.as_json() for one in data_warnings(statistics, names)],
        "columns": {
            name: [column.kind, list(column.shape)] for name, column in plan.settings.features.columns.items()
        },
        "splits": {
            name: {"records": split.records, "bytes": split.estimated_bytes, "shards": split.num_shards}
            for name, split in plan.splits.items()
        },
        "repeated_keys": len(RepeatedHashes(repeated)),
        "previous_version": plan.previous_version,
        "not_reused": plan.not_reused,
        "identify": sum(works, HashWork())._asdict(),
        "memory_warning": shuffle_warning(config, plan),
        "left_out": [[*key, count] for key, count in sorted(left_out.items())],
    }
    write_file(path, json.dumps(described))
