"""Runs conversions as people do, and reads them back with TensorFlow."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

from recordmill.pipelines import cli
from recordmill.transforms.workers import pool, process


def _surroundings() -> list[object]:
    """What a process gets of this one when it is started."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return [environment, os.getcwd(), list(sys.path)]


class _Workers:
    """Worker processes that conversions leave for the next one, which need not import anything again.

    Only what was started in the same surroundings is used.
    """

    def __init__(self) -> None:
        self._surroundings: WeakKeyDictionary[process.WorkerProcess, list[object]] = WeakKeyDictionary()
        self._spawn = process.WorkerProcess.spawn
        self._take = process.take
        self._prestart = process.prestart

    def spawn(self, preload: str = "") -> process.WorkerProcess:
        started = self._spawn(preload)
        self._surroundings[started] = _surroundings()
        return started

    def take(self) -> process.WorkerProcess:
        self._forget_others()
        return self._take()

    def prestart(self, *args: Any) -> None:
        self._forget_others()
        self._prestart(*args)

    def _forget_others(self) -> None:
        here = _surroundings()
        with process._idle_lock:
            others = [each for each in process._idle if self._surroundings.get(each) != here]
            process._idle[:] = [each for each in process._idle if each not in others]
        for each in others:
            each.stop()


_workers = _Workers()
process.WorkerProcess.spawn = _workers.spawn  # type: ignore[method-assign]
pool.take, process.prestart = _workers.take, _workers.prestart


def command(*args: object) -> int:
    """Exit status of `recordmill`, in this process."""
    with mock.patch.object(process, "stop_idle"):
        try:
            return cli.main([*map(str, args)])
        except SystemExit as stop:
            assert isinstance(stop.code, int)
            return stop.code


def convert(*args: object) -> int:
    """Exit status of `recordmill convert`."""
    return command("convert", *args, "--progress=none")


def convert_call(source: object, output: object, *args: str) -> list[str]:
    """The command line of a conversion in a process of its own."""
    module = "recordmill.pipelines.convert"
    return [sys.executable, "-m", module, "--input", str(source), "--output", str(output), *args]


def manifest(output: Path) -> dict[str, Any]:
    """The manifest of a published dataset."""
    found: dict[str, Any] = json.loads((output / "manifest.json").read_text("utf-8"))
    return found


def failures(output: Path) -> list[dict[str, Any]]:
    """The lines of failures.jsonl."""
    with open(output / "failures.jsonl", encoding="utf-8", newline="\n") as file:
        return [json.loads(line) for line in file]


def duplicates(output: Path) -> list[dict[str, Any]]:
    """The lines of duplicates.jsonl, without the locations of the records; none without the file."""
    path = output / "duplicates.jsonl"
    found = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    for one in (record for group in found for record in group["records"]):
        one.pop("shard", None)
        one.pop("record", None)
    return found


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
