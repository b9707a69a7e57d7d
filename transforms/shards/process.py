"""Spawned interpreters that encode and write: each a fresh one, without Beam.

Not `multiprocessing`: its spawned children import the program's main module again, and with it Beam, and
a script without a main guard would start itself anew.
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
from recordmill.transforms.shards.beacon import Beacon, create_file

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from recordmill.transforms.shards.boot import boot; boot(int(sys.argv[2]), int(sys.argv[3]))"
)
# glibc gives the memory of each decoded image back and takes it again for the next, page by page: a tenth of
# the time of re-encoding. These are its own upper limits, from the start. Other systems do not read them.
_ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
# A process that cannot even be killed (its disk does not answer) is left behind.
_STOP_SECONDS = 5


@dataclasses.dataclass(eq=False)
class WriterProcess:
    """A spawned interpreter, the socket to it, and the memory that tells where it is."""

    popen: subprocess.Popen[bytes]
    connection: Connection
    beacon: Beacon
    awake: bool = False

    @staticmethod
    def spawn() -> WriterProcess:
        """Starts one."""
        if _ending:
            raise JobError("the program ends")
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(True)  # whatever default Beam's parts for Google Cloud have set for all sockets
        descriptor = create_file()
        try:
            beacon = Beacon(descriptor)
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
        process = WriterProcess(popen, Connection(ours.detach()), beacon)
        _started.add(process)
        return process

    def wake(self) -> None:
        """Lets it import what it needs."""
        if not self.awake:
            self.awake = True
            with contextlib.suppress(OSError):  # whoever uses it will see that it has died
                self.connection.send_bytes(b"wake")

    def stop(self) -> int | None:
        """Ends it. Returns its exit status, negative for a signal."""
        self.popen.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(_STOP_SECONDS)
        return self.popen.returncode


_idle: list[WriterProcess] = []
_started: weakref.WeakSet[WriterProcess] = weakref.WeakSet()
_ending = False
_idle_lock = threading.Lock()


def kill_all() -> None:
    """Ends every process at once, and lets no other start: the program is about to end."""
    global _ending
    _ending = True
    for process in list(_started):
        process.popen.kill()


def prestart(processes: int) -> None:
    """Starts processes that will be wanted, while this one is still small and has time.

    The first is woken at once, the others sleep until `wake_idle` or until they are used. What is not used
    ends with this process.
    """
    with _idle_lock:
        _idle.extend(WriterProcess.spawn() for _ in range(processes - len(_idle)))
        for process in _idle[:1]:
            process.wake()


def wake_idle() -> None:
    """Lets started processes import what they need, beside the work of this one."""
    with _idle_lock:
        for process in _idle:
            process.wake()


def stop_idle() -> None:
    """Ends the processes that nothing uses."""
    with _idle_lock:
        while _idle:
            process = _idle.pop()
            process.stop()
            process.connection.close()


def take() -> WriterProcess:
    """A process that is awake: an idle one, or else a new one."""
    with _idle_lock:
        while _idle:
            process = _idle.pop(0)
            if process.popen.poll() is None:
                break
            process.connection.close()
        else:
            process = WriterProcess.spawn()
    process.wake()
    return process


def give_back(process: WriterProcess) -> None:
    """Keeps a process that has nothing to do for whoever wants one next."""
    with _idle_lock:
        _idle.insert(0, process)  # before those that are asleep
