"""The lock of an output: one job at a time, until it ends or dies.

The process that holds it has the file locked (flock) for its life, so that its death is seen at once on the
same host. It touches the file every few seconds, so that it is seen on other hosts of a shared file system
too, and where there is no flock. In a bucket the lock is an object:
`recordmill.transforms.storage.object_lock`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import tempfile
import threading
import time

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import object_lock
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import is_remote
from recordmill.transforms.storage.layout import RUNS
from recordmill.transforms.storage.owner import Owner

_LOCK = "lock"
_BEAT_SECONDS = 10.0
_DEAD_SECONDS = 60.0
# Somebody who only looks holds the lock for an instant, and a new owner has not written yet for one.
_TRIES = 10
_TRY_SECONDS = 0.1
_NO_FLOCK = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_MOST_BYTES = 1 << 16
# What a signal handler can wait.
_QUICK_SECONDS = 0.2


class _Held:
    """A lock that this process holds, or shares with another process of its job."""

    def __init__(self, path: str, descriptor: int, token: str) -> None:
        self.descriptor = descriptor
        self.token = token
        self._path = path
        self._released = threading.Event()
        self._in_use = threading.Lock()
        threading.Thread(target=self._beat_on, name="recordmill-lock", daemon=True).start()

    def is_ours(self) -> bool:
        """Whether the file still is the one that others see, and the job's."""
        owner = _read(self.descriptor)
        return _same_file(self.descriptor, self._path) and owner is not None and owner.token == self.token

    def close(self) -> None:
        """Lets go of it; the file stays."""
        self._released.set()
        if self._in_use.acquire(timeout=_QUICK_SECONDS):
            try:
                os.close(self.descriptor)
            finally:
                self._in_use.release()

    def _beat_on(self) -> None:
        while not self._released.wait(_BEAT_SECONDS):
            with contextlib.suppress(OSError), self._in_use:
                if self._released.is_set() or not self.is_ours():
                    return
                os.utime(self.descriptor)
                _flock(self.descriptor)  # the process of this job that had it may be gone


_mutex = threading.Lock()
_held: dict[str, _Held] = {}


def acquire(output: str, token: str, command: str = "") -> None:
    """Takes the lock of an output for the job `token`; nothing happens if the job has it already.

    A job of this very process that has it loses it: what ran before in a notebook has failed.

    Raises:
        JobError: another job, which is alive, has it.
    """
    if is_remote(output):
        object_lock.acquire(output, token, command)
        return
    path = _path(output)
    with _mutex, naming_faults(path):
        held = _held.get(path)
        if held is not None:
            if held.token == token and held.is_ours():
                return
            _held.pop(path).close()
        _held[path] = _taken(output, path, Owner.here(token, command))


def keep(output: str, token: str) -> None:
    """Shows that the job `token` lives as long as this process does, if it has the lock; never fails.

    The process that has taken it may be gone before the job is done.
    """
    with contextlib.suppress(OSError, JobError):
        if is_held_by(output, token):
            acquire(output, token)


def is_held_by(output: str, token: str) -> bool:
    """Whether the job `token` has the lock."""
    owner = _owner(output)
    return owner is not None and owner.token == token


def check(output: str, token: str) -> None:
    """Raises JobError unless the job `token` has the lock."""
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
    """The refusal that `acquire` would meet with another process at work; the lock is not taken."""
    if is_remote(output):
        return object_lock.holder(output)
    path = _path(output)
    if path in _held:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        locked = _flock(descriptor, fcntl.LOCK_SH)
        owner = _read(descriptor)
        if owner is None or (locked is not False and _is_dead(owner, path, descriptor, locked)):
            return None
        return _refusal(output, owner, _age(path, descriptor), locked)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def release(output: str, token: str) -> None:
    """Gives the lock of the job `token` back; removes `.recordmill` where it is empty; never fails."""
    if is_remote(output):
        object_lock.release(output, token)
        return
    path = _path(output)
    with _mutex:
        held = _held.get(path)
        try:
            _give_back(path, token)
        finally:
            if held is not None and held.token == token:
                del _held[path]
                held.close()


def release_all() -> None:
    """Gives all locks of this process back: quick, and never fails, so that a signal handler can."""
    # Whoever is interrupted with the mutex in hand does not get to give it back.
    locked = _mutex.acquire(timeout=_QUICK_SECONDS)
    try:
        for path, held in list(_held.items()):
            _give_back(path, held.token)
            held.close()
            _held.pop(path, None)
    finally:
        if locked:
            _mutex.release()
    object_lock.release_all()


def is_lock_file(path: str) -> bool:
    """Whether a file under `.recordmill` is a lock, perhaps one that is still empty."""
    if is_remote(path):
        return object_lock.is_lock_file(path)
    if os.path.basename(path) != _LOCK or not os.path.isfile(path) or os.path.islink(path):
        return False
    with open(path, "rb") as file:
        return Owner.is_begun(file.read(_MOST_BYTES))


def _path(output: str) -> str:
    return os.path.join(os.path.abspath(output), RUNS, _LOCK)


def _taken(output: str, path: str, owner: Owner) -> _Held:
    """The lock at `path`, for `owner`."""
    refusal = ""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_TRY_SECONDS)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            continue  # a job that ended has just removed the folder
        try:
            locked = _flock(descriptor)
            present = _read(descriptor)
            if not Owner.is_begun(_text(descriptor)):
                raise JobError(f"{path} is not a lock that recordmill wrote; move it away")
            if not _same_file(descriptor, path):
                refusal = ""  # a job that ended has just removed it
            elif present is not None and present.token == owner.token:
                return _Held(path, descriptor, owner.token)
            elif locked is not False and (present is None or _is_dead(present, path, descriptor, locked)):
                _write(descriptor, owner)
                return _Held(path, descriptor, owner.token)
            else:
                refusal = _refusal(output, present, _age(path, descriptor), locked)
                if locked is not False:
                    raise JobError(refusal)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise JobError(refusal or f"--output is {output!r}, where other jobs come and go; give the command again")


def _refusal(output: str, owner: Owner | None, age: float, locked: bool | None) -> str:
    if owner is None:
        return (
            f"--output is {output!r}, where another job has just started; wait for it, or give another folder"
        )
    message = f"--output is {output!r}, where another job is at work: {owner}"
    if locked is not False:
        return (
            f"{message}; wait for it, or give another folder; if it is dead, give the same command again "
            f"in {max(_DEAD_SECONDS - age, 1):.0f} s"
        )
    return f"{message}; wait for it, or stop it, or give another folder"


def _is_dead(owner: Owner, path: str, descriptor: int, locked: bool | None) -> bool:
    """Whether the owner of a lock is gone, given what `_flock` said."""
    if locked and owner.host == socket.gethostname():
        return True
    return _age(path, descriptor) > _DEAD_SECONDS


def _age(path: str, descriptor: int) -> float:
    """Seconds since the last sign of life, by the clock of the file system: hosts' own may be far apart."""
    try:
        with tempfile.TemporaryFile(dir=os.path.dirname(path)) as touched:
            os.utime(touched.fileno())
            now = os.fstat(touched.fileno()).st_mtime
    except OSError:
        now = time.time()
    return now - os.fstat(descriptor).st_mtime


def _flock(descriptor: int, operation: int = fcntl.LOCK_EX) -> bool | None:
    """Whether the file is ours; None where the file system cannot tell."""
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno in _NO_FLOCK:
            return None
        raise
    return True


def _same_file(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _write(descriptor: int, owner: Owner) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, owner.to_json(), 0)
    os.fsync(descriptor)


def _read(descriptor: int) -> Owner | None:
    """The owner; None where none is written yet, or not to the end."""
    return Owner.of_json(_text(descriptor))


def _text(descriptor: int) -> bytes:
    return os.pread(descriptor, _MOST_BYTES, 0)


def _read_path(path: str) -> Owner | None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _read(descriptor)
    finally:
        os.close(descriptor)


def _owner(output: str) -> Owner | None:
    """Who has the lock, dead or alive; None where there is none."""
    path = _path(output)
    with naming_faults(path):
        if is_remote(output):
            return object_lock.owner(output)
        try:
            return _read_path(path)
        except FileNotFoundError:
            return None


def _give_back(path: str, token: str) -> None:
    """Removes the file of a lock that is the job's, and the folder if nothing else is in it."""
    with contextlib.suppress(OSError):
        owner = _read_path(path)
        if owner is not None and owner.token == token:
            os.remove(path)
            os.rmdir(os.path.dirname(path))


def _forget() -> None:
    """In a forked child: the lock stays with the parent, and not with a child that outlives it."""
    global _mutex
    _mutex = threading.Lock()
    for held in _held.values():
        with contextlib.suppress(OSError):
            os.close(held.descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget)
