"""Conservation and the gate, over reports of both writers."""

from collections import Counter

import pytest

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.records import Failure, JobError
from recordmill.transforms.shards.dataset_plan import DatasetPlan
from recordmill.transforms.shards.reconcile import Reconciled, most_often, reconcile
from recordmill.transforms.shards.report import ShardFile, ShardReport, WriteStats
from recordmill.transforms.shards.statistics import Statistics
from tests.shards.planned import plan

SPLITS = ("train", "val")
BAD = ("decode", "corrupt")


def stats(written: int, failed: int = 0) -> WriteStats:
    reasons = Counter({BAD: failed} if failed else {})
    return WriteStats(written, reasons, source_bytes=10 * written, statistics=Statistics(records=written))


def report(split: str, shard: int, counts: WriteStats) -> ShardReport:
    return ShardReport(split, shard, ShardFile("/x", "/x.idx", None, 0, "", counts))


def planned(writer: str = "beam", num_shards: int | None = None) -> DatasetPlan:
    """Five records in each of two splits."""
    config = DatasetConfig(writer=writer, split_names=SPLITS, num_shards=num_shards)
    return plan(config, count=10, splits=SPLITS)


# Two shards in train, one in val; one record of train failed.
REPORTS = [report("val", 0, stats(5)), report("train", 1, stats(1)), report("train", 0, stats(3))]
ENCODED = [("train", stats(3)), ("val", stats(5)), ("train", stats(1, failed=1))]


def read_back(
    reports: list[ShardReport] = REPORTS,
    encoded: list[tuple[str, WriteStats]] = ENCODED,
    ratio: float = 0.5,
    num_shards: int | None = None,
    failures: tuple[Failure, ...] = (),
) -> Reconciled:
    return reconcile(planned(num_shards=num_shards), reports, failures, ratio, "/out/failures.jsonl", encoded)


def test_counts_of_the_encoding_stand_where_shards_were_read_back() -> None:
    skipped = Failure("s", "list", "hidden", skipped=True)
    result = read_back(failures=(skipped, Failure("f", "list", "not an image by name")))
    assert [(one.split, one.shard) for one in result.reports] == [("train", 0), ("train", 1), ("val", 0)]
    assert result.num_shards == {"train": 2, "val": 1}
    assert (result.stats.written, result.stats.source_bytes) == (9, 90)
    assert {name: split.records for name, split in result.statistics.items()} == {"train": 4, "val": 5}
    assert result.failed == {BAD: 1, ("list", "not an image by name"): 1}
    assert result.skipped == {("list", "hidden"): 1}
    assert result.read == 12


@pytest.mark.parametrize(
    ("reports", "num_shards", "message"),
    [
        (REPORTS[:2], None, "split 'train': 1 shards were to be written, 1 are reported"),
        (REPORTS[1:], None, "split 'val': 1 shards were to be written, 0 are reported"),
        ([*REPORTS, REPORTS[2]], None, "split 'train': 3 shards were to be written, 3 are reported, of 2"),
        (REPORTS, 2, "split 'val': 2 shards were to be written, 1 are reported"),
        (REPORTS, 1, "split 'train': 1 shards were to be written, 2 are reported"),
        ([*REPORTS, report("test", 0, stats(1))], None, "shards of splits that were not planned"),
        (
            [*REPORTS[:2], report("train", 0, stats(2))],
            None,
            "'train': 4 records were encoded, its shards hold 3",
        ),
        (
            [report("val", 0, stats(6)), *REPORTS[1:]],
            None,
            "'val': 5 records were encoded, its shards hold 6",
        ),
    ],
)
def test_shards_that_do_not_hold_what_was_encoded(
    reports: list[ShardReport], num_shards: int | None, message: str
) -> None:
    with pytest.raises(JobError, match=message):
        read_back(reports, num_shards=num_shards)


def test_counts_that_got_lost() -> None:
    with pytest.raises(JobError, match="split 'train': 1 records were encoded, its shards hold 4"):
        read_back(encoded=ENCODED[1:])
    lost = [("train", stats(4)), ("val", stats(5))]
    with pytest.raises(JobError, match="split 'train': 5 records were listed, 4 written and 0 failed"):
        read_back(encoded=lost)


def test_the_gate_names_the_file_of_failures() -> None:
    with pytest.raises(JobError) as raised:
        read_back(ratio=0.05)
    assert str(raised.value) == (
        "1 of 10 inputs failed (10.00%; most often decode: corrupt, 1), above "
        "DatasetConfig.max_failure_ratio=0.05; nothing is published, /out/failures.jsonl names each"
    )
    reports = [report("train", 0, stats(0)), report("val", 0, stats(5))]
    with pytest.raises(JobError, match="split 'train' is empty: all its 5 .* /out/failures.jsonl says why"):
        read_back(reports, [("train", stats(0, failed=5)), ("val", stats(5))], ratio=1)


def test_failures_are_summed_up_by_reason() -> None:
    counts = {("load", "gone"): 2, ("decode", "cut"): 9, ("list", "b"): 1, ("list", "a"): 1, ("list", "c"): 1}
    assert most_often(counts) == "most often decode: cut, 9; load: gone, 2; list: a, 1; 2 more reasons"


def test_reports_of_whole_shards_count_their_failures_themselves() -> None:
    reports = [
        report("train", 0, stats(3, failed=1)),
        report("train", 1, stats(1)),
        report("val", 0, stats(2)),
    ]
    made = planned("shards", num_shards=2)
    result = reconcile(made, [*reports, report("val", 1, stats(3))], [], 0.5)
    assert (result.stats.written, result.failed) == (9, {BAD: 1})
    with pytest.raises(JobError, match="split 'val': 2 shards were to be written, 1 are reported"):
        reconcile(made, reports, [], 0.5)


def test_statistics_are_added_up_by_split_and_not_kept_by_shard() -> None:
    plan = planned("shards", num_shards=1)
    result = reconcile(plan, [report("train", 0, stats(5)), report("val", 0, stats(5))], (), 0.0)
    assert {name: split.records for name, split in result.statistics.items()} == {"train": 5, "val": 5}
    assert [one.file.stats for one in result.reports] == 2 * [WriteStats(5, source_bytes=50)]


def test_warnings_are_noted_and_fail_a_strict_job() -> None:
    one_class = WriteStats(5, statistics=Statistics(records=5, labels=Counter({0: 5})))
    reports = [report("train", 0, one_class), report("val", 0, stats(5))]
    made = planned("shards", num_shards=1)
    assert [one.kind for one in reconcile(made, reports, (), 0.0).warnings] == ["single_class"]
    with pytest.raises(JobError) as raised:
        reconcile(made, reports, (), 0.0, strict=True)
    assert str(raised.value) == (
        "the dataset has 1 warning, and DatasetConfig(strict=True) is set; nothing is published: all 5 "
        "labels are '0'. Check that SourceConfig.input is the folder that holds the folders of the classes, "
        "or that SourceConfig.label_column or SourceConfig.label_pattern finds the class"
    )
    fine = [report("train", 0, stats(5)), report("val", 0, stats(5))]
    assert reconcile(made, fine, (), 0.0, strict=True).warnings == ()


def test_too_many_failures_come_before_warnings() -> None:
    one_class = WriteStats(4, Counter({BAD: 1}), statistics=Statistics(records=4, labels=Counter({0: 4})))
    reports = [report("train", 0, one_class), report("val", 0, stats(5))]
    with pytest.raises(JobError, match="above DatasetConfig.max_failure_ratio"):
        reconcile(planned("shards", num_shards=1), reports, (), 0.0, strict=True)
