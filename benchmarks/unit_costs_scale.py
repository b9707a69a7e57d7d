"""The model of docs/scale.md: what a million, a hundred million and five billion images take on Dataflow.

python -m benchmarks.unit_costs_scale

Prices and rates are those of `convert --plan`; what it does not have was measured by `benchmarks.unit_costs`.
"""

from __future__ import annotations

import dataclasses
import math

from benchmarks.report import markdown_table
from recordmill.pipelines import estimate
from recordmill.pipelines.options.dataflow import DISK_GB, MACHINE_TYPE
from recordmill.transforms.config import MIB, DatasetConfig
from recordmill.transforms.shards.batching import BATCH_BYTES, HELD_BYTES

IMAGE_BYTES = 100_000
_MOST_SHARDS = 99_999

# Seconds of CPU: of an image, and of a shard in the one worker that publishes.
LIST_CPU = 69e-6
SURVEY_CPU = 13e-6
SHUFFLE_CPU = 27e-6
STATE_CPU = 5e-6
TAKE_OVER_CPU = 800e-6
PUBLISH_CPU = 0.4e-3
# Bytes: of an image, and of a shard.
REFERENCE = 144
KEY_HASH = 8
LISTED = 424
STATE = 48
LISTED_AT_ONCE = 10_000
FAILURE = 250
FAILURES_HELD = 64 * MIB
MANIFEST = 300
REPORT = 5786
# Requests of class A (list, write, copy) and of class B (read, look at one): of an image, a shard, a job.
LISTED_A = 1 / 1000
MADE_A, WHOLE_A = 10, 6
MADE_B, WHOLE_B, SAME_B = 1, 1, 3
JOB_A, JOB_B = 144, 321
# Parts that an input is listed in, side by side, of thousands of images each at least; requests of each: it
# is looked for, and the folders that lead to it are walked again.
PARTS = 1000
PART_A = 6

# Assumed, not measured: bytes a second that a vCPU moves from a bucket, and as many into it; seconds of a
# request, of which one worker has so many at a time; that the service's shuffle takes what it is given.
STREAM = 50e6
REQUEST = 0.05
CONNECTIONS = 16
_READ_AHEAD = 4 * MIB
# Of the last step, in which one worker moves each file of each shard: records, index, state; copy and delete.
_EXPOSING = 3 * 2


@dataclasses.dataclass(frozen=True)
class Size:
    """A number of images, and the workers that a job for them may have."""

    name: str
    images: int
    workers: int

    @property
    def shards(self) -> int:
        """As the plan derives their number."""
        return min(math.ceil(self.images * IMAGE_BYTES / DatasetConfig().shard_size), _MOST_SHARDS)


SIZES = (Size("1 million", 10**6, 10), Size("100 million", 10**8, 100), Size("5 billion", 5 * 10**9, 1000))


@dataclasses.dataclass(frozen=True)
class Run:
    """A run: how many images are new or changed since the one before it.

    Attributes:
        name: of it.
        part: of all images that changed, and as many that are new, and as many that have left.
        new: images beside.
        is_first: there is none before it.
    """

    name: str
    part: float = 0.0
    new: int = 0
    is_first: bool = False

    @property
    def is_same(self) -> bool:
        """Whether nothing has changed."""
        return not (self.is_first or self.part or self.new)

    def made(self, size: Size) -> float:
        """How many images are encoded."""
        return size.images if self.is_first else 2 * self.part * size.images + self.new

    def touched(self, size: Size) -> float:
        """How many shards are written: changes fall into any of them, by chance."""
        if self.is_first:
            return size.shards
        events = 3 * self.part * size.images + self.new
        return size.shards * -math.expm1(events * math.log1p(-1 / size.shards))


RUNS = (
    Run("first", is_first=True),
    Run("1 % changed, 1 % new, 1 % deleted", part=0.01),
    Run("ten new images", new=10),
    Run("nothing changed"),
)


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a run of a size takes: hours of a vCPU by part; of workers; from start to end; and dollars."""

    listing: float
    shuffle: float
    images: float
    taking_over: float
    exposing: float
    worker_hours: float
    wall: float
    compute: float
    shuffled: float
    requests: float

    @property
    def total(self) -> float:
        """Dollars."""
        return self.compute + self.shuffled + self.requests


def cost_of(size: Size, run: Run) -> Cost:
    """What a run takes on Dataflow, all images in one job."""
    shards, made, touched = size.shards, run.made(size), run.touched(size)
    whole = 0 if run.is_same else shards - touched
    taken = max(size.images * touched / shards - made, 0)
    parts = min(PARTS, math.ceil(size.images / LISTED_AT_ONCE))
    listing = size.images * (LIST_CPU + SURVEY_CPU) / 3600
    # One thread lists a part, and waits for each page of it.
    longest = size.images / parts * (LIST_CPU + SURVEY_CPU + LISTED_A * REQUEST) / 3600
    finding = parts * PART_A * REQUEST / CONNECTIONS / 3600
    shuffle = size.images * (SHUFFLE_CPU + (0 if run.is_first else STATE_CPU)) / 3600
    images = made * _image_seconds() / 3600
    taking_over = taken * max(TAKE_OVER_CPU, IMAGE_BYTES / STREAM) / 3600
    published = 0 if run.is_same else shards
    exposing = published * (PUBLISH_CPU + _EXPOSING * REQUEST / CONNECTIONS) / 3600
    machine = estimate.machine_of(MACHINE_TYPE, DISK_GB)
    side_by_side = (listing + shuffle + images + taking_over) / machine.vcpus / estimate._BUSY
    # More workers than there is work for would only start.
    workers = min(size.workers, max(math.ceil(side_by_side * 3600 / estimate._WORKER_SECONDS), 1))
    started = estimate._WORKER_START / 3600
    worker_hours = finding + exposing + side_by_side + workers * started
    hourly = (
        machine.vcpus * estimate.VCPU_HOUR
        + machine.memory_gb * estimate.GB_HOUR
        + machine.disk_gb * estimate.DISK_GB_HOUR
    )
    read = made + taken * IMAGE_BYTES / _READ_AHEAD + shards * (0 if run.is_first else SAME_B)
    class_a = size.images * LISTED_A + parts * PART_A + touched * MADE_A + whole * WHOLE_A + JOB_A
    class_b = read + (touched * MADE_B + whole * WHOLE_B) + JOB_B
    return Cost(
        listing,
        shuffle,
        images,
        taking_over,
        exposing,
        worker_hours,
        started + finding + max(side_by_side / workers, longest) + exposing,
        worker_hours * hourly,
        shuffled_bytes(size) / 1e9 * estimate.SHUFFLE_GB,
        class_a * estimate.CLASS_A + class_b * estimate.CLASS_B,
    )


def shuffled_bytes(size: Size) -> int:
    """References and hashes, into the shuffle and out of it."""
    return size.images * (REFERENCE + KEY_HASH) * estimate._SHUFFLE_PASSES


def _image_seconds() -> float:
    """Of a vCPU, for an image that is kept: its codec and its request, or waiting for that."""
    rate, weight = estimate.IMAGES_PER_SECOND["keep"], IMAGE_BYTES / estimate._IMAGE_BYTES
    waiting = estimate._REQUEST_WAIT / estimate._REQUESTS_AT_A_TIME
    return max(weight / rate + estimate._REQUEST_CPU, waiting)


def cost_table(size: Size) -> str:
    """A row a run."""
    header = (
        f"{size.name} images",
        "list",
        "shuffle",
        "images",
        "take over",
        "publish",
        "worker hours",
        f"wall, {size.workers:,} workers",
        "workers",
        "shuffle",
        "requests",
        "together",
    )
    rows = []
    for run in RUNS:
        found = cost_of(size, run)
        parts = (found.listing, found.shuffle, found.images, found.taking_over, found.exposing)
        dollars = (found.compute, found.shuffled, found.requests, found.total)
        rows.append(
            (
                run.name,
                *(_figure(hours) for hours in parts),
                _figure(found.worker_hours),
                _duration(found.wall),
                *(f"${_figure(price)}" for price in dollars),
            )
        )
    return markdown_table(header, rows)


def size_table() -> str:
    """A row for each thing that grows."""
    rows = {
        "images, of 100 KB": [_bytes(size.images * IMAGE_BYTES) for size in SIZES],
        "shards, by default": [f"{size.shards:,}" for size in SIZES],
        "a shard": [_bytes(size.images * IMAGE_BYTES / size.shards) for size in SIZES],
        "images a shard": [f"{size.images / size.shards:,.0f}" for size in SIZES],
        "references": [_bytes(size.images * REFERENCE) for size in SIZES],
        "references of one shard": [_bytes(size.images * REFERENCE / size.shards) for size in SIZES],
        "through the shuffle, in and out": [_bytes(shuffled_bytes(size)) for size in SIZES],
        "state": [_bytes(size.images * STATE) for size in SIZES],
        "stored, a month": [
            f"${_figure(size.images * IMAGE_BYTES / 1e9 * estimate.STORED_GB_MONTH)}" for size in SIZES
        ],
        "failures.jsonl, were 1 % to fail": [_bytes(size.images / 100 * FAILURE) for size in SIZES],
        "hashes of one of the 256 groups that find repeated keys": [
            _bytes(size.images * KEY_HASH / 256) for size in SIZES
        ],
        "batches that one bundle may hold open": [
            _bytes(min(size.shards * BATCH_BYTES, HELD_BYTES)) for size in SIZES
        ],
        "names of one folder that are held": [
            _bytes(min(size.images, LISTED_AT_ONCE) * LISTED) for size in SIZES
        ],
        "lines of failures.jsonl in memory": [
            _bytes(min(size.images / 100 * FAILURE, FAILURES_HELD)) for size in SIZES
        ],
        "reports, a side input": [_bytes(size.shards * REPORT) for size in SIZES],
        "manifest.json": [_bytes(size.shards * MANIFEST) for size in SIZES],
    }
    header = ("", *(f"{size.name} images" for size in SIZES))
    return markdown_table(header, [(name, *cells) for name, cells in rows.items()])


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


def main() -> None:
    """Prints all tables."""
    print("\n\n".join([size_table(), *map(cost_table, SIZES)]))


if __name__ == "__main__":
    main()
