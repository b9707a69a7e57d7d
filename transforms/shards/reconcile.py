"""The conservation check and the gate: all that was read is written, failed or skipped."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping

from transforms.records import Failure, JobError
from transforms.shards.plan import DatasetPlan
from transforms.shards.report import ShardReport, WriteStats, merged
from transforms.storage.output import FAILURES


@dataclasses.dataclass(frozen=True)
class Reconciled:
    """A whole set of shards that has passed the gate.

    Attributes:
        plan: of the dataset.
        reports: of all shards, in order.
        stats: their sum.
        failed: failures by (stage, reason), those of the source included.
        skipped: likewise, of what was skipped on purpose.
    """

    plan: DatasetPlan
    reports: tuple[ShardReport, ...]
    stats: WriteStats
    failed: Mapping[tuple[str, str], int]
    skipped: Mapping[tuple[str, str], int]

    @property
    def num_shards(self) -> Mapping[str, int]:
        """Number of shards of each split."""
        return Counter(report.split for report in self.reports)

    @property
    def read(self) -> int:
        """All that the source listed: records to write, and what never became one."""
        never_records = sum(self.failed.values()) - sum(self.stats.failed.values())
        return self.plan.records + never_records + sum(self.skipped.values())


def reconcile(
    plan: DatasetPlan, reports: Iterable[ShardReport], failures: Iterable[Failure], max_failure_ratio: float
) -> Reconciled:
    """Counts what was listed against what was written, failed and skipped.

    Raises:
        JobError: shards are missing, or records are; or too many failed.
    """
    in_order = tuple(sorted(reports, key=lambda report: (report.split, report.shard)))
    if [(report.split, report.shard) for report in in_order] != plan.shards():
        raise JobError(
            f"{len(plan.shards())} shards were planned, {len(in_order)} reported; nothing is published"
        )
    stats = merged([report.file.stats for report in in_order])
    failed: Counter[tuple[str, str]] = Counter(stats.failed)
    skipped: Counter[tuple[str, str]] = Counter()
    for failure in failures:
        (skipped if failure.skipped else failed)[failure.stage, failure.reason] += 1
    result = Reconciled(plan, in_order, stats, failed, skipped)
    _check_gate(result, max_failure_ratio)
    for name, split in plan.splits.items():
        _check_split(name, split.records, [report for report in in_order if report.split == name])
    return result


def _check_gate(result: Reconciled, max_failure_ratio: float) -> None:
    failed = sum(result.failed.values())
    tried = result.read - sum(result.skipped.values())
    if failed > max_failure_ratio * tried:
        (stage, reason), times = Counter(result.failed).most_common(1)[0]
        raise JobError(
            f"{failed} of {tried} inputs failed ({failed / tried:.2%}; "
            f"most often {stage}: {reason}, {times}), "
            f"above --max_failure_ratio={max_failure_ratio:g}; nothing is published, {FAILURES} names each"
        )


def _check_split(name: str, listed: int, reports: list[ShardReport]) -> None:
    written = sum(report.file.stats.written for report in reports)
    failed = sum(sum(report.file.stats.failed.values()) for report in reports)
    if written + failed != listed:
        raise JobError(
            f"split {name!r}: {listed} records were listed, {written} written and {failed} failed; "
            "nothing is published"
        )
    if not written:
        raise JobError(f"split {name!r} is empty: all its {failed} records failed; {FAILURES} says why")
