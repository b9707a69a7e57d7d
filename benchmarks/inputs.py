"""Draws inputs into a cache folder: JPEGs of one size, digits as IDX files, a table."""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import io
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from benchmarks.drawings import SHAPES, draw

TEN = 10
_DRAWINGS = 240  # distinct drawings; files of the same drawing differ in a comment segment
_DIGIT_SIDE = 28


def benchmark_parser(name: str, doc: str | None, images: int, repeats: int) -> argparse.ArgumentParser:
    """The parser of the benchmark in module `name`, with the flags of all benchmarks and their defaults."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--images", type=int, default=images, help=f"JPEGs of about 70 KB (default: {images})")
    add("--repeats", type=int, default=repeats, help=f"rounds (default: {repeats})")
    add("--work", type=Path, default=Path("build/benchmarks"), help="folder of the inputs")
    return parser


def draw_jpegs(folder: Path, number: int) -> None:
    """Draws JPEGs of about 70 KB, 480x360, quality 95 at 4:2:0, into <shape>/."""
    drawings = []
    for index in range(min(number, _DRAWINGS)):
        stored = io.BytesIO()
        drawing = draw(
            SHAPES[index % len(SHAPES)], seed=index, width=480, height=360, noise=5 + index % 5 / 2
        )
        drawing.save(stored, "JPEG", quality=95, subsampling="4:2:0")
        drawings.append(stored.getvalue())
    for index, path in enumerate(shape_paths(folder, number)):
        path.with_suffix(".jpg").write_bytes(with_comment(drawings[index % len(drawings)], b"%08d" % index))


def shape_paths(folder: Path, number: int) -> list[Path]:
    """Paths of files without suffix in new folders, one folder a shape."""
    for shape in SHAPES:
        (folder / shape).mkdir(parents=True)
    return [folder / SHAPES[index % len(SHAPES)] / f"{index:08d}" for index in range(number)]


def with_comment(jpeg: bytes, comment: bytes) -> bytes:
    """A JPEG with a COM segment (ITU-T T.81, B.2.4.5) after its first segment, which must be JFIF."""
    first_end = 4 + int.from_bytes(jpeg[4:6], "big")
    segment = b"\xff\xfe" + struct.pack(">H", len(comment) + 2) + comment
    return jpeg[:first_end] + segment + jpeg[first_end:]


def draw_digits(folder: Path, number: int) -> None:
    """Draws digits of 28x28 pixels as the gzip IDX files of MNIST's test set."""
    folder.mkdir()
    font = ImageFont.load_default(size=24)
    random = np.random.default_rng(0)
    images = bytearray(struct.pack(">HBBIII", 0, 8, 3, number, _DIGIT_SIDE, _DIGIT_SIDE))
    for index in range(number):
        image = Image.new("L", (_DIGIT_SIDE, _DIGIT_SIDE))
        x, y = random.uniform(4, 10), random.uniform(-4, 2)
        ImageDraw.Draw(image).text((x, y), str(index % 10), fill=255, font=font)
        images += image.rotate(random.uniform(-15, 15), Image.Resampling.BILINEAR).tobytes()
    labels = struct.pack(">HBBI", 0, 8, 1, number) + bytes(index % 10 for index in range(number))
    for name, content in (("images-idx3", bytes(images)), ("labels-idx1", labels)):
        path = folder / f"t10k-{name}-ubyte.gz"
        path.write_bytes(gzip.compress(content, mtime=0))


def draw_manifest(path: Path, number: int) -> None:
    """Writes a CSV without images: an integer, a number and two texts in each row."""
    random = np.random.default_rng(0)
    scores = random.normal(0, 1, number)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["customer", "score", "city", "note"])
        for index, score in enumerate(scores):
            writer.writerow([index, f"{score:.6f}", f"city {index % 997}", f"drawn as row {index}"])


def once(path: Path, make: Callable[[Path, int], None], number: int) -> Path:
    """`path`, which `make` creates if it does not exist; it is never partial."""
    if not path.exists():
        with own_folder(path.parent) as folder:
            make(folder / path.name, number)
            (folder / path.name).rename(path)
    return path


@contextlib.contextmanager
def own_folder(work: Path) -> Iterator[Path]:
    """A new folder in `work`, removed at the end with all its contents."""
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=work) as folder:
        yield Path(folder)
