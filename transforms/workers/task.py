"""Tasks, and the position of a worker process, in memory that its parent can read after a crash."""

from __future__ import annotations

import abc
import mmap
import os
import signal
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from recordmill.transforms.internal_errors import fault_of
from recordmill.transforms.records import BadInput

ITEM_CPU_SECONDS = 20.0
CPU_SECONDS_PER_MEGAPIXEL = 0.5
"""Processor time that one image may take."""
SLOW_FACTOR = 5
"""Factor of the limits where images are searched for a quality, or optimised."""

_SIZE = mmap.PAGESIZE
_STEPS, _ITEM, _ACTIVITY, _MILLISECONDS = range(4)
_WORKING, _LOADING, _CALLING = range(3)
_NO_ITEM = (1 << 64) - 1
_MEGAPIXEL = 1_000_000


class Position(NamedTuple):
    """What a worker is doing.

    Attributes:
        steps: how many it has begun.
        is_loading: it reads the item.
        cpu_seconds: processor time that the step may take; 0 without a limit.
        is_calling: it runs a function of the user on the item.
    """

    steps: int
    item: int | None
    is_loading: bool
    cpu_seconds: float = 0
    is_calling: bool = False


class SharedPosition:
    """The position of a worker, in a few cells of shared memory: writing one costs as much as an attribute.

    Args:
        descriptor: of a file of `create_file`; None for memory of this process alone.
        is_limited: the processor time of images is limited: a process that exceeds it ends by SIGPROF.

    Attributes:
        cpu_factor: of the processor time that an image may take.
    """

    def __init__(self, descriptor: int | None = None, is_limited: bool = False) -> None:
        memory = mmap.mmap(-1 if descriptor is None else descriptor, _SIZE)
        self._cells = memoryview(memory).cast("Q")
        self._is_limited = is_limited
        self.cpu_factor = 1.0

    def enter(self, item: int) -> None:
        """The worker begins an item. Its processor time is not limited before `work`."""
        self._cells[_ITEM] = item
        self._begin(_WORKING)

    def load(self) -> None:
        """The worker reads the item, which takes no processor time of its image."""
        self._begin(_LOADING)
        self._unlimit()

    def work(self, pixels: int = 0) -> None:
        """The worker is at an image of so many pixels, from now on within their limit of processor time."""
        self._begin(_WORKING)
        self._limit(cpu_seconds(pixels))

    def measured(self, pixels: int) -> None:
        """The size of the image that the worker has begun: one megapixel or more raises its limit."""
        if pixels >= _MEGAPIXEL:
            self.work(pixels)

    def call(self, pixels: int) -> None:
        """As `work`, in a function of the user."""
        self._begin(_CALLING)
        self._limit(cpu_seconds(pixels))

    def leave(self) -> None:
        """The worker is at no item."""
        self._cells[_ITEM] = _NO_ITEM
        self._begin(_WORKING)
        self._unlimit()

    def _begin(self, activity: int) -> None:
        self._cells[_ACTIVITY] = activity
        self._cells[_STEPS] += 1

    def _unlimit(self) -> None:
        if self._cells[_MILLISECONDS]:
            self._limit(0)

    def _limit(self, seconds: float) -> None:
        seconds *= self.cpu_factor
        self._cells[_MILLISECONDS] = int(1000 * seconds)
        if self._is_limited:
            signal.setitimer(signal.ITIMER_PROF, seconds)

    def read(self) -> Position:
        """The worker's position, or its last one."""
        steps, item, activity, milliseconds = self._cells[:4]
        at = None if item == _NO_ITEM else item
        return Position(steps, at, activity == _LOADING, milliseconds / 1000, activity == _CALLING)


def cpu_seconds(pixels: int) -> float:
    """Processor time that an image of so many pixels may take."""
    return ITEM_CPU_SECONDS + CPU_SECONDS_PER_MEGAPIXEL * (pixels // _MEGAPIXEL)


def create_file() -> int:
    """The descriptor of an unnamed file that two processes can map; the caller closes it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("recordmill-position")
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _SIZE)
    return descriptor


C = TypeVar("C")
"""The context of a pool's tasks: a `Worker`, or the result of the pool's setup."""
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
        self.failed: tuple[BaseException, int] | None = None  # the error of the last item, and its index

    def item(self, index: int, stage: str = "encode") -> _Item:
        """A context whose block works on one item of the task; only this item is lost if it fails.

        Unexpected exceptions become a BadInput of `stage`, with their traceback logged.

        Raises:
            BadInput: if it escapes from the task, this item is lost, and the others are done.
        """
        self.failed = None
        return _Item(self, index, stage)

    def failed_item(self, error: BaseException) -> int | None:
        """The index of the item that an error comes from; None where it comes from outside of items."""
        return self.failed[1] if self.failed is not None and self.failed[0] is error else None


class _Item:
    """The context of `Worker.item`. A generator would take several times as long."""

    def __init__(self, worker: Worker, index: int, stage: str) -> None:
        self._worker = worker
        self._index = index
        self._stage = stage

    def __enter__(self) -> None:
        self._worker.position.enter(self._index)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            fault = fault_of(error, self._stage)
            if fault is None:  # the position stays: a process that has run out of memory ends after it
                return
            self._worker.failed = (fault, self._index)
            self._worker.position.leave()
            if fault is not error:
                raise fault from error
            return
        self._worker.position.leave()


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

    def join(self, results: Iterable[R]) -> R:
        """One result of those of all pieces, in order; the next may still be awaited.

        The parent process calls it.
        """
        raise NotImplementedError

    def remove_leftovers(self) -> None:
        """Removes the files of an interrupted try."""
