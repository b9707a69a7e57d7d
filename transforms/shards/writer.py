"""Cuts shards into parts, hands them to an executor, and joins what comes back."""

from __future__ import annotations

import math
import os
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from recordmill.transforms.shards.part import JoinTask, PartTask
from recordmill.transforms.shards.pool import ProcessExecutor
from recordmill.transforms.shards.report import ShardFile, ShardReport
from recordmill.transforms.shards.reuse import TakeOver
from recordmill.transforms.shards.state import ShardState

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


class ShardWriter:
    """Writes shards in a folder of their own, each under a name that no other attempt uses.

    Args:
        executor: runs the tasks.
        folder: of the unpublished shards; it exists.
        num_shards: how many may come.
        workers: processes of the executor.
    """

    def __init__(self, executor: ProcessExecutor, folder: str, num_shards: int, workers: int) -> None:
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
            take: the version before; None where the dataset has no versions.

        Raises:
            JobError: an earlier shard could not be written.
        """
        name = f"{state.split}-{state.shard:05d}-{uuid.uuid4().hex[:12]}"
        path = os.path.join(self._folder, name)
        sizes = part_sizes(len(references), self._submitted, self._num_shards, self._workers)
        self._submitted += 1
        if len(sizes) == 1:
            future = self._executor.submit(PartTask(references, path, state, take))
        else:
            join = _Join(self._executor, path, state, len(sizes))
            future = join.result
            start = 0
            for number, size in enumerate(sizes):
                part = PartTask(references[start : start + size], f"{path}-part{number:05d}", take=take)
                join.add(self._executor.submit(part))
                start += size
        self._pending.append((state, future))

    def finish(self) -> Iterator[ShardReport]:
        """The reports of all shards, as they were submitted.

        Raises:
            JobError: one could not be written.
        """
        pending, self._pending = self._pending, []
        for state, future in pending:
            yield ShardReport(state.split, state.shard, future.result())


class _Join:
    """Joins the parts of a shard as soon as the last is written."""

    def __init__(self, executor: ProcessExecutor, path: str, state: ShardState, parts: int) -> None:
        self._executor = executor
        self._path = path
        self._state = state
        self._left = parts
        self._lock = threading.Lock()
        self._parts: list[Future[ShardFile]] = []
        self.result: Future[ShardFile] = Future()

    def add(self, part: Future[ShardFile]) -> None:
        """Takes the next part."""
        self._parts.append(part)
        part.add_done_callback(self._part_done)

    def _part_done(self, _: Future[ShardFile]) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        try:
            parts = [part.result() for part in self._parts]
        except BaseException as error:
            self.result.set_exception(error)
            return
        # Not one that waits: this may be a thread that tasks wait for.
        joined = self._executor.submit(JoinTask(parts, self._path, self._state), wait=False)
        joined.add_done_callback(self._join_done)

    def _join_done(self, joined: Future[ShardFile]) -> None:
        error = joined.exception()
        if error is None:
            self.result.set_result(joined.result())
        else:
            self.result.set_exception(error)
