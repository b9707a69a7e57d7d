import pytest

from transforms.config import DatasetConfig
from transforms.records import Annotations, ImageRecord, JobError
from transforms.shards.packing import pack_reference
from transforms.shards.plan import DatasetPlan, plan_dataset, shard_index
from transforms.shards.totals import total


def records(count: int, splits: tuple[str, ...] = ("train",)) -> list[ImageRecord]:
    return [
        ImageRecord(f"{number:05d}", None, splits[number % len(splits)], Annotations((), {"x": number}))
        for number in range(count)
    ]


def plan(config: DatasetConfig, count: int = 1000, splits: tuple[str, ...] = ("train",)) -> DatasetPlan:
    return plan_dataset(total(records(count, splits)), config)


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
        (DatasetConfig(rename={"y": "z"}), "--rename y=z: there is no feature 'y'"),
        (DatasetConfig(schema="imagenet"), "needs images"),
    ],
)
def test_refused(config: DatasetConfig, message: str) -> None:
    with pytest.raises(JobError, match=message):
        plan(config)


def test_a_split_that_num_shards_leaves_out() -> None:
    with pytest.raises(JobError, match="--num_shards=train=2 says nothing of split 'val'; add val=N"):
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
    from transforms.shards.record_encoder import RecordEncoder

    made = plan(DatasetConfig(), count=500)
    encoder = RecordEncoder(made.settings)
    truth = sum(len(encoder.encode(record).payload) + 16 for record in records(500))
    assert abs(made.estimated_bytes - truth) < 0.1 * truth
    assert made.splits["train"].records == 500
