"""The index as the `tfrecord` package for PyTorch reads it.

In a process of its own: its message types have the names that TensorFlow's have. Its torch datasets hand a
worker's number to the loaders that are called here, which need no torch.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.readers.drawn import SENTENCES, keys_of

pytestmark = pytest.mark.tfrecord

HEAD = """
import collections, hashlib, json, sys
import numpy as np
from tfrecord import reader
folder, index = sys.argv[1], sys.argv[1] + "/index/{}.idx"
shards = ["train-%05d-of-00003" % number for number in range(3)]
def load(name, shard=None):
    return reader.tfrecord_loader(f"{folder}/{name}.tfrecord", index.format(name), TYPES, shard)
def told(example):
    encoded = hashlib.sha256(example["image/encoded"]).hexdigest()
    return bytes(example["image/filename"]).decode(), encoded, example["image/class/label"].tolist()
TYPES = {"image/filename": "byte", "image/encoded": "byte", "image/class/label": "int"}
"""


def run(folder: Path, script: str) -> Any:
    """What a script prints as JSON."""
    command = [sys.executable, "-c", HEAD + script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def expected(classes: Path) -> list[list[Any]]:
    """Key, sha256 of the file and label of each image of the split `train`."""
    return sorted(
        [key, hashlib.sha256((classes.parent / "in" / key).read_bytes()).hexdigest(), [label]]
        for key, label in keys_of("train").items()
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_share_each_shard_by_its_index(classes: Path, workers: int) -> None:
    script = f"""
found = [[told(one) for one in load(name, (at, {workers}))] for name in shards for at in range({workers})]
print(json.dumps(found))
"""
    found = run(classes, script)
    # Of the few records of a shard, one worker may have none.
    assert len(list(filter(None, found))) > 3 * (workers - 1)
    assert sorted(sum(found, [])) == expected(classes)


def test_a_shard_read_from_any_record_on(classes: Path) -> None:
    script = """
starts = set()
for seed in range(40):
    np.random.seed(seed)
    read = [told(one) for one in load(shards[0])]
    starts.add(read[0][0])
    assert len(read) == len(set(one[0] for one in read)), read
print(json.dumps([len(starts), len(read)]))
"""
    starts, count = run(classes, script)
    assert starts == count > 3


def test_many_shards_by_a_pattern(classes: Path) -> None:
    script = """
np.random.seed(0)
ratios = dict.fromkeys(shards, 1.0)
found = reader.multi_tfrecord_loader(folder + "/{}.tfrecord", index, ratios, TYPES, infinite=False)
print(json.dumps([told(one) for one in found]))
"""
    assert sorted(run(classes, script)) == expected(classes)


@pytest.mark.slow
def test_sequences(words: Path) -> None:
    script = """
name = "train-00000-of-00001"
types = {"word": "byte", "letters": "int"}
path = f"{folder}/{name}.tfrecord"
found = {}
for context, steps in reader.tfrecord_loader(path, index.format(name), ["number"], (0, 1), types):
    words = [bytes(word).decode() for word in steps["word"]]
    found[int(context["number"][0])] = [words, [int(count[0]) for count in steps["letters"]]]
print(json.dumps(found))
"""
    found = run(words, script)
    assert found == {
        str(number): [list(words), list(map(len, words))] for number, words in enumerate(SENTENCES)
    }
