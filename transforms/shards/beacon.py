"""Where a writer process is: memory shared with its parent, so that a crash leaves the image known."""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import signal
import tempfile
from collections.abc import Iterator
from enum import IntEnum

IMAGE_CPU_SECONDS = 20.0
CPU_SECONDS_A_MEGAPIXEL = 0.5
"""Processor time that one image may take."""
SLOW_TIMES = 5
"""Factor of the limits where images are searched for a quality, or optimised."""

_SIZE = mmap.PAGESIZE
_COUNT, _INDEX, _STEP, _MILLISECONDS = range(4)
_NO_INDEX = (1 << 64) - 1
_MEGAPIXEL = 1_000_000


class Step(IntEnum):
    """What a writer is doing with a record."""

    OTHER = 0
    LOAD = 1
    IMAGE = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """Where a writer is.

    Attributes:
        steps: how many it has begun.
        index: place in its task of the record that it is at; None between tasks.
        step: what it does there.
        cpu_seconds: processor time that it may take for that.
    """

    steps: int
    index: int | None
    step: Step
    cpu_seconds: float = 0


class Beacon:
    """A few cells of shared memory; setting one costs as much as an attribute does.

    Args:
        descriptor: of a file of `create_file`; None for memory of this process alone.
        is_limited: the processor time of each image is limited: a process that exceeds it ends by SIGPROF.

    Attributes:
        patience: factor of the processor time that an image may take.
    """

    def __init__(self, descriptor: int | None = None, is_limited: bool = False) -> None:
        memory = mmap.mmap(-1 if descriptor is None else descriptor, _SIZE)
        self._cells = memoryview(memory).cast("Q")
        self._is_limited = is_limited
        self.patience = 1.0

    def start(self, index: int) -> None:
        """The writer is at the record of this place in its task."""
        self._cells[_INDEX] = index

    def step(self, step: Step, pixels: int = 0) -> None:
        """The writer begins another step; `pixels` of an image extend its limit of processor time."""
        self._begin(step)
        if step is Step.IMAGE:
            self._limit(cpu_seconds(pixels))
        elif self._cells[_MILLISECONDS]:
            self._limit(0)  # what follows is no work of the image

    def weigh(self, pixels: int) -> None:
        """Extends the limit of processor time of the current image by its number of pixels."""
        if pixels >= _MEGAPIXEL:
            self._limit(cpu_seconds(pixels))

    def _begin(self, step: Step) -> None:
        self._cells[_STEP] = step
        self._cells[_COUNT] += 1

    def _limit(self, seconds: float) -> None:
        """Starts a limit now; 0 removes it."""
        seconds *= self.patience
        self._cells[_MILLISECONDS] = int(1000 * seconds)
        if self._is_limited:
            signal.setitimer(signal.ITIMER_PROF, seconds)

    @contextlib.contextmanager
    def at_the_image(self) -> Iterator[None]:
        """The writer is at the only image of its task: should it end in the block, that is to blame.

        Also where the block raises: a process without memory ends after that. The processor time is not
        limited: a timer makes the process's clock coarse, and a sweep measures by that clock.
        """
        self.start(0)
        self._begin(Step.IMAGE)
        yield
        self._begin(Step.OTHER)
        self.clear()

    def clear(self) -> None:
        """The writer is at no record."""
        self._cells[_INDEX] = _NO_INDEX
        self._cells[_STEP] = Step.OTHER
        self._limit(0)

    def position(self) -> Position:
        """Where the writer is, or was when it ended."""
        count, index, step, milliseconds = self._cells[:4]
        return Position(count, None if index == _NO_INDEX else index, Step(step), milliseconds / 1000)


def cpu_seconds(pixels: int) -> float:
    """Processor time that an image of so many pixels may take."""
    return IMAGE_CPU_SECONDS + CPU_SECONDS_A_MEGAPIXEL * (pixels // _MEGAPIXEL)


def create_file() -> int:
    """The descriptor of an unnamed file that two processes can map; the caller closes it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("recordmill-beacon")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _SIZE)
    return descriptor
