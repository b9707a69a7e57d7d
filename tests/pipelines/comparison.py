"""Compares datasets whose records are in different orders, read by TensorFlow."""

from collections import Counter
from pathlib import Path
from typing import Any

from tests.pipelines.conversion import duplicates, failures, manifest


def payloads(output: Path, pattern: str = "*") -> list[bytes]:
    """All records of the shards of a pattern, in order, read by TensorFlow."""
    import tensorflow as tf

    paths = sorted(str(path) for path in output.glob(f"{pattern}.tfrecord"))
    return list(tf.data.TFRecordDataset(paths).as_numpy_iterator()) if paths else []


def shards(output: Path) -> dict[str, int]:
    """Number of records of each shard that the manifest lists, which are all that there are."""
    listed = {
        shard["file"]: shard["records"]
        for split in manifest(output)["splits"].values()
        for shard in split["shards"]
    }
    assert sorted(listed) == sorted(path.name for path in output.glob("*.tfrecord"))
    assert {name: len(payloads(output, name.removesuffix(".tfrecord"))) for name in listed} == listed
    return listed


def described(output: Path) -> dict[str, Any]:
    """The manifest, but for what the order of the records and the time decide."""
    found = manifest(output)
    del found["provenance"], found["config"]["writer"], found["config_digest"], found["files"], found["seal"]
    found["digests"].pop("dataset_info.json", None)  # it has the length of each shard
    found["digests"].pop("duplicates.jsonl", None)  # it has the shards of the records
    found["splits"] = {name: split["records"] for name, split in found["splits"].items()}
    return found


def assert_same_dataset(one: Path, other: Path) -> None:
    """The same records in each split, in whatever order, and the same words about them."""
    for split in manifest(one)["splits"]:
        assert Counter(payloads(one, f"{split}-*")) == Counter(payloads(other, f"{split}-*"))
    assert described(one) == described(other)
    assert failures(one) == failures(other)
    assert duplicates(one) == duplicates(other)
    for name in ("features.json", "image.class.label.labels.txt"):
        if (one / name).exists():
            assert (one / name).read_bytes() == (other / name).read_bytes()
