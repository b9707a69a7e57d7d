"""What whole commands cost: CPU an image, a record taken over and a shard; requests to a bucket."""

from __future__ import annotations

import collections
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contenders import HEADER_FLAGS, Q90_FLAGS, convert
from benchmarks.measure import wall_seconds
from benchmarks.rerun_changes import HUNDREDTHS, NOTHING, ONE_NEW, TEN_NEW, link_tree
from benchmarks.unit_costs_bucket import CountedBuckets, counted_buckets
from benchmarks.unit_costs_cost import CPU, Cost, children_seconds

_ENCODINGS = {
    "kept, header looked at": HEADER_FLAGS,
    "kept, decoded": (),
    "to JPEG, quality 90": Q90_FLAGS,
}
_SHARDS = 8
_REPEATS = 3
_MORE_SHARDS = 200
_FEW_SHARDS, _MANY_SHARDS = 2, 22
_JOBS = {
    "first run": NOTHING,
    "nothing changed": NOTHING,
    "one new image": ONE_NEW,
    "1 % changed": HUNDREDTHS,
}
_KINDS = {
    "list, write, copy": ("list", "write", "copy"),
    "read, look at one": ("read", "look at one"),
    "delete": ("delete",),
}


def encoding_costs(ten: Path, photos: Path, pngs: Path, work: Path) -> list[Cost]:
    """CPU of an image in a conversion, beyond what ten images take; and of a shard."""
    output = work / "output"
    plain = f"--num_shards={_SHARDS}"
    start = _cpu(convert(plain)(ten, output), output)
    costs = [Cost("a conversion of ten images", 1e6 * start, CPU, "job")]
    for name, flags in _ENCODINGS.items():
        seconds = _cpu(convert(plain, *flags)(photos, output), output)
        costs.append(
            Cost(f"whole conversion, {name}", 1e6 * (seconds - start) / _count(photos), CPU, "image")
        )
    seconds = _cpu(convert(plain, "--image_format=png")(pngs, output), output)
    costs.append(Cost("whole conversion, to PNG", 1e6 * (seconds - start) / _count(pngs), CPU, "image"))
    few, many = (
        _cpu(convert(f"--num_shards={shards}", *HEADER_FLAGS)(photos, output), output)
        for shards in (_SHARDS, _SHARDS + _MORE_SHARDS)
    )
    costs.append(Cost("a shard more, on this machine", 1e6 * (many - few) / _MORE_SHARDS, CPU, "shard"))
    return costs


def version_costs(ten: Path, photos: Path, work: Path) -> list[Cost]:
    """State, and CPU of a record in the next version, beyond what ten images take."""
    source, home, output = work / "versions-in", work / "versions", work / "output"
    flags = (f"--num_shards={_SHARDS}", "--dataset_version=auto", "--quiet")
    start = _cpu(convert(*flags)(ten, output), output)
    link_tree(photos, source)
    wall_seconds(convert(*flags)(source, home))
    number = _count(source)
    state = sum(path.stat().st_size for path in (home / "1.0.0" / "state").iterdir())
    costs = [Cost("state, compressed", state / number, "bytes", "image")]
    for change in (NOTHING, TEN_NEW, HUNDREDTHS):
        change.apply(source)
        before = children_seconds()
        wall_seconds(convert(*flags)(source, home))
        seconds = children_seconds() - before - start
        costs.append(Cost(f"next version, {change.name}", 1e6 * seconds / number, CPU, "image"))
    shutil.rmtree(source)
    shutil.rmtree(home)
    return costs


def request_costs(photos: Path, work: Path) -> list[Cost]:
    """Requests of jobs from a bucket into a bucket: an image's and a shard's, and those of any job."""
    half = work / "requests-half"
    costs = []
    with _source(photos, half, every=2), counted_buckets() as buckets, _asking(buckets):
        jobs = ((half, _FEW_SHARDS), (photos, _FEW_SHARDS), (photos, _MANY_SHARDS))
        found = [_requests_of_jobs(buckets, number, *job, work) for number, job in enumerate(jobs)]
    images = ((_count(photos) + 1) // 2, _count(photos))
    for name in _JOBS:
        for what, kinds in _KINDS.items():
            counts = [sum(one[name][kind] for kind in kinds) for one in found]
            parts = _parted(counts, *images)
            costs += [
                Cost(f"{name}: {what}", value, "requests", each)
                for value, each in zip(parts, ("image", "shard", "job"), strict=True)
            ]
    return costs


def _parted(counts: Sequence[int], half: int, images: int) -> tuple[float, float, float]:
    """What an image, a shard and a job add: from counts of half the images, of all, and in many shards."""
    few, more_images, more_shards = counts
    image = (more_images - few) / (images - half)
    shard = (more_shards - more_images) / (_MANY_SHARDS - _FEW_SHARDS)
    return image, shard, more_images - images * image - _FEW_SHARDS * shard


def _requests_of_jobs(
    buckets: CountedBuckets, number: int, photos: Path, shards: int, work: Path
) -> dict[str, collections.Counter[str]]:
    """Requests of a first version, of a second where nothing has changed, and of two where something has."""
    source = work / "requests-in"
    link_tree(photos, source)
    home = f"{buckets.uri}/out-{number}"
    flags = ("--dataset_version=auto", f"--num_shards={shards}", "--quiet")
    job = ["-m", "recordmill.pipelines.convert", "--input", f"{buckets.uri}/in", "--output", home, *flags]
    found = {}
    for name, change in _JOBS.items():
        change.apply(source)
        buckets.hold(source, "in")
        buckets.take()
        wall_seconds(job)
        found[name] = buckets.take()
    shutil.rmtree(source)
    return found


@contextmanager
def _source(photos: Path, part: Path, every: int) -> Iterator[None]:
    """In the block, `part` holds every so-manieth image of a folder."""
    for path in sorted(photos.rglob("*.jpg"))[::every]:
        target = part / path.relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, target)
    yield
    shutil.rmtree(part)


@contextmanager
def _asking(buckets: CountedBuckets) -> Iterator[None]:
    """In the block, processes that are started ask this server."""
    os.environ["STORAGE_EMULATOR_HOST"] = buckets.host
    try:
        yield
    finally:
        del os.environ["STORAGE_EMULATOR_HOST"]


def _cpu(arguments: list[str], output: Path) -> float:
    """CPU seconds of a command and all its processes, the least of some runs."""
    found = []
    for _ in range(_REPEATS):
        shutil.rmtree(output, ignore_errors=True)
        before = children_seconds()
        wall_seconds(arguments)
        found.append(children_seconds() - before)
    shutil.rmtree(output, ignore_errors=True)
    return min(found)


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.jpg")) + sum(1 for _ in folder.rglob("*.png"))
