"""A worker process: takes tasks from a socket, runs them, and answers with progress and results.

It is a fresh interpreter that `recordmill.transforms.workers.process` has started: no Beam, and nothing of
the program that started it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from recordmill.transforms import internal_errors
from recordmill.transforms.records import BadInput, JobError
from recordmill.transforms.workers import own_process
from recordmill.transforms.workers.task import SharedPosition, Task, Worker

OUT_OF_MEMORY = 75
"""The exit status of a worker that has found no memory for an item."""

_PROGRESS_SECONDS = 0.1
# A worker that nothing uses ends by itself; the next pool starts another.
_IDLE_SECONDS = 60

Setup = Callable[[Worker], Any]
"""Makes the context of a pool's tasks, once in each process. It is pickled."""


class Order(NamedTuple):
    """To a worker: a task to run, the first of a pool with its setup."""

    setup: Setup | None
    task: Task[Any, Any]


class Done(NamedTuple):
    """From a worker: items and source bytes done since its last message."""

    items: int
    source_bytes: int


class Traceback(NamedTuple):
    """From a worker: the traceback of an internal error that has failed an item, to be logged."""

    origin: str
    text: str


class Result(NamedTuple):
    """From a worker: the result of a task."""

    value: Any


class ItemFailed(Exception):
    """From a worker: its task has ended at an item, which alone is lost. Other exceptions end the job."""

    def __init__(self, item: int, error: BadInput) -> None:
        super().__init__(item, error)
        self.item, self.error = item, error


Answer = Done | Traceback | Result | Exception


def main(descriptor: int, position_descriptor: int) -> None:
    """Serves until the socket closes, or no message comes for long."""
    own_process.set_up()
    connection = Connection(descriptor)
    loop = _Loop(connection, SharedPosition(position_descriptor, is_limited=True))
    try:
        while connection.poll(_IDLE_SECONDS):
            loop.handle(connection.recv())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent is done, or gone


class _Loop:
    """Handles messages, one by one."""

    def __init__(self, connection: Connection, position: SharedPosition) -> None:
        self._connection = connection
        self._position = position
        self._worker = Worker(position, self._progress)
        self._context: Any = None
        self._items = self._source_bytes = 0
        self._reported = 0.0
        internal_errors.send_to(lambda origin, text: connection.send(Traceback(origin, text)))

    def handle(self, message: str | Order) -> None:
        """Imports the module of this name, or runs a task and answers."""
        if isinstance(message, str):
            with contextlib.suppress(Exception):  # the task that needs it imports it again
                importlib.import_module(message)
            return
        self._items = self._source_bytes = 0
        self._reported = time.monotonic()
        self._connection.send(self._answer(message))

    def _answer(self, order: Order) -> Result | Exception:
        # What is no Exception (a panic of a Rust library, SystemExit) ends the process at the item.
        answer: Result | Exception
        try:
            if order.setup is not None:
                self._position.cpu_factor = 1.0
                self._context = order.setup(self._worker)
            answer = Result(order.task.run(self._context))
            self._report()
        except (BrokenPipeError, ConnectionResetError):
            raise
        except MemoryError:
            # As if the system had ended it: the item is tried again in a process that is empty.
            os._exit(OUT_OF_MEMORY)
        except JobError as error:
            answer = error
        except Exception as error:
            item = self._worker.failed_item(error)
            if item is not None and isinstance(error, BadInput):
                answer = ItemFailed(item, error)
            else:
                answer = RuntimeError(traceback.format_exc())
        self._position.leave()
        return answer

    def _progress(self, items: int, source_bytes: int) -> None:
        """Reports progress now and then, not for each item; at once if nothing has been done."""
        self._items += items
        self._source_bytes += source_bytes
        if not items or time.monotonic() - self._reported > _PROGRESS_SECONDS:
            self._report()

    def _report(self) -> None:
        self._connection.send(Done(self._items, self._source_bytes))
        self._items = self._source_bytes = 0
        self._reported = time.monotonic()
