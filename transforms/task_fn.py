"""TaskFn: hands tasks to processes that import no Beam, and yields what they give back."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, as_completed
from typing import Any

import apache_beam as beam

from recordmill.transforms.shards.part import EncodedBatch, EncodeTask
from recordmill.transforms.shards.pool import ProcessExecutor
from recordmill.transforms.shards.record_encoder import Progress, RecordSettings
from recordmill.transforms.survey import in_global_window


class TaskFn(beam.DoFn):
    """Hands tasks to writer processes as they come, and yields what they give back, in whatever order.

    Args:
        workers: processes at most.
        image_seconds: after which a process that is still at the same image hangs; None for the usual.
    """

    def __init__(self, workers: int, image_seconds: float | None = None) -> None:
        self._workers = max(workers, 1)
        self._image_seconds = image_seconds
        self._executor: ProcessExecutor | None = None
        self._pending: list[tuple[Any, Future[EncodedBatch]]] = []

    def start_bundle(self) -> None:
        """Nothing handed out, nor left by a bundle that failed."""
        self.teardown()

    def finish_bundle(self) -> Iterator[Any]:
        """Waits for what is still at work."""
        try:
            while self._pending:
                next(as_completed([future for _, future in self._pending]))
                for value in self._done():
                    yield in_window(value)
        finally:
            self.teardown()

    def teardown(self) -> None:
        """Lets the processes go."""
        if self._executor is not None:
            self._executor.close()
        self._executor = None
        self._pending = []

    def results(self, about: Any, batch: EncodedBatch) -> Iterator[Any]:
        """What is yielded of a task's result.

        Args:
            about: the element that it is of.
            batch: the result.
        """
        raise NotImplementedError

    def submit(
        self, about: Any, task: EncodeTask, records: RecordSettings, advance: Progress
    ) -> Iterator[Any]:
        """Hands out a task; yields what is done meanwhile."""
        try:
            if self._executor is None:
                self._executor = ProcessExecutor(records, advance, self._workers, self._image_seconds)
            self._pending.append((about, self._executor.submit(task)))
            yield from self._done()
        except BaseException:
            self.teardown()
            raise

    def _done(self) -> Iterator[Any]:
        """The results of all that is done; forgets it."""
        pending, self._pending = self._pending, []
        done: list[tuple[Any, Future[EncodedBatch]]] = []
        for about, future in pending:
            (done if future.done() else self._pending).append((about, future))
        for about, future in done:
            yield from self.results(about, future.result())


def in_window(value: Any) -> Any:
    """A value as `finish_bundle` has to yield it."""
    if isinstance(value, beam.pvalue.TaggedOutput):
        return beam.pvalue.TaggedOutput(value.tag, in_global_window(value.value))
    return in_global_window(value)


def no_progress(records: int, source_bytes: int) -> None:
    """The records are counted elsewhere."""
