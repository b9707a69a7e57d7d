"""Runs tasks side by side: one spawned process each, fed by one thread of this process."""

from __future__ import annotations

import contextlib
import queue
import threading
from concurrent.futures import Future
from typing import Any, overload

from recordmill.transforms.records import JobError
from recordmill.transforms.shards.guarded import GuardedWriter
from recordmill.transforms.shards.part import EncodedBatch, EncodeTask, JoinTask, PartTask
from recordmill.transforms.shards.record_encoder import Progress, RecordSettings
from recordmill.transforms.shards.report import ShardFile
from recordmill.transforms.shards.worker import Task

# A task, whether it has taken a place in the queue, and where its result goes.
_Job = tuple[Task, bool, "Future[Any]"]


class ProcessExecutor:
    """Runs tasks in `workers` processes; lets no more than twice their number wait.

    The first that fails for good fails all that come after it.

    Args:
        settings: of the encoding.
        progress: is told of records that are done.
        workers: number of processes.
        image_seconds: as in `GuardedWriter`.
        tries: likewise.
    """

    def __init__(
        self,
        settings: RecordSettings,
        progress: Progress,
        workers: int,
        image_seconds: float | None = None,
        tries: int = 2,
    ) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._places = threading.Semaphore(2 * workers)
        self._lock = threading.Lock()
        self._unfinished = 0
        self._broken: BaseException | None = None
        self._writers = [GuardedWriter(settings, progress, image_seconds, tries) for _ in range(workers)]
        self._threads: list[threading.Thread] = []
        for writer in self._writers:
            thread = threading.Thread(target=self._serve, args=(writer,), daemon=True)
            self._threads.append(thread)
            thread.start()

    @overload
    def submit(self, task: EncodeTask, wait: bool = True) -> Future[EncodedBatch]: ...

    @overload
    def submit(self, task: PartTask | JoinTask, wait: bool = True) -> Future[ShardFile]: ...

    def submit(self, task: Task, wait: bool = True) -> Future[Any]:
        """Queues `task`; waits while too many wait already, unless told not to.

        Raises:
            JobError: what an earlier task has failed with (or any other exception that it raised).
        """
        if wait:
            self._places.acquire()
            if self._broken is not None:
                self._places.release()
                raise self._broken
        future: Future[Any] = Future()
        with self._lock:
            self._unfinished += 1
        self._jobs.put((task, wait, future))
        return future

    def close(self) -> None:
        """Lets the processes go; ends those that are not done, whose tasks fail."""
        idle = not self._unfinished
        self._broken = self._broken or JobError("the writer processes were stopped")
        if not idle:
            for writer in self._writers:
                writer.close(idle=False)
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        for writer in self._writers:
            writer.close(idle)

    def _serve(self, writer: GuardedWriter) -> None:
        """Feeds one process, task by task, and resolves their futures."""
        with contextlib.suppress(JobError, OSError):
            writer.start()  # or whoever needs it first is told
        while (job := self._jobs.get()) is not None:
            task, has_place, future = job
            if has_place:
                self._places.release()
            result: Any = None
            error: BaseException | None = self._broken
            if error is None:
                try:
                    result = writer.run(task)
                except BaseException as raised:
                    error = self._broken = self._broken or raised
            with self._lock:
                self._unfinished -= 1
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
