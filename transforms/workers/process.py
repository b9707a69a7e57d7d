"""Spawned interpreters that run tasks: each a fresh one, without Beam.

Not `multiprocessing`: its spawned children import the program's main module again, and with it Beam, and
a script without a main guard would start itself again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from multiprocessing.connection import Connection

from recordmill.transforms.records import JobError
from recordmill.transforms.workers.task import SharedPosition, create_file

# It sleeps on its socket, and imports nothing of ours before the first message.
_BOOT = (
    "import json, select, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "select.select([int(sys.argv[2])], [], []); "
    "from recordmill.transforms.workers.worker import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)
# glibc gives the memory of each decoded image back and takes it again for the next, page by page: a tenth of
# the time of re-encoding. The first is glibc's own upper limit, from the start; the second is the memory that
# an image of 12 megapixels needs: the peak of a process stays the same. Other systems do not read them.
_ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}
# A process that cannot even be killed (its disk does not answer) is left behind.
_STOP_SECONDS = 5


@dataclasses.dataclass(eq=False)
class WorkerProcess:
    """A spawned interpreter; `preload` is the module that it imports once it is woken."""

    popen: subprocess.Popen[bytes]
    connection: Connection
    position: SharedPosition
    preload: str

    @staticmethod
    def spawn(preload: str = "") -> WorkerProcess:
        """Starts one, which sleeps until it gets a message."""
        if _ending:
            raise JobError("the program ends")
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(True)  # whatever default Beam's parts for Google Cloud have set for all sockets
        descriptor = create_file()
        try:
            position = SharedPosition(descriptor)
            inherited = [theirs.fileno(), descriptor]
            popen = subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps(sys.path), *map(str, inherited)],
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
                env={**_ALLOCATION, **os.environ},
                # Ctrl-C is for this process alone: when it goes, the socket closes, and they go too.
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(descriptor)
        process = WorkerProcess(popen, Connection(ours.detach()), position, preload)
        _started.add(process)
        return process

    def wake(self) -> None:
        module, self.preload = self.preload, ""
        if module:
            with contextlib.suppress(OSError):  # its next user notices that it has died
                self.connection.send(module)

    def stop(self) -> int | None:
        """Ends it. Returns its exit status, negative for a signal."""
        self.popen.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(_STOP_SECONDS)
        self.connection.close()
        return self.popen.returncode


_idle: list[WorkerProcess] = []
_started: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()
_ending = False
_idle_lock = threading.Lock()


def kill_all() -> None:
    """Ends every process at once, and lets no other start: the program is about to end."""
    global _ending
    _ending = True
    for process in list(_started):
        process.popen.kill()


def prestart(processes: int, preload: str, preload_last: str = "") -> None:
    """Starts processes that will be needed, while this one is still small and has time.

    The first is woken at once, the others sleep until `wake_idle` or until they are used. Unused ones end
    with this process. `preload` is the module of their tasks; the first also imports `preload_last`.
    """
    with _idle_lock:
        _idle.extend(WorkerProcess.spawn(preload) for _ in range(processes - len(_idle)))
        for process in _idle[:1]:
            process.wake()
            process.preload = preload_last
            process.wake()


def wake_idle() -> None:
    """Starts the imports of idle processes, while this one works."""
    with _idle_lock:
        for process in _idle:
            process.wake()


def stop_idle() -> None:
    with _idle_lock:
        while _idle:
            _idle.pop().stop()


def take() -> WorkerProcess:
    """An idle process, or a new one."""
    with _idle_lock:
        while _idle:
            process = _idle.pop(0)
            if process.popen.poll() is None:
                process.wake()
                return process
            process.connection.close()
        return WorkerProcess.spawn()


def give_back(process: WorkerProcess) -> None:
    """Keeps an idle process for the next pool."""
    with _idle_lock:
        _idle.insert(0, process)  # before those that are asleep
