"""The model of docs/scale.md: the resources for 1 million, 100 million and 5 billion images on Dataflow.

python -m benchmarks.scale

Prices and rates are those of `convert --plan`. The unit costs were measured once, see docs/scale.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from benchmarks.report import markdown_table
from recordmill.pipelines import estimate
from recordmill.pipelines.options.dataflow import DISK_GB, MACHINE_TYPE
from recordmill.transforms.config import MIB, DatasetConfig
from recordmill.transforms.shards.references import BATCH_BYTES, HELD_BYTES

IMAGE_BYTES = 100_000
_MOST_SHARDS = 99_999

# CPU seconds for each image; publishing: for each shard, in one worker.
LIST_CPU = 69e-6
SURVEY_CPU = 13e-6
SHUFFLE_CPU = 27e-6
LINEAGE_CPU = 5e-6
DUPLICATES_CPU = 2e-6
REUSE_CPU = 800e-6
PUBLISH_CPU = 0.4e-3
# Bytes for each image, failure or shard; names are in memory while their folder is listed.
REFERENCE = 144
KEY_HASH = IMAGE_HASH = 8
NAME = 424
LINEAGE = 72
# The share of images that have a copy.
COPIES = 0.05
FAILURE = 250
MANIFEST = 300
REPORT = 5786
NAMES_HELD = 10_000
FAILURES_HELD = 64 * MIB
# Requests of class A (list, write, copy) and of class B (read, stat) for each image, shard or job.
LIST_A = 1 / 1000
WRITTEN_A, COPIED_A = 10, 6
WRITTEN_B, COPIED_B, EARLIER_B = 1, 1, 3
JOB_A, JOB_B = 144, 321
# The lineage of every shard is read to find duplicates, and once more if there are any.
DUPLICATES_B = 2
# Parts of an input are listed in parallel. Each part takes requests to find it and its parent folders.
PARTS = 1000
PART_A = 6

# Assumed, not measured: bytes a second that a vCPU copies from a bucket to a bucket; seconds of a request;
# requests of one worker in parallel.
STREAM = 50e6
REQUEST = 0.05
CONNECTIONS = 16
_READ_AHEAD = 4 * MIB
# One worker copies and deletes three files of each shard: records, index, lineage.
_PUBLISH_REQUESTS = 3 * 2


@dataclasses.dataclass(frozen=True)
class Size:
    """A number of images, and the most workers of a job for them."""

    name: str
    images: int
    workers: int

    @property
    def shards(self) -> int:
        """The number of shards that the plan derives."""
        return min(math.ceil(self.images * IMAGE_BYTES / DatasetConfig().shard_size), _MOST_SHARDS)


SIZES = (Size("1 million", 10**6, 10), Size("100 million", 10**8, 100), Size("5 billion", 5 * 10**9, 1000))


@dataclasses.dataclass(frozen=True)
class Run:
    """A run, described by the changes since the previous one."""

    name: str
    part: float = 0.0  # the fraction of changed images; as many are new, and as many were deleted
    new: int = 0  # further new images
    is_first: bool = False

    @property
    def is_same(self) -> bool:
        return not (self.is_first or self.part or self.new)

    def encoded(self, size: Size) -> float:
        return size.images if self.is_first else 2 * self.part * size.images + self.new

    def written(self, size: Size) -> float:
        """The expected number of shards that are written: each change is in a random shard."""
        if self.is_first:
            return size.shards
        changes = 3 * self.part * size.images + self.new
        return size.shards * -math.expm1(changes * math.log1p(-1 / size.shards))


RUNS = (
    Run("first", is_first=True),
    Run("1 % changed, 1 % new, 1 % deleted", part=0.01),
    Run("ten new images", new=10),
    Run("nothing changed"),
)


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of a run: vCPU hours by step, worker hours, hours from start to end, and US dollars."""

    listing: float
    shuffle: float
    images: float
    reuse: float
    publish: float
    worker_hours: float
    wall: float
    workers: float
    shuffled: float
    requests: float
    total: float


def cost_of(size: Size, run: Run) -> Cost:
    """The cost of a run on Dataflow, with all images in one job."""
    shards, encoded, written = size.shards, run.encoded(size), run.written(size)
    copied = 0 if run.is_same else shards - written
    reused = max(size.images * written / shards - encoded, 0)
    parts = min(PARTS, math.ceil(size.images / NAMES_HELD))
    listing = size.images * (LIST_CPU + SURVEY_CPU) / 3600
    # One thread lists a part, and waits for each page of it.
    longest = size.images / parts * (LIST_CPU + SURVEY_CPU + LIST_A * REQUEST) / 3600
    finding = parts * PART_A * REQUEST / CONNECTIONS / 3600
    shuffle = size.images * (SHUFFLE_CPU + DUPLICATES_CPU + (0 if run.is_first else LINEAGE_CPU)) / 3600
    images = encoded * _image_seconds() / 3600
    reuse = reused * max(REUSE_CPU, IMAGE_BYTES / STREAM) / 3600
    published = 0 if run.is_same else shards
    publish = published * (PUBLISH_CPU + _PUBLISH_REQUESTS * REQUEST / CONNECTIONS) / 3600
    machine = estimate.machine_of(MACHINE_TYPE, DISK_GB)
    parallel = (listing + shuffle + images + reuse) / machine.vcpus / estimate._BUSY
    # Workers without work would only cost their start.
    workers = min(size.workers, max(math.ceil(parallel * 3600 / estimate._WORKER_SECONDS), 1))
    start = estimate._WORKER_START / 3600
    worker_hours = finding + publish + parallel + workers * start
    wall = start + finding + max(parallel / workers, longest) + publish
    hourly = (
        machine.vcpus * estimate.VCPU_HOUR
        + machine.memory_gb * estimate.GB_HOUR
        + machine.disk_gb * estimate.DISK_GB_HOUR
    )
    earlier = 0 if run.is_first else EARLIER_B
    class_a = size.images * LIST_A + parts * PART_A + written * WRITTEN_A + copied * COPIED_A + JOB_A
    class_b = encoded + reused * IMAGE_BYTES / _READ_AHEAD + shards * earlier + JOB_B
    class_b += written * WRITTEN_B + copied * COPIED_B + shards * DUPLICATES_B
    prices = (
        worker_hours * hourly,
        _shuffled(size) / 1e9 * estimate.SHUFFLE_GB,
        class_a * estimate.CLASS_A + class_b * estimate.CLASS_B,
    )
    return Cost(listing, shuffle, images, reuse, publish, worker_hours, wall, *prices, sum(prices))


def _shuffled(size: Size) -> int:
    """Bytes of references and hashes, into the shuffle and out of it."""
    return size.images * (REFERENCE + KEY_HASH + IMAGE_HASH) * estimate._SHUFFLE_PASSES


def _image_seconds() -> float:
    """Seconds of a vCPU for a kept image: its codec and its request, or the time for the answer if longer."""
    rate, weight = estimate.IMAGES_PER_SECOND["keep"], IMAGE_BYTES / estimate._IMAGE_BYTES
    waiting = estimate._REQUEST_WAIT / estimate._REQUESTS_AT_A_TIME
    return max(weight / rate + estimate._REQUEST_CPU, waiting)


def cost_table(size: Size) -> str:
    wall = f"wall, {size.workers:,} workers"
    steps = ("list", "shuffle", "images", "reuse", "publish", "worker hours")
    header = (f"{size.name} images", *steps, wall, "workers", "shuffle", "requests", "total")
    rows = []
    for run in RUNS:
        figures = dataclasses.astuple(cost_of(size, run))
        prices = (f"${_figure(price)}" for price in figures[7:])
        rows.append((run.name, *map(_figure, figures[:6]), _duration(figures[6]), *prices))
    return markdown_table(header, rows)


_GROWS: dict[str, Callable[[Size], str]] = {
    "images, of 100 KB": lambda size: _bytes(size.images * IMAGE_BYTES),
    "shards, by default": lambda size: f"{size.shards:,}",
    "size of a shard": lambda size: _bytes(size.images * IMAGE_BYTES / size.shards),
    "images in a shard": lambda size: f"{size.images / size.shards:,.0f}",
    "references": lambda size: _bytes(size.images * REFERENCE),
    "references of one shard": lambda size: _bytes(size.images * REFERENCE / size.shards),
    "bytes into and out of the shuffle": lambda size: _bytes(_shuffled(size)),
    "lineage": lambda size: _bytes(size.images * LINEAGE),
    "storage for a month": lambda size: (
        f"${_figure(size.images * IMAGE_BYTES / 1e9 * estimate.STORED_GB_MONTH)}"
    ),
    "failures.jsonl, if 1 % fail": lambda size: _bytes(size.images / 100 * FAILURE),
    "hashes in one of 256 groups, to find repeated keys": lambda size: _bytes(size.images * KEY_HASH / 256),
    "hashes in one of 256 groups, to find equal images": lambda size: _bytes(size.images * IMAGE_HASH / 256),
    "hashes of images with copies, if 5 % have one, a side input": lambda size: _bytes(
        size.images * COPIES * IMAGE_HASH
    ),
    "open batches of one bundle": lambda size: _bytes(min(size.shards * BATCH_BYTES, HELD_BYTES)),
    "names of one folder, in memory": lambda size: _bytes(min(size.images, NAMES_HELD) * NAME),
    "lines of failures.jsonl, in memory": lambda size: _bytes(
        min(size.images / 100 * FAILURE, FAILURES_HELD)
    ),
    "reports of all shards, a side input": lambda size: _bytes(size.shards * REPORT),
    "manifest.json": lambda size: _bytes(size.shards * MANIFEST),
}


def size_table() -> str:
    """A row for each quantity that grows with the number of images."""
    rows = [(name, *map(cell, SIZES)) for name, cell in _GROWS.items()]
    return markdown_table(("", *(f"{size.name} images" for size in SIZES)), rows)


def _figure(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _duration(hours: float) -> str:
    minutes = round(60 * hours)
    return f"{minutes} min" if minutes < 120 else f"{hours:,.1f} h"


def _bytes(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.3g} {unit}"


if __name__ == "__main__":
    print("\n\n".join([size_table(), *map(cost_table, SIZES)]))
