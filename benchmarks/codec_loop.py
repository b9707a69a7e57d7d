"""The minimum cost of re-encoding images: read, decode, encode, discard; one process per core.

python -m benchmarks.codec_loop PHOTOS PROCESSES [SHORT_SIDE]

At quality 90 and 4:2:0; with SHORT_SIDE images are also scaled down to it, as by `convert --short_side`.
"""

from __future__ import annotations

import functools
import io
import multiprocessing
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import simplejpeg
from PIL import Image

_CHUNK = 32
_SUFFIXES = (".jpg", ".png")


def recode(path: Path, short_side: int) -> int:
    """Decodes an image, scales it down to `short_side` if not 0, encodes it, and returns the length."""
    data = path.read_bytes()
    if path.suffix == ".png":
        pixels = np.asarray(Image.open(io.BytesIO(data)))
    else:
        pixels = simplejpeg.decode_jpeg(data)
    if short_side:
        height, width = _scaled(pixels.shape[:2], short_side)
        pixels = np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))
    return len(simplejpeg.encode_jpeg(pixels, quality=90, colorsubsampling="420"))


def _scaled(size: Sequence[int], short_side: int) -> tuple[int, int]:
    """Height and width, the shorter of which is `short_side`."""
    short = min(size)
    height, width = ((2 * side * short_side + short) // (2 * short) for side in size)
    return height, width


def main(photos: str, processes: str, short_side: str = "0") -> None:
    """Re-encodes every file of a folder, and prints the total of bytes."""
    paths = [path for path in Path(photos).rglob("*") if path.suffix in _SUFFIXES]
    work = functools.partial(recode, short_side=int(short_side))
    with multiprocessing.get_context("spawn").Pool(int(processes)) as pool:
        print(sum(pool.imap_unordered(work, paths, chunksize=_CHUNK)))


if __name__ == "__main__":
    main(*sys.argv[1:])
