"""TaskFn: submits tasks to processes that import no Beam, and yields their results."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, as_completed
from typing import Any, Generic, TypeVar

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.transforms.metrics import FailureLog
from recordmill.transforms.workers.pool import ITEM_SECONDS, ProcessExecutor, worker_itself
from recordmill.transforms.workers.task import Progress, R, Task, no_progress

E = TypeVar("E")


class TaskFn(beam.DoFn, Generic[E, R]):
    """Submits tasks to worker processes, and yields their results in any order.

    Args:
        workers: processes at most.
        progress: is called with items that are done.
        item_seconds: after which a process that is still at the same item hangs.
    """

    def __init__(
        self, workers: int, progress: Progress = no_progress, item_seconds: float = ITEM_SECONDS
    ) -> None:
        self.workers = max(workers, 1)
        self._progress = progress
        self._item_seconds = item_seconds
        self._pool: ProcessExecutor[Any] | None = None
        self._pending: list[tuple[E, Future[R]]] = []

    def start_bundle(self) -> None:
        """Resets the state of the previous bundle, which may have failed."""
        self.teardown()
        self.log = FailureLog()

    def finish_bundle(self) -> Iterator[Any]:
        """Waits for the tasks that are still running."""
        try:
            while self._pending:
                next(as_completed([future for _, future in self._pending]))
                for value in self._done():
                    yield in_window(value)
        finally:
            self.teardown()
            self.log.finish()

    def teardown(self) -> None:
        """Stops the processes."""
        if self._pool is not None:
            self._pool.close()
        self._pool = None
        self._pending = []

    def start_pool(self) -> ProcessExecutor[Any]:
        """The processes that tasks run in."""
        return ProcessExecutor(worker_itself, self._progress, self.workers, self._item_seconds)

    def results(self, element: E, result: R) -> Iterator[Any]:
        """Yields the elements for the result of the task that was submitted for `element`."""
        raise NotImplementedError

    def submit(self, element: E, task: Task[Any, Any], pieces: int = 1) -> Iterator[Any]:
        """Submits a task, split into `pieces`; yields the results of tasks that have finished."""
        try:
            self._pool = self._pool or self.start_pool()
            self._pending.append((element, self._pool.submit(task, pieces)))
            yield from self._done()
        except BaseException:
            self.teardown()
            raise

    def _done(self) -> Iterator[Any]:
        """Yields and removes the results of the tasks that have finished."""
        pending, self._pending = self._pending, []
        done: list[tuple[E, Future[R]]] = []
        for element, future in pending:
            (done if future.done() else self._pending).append((element, future))
        for element, future in done:
            yield from self.results(element, future.result())


def in_window(value: Any) -> Any:
    """A value, or a tagged one, as `finish_bundle` has to yield it."""
    if isinstance(value, beam.pvalue.TaggedOutput):
        return beam.pvalue.TaggedOutput(value.tag, in_window(value.value))
    window = GlobalWindow()
    return WindowedValue(value, window.max_timestamp(), [window])
