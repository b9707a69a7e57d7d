"""Cuts shards into parts, hands them to an executor, and joins what comes back."""

from __future__ import annotations

import dataclasses
import math
import os
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from transforms.shards.part import JoinTask, PartTask
from transforms.shards.pool import Executor
from transforms.shards.report import ShardFile, ShardReport

# Parts for each worker in the last round, where shards are fewer than workers; below so many records a
# part does not pay.
_PARTS_PER_WORKER = 2
_SMALLEST_PART = 64
# References that one process holds at a time: some 10 MB.
_LARGEST_PART = 50_000


def part_sizes(records: int, shard: int, num_shards: int, workers: int) -> list[int]:
    """Sizes of the parts of a shard of `records` records, the `shard`-th (from 0) that is handed out.

    A shard is one part while there is one for each worker, unless its records are very many. Those of the
    last round, which would leave some idle, are cut: joining parts costs reading them once more.
    """
    last_round = num_shards % workers
    parts = max(math.ceil(records / _LARGEST_PART), 1)
    if shard >= num_shards - last_round:
        wanted = min(math.ceil(_PARTS_PER_WORKER * workers / last_round), records // _SMALLEST_PART)
        parts = max(parts, wanted)
    return [records * (part + 1) // parts - records * part // parts for part in range(parts)]


@dataclasses.dataclass(slots=True)
class _Pending:
    split: str
    shard: int
    path: str
    parts: list[Future[ShardFile]]


class ShardWriter:
    """Writes shards under `folder`, each under a name that no other attempt uses."""

    def __init__(self, executor: Executor, folder: str, num_shards: int, workers: int) -> None:
        self._executor = executor
        self._folder = folder
        self._num_shards = num_shards
        self._workers = workers
        self._submitted = 0
        self._pending: list[_Pending] = []
        os.makedirs(folder, exist_ok=True)

    def submit(self, split: str, shard: int, references: Sequence[bytes]) -> None:
        """Starts on a shard of references in their final order; waits while the executor is full."""
        path = os.path.join(self._folder, f"{split}-{shard:05d}-{uuid.uuid4().hex[:12]}")
        sizes = part_sizes(len(references), self._submitted, self._num_shards, self._workers)
        self._submitted += 1
        futures = []
        start = 0
        for number, size in enumerate(sizes):
            name = path if len(sizes) == 1 else f"{path}-part{number:05d}"
            futures.append(self._executor.submit(PartTask(references[start : start + size], name)))
            start += size
        self._pending.append(_Pending(split, shard, path, futures))

    def finish(self) -> Iterator[ShardReport]:
        """The reports of all shards, as they were submitted.

        Raises:
            JobError: a writer process died, or could not write.
        """
        joined: list[tuple[_Pending, Future[ShardFile]]] = []
        for pending in self._pending:
            future = pending.parts[0]
            if len(pending.parts) > 1:
                parts = [part.result() for part in pending.parts]
                future = self._executor.submit(JoinTask(parts, pending.path))
            joined.append((pending, future))
        self._pending = []
        for pending, future in joined:
            yield ShardReport(pending.split, pending.shard, future.result())
