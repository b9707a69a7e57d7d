"""Estimates the cost of a plan on Dataflow: worker hours, money and assumptions. Imports no Beam."""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recordmill.pipelines.options.dataflow import DISK_GB, MACHINE_TYPE, MAX_WORKERS

# Images of _IMAGE_BYTES (480x360) that one vCPU converts in a second, without the network. Kept and as JPEG:
# half the rate of two cores, measured with 20,000 images. The others: that of the codec, with this overhead.
IMAGES_PER_SECOND = {
    "header": 3218,
    "keep": 946,
    "jpeg": 492,
    "raw": 700,
    "tensor": 670,
    "png": 30,
    "webp": 38,
}
_IMAGE_BYTES = 67_000
# Rows of a manifest that have no image.
_ROWS_PER_SECOND = 20_000
# A request of Cloud Storage takes 2.6 ms of CPU without TLS. A few others of the same vCPU wait meanwhile.
_REQUEST_CPU = 0.004
_REQUEST_WAIT = 0.050
_REQUESTS_AT_A_TIME = 8

# The busy share of paid time: autoscaling is late, and the last shards are too few for all workers.
_BUSY = 0.7
_WORKER_START = 240
# Dataflow adds workers to jobs that would take longer than this.
_WORKER_SECONDS = 600
# Bytes of a reference, and how often one is written to or read from the shuffle.
_REFERENCE_BYTES = 300
_SHUFFLE_PASSES = 2

PRICES = "the prices are list prices of us-central1 in 2025, in US dollars; yours may differ"
VCPU_HOUR = 0.056
GB_HOUR = 0.003557
DISK_GB_HOUR = 0.000054
SHUFFLE_GB = 0.011
# Listing, writing and copying; reading.
CLASS_A = 0.05 / 10_000
CLASS_B = 0.004 / 10_000
STORED_GB_MONTH = 0.020

# Of a listing, and of a shard: it, its index and its checkpoint written, the first two copied, the last read.
_PAGE = 1000
_CLASS_A_PER_SHARD = 6

_GB = 1e9
_MACHINE = re.compile(r"(?P<family>[a-z0-9]+)-(?P<kind>standard|highmem|highcpu)-(?P<cores>\d+)\b.*")
_CUSTOM = re.compile(r"(?:[a-z0-9]+-)?custom-(?P<cores>\d+)-(?P<megabytes>\d+)(?:-ext)?")
_GB_PER_CORE = {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0}
_GB_PER_CORE_N1 = {"standard": 3.75, "highmem": 6.5, "highcpu": 0.9}


@dataclasses.dataclass(frozen=True)
class Machine:
    """A worker machine."""

    name: str
    vcpus: int
    memory_gb: float
    disk_gb: float


@dataclasses.dataclass(frozen=True)
class Workers:
    """The workers of a job: their machine, their maximum number, and whether the number is fixed."""

    machine: Machine
    most: int
    fixed: bool = False


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The cost of a job, in US dollars."""

    workers: int  # at the same time
    worker_hours: float
    hours: float  # from the first worker to the end
    compute: float  # vCPUs, memory and disks
    shuffle: float
    requests: float  # of Cloud Storage
    stored: float  # the dataset in Cloud Storage, a month
    assumptions: tuple[str, ...]  # a line each

    @property
    def total(self) -> float:
        """Dollars for the job."""
        return self.compute + self.shuffle + self.requests


def estimate(
    plan: Mapping[str, Any], image_format: str, validate: str, writer: str, workers: Workers
) -> Estimate:
    """Estimates the cost of the job of a plan, which `recordmill.transforms.plan.write_plan` wrote."""
    rate = IMAGES_PER_SECOND["header" if (image_format, validate) == ("keep", "header") else image_format]
    busy = _busy_seconds(plan, rate)
    shards = sum(split["shards"] for split in plan["splits"].values())
    machine = workers.machine
    used = _workers(busy, workers, shards if writer == "shards" else 0)
    worker_hours = busy / machine.vcpus / _BUSY / 3600 + used * _WORKER_START / 3600
    hourly = machine.vcpus * VCPU_HOUR + machine.memory_gb * GB_HOUR + machine.disk_gb * DISK_GB_HOUR
    images = plan["records"] if plan["has_images"] else 0
    read_before = plan["identify"]["read"]
    class_a = math.ceil(images / _PAGE) + _CLASS_A_PER_SHARD * shards
    return Estimate(
        workers=used,
        worker_hours=worker_hours,
        hours=worker_hours / used,
        compute=worker_hours * hourly,
        shuffle=_shuffled_bytes(plan, writer) / _GB * SHUFFLE_GB,
        requests=class_a * CLASS_A + (images + read_before) * CLASS_B,
        stored=plan["estimated_bytes"] / _GB * STORED_GB_MONTH,
        assumptions=tuple(_assumptions(rate, machine, bool(images))),
    )


def workers_of(beam_args: Sequence[str]) -> Workers:
    """The workers in Beam's flags for Dataflow."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--machine_type", "--worker_machine_type", default=MACHINE_TYPE)
    parser.add_argument("--disk_size_gb", type=float, default=DISK_GB)
    parser.add_argument("--num_workers", type=int, default=1)
    parser.add_argument("--max_num_workers", type=int, default=MAX_WORKERS)
    parser.add_argument("--autoscaling_algorithm")
    flags, _ = parser.parse_known_args(list(beam_args))
    fixed = flags.autoscaling_algorithm == "NONE"
    most = flags.num_workers if fixed else flags.max_num_workers
    return Workers(machine_of(flags.machine_type, flags.disk_size_gb), max(most, 1), fixed)


def machine_of(name: str, disk_gb: float) -> Machine:
    """The machine of a type; one vCPU with 4 GB if the name is not recognised."""
    if custom := _CUSTOM.fullmatch(name):
        return Machine(name, int(custom["cores"]), int(custom["megabytes"]) / 1024, disk_gb)
    if (found := _MACHINE.fullmatch(name)) is None:
        return Machine(name, 1, _GB_PER_CORE["standard"], disk_gb)
    cores = int(found["cores"])
    per_core = _GB_PER_CORE_N1 if found["family"] == "n1" else _GB_PER_CORE
    return Machine(name, cores, cores * per_core[found["kind"]], disk_gb)


def _busy_seconds(plan: Mapping[str, Any], rate: int) -> float:
    """Seconds of one vCPU that all records take."""
    records: int = plan["records"]
    if not plan["has_images"]:
        return records / _ROWS_PER_SECOND
    read_before: int = plan["identify"]["read"]
    # Larger images take longer in proportion; smaller ones are not faster, to be on the safe side.
    weight: float = max(plan["source_bytes"] / records / _IMAGE_BYTES, 1)
    shortest = _REQUEST_WAIT / _REQUESTS_AT_A_TIME
    hashing = read_before * max(_REQUEST_CPU, shortest)
    return hashing + records * max(weight / rate + _REQUEST_CPU, shortest)


def _workers(busy: float, workers: Workers, shards: int) -> int:
    """How many run at the same time; one vCPU writes a shard."""
    if workers.fixed:
        return workers.most
    wanted = math.ceil(busy / workers.machine.vcpus / _WORKER_SECONDS)
    bound = math.ceil(shards / workers.machine.vcpus) if shards else wanted
    return max(min(wanted, bound, workers.most), 1)


def _shuffled_bytes(plan: Mapping[str, Any], writer: str) -> int:
    """Bytes that go through the shuffle, in and out: references, and with --writer=beam the records."""
    size: int = plan["records"] * _REFERENCE_BYTES
    if writer == "beam":
        size += plan["estimated_bytes"]
    return _SHUFFLE_PASSES * size


def _assumptions(rate: int, machine: Machine, with_images: bool) -> Iterator[str]:
    yield (
        f"workers are {machine.name}: {machine.vcpus} vCPUs, {machine.memory_gb:g} GB of memory, "
        f"{machine.disk_gb:g} GB of disk; they take {_WORKER_START // 60} minutes to start and are busy "
        f"for {_BUSY:.0%} of their time"
    )
    if with_images:
        yield (
            f"a vCPU converts {rate:,} images of {_IMAGE_BYTES // 1000} KB a second, larger ones in "
            f"proportion, and takes {1000 * _REQUEST_CPU:g} ms more for the request of each"
        )
        yield (
            f"Cloud Storage answers within {1000 * _REQUEST_WAIT:g} ms, {_REQUESTS_AT_A_TIME} requests a "
            "vCPU at a time; input, output and workers are in one region, so that transfers cost nothing"
        )
    else:
        yield f"a vCPU converts {_ROWS_PER_SECOND:,} rows a second"
    yield (
        f"a vCPU hour is ${VCPU_HOUR:g}, a GB hour of memory ${GB_HOUR:g}, of disk ${DISK_GB_HOUR:f}; a GB "
        f"shuffled ${SHUFFLE_GB:g}; 10,000 requests that list or write ${10_000 * CLASS_A:g}, that read "
        f"${10_000 * CLASS_B:g}; a GB stored ${STORED_GB_MONTH:g} a month"
    )
    yield PRICES
