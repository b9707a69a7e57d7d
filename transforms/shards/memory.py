"""Whether the shuffle of the in-process runner fits into the memory of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
from rich.filesize import decimal

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.shards.dataset_plan import DatasetPlan

_SHUFFLE_FACTOR = 5
"""Bytes of memory for each byte that Beam's in-process runner shuffles: 3.5 to 4.8 were measured, for records
of 1 KB and of 30 KB in one shard and in four."""

# A limit above this is none: so the first version of control groups writes "no limit".
_NO_LIMIT = 1 << 60


def shuffle_warning(config: DatasetConfig, plan: DatasetPlan) -> str | None:
    """A warning if `--writer=beam` shuffles records in memory, and there may be too little of it.

    Only splits with a given number of shards are shuffled; else each bundle becomes a file.
    """
    if config.writer != "beam" or not config.shuffles_in_memory:
        return None
    shuffled = sum(split.estimated_bytes for split in plan.splits.values() if split.num_shards)
    return memory_warning(shuffled, available_bytes())


def memory_warning(shuffled_bytes: int, available: int) -> str | None:
    needed = _SHUFFLE_FACTOR * shuffled_bytes
    if needed <= available:
        return None
    return (
        f"--writer=beam with --num_shards shuffles its records in memory here: {decimal(shuffled_bytes)} of "
        f"records will need about {decimal(needed)}, and {decimal(available)} are available; without "
        "--num_shards, or with --writer=shards, little is needed"
    )


def available_bytes(root: Path = Path("/")) -> int:
    """Memory that this process may still take: of the machine, and of the control groups it is in."""
    return min([int(psutil.virtual_memory().available), *_group_rooms(root)])


def _group_rooms(root: Path) -> Iterator[int]:
    """The free memory of each control group above this process that has a limit; Linux, both versions."""
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, limit, usage = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        # In a container the group itself may be mounted at the top, under whatever path the host has it.
        folder = top / path.lstrip("/")
        for group in (folder, *folder.parents):
            if group.is_relative_to(top):
                yield from _room(group, limit, usage)


def _room(group: Path, limit: str, usage: str) -> Iterator[int]:
    try:
        most = int((group / limit).read_text())  # "max" where there is no limit
        used = int((group / usage).read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return
    if most < _NO_LIMIT:
        # Files that are kept in memory make room.
        cached = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
        yield max(most - used + cached, 0)
