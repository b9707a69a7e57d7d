"""The loop of a spawned writer: takes tasks from a socket, runs them, answers with progress and results.

It runs in a fresh interpreter that `recordmill.transforms.shards.process` has started: no Beam, and nothing
of the program that started it.
"""

from __future__ import annotations

import dataclasses
import os
import time
import traceback
from multiprocessing.connection import Connection

from recordmill.transforms import internal_errors
from recordmill.transforms.records import JobError
from recordmill.transforms.shards.beacon import Beacon
from recordmill.transforms.shards.part import EncodedBatch, EncodeTask, JoinTask, PartTask
from recordmill.transforms.shards.record_encoder import RecordEncoder, RecordSettings
from recordmill.transforms.shards.report import ShardFile

OUT_OF_MEMORY = 75
"""The exit status of a writer that has found no memory for an image."""

_PROGRESS_SECONDS = 0.1
# A writer that nothing uses ends by itself; whoever wants one starts another.
_IDLE_SECONDS = 60

Task = PartTask | JoinTask | EncodeTask
Result = ShardFile | EncodedBatch


@dataclasses.dataclass(frozen=True, slots=True)
class Advance:
    """Records and source bytes done since the last message."""

    records: int
    source_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """A task that raised: one line for the user, or a traceback for us."""

    message: str
    expected: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Traceback:
    """The traceback of an internal error that has failed a record, for the log of the parent."""

    origin: str
    text: str


Answer = Result | Advance | Fault | Traceback


def serve(connection: Connection, beacon: Beacon) -> None:
    """Runs tasks from the socket until it closes, or nothing has come for long. Settings come first."""
    encoder: RecordEncoder | None = None
    internal_errors.send_to(lambda origin, text: connection.send(Traceback(origin, text)))
    try:
        while connection.poll(_IDLE_SECONDS):
            message: Task | RecordSettings = connection.recv()
            if isinstance(message, RecordSettings):
                encoder = RecordEncoder(message, beacon)
            else:
                assert encoder is not None
                connection.send(_answer(message, encoder, connection))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent is done, or gone


def _answer(task: Task, encoder: RecordEncoder, connection: Connection) -> Answer:
    meter = _Meter(connection)
    try:
        result = task.run(encoder, meter.advance)
    except (BrokenPipeError, ConnectionResetError):
        raise
    except MemoryError:
        # As if the system had ended it: the image is tried again in a process that is empty.
        os._exit(OUT_OF_MEMORY)
    except JobError as error:
        return Fault(str(error), expected=True)
    except Exception:
        return Fault(traceback.format_exc(), expected=False)
    finally:
        encoder.beacon.clear()
    meter.flush()
    return result


class _Meter:
    """Sends progress now and then, not for each record."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._records = 0
        self._source_bytes = 0
        self._sent = time.monotonic()

    def advance(self, records: int, source_bytes: int) -> None:
        self._records += records
        self._source_bytes += source_bytes
        if not records or time.monotonic() - self._sent > _PROGRESS_SECONDS:
            self.flush()

    def flush(self) -> None:
        self._connection.send(Advance(self._records, self._source_bytes))
        self._records = self._source_bytes = 0
        self._sent = time.monotonic()
