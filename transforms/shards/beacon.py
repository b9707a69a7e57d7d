"""Where a writer process is: memory shared with its parent, so that a crash leaves the image known."""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import tempfile
from collections.abc import Iterator
from enum import IntEnum

_SIZE = mmap.PAGESIZE
_COUNT, _INDEX, _STEP = range(3)
_NO_INDEX = (1 << 64) - 1


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
    """

    steps: int
    index: int | None
    step: Step


class Beacon:
    """A few cells of shared memory; setting one costs as much as an attribute does.

    Args:
        descriptor: of a file of `create_file`; None for memory of this process alone.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        memory = mmap.mmap(-1 if descriptor is None else descriptor, _SIZE)
        self._cells = memoryview(memory).cast("Q")

    def start(self, index: int) -> None:
        """The writer is at the record of this place in its task."""
        self._cells[_INDEX] = index

    def step(self, step: Step) -> None:
        """The writer begins another step."""
        self._cells[_STEP] = step
        self._cells[_COUNT] += 1

    @contextlib.contextmanager
    def at_the_image(self) -> Iterator[None]:
        """The writer is at the only image of its task: should it end in the block, that is to blame.

        Also where the block raises: a process without memory ends after that.
        """
        self.start(0)
        self.step(Step.IMAGE)
        yield
        self.step(Step.OTHER)
        self.clear()

    def clear(self) -> None:
        """The writer is at no record."""
        self._cells[_INDEX] = _NO_INDEX
        self._cells[_STEP] = Step.OTHER

    def position(self) -> Position:
        """Where the writer is, or was when it ended."""
        index = self._cells[_INDEX]
        return Position(self._cells[_COUNT], None if index == _NO_INDEX else index, Step(self._cells[_STEP]))


def create_file() -> int:
    """The descriptor of an unnamed file that two processes can map; the caller closes it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("recordmill-beacon")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _SIZE)
    return descriptor
