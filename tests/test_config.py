"""What a configuration refuses."""

from typing import Any

import pytest

from transforms.config import DatasetConfig


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"writer": "tfds"}, "--writer is 'tfds'; it may be shards or beam"),
        ({"order": "key"}, "--order is 'key', which only --writer=shards heeds"),
        ({"seed": 3}, "--seed is 3, which only --writer=shards heeds"),
        ({"shard_size": 1000}, "--shard_size is 1000, which only --writer=shards heeds"),
        ({"reader_hosts": 2}, "--reader_hosts is 2, which only --writer=shards heeds"),
        ({"num_shards": {"../x": 1}}, "--num_shards names a split '../x'"),
        ({"num_shards": {"train": 0}}, "--num_shards is 0; it may be 1 to 99999"),
        ({"num_shards": 100_000}, "--num_shards is 100000; it may be 1 to 99999"),
    ],
)
def test_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DatasetConfig(**{"writer": "beam", **fields})


def test_what_only_one_writer_can_do_is_that_one_s() -> None:
    for fields in ({"order": "key"}, {"seed": 3}, {"shard_size": 1000}, {"reader_hosts": 2}):
        assert DatasetConfig(**fields).writer == "shards"  # type: ignore[arg-type]


def test_each_writer_has_a_digest_and_the_splits_of_the_layout_have_none() -> None:
    digests = {DatasetConfig(writer=writer).digest({}) for writer in ("shards", "beam")}
    assert len(digests) == 2
    assert DatasetConfig(writer="beam", split_names=("a", "b")).digest({}) in digests
