"""The same work without Beam: a hand-written loop, one process a core, one whole shard a task.

python -m benchmarks.process_loop PHOTOS OUTPUT PROCESSES
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.one_record import Photo, list_photos, photo_example
from transforms.examples.index import index_lines
from transforms.examples.tfrecord import RecordWriter

_SHARDS = 16
_BUFFER = 1 << 18


class ShardTask(NamedTuple):
    """Files in their final order, and where they go."""

    photos: list[Photo]
    path: Path


class ShardResult(NamedTuple):
    """What the manifest says of a shard."""

    file: str
    records: int
    bytes: int
    sha256: str


def write_shard(task: ShardTask) -> ShardResult:
    """Writes one shard and its index."""
    with task.path.open("wb", buffering=_BUFFER) as file:
        writer = RecordWriter(file)
        for photo in task.photos:
            writer.write(photo_example(photo))
    with task.path.with_suffix(".idx").open("w", encoding="ascii") as index:
        index.writelines(index_lines(writer.lengths))
    return ShardResult(task.path.name, writer.records, writer.bytes_written, writer.sha256)


def main(photos: str, output: str, processes: str) -> None:
    """Converts, in shuffled order."""
    folder = Path(output)
    folder.mkdir(parents=True)
    listed = list_photos(Path(photos))
    random.Random(0).shuffle(listed)
    tasks = [
        ShardTask(listed[number::_SHARDS], folder / f"train-{number:05d}-of-{_SHARDS:05d}.tfrecord")
        for number in range(_SHARDS)
    ]
    with multiprocessing.get_context("spawn").Pool(int(processes)) as pool:
        shards = pool.map(write_shard, tasks, chunksize=1)
    manifest = [shard._asdict() for shard in shards]
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
