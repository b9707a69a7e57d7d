"""A writer whose crashes and hangs cost one image: the image is tried once more by itself, then given up."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from typing import Any, NamedTuple

from recordmill.transforms.internal_errors import log_once
from recordmill.transforms.records import BadInput, JobError
from recordmill.transforms.shards.beacon import SLOW_TIMES, Beacon, Position, Step
from recordmill.transforms.shards.part import EncodeTask, JoinTask, PartTask
from recordmill.transforms.shards.process import WriterProcess, give_back, take
from recordmill.transforms.shards.record_encoder import Progress, RecordSettings
from recordmill.transforms.shards.references import reference_record
from recordmill.transforms.shards.worker import OUT_OF_MEMORY, Advance, Answer, Fault, Result, Task, Traceback

IMAGE_SECONDS = 120.0
"""How long the codecs, or the reading, of one image may take, each of two times."""
CRASHES = "crashes the codec"
HANGS = "hangs the codec"
TAKES_TOO_LONG = "takes too long"
"""Reasons of images that were given up; stage `decode`."""

# Deaths that no image explains: of processes that were at no record, or whose image did well by itself.
_MOST_UNEXPLAINED = 8
_LOOK_SECONDS = 1.0


class Lost(Exception):
    """The process has died, or was ended since it hung.

    Attributes:
        position: where it was.
        hung: whether it was ended for that.
        status: its exit status, negative for a signal.
    """

    def __init__(self, position: Position, hung: bool, status: int | None) -> None:
        super().__init__(position, hung, status)
        self.position = position
        self.hung = hung
        self.status = status

    @property
    def is_over_time(self) -> bool:
        """Whether an image took more processor time than it may."""
        return not self.hung and self.status == -signal.SIGPROF and self.position.step is Step.IMAGE

    @property
    def what(self) -> str:
        """What has happened, in words."""
        if self.hung:
            return "did not end"
        if self.status == OUT_OF_MEMORY:
            return "ran out of memory"
        if self.status is None or self.status >= 0:
            return f"ended with status {self.status}"
        return f"was ended by {signal.Signals(-self.status).name}"


class GuardedWriter:
    """Runs tasks in a spawned process, one at a time; takes another when that dies.

    Args:
        settings: of the encoding.
        progress: is told of records that are done; they are taken back when they have to be done again.
        image_seconds: after which a process that is still at the same image hangs.
        tries: of an image, 1 or 2.
    """

    def __init__(
        self,
        settings: RecordSettings,
        progress: Progress,
        image_seconds: float | None = None,
        tries: int = 2,
    ) -> None:
        self._tries = tries
        self._settings = settings
        self._progress = progress
        if image_seconds is None:
            image_seconds = IMAGE_SECONDS * (SLOW_TIMES if settings.policy.is_slow else 1)
        self._image_seconds = image_seconds
        self._lock = threading.Lock()
        self._process: WriterProcess | None = None
        self._knows_settings = False
        self._closed = False
        self._unexplained = 0

    def start(self) -> WriterProcess:
        """Makes sure that there is a process."""
        with self._lock:
            if self._closed:
                raise JobError("the writer processes were stopped")
            if self._process is None:
                self._process = take()
                self._knows_settings = False
            return self._process

    def close(self, idle: bool) -> None:
        """Lets the process go: an idle one to whoever wants one next; any other is ended."""
        with self._lock:
            self._closed = True
            if self._process is None:
                return
            if idle:
                give_back(self._process)
                self._process = None
            else:
                self._process.stop()

    def run(self, task: Task) -> Result:
        """The result of `task`, whatever its images do to the process.

        Raises:
            JobError: the machine does not let it be done.
        """
        if isinstance(task, JoinTask):
            return self._insist(task)
        count = len(task.references)
        results: list[Any] = []
        todo = [_Range(0, count, 1)]
        while todo:
            part = todo.pop()
            piece = task if part.end - part.start == count else task.piece(part.start, part.end)
            if part.lost is not None and part.number > self._tries:
                results.append(self._given_up(piece, part.lost))
                continue
            try:
                results.append(self._ask(piece))
                if part.lost is not None:
                    self._count_unexplained()
            except Lost as lost:
                piece.abandon()
                if lost.position.index is None:
                    self._count_unexplained(lost)
                    todo.append(part)
                else:
                    number = self._tries + 1 if lost.is_over_time else part.number + 1
                    todo += part.around(lost.position.index, lost, number)
        if len(results) == 1:
            result: Result = results[0]
            return result
        joined = task.joined(results)
        return self._insist(joined) if isinstance(joined, JoinTask) else joined

    def _insist(self, task: JoinTask) -> Result:
        """Runs a task that no image is to blame for."""
        while True:
            try:
                return self._ask(task)
            except Lost as lost:
                self._count_unexplained(lost)

    def _ask(self, task: Task) -> Result:
        """Runs a task or a piece of one, once."""
        process = self.start()
        process.beacon.clear()
        watch = _Watch(process.beacon, self._image_seconds)
        records = source_bytes = 0
        hangs = False
        try:
            if not self._knows_settings:
                process.connection.send(self._settings)
                self._knows_settings = True
            process.connection.send(task)
            while not hangs:
                if not process.connection.poll(_LOOK_SECONDS):
                    hangs = watch.hangs()
                    continue
                answer: Answer = process.connection.recv()
                if isinstance(answer, Advance):
                    records += answer.records
                    source_bytes += answer.source_bytes
                    self._progress(answer.records, answer.source_bytes)
                elif isinstance(answer, Traceback):
                    log_once(answer.origin, answer.text)
                elif isinstance(answer, Fault):
                    raise JobError(answer.message) if answer.expected else RuntimeError(answer.message)
                else:
                    return answer
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass
        self._progress(-records, -source_bytes)
        raise Lost(process.beacon.position(), hangs, self._ended(process, hangs))

    def _ended(self, process: WriterProcess, hangs: bool) -> int | None:
        """The exit status of a process that has died, or that hangs and is ended."""
        if not hangs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(_LOOK_SECONDS)  # its socket closes a little before it ends
        status = process.stop()
        with self._lock:
            self._process = None
        process.connection.close()
        return status

    def _given_up(self, piece: PartTask | EncodeTask, lost: Lost) -> Result:
        """The result of an image that has ended two processes."""
        if lost.hung and lost.position.step is Step.LOAD and self._tries > 1:
            record = reference_record(piece.references[0])
            uri = record.image.uri if record.image is not None else record.key
            raise JobError(
                f"{uri}: reading it did not end in {self._image_seconds:g} seconds, two times; "
                "run the job again when it can be read"
            )
        if lost.is_over_time:
            seconds = lost.position.cpu_seconds
            detail = f"it needs more than {seconds:.0f} seconds of processor time, the limit for its size"
            return piece.lost(BadInput("decode", TAKES_TOO_LONG, detail))
        reason = HANGS if lost.hung else CRASHES
        limit = f" in {self._image_seconds:g} seconds" if lost.hung else ""
        times = "two times" if self._tries > 1 else "once"
        return piece.lost(BadInput("decode", reason, f"its process {lost.what}{limit}, {times}"))

    def _count_unexplained(self, lost: Lost | None = None) -> None:
        self._unexplained += 1
        if self._unexplained > _MOST_UNEXPLAINED:
            last = f", the last {lost.what}" if lost is not None else ""
            raise JobError(
                f"{self._unexplained} writer processes have died through no image{last}; memory is short: "
                "a smaller --direct_num_workers needs less"
            )


class _Range(NamedTuple):
    """Places in a task that are to be done.

    Attributes:
        start: the first.
        end: behind the last.
        number: of the try, from 1.
        lost: how the last try of its only image ended.
    """

    start: int
    end: int
    number: int
    lost: Lost | None = None

    def around(self, index: int, lost: Lost, number: int) -> list[_Range]:
        """What is to be done once the image at `index` has ended its process: the last one first.

        `number` is that of its next try.
        """
        at = self.start + index
        alone = _Range(at, at + 1, number, lost)
        every = [_Range(at + 1, self.end, 1), alone, _Range(self.start, at, 1)]
        return [part for part in every if part.start < part.end]


class _Watch:
    """Tells when a process has been at the same image for too long."""

    def __init__(self, beacon: Beacon, seconds: float) -> None:
        self._beacon = beacon
        self._seconds = seconds
        self._position = beacon.position()
        self._since = time.monotonic()

    def hangs(self) -> bool:
        """Whether it has; to be asked now and then."""
        position, now = self._beacon.position(), time.monotonic()
        if position != self._position:
            self._position, self._since = position, now
        return position.step is not Step.OTHER and now - self._since > self._seconds
