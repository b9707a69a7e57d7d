"""Runs tasks in worker processes. An item that ends its process is tried again alone, then lost."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple

from recordmill.transforms.internal_errors import log_once
from recordmill.transforms.records import BadInput, JobError
from recordmill.transforms.workers.process import WorkerProcess, give_back, take
from recordmill.transforms.workers.task import C, Position, Progress, R, Task, Worker
from recordmill.transforms.workers.worker import (
    OUT_OF_MEMORY,
    Answer,
    Done,
    ItemFailed,
    Order,
    Result,
    Traceback,
)

ITEM_SECONDS = 120.0
"""How long one item may take, each of two times."""
CRASHES = "crashes the codec"
HANGS = "hangs the codec"
TAKES_TOO_LONG = "takes too long"
"""Reasons of items that were given up; stage `decode`."""
FUNCTION_CRASHES = "map_image crashes"
FUNCTION_HANGS = "map_image hangs"
FUNCTION_TAKES_TOO_LONG = "map_image takes too long"
"""Likewise, of items on which a function of the user was running; stage `map`."""

# Deaths that no item explains: of processes that were at none, or whose item did well by itself.
_MOST_UNEXPLAINED = 8
_POLL_SECONDS = 1.0
_STOPPED = "the worker processes were stopped"


def worker_itself(worker: Worker) -> Worker:
    """The setup of pools whose tasks need only the worker."""
    return worker


class ProcessExecutor(Generic[C]):
    """Runs tasks in processes of its own; at most twice their number wait.

    The first task that fails permanently fails all later ones.

    Args:
        setup: makes the context of the tasks, once in each process.
        progress: is called with items that are done; negative numbers when they have to be repeated.
        item_seconds: after which a process that is still at the same item hangs.
        tries: of an item, 1 or 2.
        function: name of the function of the user that tasks call (`SharedPosition.call`), for messages.
    """

    def __init__(
        self,
        setup: Callable[[Worker], C],
        progress: Progress,
        workers: int,
        item_seconds: float = ITEM_SECONDS,
        tries: int = 2,
        function: str = "",
    ) -> None:
        self._queue: queue.SimpleQueue[tuple[Task[C, Any], Future[Any]] | None] = queue.SimpleQueue()
        self._slots = threading.Semaphore(2 * workers)
        self._lock = threading.Lock()
        self._unfinished = 0
        self._broken: BaseException | None = None
        self._runners = [_Runner(setup, progress, item_seconds, tries, function) for _ in range(workers)]
        self._threads = [
            threading.Thread(target=self._serve, args=(runner,), daemon=True) for runner in self._runners
        ]
        self._joining: list[threading.Thread] = []
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> ProcessExecutor[C]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, task: Task[C, R], pieces: int = 1) -> Future[R]:
        """Queues a task, split into `pieces` to be run at the same time; waits while too many wait already.

        Raises:
            JobError: an earlier task has failed (or any other exception that it raised).
        """
        if pieces > 1:
            ends = [task.items * piece // pieces for piece in range(pieces + 1)]
            every = [self.submit(task.split(*ends[piece : piece + 2])) for piece in range(pieces)]
            return self._joined(task, every)
        self._slots.acquire()
        if self._broken is not None:
            self._slots.release()
            raise self._broken
        future: Future[R] = Future()
        with self._lock:
            self._unfinished += 1
        self._queue.put((task, future))
        return future

    def close(self) -> None:
        """Releases the processes; ends busy ones, whose tasks fail."""
        idle = not self._unfinished
        self._broken = self._broken or JobError(_STOPPED)
        if not idle:
            for runner in self._runners:
                runner.kill()
        for _ in self._threads:
            self._queue.put(None)
        for thread in (*self._threads, *self._joining):
            thread.join()
        for runner in reversed(self._runners):  # the first, which has imported most, is taken next
            runner.release(idle)

    def _joined(self, task: Task[C, R], pieces: list[Future[R]]) -> Future[R]:
        """The result of a task, whose pieces a thread joins, in order, while the last ones are running."""
        joined: Future[R] = Future()

        def join() -> None:
            try:
                result = task.join(piece.result() for piece in pieces)
            except BaseException as error:
                self._broken = self._broken or error
                joined.set_exception(error)
            else:
                joined.set_result(result)

        thread = threading.Thread(target=join, daemon=True)
        thread.start()
        self._joining.append(thread)
        return joined

    def _serve(self, runner: _Runner) -> None:
        """Runs tasks in one process, one after the other, and resolves their futures."""
        with contextlib.suppress(JobError, OSError):
            runner.start()  # the first task raises it again
        while (queued := self._queue.get()) is not None:
            task, future = queued
            self._slots.release()
            try:
                if self._broken is not None:
                    raise self._broken
                resolve = functools.partial(future.set_result, runner.run(task))
            except BaseException as error:
                self._broken = self._broken or error
                resolve = functools.partial(future.set_exception, self._broken)
            with self._lock:
                self._unfinished -= 1
            resolve()


@dataclasses.dataclass(eq=False)
class _Died(Exception):
    """The process has died, or was ended since it hung; `status` is negative for a signal."""

    position: Position
    hung: bool
    status: int | None

    @property
    def is_over_time(self) -> bool:
        """Whether an item took more processor time than it may."""
        return not self.hung and self.status == -signal.SIGPROF and self.position.cpu_seconds > 0

    def __str__(self) -> str:
        if self.hung:
            return "did not end"
        if self.status == OUT_OF_MEMORY:
            return "ran out of memory"
        if self.status is None or self.status >= 0:
            return f"ended with status {self.status}"
        return f"was ended by {signal.Signals(-self.status).name}"


class _Range(NamedTuple):
    """Items of a task that are to be done.

    Attributes:
        deaths: processes that the only item has ended so far.
        error: why the only item is lost.
    """

    start: int
    end: int
    deaths: int = 0
    error: BadInput | None = None

    def around(self, item: int, deaths: int, error: BadInput | None) -> list[_Range]:
        """The ranges that remain after the item at this index has ended a try: the last range first."""
        at = self.start + item
        every = [_Range(at + 1, self.end), _Range(at, at + 1, deaths, error), _Range(self.start, at)]
        return [part for part in every if part.start < part.end]


class _Runner:
    """Runs tasks in a spawned process, one at a time; takes another process when that dies."""

    def __init__(
        self,
        setup: Callable[[Worker], Any],
        progress: Progress,
        item_seconds: float,
        tries: int,
        function: str,
    ) -> None:
        self._setup = setup
        self._progress = progress
        self._item_seconds = item_seconds
        self._tries = tries
        self._function = function
        self._lock = threading.Lock()
        self._process: WorkerProcess | None = None
        self._is_set_up = False
        self._closed = False
        self._unexplained = 0

    def start(self) -> WorkerProcess:
        with self._lock:
            if self._closed:
                raise JobError(_STOPPED)
            if self._process is None:
                self._process = take()
                self._is_set_up = False
            return self._process

    def kill(self) -> None:
        """Ends the process, and starts no other."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.popen.kill()

    def release(self, idle: bool) -> None:
        """Lets the process go: an idle one is kept for the next pool, any other is ended."""
        process, self._process = self._process, None
        if process is not None and idle:
            give_back(process)
        elif process is not None:
            process.stop()

    def run(self, task: Task[Any, R]) -> R:
        """The result of `task`, even if some of its items end the process. Raises JobError."""
        results: list[R] = []
        todo = [_Range(0, task.items)]
        while todo:
            part = todo.pop()
            piece = task if part.end - part.start == task.items else task.split(part.start, part.end)
            if part.error is not None:
                results.append(piece.lost(part.error))
                continue
            try:
                results.append(self._ask(piece))
                if part.deaths:
                    self._count_unexplained()
            except ItemFailed as failed:
                piece.remove_leftovers()
                todo += part.around(failed.item, part.deaths, failed.error)
            except _Died as died:
                piece.remove_leftovers()
                item = died.position.item
                if item is None:
                    self._count_unexplained(died)
                    todo.append(part)
                else:
                    deaths = part.deaths + 1
                    todo += part.around(item, deaths, self._verdict(died, deaths, piece))
        return results[0] if len(results) == 1 else task.join(results)

    def _ask(self, task: Task[Any, R]) -> R:
        """Runs a task or a piece of one, once."""
        process = self.start()
        process.position.leave()
        position, since = process.position.read(), time.monotonic()
        items = source_bytes = 0
        hangs = False
        try:
            process.connection.send(Order(None if self._is_set_up else self._setup, task))
            self._is_set_up = True
            while not hangs:
                if not process.connection.poll(_POLL_SECONDS):
                    if process.position.read() != position:
                        position, since = process.position.read(), time.monotonic()
                    hangs = position.item is not None and time.monotonic() - since > self._item_seconds
                    continue
                answer: Answer = process.connection.recv()
                if isinstance(answer, Done):
                    items += answer.items
                    source_bytes += answer.source_bytes
                    self._progress(answer.items, answer.source_bytes)
                elif isinstance(answer, Traceback):
                    log_once(answer.origin, answer.text)
                elif isinstance(answer, Result):
                    result: R = answer.value
                    return result
                else:
                    self._progress(-items, -source_bytes)
                    raise answer
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass
        self._progress(-items, -source_bytes)
        raise _Died(process.position.read(), hangs, self._ended(process, hangs))

    def _ended(self, process: WorkerProcess, hangs: bool) -> int | None:
        """The exit status of a process that has died, or that hangs and is ended."""
        if not hangs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(_POLL_SECONDS)  # its socket closes a little before it ends
        with self._lock:
            self._process = None
        return process.stop()

    def _verdict(self, died: _Died, deaths: int, task: Task[Any, Any]) -> BadInput | None:
        """Why an item that has ended its process is lost; None if it is tried again by itself."""
        if died.is_over_time:
            seconds = died.position.cpu_seconds
            detail = f"it needs more than {seconds:.0f} seconds of processor time, the limit for its size"
            if died.position.is_calling:
                return BadInput("map", FUNCTION_TAKES_TOO_LONG, f"{self._function}: {detail}")
            return BadInput("decode", TAKES_TOO_LONG, detail)
        if deaths < self._tries:
            return None
        if died.hung and died.position.is_loading and self._tries > 1:
            raise JobError(
                f"{task.source()}: reading it did not end in {self._item_seconds:g} seconds, two times; "
                "run the job again when it can be read"
            )
        limit = f" in {self._item_seconds:g} seconds" if died.hung else ""
        times = "two times" if self._tries > 1 else "once"
        detail = f"its process {died}{limit}, {times}"
        if died.position.is_calling:
            detail = f"{self._function}: {detail}"
            return BadInput("map", FUNCTION_HANGS if died.hung else FUNCTION_CRASHES, detail)
        return BadInput("decode", HANGS if died.hung else CRASHES, detail)

    def _count_unexplained(self, died: _Died | None = None) -> None:
        self._unexplained += 1
        if self._unexplained > _MOST_UNEXPLAINED:
            last = f", the last {died}" if died is not None else ""
            raise JobError(
                f"{self._unexplained} worker processes ended, and no image caused it{last}; memory is short: "
                "a smaller --direct_num_workers needs less"
            )
