"""Runs conversions as people do, and reads them back with TensorFlow."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recordmill.pipelines import cli


def convert(*args: object) -> int:
    """Exit status of `recordmill convert`, in this process."""
    try:
        return cli.main(["convert", *map(str, args), "--progress=none"])
    except SystemExit as stop:
        assert isinstance(stop.code, int)
        return stop.code


def manifest(output: Path) -> dict[str, Any]:
    """The manifest of a published dataset."""
    found: dict[str, Any] = json.loads((output / "manifest.json").read_text("utf-8"))
    return found


def failures(output: Path) -> list[dict[str, Any]]:
    """The lines of failures.jsonl."""
    with open(output / "failures.jsonl", encoding="utf-8", newline="\n") as file:
        return [json.loads(line) for line in file]


def digests(output: Path) -> dict[str, str]:
    """sha256 of each shard and index."""
    paths = [*output.glob("*.tfrecord"), *output.glob("index/*.idx")]
    return {str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def examples(output: Path, pattern: str = "*") -> Iterator[dict[str, list[Any]]]:
    """Features of all records of the shards of a pattern, in order, read by TensorFlow."""
    import tensorflow as tf

    paths = sorted(str(path) for path in output.glob(f"{pattern}.tfrecord"))
    for serialized in tf.data.TFRecordDataset(paths).as_numpy_iterator():
        example = tf.train.Example.FromString(serialized)
        yield {
            name: list(getattr(feature, feature.WhichOneof("kind")).value)
            for name, feature in example.features.feature.items()
        }


def by_key(output: Path, pattern: str = "*") -> dict[str, dict[str, list[Any]]]:
    """The same, by image/filename."""
    return {example["image/filename"][0].decode(): example for example in examples(output, pattern)}
