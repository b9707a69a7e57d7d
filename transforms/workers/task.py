"""What a task is, and what its process gives it."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import BadInput
from recordmill.transforms.workers.position import SharedPosition

C = TypeVar("C")
"""What a pool's tasks are run with: a `Worker`, or what the pool's setup makes with one."""
R = TypeVar("R")
"""The result of a task."""

Progress = Callable[[int, int], None]
"""Called with the items and the source bytes done since the last call."""


def no_progress(items: int, source_bytes: int) -> None:
    """For tasks whose progress is not shown."""


class Worker:
    """The process that a task runs in, as the task sees it."""

    def __init__(self, position: SharedPosition | None = None, progress: Progress = no_progress) -> None:
        self.position = position or SharedPosition()
        self.progress = progress
        self._failed: tuple[BaseException, int] | None = None

    @contextlib.contextmanager
    def item(self, index: int, stage: str = "encode") -> Iterator[None]:
        """The block works on one item of the task; only this item is lost if it fails.

        Unexpected exceptions become a BadInput of `stage`, with their traceback logged.

        Raises:
            BadInput: if it escapes from the task, this item is lost, and the others are done.
        """
        self._failed = None
        self.position.enter(index)
        # Any other exception leaves the position: a process that has run out of memory ends after it.
        try:
            with internal_errors(stage):
                yield
        except BadInput as error:
            self._failed = (error, index)
            self.position.leave()
            raise
        self.position.leave()

    def failed_item(self, error: BaseException) -> int | None:
        """The index of the item that an error comes from; None where it comes from outside of items."""
        return self._failed[1] if self._failed is not None and self._failed[0] is error else None


class Task(abc.ABC, Generic[C, R]):
    """Work on some items, here on a single one that leaves no file behind. It is pickled."""

    @property
    def items(self) -> int:
        return 1

    @abc.abstractmethod
    def run(self, context: C) -> R:
        """Does the work; `Worker.item` marks the part for one item. Raises JobError."""

    @abc.abstractmethod
    def lost(self, error: BadInput) -> R:
        """The result of a task of one item that cannot be processed."""

    def source(self) -> str:
        """Where its first item is read from, for messages; of tasks that call `SharedPosition.load`."""
        raise NotImplementedError

    def split(self, start: int, end: int) -> Task[C, R]:
        """The task of some of the items."""
        raise NotImplementedError

    def join(self, results: Sequence[R]) -> R:
        """One result of those of all pieces, in order. It is called in the parent process."""
        raise NotImplementedError

    def remove_leftovers(self) -> None:
        """Removes the files of an interrupted try."""
