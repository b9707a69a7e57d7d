"""The least that re-encoding can cost: read, decode, encode at quality 90, throw away; one process a core.

python -m benchmarks.codec_loop PHOTOS PROCESSES
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import simplejpeg

_CHUNK = 32


def reencode(path: Path) -> int:
    """Decodes a JPEG, encodes it at 4:2:0, and returns the length of the result."""
    pixels = simplejpeg.decode_jpeg(path.read_bytes())
    return len(simplejpeg.encode_jpeg(pixels, quality=90, colorsubsampling="420"))


def main(photos: str, processes: str) -> None:
    """Re-encodes every file of a folder, and prints how many bytes come of it."""
    paths = list(Path(photos).rglob("*.jpg"))
    with multiprocessing.get_context("spawn").Pool(int(processes)) as pool:
        print(sum(pool.imap_unordered(reencode, paths, chunksize=_CHUNK)))


if __name__ == "__main__":
    main(*sys.argv[1:])
