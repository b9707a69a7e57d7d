"""Which process holds the lock of an output, or made a folder for intermediate files.

Such a folder has a marker that only this program writes and that names the owner. Without one it is never
removed.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import socket

import msgspec

from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import is_unfinished, write_file

OWNER_START = '{"token":'
"""The start of the JSON of every owner."""
MARKER = "made-by-recordmill.json"
"""Name of the marker: JSON of an `Owner`."""


class Owner(msgspec.Struct, frozen=True, rename={"pid_namespace": "place", "process_start": "born"}):
    """A process that holds a lock, or made a folder.

    Attributes:
        token: of the job.
        started: UTC, ISO 8601.
        command: of the job, for messages.
        pid_namespace: boot and container of the machine, in which the pid is unique; empty if unknown.
        process_start: start time of the process, by the machine's clock, since pids are reused.
    """

    token: str
    host: str
    pid: int
    started: str
    command: str
    pid_namespace: str = ""
    process_start: float = 0.0

    @staticmethod
    def here(token: str, command: str) -> Owner:
        pid, host = os.getpid(), socket.gethostname()
        return Owner(token, host, pid, utc_now(), command, _pid_namespace(), _process_start(pid) or 0.0)

    def is_gone(self) -> bool:
        """Whether it was a process of this machine and has ended; False where that is unknown."""
        is_here = bool(self.pid_namespace) and self.pid_namespace == _pid_namespace()
        return is_here and _process_start(self.pid) != self.process_start

    def is_dead_here(self) -> bool:
        """Whether its host has this host's name, and no process here has its number and start time."""
        return self.host == socket.gethostname() and _process_start(self.pid) != self.process_start

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @staticmethod
    def of_json(text: bytes) -> Owner | None:
        """The owner that wrote a text; None if it is another text, or not complete."""
        try:
            return msgspec.json.decode(text, type=Owner)
        except ValueError:
            return None

    @staticmethod
    def is_begun(text: bytes) -> bool:
        """Whether a text is the JSON of an owner, or its start, or empty."""
        return OWNER_START.encode().startswith(text[: len(OWNER_START)])

    def __str__(self) -> str:
        command = f" ({self.command})" if self.command else ""
        return f"process {self.pid} on {self.host}, since {self.started}{command}"


def utc_now() -> str:
    """The time, ISO 8601."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


@functools.cache
def _pid_namespace() -> str:
    """On Linux the boot, and the namespace of pids; empty elsewhere, where a host name is not enough."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
        return f"{socket.gethostname()} {boot.read().strip()} {os.stat('/proc/self/ns/pid').st_ino}"
    return ""


def _process_start(pid: int) -> float | None:
    """When a process began; None if there is no such process."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return float(process.create_time())
    except psutil.Error:
        return None


def make_marked_folder(path: str) -> None:
    """Makes a folder with a marker. An existing folder that is not empty is left as it is."""
    system = file_system(path)
    system.make_folder(path)
    if all(is_unfinished(found.path, MARKER, OWNER_START) for found in system.contents(path)):
        write_file(os.path.join(path, MARKER), Owner.here("", "").to_json())


def owner_of(path: str) -> Owner | None:
    """The owner named by a folder's marker; None without a marker, and for a link to a folder."""
    system, marker = file_system(path), os.path.join(path, MARKER)
    try:
        is_linked = system.has_links and (system.is_link(path) or system.is_link(marker))
        return None if is_linked else Owner.of_json(system.read(marker))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def remove_marked_folder(path: str) -> None:
    """Removes a folder with all its contents, the marker last. A folder without a marker is left as it is."""
    if owner_of(path) is not None:
        system, marker = file_system(path), os.path.join(path, MARKER)
        system.remove_entries(found for found in system.contents(path) if found.path != marker)
        system.remove_existing(marker)
        system.remove_folder(path)
