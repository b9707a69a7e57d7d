"""The conservation check (all that was read is written, failed or skipped), and the failure-ratio check."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from recordmill.transforms.records import Failure, JobError
from recordmill.transforms.shards.dataset_plan import DatasetPlan
from recordmill.transforms.shards.duplicates import NO_DUPLICATES, Duplicates
from recordmill.transforms.shards.overview import DataWarning, data_warnings
from recordmill.transforms.shards.report import ShardReport, WriteStats, merged
from recordmill.transforms.shards.statistics import Statistics
from recordmill.transforms.storage.layout import FAILURES

_SHOWN = 3  # reasons in a message


@dataclasses.dataclass(frozen=True)
class Reconciled:
    """A complete set of shards that has passed the failure-ratio check.

    Attributes:
        reports: of all shards, in order, without their statistics.
        failed: failures by (stage, reason), those of the source included.
        skipped: likewise, of what was skipped on purpose.
        statistics: of the records of each split.
        is_unchanged: whether the dataset equals the previous version, record for record.
        warnings: signs that the input may have been read wrongly.
        duplicates: records with equal images.
    """

    plan: DatasetPlan
    reports: tuple[ShardReport, ...]
    stats: WriteStats
    failed: Mapping[tuple[str, str], int]
    skipped: Mapping[tuple[str, str], int]
    statistics: Mapping[str, Statistics] = dataclasses.field(default_factory=dict)
    is_unchanged: bool = False
    warnings: tuple[DataWarning, ...] = ()
    duplicates: Duplicates = NO_DUPLICATES

    @property
    def num_shards(self) -> Mapping[str, int]:
        return Counter(report.split for report in self.reports)

    @property
    def read(self) -> int:
        """The number of listed inputs: records to write, and inputs that never became records."""
        counted = sum(self.stats.failed.values()) + sum(self.stats.skipped.values())
        return self.plan.records + sum(self.failed.values()) + sum(self.skipped.values()) - counted


def reconcile(
    plan: DatasetPlan,
    reports: Iterable[ShardReport],
    failures: Iterable[Failure],
    max_failure_ratio: float,
    failures_path: str = FAILURES,
    encoded: Iterable[tuple[str, WriteStats]] | None = None,
    failures_sha256: str = "",
    strict: bool = False,
    duplicates: Duplicates = NO_DUPLICATES,
) -> Reconciled:
    """Counts listed inputs against those that were written, failed and skipped.

    `encoded` are (split, counts of its encoding), of a writer whose reports count only records. The file
    `failures_path` names each failure.

    Raises:
        JobError: shards or records are missing, too many inputs failed, or `strict` is set and there are
            warnings.
    """
    statistics = {name: Statistics() for name in plan.splits}
    summed = _summing(reports, statistics)
    in_order = tuple(sorted(summed, key=lambda report: (report.split, report.shard)))
    by_split = {name: [report for report in in_order if report.split == name] for name in plan.splits}
    _check_shards(plan, by_split, len(in_order))
    if encoded is None:
        counted = {name: merged([one.file.stats for one in split]) for name, split in by_split.items()}
    else:
        counted = {name: WriteStats() for name in plan.splits}
        for name, split_stats in encoded:
            counted[name].merge(split_stats)
        _check_written(by_split, counted)
        statistics = {name: split.statistics for name, split in counted.items()}
    stats = merged(list(counted.values()))
    failed: Counter[tuple[str, str]] = Counter(stats.failed)
    skipped: Counter[tuple[str, str]] = Counter(stats.skipped)
    for failure in failures:
        (skipped if failure.skipped else failed)[failure.stage, failure.reason] += 1
    result = Reconciled(plan, in_order, stats, failed, skipped, statistics, duplicates=duplicates)
    _check_failure_ratio(result, max_failure_ratio, failures_path)
    for name, split in plan.splits.items():
        _check_split(name, split.records, counted[name], failures_path)
    warnings = data_warnings(statistics, plan.settings.features.labels.labels, duplicates)
    if strict and warnings:
        number = f"{len(warnings)} warning{'' if len(warnings) == 1 else 's'}"
        listed = ". ".join(one.text for one in warnings)
        raise JobError(f"the dataset has {number}, and --strict is set; nothing is published: {listed}")
    is_unchanged = _is_unchanged(result, failures_sha256)
    return dataclasses.replace(result, is_unchanged=is_unchanged, warnings=warnings)


def _is_unchanged(result: Reconciled, failures_sha256: str) -> bool:
    """Whether shards and failures are all those of the previous version, and it has no others."""
    previous = result.plan.previous
    if previous is None or previous.digests.get(FAILURES) != failures_sha256 or not previous.same_metadata:
        return False
    shards = {name: split.num_shards for name, split in previous.splits.items()}
    records = {name: split.records for name, split in previous.splits.items()}
    held = Counter(dict.fromkeys(result.plan.splits, 0))
    for report in result.reports:
        held[report.split] += report.file.stats.written
    # A shard without records is always the same.
    counts = ("written", "failed", "skipped")
    given = [one for one in result.reports if any(getattr(one.file.stats, count) for count in counts)]
    same = all(report.is_unchanged for report in given)
    return same and shards == dict(result.num_shards) and records == dict(held)


def _summing(reports: Iterable[ShardReport], statistics: Mapping[str, Statistics]) -> Iterator[ShardReport]:
    """Yields reports without their statistics, which are added up: those of thousands of shards are large."""
    for report in reports:
        stats = report.file.stats
        if report.split in statistics:
            statistics[report.split].merge(stats.statistics)
        stats = msgspec.structs.replace(stats, statistics=Statistics())
        yield msgspec.structs.replace(report, file=msgspec.structs.replace(report.file, stats=stats))


def _check_shards(plan: DatasetPlan, by_split: Mapping[str, list[ShardReport]], reported: int) -> None:
    """Raises JobError unless each split has each of its shards, once."""
    if sum(map(len, by_split.values())) != reported:
        raise JobError("shards of splits that were not planned are reported; nothing is published")
    for name, reports in by_split.items():
        planned = plan.splits[name].num_shards or max(len(reports), 1)
        if [report.shard for report in reports] != list(range(planned)):
            numbers = len({report.shard for report in reports})
            raise JobError(
                f"split {name!r}: {planned} shards were to be written, {len(reports)} are reported, "
                f"of {numbers} numbers; nothing is published"
            )


def _check_written(by_split: Mapping[str, list[ShardReport]], counted: Mapping[str, WriteStats]) -> None:
    for name, reports in by_split.items():
        held = sum(report.file.stats.written for report in reports)
        if held != counted[name].written:
            raise JobError(
                f"split {name!r}: {counted[name].written} records were encoded, its shards hold {held}; "
                "nothing is published"
            )


def _check_failure_ratio(result: Reconciled, max_failure_ratio: float, failures_path: str) -> None:
    failed = sum(result.failed.values())
    tried = result.read - sum(result.skipped.values())
    if failed > max_failure_ratio * tried:
        raise JobError(
            f"{failed} of {tried} inputs failed ({failed / tried:.2%}; "
            f"{most_often(result.failed)}), above --max_failure_ratio={max_failure_ratio:g}; "
            f"nothing is published, {failures_path} names each"
        )


def most_often(counts: Mapping[tuple[str, str], int]) -> str:
    """The most frequent failures, of counts by (stage, reason), for a message."""
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    shown = "; ".join(f"{stage}: {reason}, {times}" for (stage, reason), times in ranked[:_SHOWN])
    others = len(ranked) - _SHOWN
    return f"most often {shown}{f'; {others} more reasons' if others > 0 else ''}"


def _check_split(name: str, listed: int, stats: WriteStats, failures_path: str) -> None:
    failed, skipped = sum(stats.failed.values()), sum(stats.skipped.values())
    if stats.written - stats.added + failed + skipped != listed:
        added = f", {stats.added} of them added, {skipped} skipped" if stats.added or skipped else ""
        raise JobError(
            f"split {name!r}: {listed} records were listed, {stats.written} written{added} and {failed} "
            "failed; nothing is published"
        )
    if not stats.written:
        left_out = f" or were left out by --map_image ({skipped})" if skipped else ""
        raise JobError(
            f"split {name!r} is empty: all its {failed + skipped} records failed{left_out}; "
            f"{failures_path} says why"
        )
