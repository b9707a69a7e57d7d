"""Publish: reconcile, check the failure ratio, move shards, write the report and metadata."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.metrics import count
from recordmill.transforms.records import BadInput, Failure, JobError
from recordmill.transforms.reporting.tasks import ChangeTask, PageTask
from recordmill.transforms.shards import progress
from recordmill.transforms.shards.dataset_plan import DatasetPlan, worker_processes
from recordmill.transforms.shards.duplicates import CountedLines, Duplicates, check_splits
from recordmill.transforms.shards.manifest import (
    Provenance,
    companions,
    lineage_digests,
    listing_names,
    manifest_json,
    manifest_text,
    metadata_names,
    of_same_job,
    shard_files,
)
from recordmill.transforms.shards.previous import SETTINGS, Recipe, settings_text
from recordmill.transforms.shards.reconcile import Reconciled, reconcile
from recordmill.transforms.shards.record_encoder import RecordSettings
from recordmill.transforms.shards.report import ShardReport, WriteStats
from recordmill.transforms.shards.statistics import MOST_REENCODED, Statistics
from recordmill.transforms.shards.tasks import write_empty
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import read_text, write_file
from recordmill.transforms.storage.layout import (
    DUPLICATES,
    FAILURES,
    MANIFEST,
    REPORT,
    REPORT_DATA,
    REPORT_FORMAT_VERSION,
    Run,
)
from recordmill.transforms.storage.output import recheck_output, write_failures
from recordmill.transforms.storage.publication import (
    Move,
    commit,
    complete_moves,
    move_file,
    read_journal,
    unpublish,
    write_journal,
    write_metadata_files,
)
from recordmill.transforms.storage.runs import end_run, remove_run, remove_staging
from recordmill.transforms.storage.sealed import seal
from recordmill.transforms.storage.versions import (
    begin_publication,
    parse_version,
    publish_version,
    remove_old_versions,
)
from recordmill.transforms.workers.pool import ITEM_SECONDS, ProcessExecutor, worker_itself
from recordmill.transforms.workers.task import SLOW_FACTOR, Worker, no_progress

_SUMMARY = "summary"
_LOGGER = logging.getLogger(__name__)


class Written(NamedTuple):
    """The result of a writer: complete, unpublished shards.

    Attributes:
        duplicates: lines of duplicates.jsonl, in no order.
        encoded: (split, counts of its encoding), if the reports count only records; else None.
        failures: the records that failed, if no file that a report names has them; else None.
    """

    reports: beam.PCollection[ShardReport]
    duplicates: beam.PCollection[str]
    encoded: beam.PCollection[tuple[str, WriteStats]] | None = None
    failures: beam.PCollection[Failure] | None = None


@dataclasses.dataclass(eq=False, repr=False)
class Publish(beam.PTransform):
    """PCollection[ShardReport] -> PCollection[str]: manifest.json, once the dataset is published.

    Attributes:
        failures: listed inputs that are not records.
        recipe: of the dataset; None if it has no versions.
    """

    run: Run
    config: DatasetConfig
    plan: beam.PCollection[DatasetPlan]
    failures: beam.PCollection[Failure]
    provenance: Provenance
    written: Written
    recipe: Recipe | None = None

    def expand(self, reports: beam.PCollection[ShardReport]) -> beam.PCollection[str]:
        """All reports -> failure-ratio check -> moves -> all moved -> metadata."""
        written, encoded = self.written, {}
        if written.encoded is not None and written.failures is not None:
            encoded["encoded"] = beam.pvalue.AsIter(written.encoded)
            encoded["encode_failures"] = beam.pvalue.AsIter(written.failures)
        moves, summary = (
            reports.pipeline
            | "Start" >> beam.Impulse()
            | "Reconcile"
            >> beam.ParDo(
                Reconcile(self.run, self.config),
                beam.pvalue.AsSingleton(self.plan),
                beam.pvalue.AsIter(reports),
                beam.pvalue.AsIter(self.failures),
                beam.pvalue.AsIter(written.duplicates),
                **encoded,
            ).with_outputs(_SUMMARY, main="moves")
        )
        if not self.config.workers:
            # On one machine a move is a rename; elsewhere many workers share them.
            moves = moves | "Spread" >> beam.Reshuffle()
        moved = moves | "MoveShards" >> beam.ParDo(MoveFiles()).with_output_types(None)
        return summary | "WriteMetadata" >> beam.Map(
            write_metadata,
            beam.pvalue.AsList(moved),
            run=self.run,
            config=self.config,
            provenance=self.provenance,
            recipe=self.recipe,
        ).with_output_types(str)


class Reconcile(beam.DoFn):
    """Once -> a Move of each file; the Reconciled to `summary`."""

    def __init__(self, run: Run, config: DatasetConfig) -> None:
        self._run = run
        self._config = config

    def process(
        self,
        element: bytes,
        plan: DatasetPlan,
        reports: Iterable[ShardReport],
        failures: Iterable[Failure],
        duplicates: Iterable[str],
        encoded: Iterable[tuple[str, WriteStats]] | None = None,
        encode_failures: Iterable[Failure] = (),
    ) -> Iterator[Any]:
        with naming_faults(self._run.output):
            # Another job may have come in between.
            lock.check(self._run.locked, self._run.token)
            lock.keep(self._run.locked, self._run.token)
            recheck_output(self._run.output, self._config.overwrite, self._run.work)
            files = [report.file.failures_path for report in reports]
            every_failure = itertools.chain(failures, encode_failures)
            failed = write_failures(self._run, every_failure, [path for path in files if path is not None])
            every = reports
            if encoded is None:
                every = itertools.chain(reports, empty_shards(plan, reports, self._run.shards))
            if not self._run.version:
                every = map(_without_lineage, every)
            found, listed = write_duplicates(self._run, duplicates)
            ratio = self._config.max_failure_ratio
            digest = file_system(failed).sha256(failed) if self._run.version else ""
            strict = self._config.strict
            reconciled = reconcile(plan, every, failures, ratio, failed, encoded, digest, strict, found)
            for warning in reconciled.warnings:
                _LOGGER.warning(warning.text)
            if self._config.duplicates == "fail":
                check_splits(found, listed)
            if reconciled.is_unchanged:
                yield beam.pvalue.TaggedOutput(_SUMMARY, reconciled)
                return
            moves = file_moves(reconciled, self._run, failed, listed)
            names = metadata_names(reconciled, self._config, self._run.version)
            publication = write_journal(self._run, moves, names, plan.replaces)
            lock.check(self._run.locked, self._run.token)  # the steps since the last check take a while
            unpublish(self._run, publication)
        yield from moves
        yield beam.pvalue.TaggedOutput(_SUMMARY, reconciled)


class MoveFiles(beam.DoFn):
    """Move -> nothing, once it is done; moves in a bucket are done side by side."""

    def start_bundle(self) -> None:
        self._moves: list[Move] = []

    def process(self, element: Sequence[Any]) -> None:
        self._moves.append(Move(*element))

    def finish_bundle(self) -> None:
        if self._moves:
            file_system(self._moves[0].published).each(move_file, self._moves)


def _without_lineage(report: ShardReport) -> ShardReport:
    """The report for a dataset without versions, which does not publish its lineage."""
    return msgspec.structs.replace(report, file=msgspec.structs.replace(report.file, lineage_path=None))


def write_duplicates(run: Run, lines: Iterable[str]) -> tuple[Duplicates, str]:
    """Writes duplicates.jsonl if there are any; returns what it lists, and its path."""
    path, counted = os.path.join(run.folder, DUPLICATES), CountedLines(lines)
    in_file = iter(counted)
    first = next(in_file, None)
    if first is not None:
        write_file(path, itertools.chain((first,), in_file), run.folder)
    return counted.found, path


def file_moves(reconciled: Reconciled, run: Run, failures_path: str, duplicates_path: str) -> list[Move]:
    """The moves into the output: shards, indexes, duplicates; failures.jsonl if it is not there yet."""
    moves = []
    for report, records, index, lineage in shard_files(reconciled):
        file, stays = report.file, report.from_previous
        moves.append(Move(file.path, os.path.join(run.output, records), file.sha256, stays))
        moves.append(Move(file.index_path, os.path.join(run.output, index), None, stays))
        if file.lineage_path is not None and lineage is not None:
            target = os.path.join(run.output, lineage)
            moves.append(Move(file.lineage_path, target, file.lineage_sha256, stays))
    if reconciled.duplicates.groups:
        moves.append(Move(duplicates_path, os.path.join(run.output, DUPLICATES), None))
    published = os.path.join(run.output, FAILURES)
    if failures_path != published:
        moves.append(Move(failures_path, published, None))
    return moves


def empty_shards(plan: DatasetPlan, reports: Iterable[ShardReport], folder: str) -> Iterator[ShardReport]:
    """Writes the shards without records. A lost shard is found when records are counted."""
    written = {(report.split, report.shard) for report in reports}
    for split, shard in plan.shards():
        if (split, shard) not in written:
            file_system(folder).make_folder(folder)  # there is none yet if all others are reused
            path = os.path.join(folder, f"{split}-{shard:05d}-empty")
            yield ShardReport(split, shard, write_empty(path))


def write_metadata(
    reconciled: Reconciled,
    moved: Iterable[None],
    run: Run,
    config: DatasetConfig,
    provenance: Provenance,
    recipe: Recipe | None = None,
) -> str:
    """Writes the files that describe the dataset, once all its shards are moved; manifest.json last.

    The staging folder of a version is then renamed; that of an unchanged version is discarded. Returns the
    path of manifest.json.
    """
    if reconciled.is_unchanged:
        return _leave_unchanged(reconciled, run, config)
    path = os.path.join(run.output, MANIFEST)
    names = metadata_names(reconciled, config, run.version)
    manifest = manifest_json(reconciled, config, provenance, names)
    published = os.path.join(run.published, MANIFEST)
    with naming_faults(path):
        is_published = _is_published(published, manifest)
        if not is_published and not (run.version and _is_published(path, manifest)):
            lock.check(run.locked, run.token)
            lock.keep(run.locked, run.token)
            publication = read_journal(run.output, run.folder)
            if publication is None:
                raise JobError(f"{run.folder} is gone, and with it the job; give the same command again")
            complete_moves(run.output, publication)
            texts = dict(_described(reconciled, config, run, manifest, recipe))
            written = write_metadata_files(run, texts, publication)
            digests = {
                **{
                    name: file_system(path).sha256(os.path.join(run.output, name))
                    for name in listing_names(reconciled)
                },
                **lineage_digests(reconciled),
                **{name: digest for name, digest in written.items() if name != REPORT},
            }
            lock.check(run.locked, run.token)  # the steps since the last check take a while
            if run.version:
                begin_publication(run.home, parse_version(run.version))
            commit(run, manifest_text(manifest, digests))
        # A step that is repeated after its end no longer has the lock.
        if run.version and not (is_published and not lock.is_held_by(run.locked, run.token)):
            remove_run(run)
            publish_version(run)
            _remove_old(run, config)
    end_run(run)
    # An alert looks for jobs that have counted this.
    count("published")
    _LOGGER.info("recordmill published %s", published)
    return published


def _leave_unchanged(reconciled: Reconciled, run: Run, config: DatasetConfig) -> str:
    """Ends a run that has nothing new to publish; returns the path of the manifest that stays."""
    previous = reconciled.plan.previous
    assert previous is not None
    with naming_faults(run.output):
        if lock.is_held_by(run.locked, run.token):  # else it is repeated, or another job is at work
            _remove_old(run, config)
            remove_staging(run.work)
    end_run(run)
    count("unchanged")
    _LOGGER.info("nothing has changed since version %s: nothing is published", previous.version)
    return os.path.join(previous.folder, MANIFEST)


def _remove_old(run: Run, config: DatasetConfig) -> None:
    """Removes the oldest versions beyond `keep_versions`; the job does not fail if one cannot be removed."""
    if config.keep_versions is None:
        return
    try:
        for version in remove_old_versions(run.home, config.keep_versions):
            _LOGGER.info("removed version %s: %d are left", version, config.keep_versions)
    except (OSError, JobError) as error:
        progress.add_note(f"old versions are still there: {error}")
        _LOGGER.warning("old versions are still there: %s", error)


def _described(
    reconciled: Reconciled,
    config: DatasetConfig,
    run: Run,
    manifest: Mapping[str, Any],
    recipe: Recipe | None,
) -> Iterator[tuple[str, str]]:
    """Name and text of each file that describes the dataset, except manifest.json; TFDS's last."""
    plan, output = reconciled.plan, run.output
    if recipe is not None:
        edges = {name: split.edges for name, split in plan.splits.items() if split.edges}
        yield SETTINGS, settings_text(recipe, edges, plan.masks())
    report = report_json(reconciled.statistics, plan.settings, worker_processes(plan, config.workers))
    yield REPORT_DATA, report_text(report)
    yield REPORT, report_page(output, manifest, report, os.path.join(output, FAILURES))
    yield from companions(reconciled, config, run.version).items()


def _is_published(path: str, manifest: Mapping[str, Any]) -> bool:
    """Whether an earlier try of this step has completed. Raises JobError if another job has published."""
    try:
        present = read_text(path)
    except FileNotFoundError:
        return False
    if not of_same_job(present, manifest):
        raise JobError(f"{path} is another job's, published meanwhile; this one publishes nothing")
    return True


def report_json(
    statistics: Mapping[str, Statistics], settings: RecordSettings, workers: int
) -> dict[str, Any]:
    """The contents of report.json: figures of each split, and crops of a few re-encoded images.

    The same for the same records, whichever runner has written them, in any order.
    """
    splits = {name: split.as_json() for name, split in statistics.items()}
    for split in splits.values():
        del split["reencoded"]  # where images lie in the source
    return {
        "format_version": REPORT_FORMAT_VERSION,
        "splits": splits,
        "crops": list(reencoded_crops(statistics.values(), settings, workers)),
    }


def report_text(report: Mapping[str, Any]) -> str:
    return json.dumps(report, indent=1, ensure_ascii=False) + "\n"


def report_page(
    output: str,
    manifest: Mapping[str, Any],
    report: Mapping[str, Any],
    failures_path: str,
) -> str:
    """The text of report.html, sealed; without pictures of records where they cannot be drawn."""
    task = PageTask(output, manifest, report, failures_path)
    with _pool(1) as pool:
        found = pool.submit(task).result()
    if isinstance(found, str):
        return seal(found)
    message = "report.html is without pictures of records (%s: %s); `recordmill report` rebuilds it"
    _LOGGER.warning(message, found.reason, found.detail)
    return seal(task.text(has_samples=False))


def reencoded_crops(
    statistics: Iterable[Statistics], settings: RecordSettings, workers: int
) -> Iterator[Mapping[str, Any]]:
    """The most changed part of each remembered image, before and after its encoding.

    An image that cannot be read any more is left out: the dataset is complete without it.
    """
    remembered = sorted((reference, key) for split in statistics for key, reference in split.reencoded)
    if not remembered:
        return
    chosen = remembered[:MOST_REENCODED]
    with _pool(min(workers, len(chosen))) as pool:
        changes = [pool.submit(ChangeTask(reference, key, settings)) for reference, key in chosen]
        for (_, key), change in zip(chosen, changes, strict=True):
            found = change.result()
            if isinstance(found, BadInput):
                _LOGGER.info("no picture of %r before and after its encoding: %s", key, found.detail)
            elif found is not None:
                yield found


def _pool(workers: int) -> ProcessExecutor[Worker]:
    return ProcessExecutor(worker_itself, no_progress, workers, ITEM_SECONDS * SLOW_FACTOR)
