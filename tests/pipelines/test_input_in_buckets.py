"""load_dataset on gs://, against the emulator: the same records as on a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill import dataset_info, load_dataset
from tests.buckets.server import BucketServer
from tests.lazy import tf
from tests.pipelines.conversion import convert


@pytest.mark.slow
def test_a_bucket_is_as_good_as_a_disk(
    photos: Path, tmp_path: Path, bucket: str, bucket_server: BucketServer
) -> None:
    output = tmp_path / "out"
    assert convert("--input", photos, "--output", output, "--num_shards", 3) == 0
    bucket_server.upload_folder(output, f"{bucket}/out")
    here, there = (list(load_dataset(path, deterministic=True)) for path in (str(output), f"{bucket}/out/"))
    assert len(here) == len(there) == 12
    for one, other in zip(here, there, strict=True):
        assert one.keys() == other.keys()
        assert all(bool(tf.reduce_all(one[name] == other[name])) for name in one)
    part = load_dataset(f"{bucket}/out", "train[3:9]", deterministic=True, features=["image/filename"])
    keys = [one["image/filename"].numpy() for one in here]
    assert [one["image/filename"].numpy() for one in part] == keys[3:9]
    assert int(part.cardinality()) == 6
    assert part.options().experimental_distribute.auto_shard_policy.name == "DATA"
    assert dataset_info(f"{bucket}/out").splits == {"train": 12}
    shuffled = load_dataset(f"{bucket}/out/train-*", shuffle=True, seed=1, features=["image/filename"])
    assert sorted(one["image/filename"].numpy() for one in shuffled) == sorted(keys)
