"""A hand-written loop without Beam and TensorFlow, one process for each core, one shard for each task.

python -m benchmarks.peers.process_loop WORK INPUT OUTPUT
python -m benchmarks.peers.process_loop WORK INPUT -

With "-" it only calls the codecs: images are read and encoded (kept ones decoded), and the results discarded.
"""

from __future__ import annotations

import itertools
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.peers.items import KEPT, Item, Row, list_items, read_rows, short_side
from benchmarks.peers.records import check, image_example, recode, row_example
from recordmill.pipelines.options.runner import available_cores
from recordmill.transforms.examples.tfrecord import RecordWriter

_SHARDS = 16
_BUFFER = 1 << 18
_ROWS = 10_000


def write_shard(work: str, items: Sequence[Item | Row], path: Path) -> None:
    """Writes one shard."""
    with path.open("wb", buffering=_BUFFER) as file:
        writer = RecordWriter(file)
        for item in items:
            writer.write(row_example(item) if isinstance(item, Row) else image_example(item, work))


def call_codecs(work: str, items: Sequence[Item]) -> None:
    """Decodes kept images, encodes others, and discards the results."""
    for item in items:
        data = Path(item.path).read_bytes()
        if work in KEPT:
            check(data)
        else:
            recode(data, short_side(work))


def main(work: str, source: str, output: str) -> None:
    """Converts an input."""
    parts = _parts_of_rows(Path(source)) if work == "rows" else _parts_of_images(Path(source), output == "-")
    if output != "-":
        Path(output).mkdir(parents=True)
    with multiprocessing.get_context("spawn").Pool(available_cores()) as pool:
        ended = []
        for number, part in enumerate(parts):
            if output == "-":
                ended.append(pool.apply_async(call_codecs, (work, part)))
            else:
                path = Path(output, f"train-{number:05d}.tfrecord")
                ended.append(pool.apply_async(write_shard, (work, part, path)))
        for one in ended:
            one.get()


def _parts_of_rows(source: Path) -> Iterator[Sequence[Row]]:
    rows = read_rows(source)
    return iter(lambda: list(itertools.islice(rows, _ROWS)), [])


def _parts_of_images(source: Path, small: bool) -> Iterator[Sequence[Item]]:
    """Sixteen shards of equal numbers; or more and smaller parts, which occupy all cores to the end."""
    items = list_items(source)
    count = max(len(items) // _SHARDS, 1) if small else _SHARDS
    return (part for number in range(count) if (part := items[number::count]))


if __name__ == "__main__":
    main(*sys.argv[1:])
