"""A task whose items are numbers, some of which do harm."""

import dataclasses
import errno
import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

from recordmill.transforms.records import BadInput, JobError
from recordmill.transforms.workers.task import Task, Worker


@dataclasses.dataclass(frozen=True)
class NumberTask(Task[Worker, list[int | str]]):
    """Doubles numbers.

    Attributes:
        numbers: the items.
        harm: what some numbers do.
        before: what is done before the first item.
        leftovers: file that a try leaves when it is interrupted.
    """

    numbers: Sequence[int]
    harm: dict[int, str] = dataclasses.field(default_factory=dict)
    before: str = ""
    leftovers: Path | None = None

    @property
    def items(self) -> int:
        return len(self.numbers)

    def run(self, worker: Worker) -> list[int | str]:
        if self.leftovers is not None:
            assert not self.leftovers.exists()
            self.leftovers.touch()
        do(self.before, -1)
        doubled: list[int | str] = []
        for index, number in enumerate(self.numbers):
            with worker.item(index):
                do(self.harm.get(number, ""), number)
                doubled.append(2 * number)
            worker.progress(1, number)
        self.remove_leftovers()
        return doubled

    def lost(self, error: BadInput) -> list[int | str]:
        return [f"{self.numbers[0]} {error}"]

    def split(self, start: int, end: int) -> "NumberTask":
        return dataclasses.replace(self, numbers=self.numbers[start:end])

    def join(self, results: Iterable[list[int | str]]) -> list[int | str]:
        joined = [one for result in results for one in result]
        if "never" in self.harm.values():
            raise JobError("these cannot be joined")
        return joined

    def remove_leftovers(self) -> None:
        if self.leftovers is not None:
            self.leftovers.unlink()


def do(harm: str, number: int) -> None:
    """Does harm."""
    if harm == "raise":
        raise IndexError(f"at {number}")
    if harm == "exit":
        raise SystemExit(3)  # as a panic of a Rust library, no Exception
    if harm == "pillow":
        raise OSError("broken data stream")
    if harm == "bad":
        raise BadInput("decode", "truncated")
    if harm == "disk":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "file")
    if harm == "job":
        raise JobError("the job is over")
    if harm == "memory":
        raise MemoryError
    if harm == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)


def setup_that_raises(worker: Worker) -> Worker:
    """No setup."""
    raise ZeroDivisionError
