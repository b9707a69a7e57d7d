"""Pools of processes that encode records, and the writing of shards by one."""

from __future__ import annotations

import functools
import math
import os
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from recordmill.transforms.shards.part import PartTask
from recordmill.transforms.shards.record_encoder import RecordEncoder, RecordSettings
from recordmill.transforms.shards.report import ShardFile, ShardReport
from recordmill.transforms.shards.reuse import TakeOver
from recordmill.transforms.shards.state import ShardState
from recordmill.transforms.workers.pool import ITEM_SECONDS, ProcessExecutor
from recordmill.transforms.workers.position import SLOW_FACTOR
from recordmill.transforms.workers.task import Progress

# Parts for each worker in the last round, where shards are fewer than workers; below so many records a
# part does not pay.
_PARTS_PER_WORKER = 2
_SMALLEST_PART = 64
# References that one process holds at a time: some 10 MB.
_LARGEST_PART = 50_000


def encoder_pool(
    settings: RecordSettings,
    progress: Progress,
    workers: int,
    item_seconds: float | None = None,
    tries: int = 2,
) -> ProcessExecutor[RecordEncoder]:
    """Processes that encode records by `settings`; otherwise as `ProcessExecutor`."""
    if item_seconds is None:
        item_seconds = ITEM_SECONDS * (SLOW_FACTOR if settings.policy.is_slow else 1)
    return ProcessExecutor(functools.partial(RecordEncoder, settings), progress, workers, item_seconds, tries)


def part_count(records: int, shard: int, num_shards: int, workers: int) -> int:
    """Parts of a shard of `records` records, the `shard`-th (from 0) that is handed out.

    A shard is one part while there is one for each worker, unless its records are very many. Those of the
    last round, which would leave some idle, are cut: joining parts costs reading them once more.
    """
    last_round = num_shards % workers
    parts = max(math.ceil(records / _LARGEST_PART), 1)
    if shard >= num_shards - last_round:
        wanted = min(math.ceil(_PARTS_PER_WORKER * workers / last_round), records // _SMALLEST_PART)
        parts = max(parts, wanted)
    return parts


class ShardWriter:
    """Writes shards in a folder of their own, each under a name that no other attempt uses.

    Args:
        executor: runs the tasks.
        folder: of the unpublished shards; it exists.
        num_shards: how many may come.
        workers: processes of the executor.
    """

    def __init__(
        self, executor: ProcessExecutor[RecordEncoder], folder: str, num_shards: int, workers: int
    ) -> None:
        self._executor = executor
        self._folder = folder
        self._num_shards = num_shards
        self._workers = workers
        self._submitted = 0
        self._pending: list[tuple[ShardState, Future[ShardFile]]] = []

    def submit(self, state: ShardState, references: Sequence[bytes], take: TakeOver | None = None) -> None:
        """Starts on a shard of references in their final order; waits while the executor is full.

        Args:
            state: of the shard.
            references: of its records.
            take: the previous version; None if the dataset has no versions.

        Raises:
            JobError: an earlier shard could not be written.
        """
        name = f"{state.split}-{state.shard:05d}-{uuid.uuid4().hex[:12]}"
        path = os.path.join(self._folder, name)
        parts = part_count(len(references), self._submitted, self._num_shards, self._workers)
        self._submitted += 1
        task = PartTask(references, path, state, take)
        self._pending.append((state, self._executor.submit(task, parts)))

    def finish(self) -> Iterator[ShardReport]:
        """The reports of all shards, as they were submitted.

        Raises:
            JobError: one could not be written.
        """
        pending, self._pending = self._pending, []
        for state, future in pending:
            yield ShardReport(state.split, state.shard, future.result())
