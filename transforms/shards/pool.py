"""Spawned processes that write shards: one a core, each a fresh interpreter without Beam.

Not `multiprocessing`: its spawned children import the program's main module again, and with it Beam, and
a script without a main guard would start itself anew.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future
from multiprocessing.connection import Connection

from transforms.records import JobError
from transforms.shards.part import JoinTask, PartTask, Progress
from transforms.shards.record_encoder import RecordEncoder, RecordSettings
from transforms.shards.report import ShardFile
from transforms.shards.worker import Advance, Answer, Fault

Task = PartTask | JoinTask
_Job = tuple[Task, "Future[ShardFile]"]

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from transforms.shards.boot import boot; boot(int(sys.argv[2]))"
)


# glibc gives the memory of each decoded image back and takes it again for the next, page by page: a tenth of
# the time of re-encoding. These are its own upper limits, from the start. Other systems do not read them.
_ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}


@dataclasses.dataclass(eq=False)
class WriterProcess:
    """A spawned interpreter, and the socket to it."""

    popen: subprocess.Popen[bytes]
    connection: Connection
    awake: bool = False

    @staticmethod
    def spawn() -> WriterProcess:
        """Starts one."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-c", _BOOT, json.dumps(sys.path), str(theirs.fileno())]
            popen = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**_ALLOCATION, **os.environ},
                # Ctrl-C is for this process alone: when it goes, the socket closes, and they go too.
                start_new_session=True,
            )
        return WriterProcess(popen, Connection(ours.detach()))

    def wake(self) -> None:
        """Lets it import what it needs."""
        if not self.awake:
            self.connection.send_bytes(b"wake")
            self.awake = True

    def stop(self) -> None:
        """Ends it."""
        self.popen.terminate()
        self.popen.wait()


_idle: list[WriterProcess] = []


def prestart(processes: int) -> None:
    """Starts processes for a `ProcessExecutor` to come, while this one is still small and has time.

    They sleep until `wake_idle`, or until they are used; what is not used ends with this process.
    """
    _idle.extend(WriterProcess.spawn() for _ in range(processes - len(_idle)))


def wake_idle() -> None:
    """Lets started processes import what they need, beside the work of this one."""
    for process in _idle:
        process.wake()


def stop_idle() -> None:
    """Ends the started processes that nothing has used."""
    while _idle:
        process = _idle.pop()
        process.stop()
        process.connection.close()


class InlineExecutor:
    """Runs each task at once, in this process."""

    def __init__(self, settings: RecordSettings, progress: Progress) -> None:
        self._encoder = RecordEncoder(settings)
        self._progress = progress

    def submit(self, task: Task) -> Future[ShardFile]:
        """Runs `task`; its errors come out of the future."""
        future: Future[ShardFile] = Future()
        try:
            future.set_result(task.run(self._encoder, self._progress))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Nothing to stop."""


class ProcessExecutor:
    """Runs tasks in `workers` spawned processes; lets no more than twice their number wait.

    Each process is served by one thread of this one, which waits on its socket: a process that dies is
    noticed at once. The first death fails all tasks that are not done.
    """

    def __init__(self, settings: RecordSettings, progress: Progress, workers: int) -> None:
        self._settings = settings
        self._progress = progress
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._places = threading.Semaphore(2 * workers)
        self._broken: JobError | None = None
        self._processes: list[WriterProcess] = []
        self._threads: list[threading.Thread] = []
        try:
            for _ in range(workers):
                self._start_one()
        except BaseException:
            self.close()
            raise

    def submit(self, task: Task) -> Future[ShardFile]:
        """Queues `task`; waits while too many wait already."""
        self._places.acquire()
        future: Future[ShardFile] = Future()
        self._jobs.put((task, future))
        return future

    def close(self) -> None:
        """Stops the processes; tasks that are not done fail."""
        self._broken = self._broken or JobError("the writer processes were stopped")
        for process in self._processes:
            process.stop()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _start_one(self) -> None:
        process = _idle.pop() if _idle else WriterProcess.spawn()
        self._processes.append(process)
        process.wake()
        thread = threading.Thread(target=self._serve_one, args=(process,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve_one(self, process: WriterProcess) -> None:
        """Feeds one process, task by task, and resolves their futures."""
        settings: RecordSettings | None = self._settings
        with process.connection as connection:
            while (job := self._jobs.get()) is not None:
                self._places.release()
                task, future = job
                try:
                    if self._broken is not None:
                        raise self._broken
                    if settings is not None:
                        connection.send(settings)
                        settings = None
                    connection.send(task)
                    future.set_result(self._await(connection))
                except (EOFError, BrokenPipeError, ConnectionResetError):
                    status = process.popen.wait()
                    message = f"a writer process ended with status {status} while it wrote {task.path}"
                    self._broken = self._broken or JobError(message)
                    future.set_exception(self._broken)
                except Exception as error:
                    future.set_exception(error)

    def _await(self, connection: Connection) -> ShardFile:
        while True:
            answer: Answer = connection.recv()
            if isinstance(answer, Advance):
                self._progress(answer.records, answer.source_bytes)
            elif isinstance(answer, Fault):
                raise JobError(answer.message) if answer.expected else RuntimeError(answer.message)
            else:
                return answer


Executor = InlineExecutor | ProcessExecutor
