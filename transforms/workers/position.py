"""What a worker process is doing, in memory that its parent can read after a crash; limits of its time."""

from __future__ import annotations

import mmap
import os
import signal
from typing import NamedTuple

ITEM_CPU_SECONDS = 20.0
CPU_SECONDS_PER_MEGAPIXEL = 0.5
"""Processor time that one image may take."""
SLOW_FACTOR = 5
"""Factor of the limits where images are searched for a quality, or optimised."""

_SIZE = mmap.PAGESIZE
_STEPS, _ITEM, _IS_LOADING, _MILLISECONDS = range(4)
_NO_ITEM = (1 << 64) - 1
_MEGAPIXEL = 1_000_000


class Position(NamedTuple):
    """What a worker is doing.

    Attributes:
        steps: how many it has begun.
        is_loading: it reads the item.
        cpu_seconds: processor time that the step may take; 0 without a limit.
    """

    steps: int
    item: int | None
    is_loading: bool
    cpu_seconds: float = 0


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
        self._begin(is_loading=False)

    def load(self) -> None:
        """The worker reads the item, which takes no processor time of its image."""
        self._begin(is_loading=True)
        self._unlimit()

    def work(self, pixels: int = 0) -> None:
        """The worker is at an image of so many pixels, from now on within their limit of processor time."""
        self._begin(is_loading=False)
        self._limit(cpu_seconds(pixels))

    def leave(self) -> None:
        """The worker is at no item."""
        self._cells[_ITEM] = _NO_ITEM
        self._begin(is_loading=False)
        self._unlimit()

    def _begin(self, is_loading: bool) -> None:
        self._cells[_IS_LOADING] = is_loading
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
        steps, item, is_loading, milliseconds = self._cells[:4]
        return Position(steps, None if item == _NO_ITEM else item, bool(is_loading), milliseconds / 1000)


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
