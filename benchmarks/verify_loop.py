"""The minimum cost of a verification: reads every record and decodes its image, one process per core.

python -m benchmarks.verify_loop DATASET PROCESSES

It checks nothing: frames are found by the index of each shard, images by the name of their feature.
"""

from __future__ import annotations

import io
import multiprocessing
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import simplejpeg
from PIL import Image

from recordmill.transforms.examples.framing import FRAME_BYTES, HEAD_BYTES
from recordmill.transforms.examples.wire import read_example

_RECORDS = 64
_JPEG = b"\xff\xd8"


class Part(NamedTuple):
    """Some records of a shard, by offset and length of their frames."""

    path: str
    frames: list[tuple[int, int]]


def decode_part(part: Part) -> int:
    """Decodes the images of some records, and returns their number of pixels."""
    pixels = 0
    with open(part.path, "rb") as file:
        for offset, length in part.frames:
            file.seek(offset + HEAD_BYTES)
            record = file.read(length - FRAME_BYTES)
            span = read_example(record)["image/encoded"].spans[0]
            data = record[span.start : span.stop]
            if data.startswith(_JPEG):
                shape = simplejpeg.decode_jpeg(data).shape
            else:
                shape = np.asarray(Image.open(io.BytesIO(data))).shape
            pixels += shape[0] * shape[1]
    return pixels


def main(dataset: str, processes: str) -> None:
    """Decodes all images, and prints their number of pixels."""
    parts = []
    for index in sorted(Path(dataset, "index").glob("*.idx")):
        lines = [line.split() for line in index.read_text("ascii").splitlines()]
        frames = [(int(offset), int(length)) for offset, length in lines]
        shard = str(Path(dataset, f"{index.stem}.tfrecord"))
        parts += [Part(shard, frames[at : at + _RECORDS]) for at in range(0, len(frames), _RECORDS)]
    with multiprocessing.get_context("spawn").Pool(int(processes)) as pool:
        print(sum(pool.imap_unordered(decode_part, parts)))


if __name__ == "__main__":
    main(*sys.argv[1:])
