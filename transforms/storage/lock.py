"""The lock of an output: one job at a time, until it ends or dies.

The lock is a file under `.recordmill` that names its owner, a process of the job. The processes of the job
renew it every few seconds. If it was not renewed for a while, the job is dead.
"""

from __future__ import annotations

import abc
import contextlib
import errno
import fcntl
import os
import socket
import tempfile
import threading
import time
from collections.abc import Collection
from typing import NamedTuple

from recordmill.transforms.records import JobError
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import NEW, ChangedError, file_system
from recordmill.transforms.storage.files import may_replace
from recordmill.transforms.storage.layout import RUNS
from recordmill.transforms.storage.owner import Owner

_LOCK = "lock"
_CLOCK = "clock"
_TRIES = 10
# What a signal handler can wait: for a thread of this process, and for a service.
_QUICK_SECONDS = 0.2
_QUICK_ANSWER_SECONDS = 2.0
_NO_FLOCK = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_MOST_BYTES = 1 << 16


class _Found(NamedTuple):
    """A state of a lock.

    Attributes:
        owner: None where there is no lock, or its text is not complete yet.
        is_alive: whether the owner's process is running; None where only the last renewal says so.
    """

    owner: Owner | None
    is_alive: bool | None = None
    modified: int = 0
    generation: int = NEW

    @property
    def token(self) -> str:
        return self.owner.token if self.owner is not None else ""


class _Lock(abc.ABC):
    """A lock as this process sees it, and renews it once it holds it. There are two ways to hold one."""

    renew_seconds: float
    dead_seconds: float
    retry_seconds: float

    def __init__(self, path: str) -> None:
        self.path = path
        self.system = file_system(path)
        self.token = ""
        self._released = threading.Event()
        self._in_use = threading.Lock()
        self._thread: threading.Thread | None = None

    @abc.abstractmethod
    def look(self, to_take: bool = False) -> _Found | None:
        """Reads it, before `take` if so; None where it has just been removed."""

    @abc.abstractmethod
    def take(self, found: _Found, owner: Owner) -> bool:
        """Gives a lock that was found to the owner, or shares it; False where another job was faster."""

    @abc.abstractmethod
    def age(self, found: _Found) -> float:
        """Seconds since the last renewal, by the clock of the file system: hosts' own may be far apart."""

    @abc.abstractmethod
    def renew(self) -> bool:
        """Renews it; False where it is no longer the job's."""

    @abc.abstractmethod
    def remove(self, token: str, within: float | None = None) -> None:
        """Removes it if it is the job's; `within` some seconds, or with the usual retries."""

    def is_intact(self) -> bool:
        """Whether it still is the job's, as far as no service has to be asked."""
        return self._thread is not None and self._thread.is_alive()

    @abc.abstractmethod
    def close_file(self) -> None:
        """Closes what is open in this process."""

    def is_free(self, found: _Found, ours: Collection[str] = ()) -> bool:
        """Whether no job has a lock, or one that is dead, or one of those in `ours`."""
        # An object is written in one step: one that names no owner is of a later version.
        if found.is_alive is None and (found.owner is not None or found.generation != NEW):
            return found.token in ours or self.age(found) > self.dead_seconds
        return not found.is_alive

    def refusal(self, output: str, found: _Found) -> str:
        wait = "wait for it, or give another folder"
        if found.owner is None:
            return f"--output is {output!r}, where another job has just started; {wait}"
        message = f"--output is {output!r}, where another job is at work: {found.owner}"
        if found.is_alive:
            return f"{message}; wait for it, or stop it, or give another folder"
        left = max(self.dead_seconds - self.age(found), 1)
        return f"{message}; {wait}; if it is dead, give the same command again in {left:.0f} s"

    def acquire(self, output: str, owner: Owner, ours: Collection[str]) -> None:
        """Takes it for `owner`, and renews it from now on; it may be of a job of `ours` before."""
        refusal = ""
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(self.retry_seconds)
            self.system.make_folder(os.path.dirname(self.path))
            found = self.look(to_take=True)
            refusal = ""
            if found is None:
                continue  # a job that ended has just removed it
            if found.token == owner.token or self.is_free(found, ours):
                if self.take(found, owner):
                    self.token = owner.token
                    self._thread = threading.Thread(
                        target=self._renew_on, name="recordmill-lock", daemon=True
                    )
                    self._thread.start()
                    return
            else:
                refusal = self.refusal(output, found)
                if not found.is_alive:  # else it may be somebody who only looks
                    raise JobError(refusal)
        raise JobError(
            refusal or f"--output is {output!r}, where other jobs start and end; give the command again"
        )

    def close(self, remove: bool = False, within: float | None = None) -> None:
        """Stops the renewals, and may remove the lock; never fails."""
        self._released.set()
        is_idle = self._in_use.acquire(timeout=_QUICK_SECONDS)
        try:
            if remove:
                self.give_back(self.token, within)
        finally:
            if is_idle:
                with contextlib.suppress(OSError):
                    self.close_file()
                self._in_use.release()

    def give_back(self, token: str, within: float | None = None) -> None:
        """Removes a lock of the job, and the folder if it is then empty; never fails."""
        with contextlib.suppress(Exception):
            self.remove(token, within)
            self.system.remove_folder(os.path.dirname(self.path))

    def _renew_on(self) -> None:
        while not self._released.wait(self.renew_seconds):
            with contextlib.suppress(OSError, JobError), self._in_use:  # which may pass
                if self._released.is_set() or not self.renew():
                    return


class _LockFile(_Lock):
    """A file that its owner has locked with flock: on its host, the end of the process is seen at once.

    It is renewed by a touch, for other hosts of a shared file system, and where there is no flock.
    """

    renew_seconds = 10.0
    dead_seconds = 60.0
    # Somebody who only looks has the flock for an instant, and a new owner has not written yet for one.
    retry_seconds = 0.1

    _descriptor = -1

    def look(self, to_take: bool = False) -> _Found | None:
        self.close_file()
        flags = os.O_RDWR | os.O_CREAT if to_take else os.O_RDONLY
        try:
            self._descriptor = os.open(self.path, flags | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            return None
        is_locked = self._flock(fcntl.LOCK_EX if to_take else fcntl.LOCK_SH)
        owner = _owner_in(self._text(), self.path)
        is_alive = True if is_locked is False else None
        if is_locked and owner is not None and owner.host == socket.gethostname():
            is_alive = False
        found = _Found(owner, is_alive, os.fstat(self._descriptor).st_mtime_ns)
        return found if self._has_path() else None

    def take(self, found: _Found, owner: Owner) -> bool:
        if found.token != owner.token:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, owner.to_json(), 0)
            os.fsync(self._descriptor)
        return True

    def age(self, found: _Found) -> float:
        try:
            with tempfile.TemporaryFile(dir=os.path.dirname(self.path)) as touched:
                os.utime(touched.fileno())
                now = os.fstat(touched.fileno()).st_mtime_ns
        except OSError:
            now = time.time_ns()
        return (now - found.modified) / 1e9

    def renew(self) -> bool:
        if not self._is_ours():
            return False
        os.utime(self._descriptor)
        self._flock(fcntl.LOCK_EX)  # the process of this job that had it may have ended
        return True

    def remove(self, token: str, within: float | None = None) -> None:
        with open(self.path, "rb") as file:
            owner = Owner.of_json(file.read(_MOST_BYTES))
        if owner is not None and owner.token == token:
            os.remove(self.path)

    def is_intact(self) -> bool:
        return super().is_intact() and self._is_ours()

    def close_file(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _flock(self, operation: int) -> bool | None:
        """Whether the file is locked now; None where the file system cannot do that."""
        try:
            fcntl.flock(self._descriptor, operation | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            if error.errno in _NO_FLOCK:
                return None
            raise
        return True

    def _is_ours(self) -> bool:
        owner = Owner.of_json(self._text())
        return self._has_path() and owner is not None and owner.token == self.token

    def _has_path(self) -> bool:
        """Whether the open file still has its path."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _text(self) -> bytes:
        return os.pread(self._descriptor, _MOST_BYTES, 0)


class _LockObject(_Lock):
    """An object that is renewed by writing it again, on the condition that nobody else has written it."""

    renew_seconds = 15.0
    dead_seconds = 90.0
    retry_seconds = 0.2

    _generation = NEW
    _text = b""

    def look(self, to_take: bool = False) -> _Found | None:
        status = self.system.find(self.path)
        if status is None:
            return _Found(None)
        try:
            # If the text is of a later state, a write on the condition of the earlier one is refused.
            owner = _owner_in(self.system.read(self.path), self.path)
        except FileNotFoundError:
            return None
        is_alive = False if owner is not None and owner.is_gone() else None
        return _Found(owner, is_alive, status.modified, status.generation)

    def take(self, found: _Found, owner: Owner) -> bool:
        self._text = owner.to_json()
        with contextlib.suppress(ChangedError):
            self._generation = self.system.write(self.path, [self._text], found.generation).generation
            return True
        return False

    def age(self, found: _Found) -> float:
        """The empty object that it writes has the time of the service."""
        clock = os.path.join(os.path.dirname(self.path), _CLOCK)
        for _ in range(_TRIES):
            present = self.system.find(clock)
            if present is not None and present.size:
                raise JobError(f"{clock} is not an object that recordmill wrote; move it away")
            with contextlib.suppress(ChangedError):  # another process was faster
                written = self.system.write(clock, [], present.generation if present else NEW)
                with contextlib.suppress(FileNotFoundError, ChangedError):
                    self.system.remove(clock, written.generation)
                return (written.modified - found.modified) / 1e9
        return 0.0

    def renew(self) -> bool:
        found = self.look()
        if found is None or found.token != self.token:
            return False
        generation = found.generation
        if generation == self._generation:  # else another process of the job has just renewed it
            generation = self.system.write(self.path, [self._text], generation).generation
        self._generation = generation
        return True

    def remove(self, token: str, within: float | None = None) -> None:
        generation = self._generation
        if within is None:
            found = self.look()
            if found is None or found.token != token:
                return
            generation = found.generation
        self.system.remove(self.path, generation, within)

    def close_file(self) -> None:
        """Nothing is open."""


_mutex = threading.Lock()
_held: dict[str, _Lock] = {}


def acquire(output: str, token: str, command: str = "") -> None:
    """Takes the lock of an output for the job `token`; does nothing if the job has it already.

    A job of this very process loses it: a job that ran before in a notebook has failed.

    Raises:
        JobError: another job, which is alive, has it.
    """
    lock = _lock_of(output)
    with _mutex, naming_faults(lock.path):
        ours = {token}
        held = _held.get(lock.path)
        if held is not None:
            if held.token == token and held.is_intact():
                return
            ours.add(held.token)
            _held.pop(lock.path).close()
        try:
            lock.acquire(output, Owner.here(token, command), ours)
        except BaseException:
            lock.close()
            raise
        _held[lock.path] = lock


def keep(output: str, token: str) -> None:
    """Renews the lock in this process, too, if the job has it: the first process may end. Never fails."""
    with contextlib.suppress(OSError, JobError):
        if is_held_by(output, token):
            acquire(output, token)


def is_held_by(output: str, token: str) -> bool:
    owner = _owner(output)
    return owner is not None and owner.token == token


def check(output: str, token: str) -> None:
    owner = _owner(output)
    if owner is None:
        raise JobError(
            f"--output is {output!r}, whose lock is gone: the folder was removed, or another job has ended "
            "there; this one publishes nothing"
        )
    if owner.token != token:
        raise JobError(
            f"--output is {output!r}, which another job has taken over: {owner}; this one publishes nothing"
        )


def holder(output: str) -> str | None:
    """The refusal that `acquire` would raise for another process at work; the lock is not taken."""
    lock = _lock_of(output)
    if lock.path in _held:
        return None
    try:
        found = lock.look()
        return None if found is None or lock.is_free(found) else lock.refusal(output, found)
    except (OSError, JobError):
        return None
    finally:
        lock.close()


def release(output: str, token: str) -> None:
    """Removes the lock of the job `token`, and `.recordmill` if it is empty; never fails."""
    lock = _lock_of(output)
    with _mutex:
        held = _held.get(lock.path)
        if held is not None and held.token == token:
            del _held[lock.path]
            held.close(remove=True)
        else:
            lock.give_back(token)


def release_all() -> None:
    """Removes all locks of this process: quick, and never fails, so that a signal handler can call it."""
    # If a signal interrupts the owner of the mutex, it is never released.
    is_ours = _mutex.acquire(timeout=_QUICK_SECONDS)
    try:
        for path, held in list(_held.items()):
            held.close(remove=True, within=_QUICK_ANSWER_SECONDS)
            _held.pop(path, None)
    finally:
        if is_ours:
            _mutex.release()


def is_lock_file(path: str) -> bool:
    """Whether a file under `.recordmill` belongs to a lock, perhaps one that is still empty."""
    if file_system(path).has_conditions:
        return os.path.basename(path) in (_LOCK, _CLOCK)  # taking the lock refuses another file of that name
    return os.path.basename(path) == _LOCK and may_replace(path, Owner.is_begun)


def _lock_of(output: str) -> _Lock:
    system = file_system(output)
    path = os.path.join(system.absolute(output), RUNS, _LOCK)
    return _LockObject(path) if system.has_conditions else _LockFile(path)


def _owner(output: str) -> Owner | None:
    """The owner of the lock, dead or alive; None if there is none."""
    lock = _lock_of(output)
    with naming_faults(lock.path), contextlib.suppress(FileNotFoundError):
        return Owner.of_json(lock.system.read(lock.path))
    return None


def _owner_in(text: bytes, path: str) -> Owner | None:
    """The owner that a lock names; None where it is not complete yet. Raises JobError for another file."""
    if not Owner.is_begun(text):
        raise JobError(f"{path} is not a lock that recordmill wrote; move it away")
    return Owner.of_json(text)


def _forget() -> None:
    """In a forked child: the lock stays with the parent, and not with a child that outlives it."""
    global _mutex
    _mutex = threading.Lock()
    for held in _held.values():
        with contextlib.suppress(OSError):
            held.close_file()
    _held.clear()


os.register_at_fork(after_in_child=_forget)
