from collections import Counter
from pathlib import Path

import pytest

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.records import AnnotatedObject, Annotations, Box, ImageRecord, ImageRef, JobError
from recordmill.transforms.shards import dataset_plan
from recordmill.transforms.shards.dataset_plan import (
    beam_splits,
    plan_dataset,
    planned_statistics,
    record_settings,
    shard_index,
    worker_processes,
)
from recordmill.transforms.shards.references import pack_reference
from recordmill.transforms.shards.statistics import Statistics
from recordmill.transforms.shards.totals import total
from tests.shards.planned import plan, records


def test_number_of_shards_for_every_split_and_by_split() -> None:
    both = plan(DatasetConfig(num_shards=3), splits=("train", "val"))
    assert {name: split.num_shards for name, split in both.splits.items()} == {"train": 3, "val": 3}
    each = plan(DatasetConfig(num_shards={"train": 4, "val": 1}), splits=("train", "val"))
    assert each.shards() == [("train", 0), ("train", 1), ("train", 2), ("train", 3), ("val", 0)]
    assert each.first_shards() == {"train": 0, "val": 4}


def test_shard_size_and_reader_hosts() -> None:
    size = plan(DatasetConfig()).estimated_bytes
    assert plan(DatasetConfig(shard_size=size)).splits["train"].num_shards == 1
    assert plan(DatasetConfig(shard_size=size // 4)).splits["train"].num_shards in (4, 5)
    # Ten shards a host would be far below 10 MB each.
    assert plan(DatasetConfig(reader_hosts=8)).splits["train"].num_shards == 1


@pytest.mark.parametrize(
    ("size", "hosts", "shards"), [(10**9, 1, 10), (10**9, 4, 40), (10**9, 32, 100), (5 * 10**6, 1, 1)]
)
def test_reader_hosts_asks_for_ten_shards_of_at_least_10_mb(size: int, hosts: int, shards: int) -> None:
    totals = total(records(100))
    # An estimate of `size` bytes: so many records more.
    each = plan_dataset(totals, DatasetConfig()).estimated_bytes / 100
    totals.splits["train"].records = round(size / each)
    config = DatasetConfig(reader_hosts=hosts)
    assert abs(plan_dataset(totals, config).splits["train"].num_shards - shards) <= 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (DatasetConfig(splits={"train": 0.999999, "val": 0.000001}), "split 'val' is empty"),
        (DatasetConfig(num_shards={"train": 1, "dev": 2}), "split 'dev' is empty"),
        (DatasetConfig(num_shards={"val": 2}), "split 'val' is empty"),
        (DatasetConfig(rename={"y": "z"}), "DatasetConfig.rename y=z: there is no feature 'y'"),
        (DatasetConfig(schema="imagenet"), "needs images"),
    ],
)
def test_refused(config: DatasetConfig, message: str) -> None:
    with pytest.raises(JobError, match=message):
        plan(config)


def test_a_split_that_num_shards_leaves_out() -> None:
    with pytest.raises(
        JobError, match="DatasetConfig.num_shards=train=2 has no number for split 'val'; add val=N"
    ):
        plan(DatasetConfig(num_shards={"train": 2}), splits=("train", "val"))


def test_key_order_makes_ascending_shards_of_like_size() -> None:
    made = plan(DatasetConfig(num_shards=4, order="key"), count=4000).splits["train"]
    shards: list[list[str]] = [[] for _ in range(4)]
    for record in records(4000):
        shards[shard_index(pack_reference(record, 0), made)].append(record.key)
    assert [key for shard in shards for key in shard] == [record.key for record in records(4000)]
    assert all(800 < len(shard) < 1200 for shard in shards)


def test_seed_moves_shards() -> None:
    made = plan(DatasetConfig(num_shards=4)).splits["train"]
    places = [[shard_index(pack_reference(record, seed), made) for record in records(100)] for seed in (0, 1)]
    assert places[0] != places[1]


def test_the_estimate_is_near_the_truth_for_features_alone() -> None:
    from recordmill.transforms.shards.record_encoder import RecordEncoder

    made = plan(DatasetConfig(), count=500)
    encoder = RecordEncoder(made.settings)
    truth = sum(len(encoder.encode(record).payload) + 16 for record in records(500))
    assert abs(made.estimated_bytes - truth) < 0.1 * truth
    assert made.splits["train"].records == 500


@pytest.mark.parametrize(
    ("config", "splits"),
    [
        (DatasetConfig(writer="beam"), ("train",)),
        (DatasetConfig(writer="beam", expected_splits=("val", "test")), ("test", "train", "val")),
        (DatasetConfig(writer="beam", num_shards={"b": 1, "a": 2}), ("a", "b")),
        (DatasetConfig(writer="beam", num_shards={"b": 1}, splits={"x": 0.5, "y": 0.5}), ("x", "y")),
        (DatasetConfig(writer="beam", split_names=("q", "p", "q"), splits={"p": 1.0}), ("p", "q")),
        # What could never be a split's name, and would lead elsewhere as a path.
        (DatasetConfig(writer="beam", split_names=("p", "../q")), ("p",)),
    ],
)
def test_splits_that_beam_is_ready_for(config: DatasetConfig, splits: tuple[str, ...]) -> None:
    assert beam_splits(config) == splits


def test_beam_plans_shards_only_where_their_number_is_given() -> None:
    splits = ("train", "val")
    unset = plan(DatasetConfig(writer="beam", split_names=splits), splits=splits)
    assert [split.num_shards for split in unset.splits.values()] == [0, 0]
    assert unset.shards() == []
    for_all = plan(DatasetConfig(writer="beam", split_names=splits, num_shards=3), splits=splits)
    assert [split.num_shards for split in for_all.splits.values()] == [3, 3]
    each = plan(DatasetConfig(writer="beam", num_shards={"train": 4, "val": 1}), splits=splits)
    assert each.first_shards() == {"train": 0, "val": 4}


def test_a_split_that_beam_has_no_writer_for() -> None:
    with pytest.raises(JobError) as raised:
        plan(DatasetConfig(writer="beam"), splits=("train", "val"))
    assert str(raised.value) == (
        "split 'val' has records, but DatasetConfig.writer=beam is ready for train only: it has to know all "
        "splits beforehand; name them with DatasetConfig.num_shards=train=N,val=N, others by "
        "DatasetConfig.splits, or use DatasetConfig.writer=shards "
        "(in Python, DatasetConfig.split_names)"
    )
    # A split that may have records, and has none, is no fault.
    assert list(plan(DatasetConfig(writer="beam", split_names=("train", "val"))).splits) == ["train"]
    with pytest.raises(JobError, match="split 'val' is empty: DatasetConfig.num_shards names it"):
        plan(DatasetConfig(writer="beam", num_shards={"train": 1, "val": 1}))


def test_processes_that_a_plan_is_worth() -> None:
    assert [worker_processes(plan(DatasetConfig()), workers) for workers in (0, 1, 4)] == [1, 1, 4]
    assert worker_processes(plan(DatasetConfig(), count=20), 4) == 1


def test_figures_that_are_known_before_an_image_is_read() -> None:
    box = Box(0, 0, 1, 1)
    image = ImageRef("/a.jpg")
    records = [
        ImageRecord("1", image, "val", Annotations(("cat",), objects=(AnnotatedObject("dog", box),))),
        ImageRecord("2", image, "train", Annotations(("cat",), objects=(AnnotatedObject("cat", box),) * 2)),
        ImageRecord("3", image, "train", Annotations()),
    ]
    totals = total(records)
    both = planned_statistics(totals, record_settings(totals, DatasetConfig(schema="detection")))
    assert both == {
        "train": Statistics(
            2,
            labels=Counter({1: 1}),
            objects=Counter({1: 2}),
            boxes_per_image=Counter({0: 1, 2: 1}),
            unlabelled=1,
        ),
        "val": Statistics(
            1, labels=Counter({1: 1}), objects=Counter({2: 1}), boxes_per_image=Counter({1: 1})
        ),
    }
    assert list(both) == ["train", "val"]
    boxed = ImageRecord("4", image, "train", Annotations(objects=(AnnotatedObject("cat", box),)))
    totals = total([*records, boxed])
    labels = planned_statistics(totals, record_settings(totals, DatasetConfig(schema="classification")))
    assert labels["train"] == Statistics(3, labels=Counter({0: 1}), unlabelled=2)


def test_labels_whose_records_will_fail_are_not_among_the_figures() -> None:
    image = ImageRef("/a.jpg")
    totals = total(ImageRecord(name, image, "train", Annotations((name,))) for name in ("cat", "cow"))
    settings = record_settings(totals, DatasetConfig(schema="classification", label_names=("cat",)))
    assert planned_statistics(totals, settings)["train"].labels == {0: 1}


@pytest.mark.parametrize("numbers", ["[1], 2, 3", "1, 2", "1.5, 2, 3", "null, 2, 3"])
def test_a_damaged_size_sample_is_ignored(numbers: str, tmp_path: Path) -> None:
    path = tmp_path / "sample.json"
    path.write_text(f'["digest", {numbers}]')
    assert dataset_plan._cached(str(path), "digest") is None
    path.write_text('["digest", 1, 2, 3]')
    assert dataset_plan._cached(str(path), "digest") == (1, 2, 3)
