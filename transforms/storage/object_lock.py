"""The lock of an output in a bucket: an object that is made, and taken over, on a condition.

The process that holds it writes it anew every few seconds. One that is not is dead: at once where it can be
seen that its process is gone, else after a while.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Collection

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import gcs_client as cloud
from recordmill.transforms.storage.file_system import ChangedError, NEW, Status, file_system
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.layout import RUNS
from recordmill.transforms.storage.owner import Owner

LOCK = "lock"
CLOCK = "clock"
"""An empty object, written to read the service's time from its write time."""
DEAD_SECONDS = 90.0

_BEAT_SECONDS = 15.0
_TRIES = 10
_TRY_SECONDS = 0.2
# What a signal handler can wait for an answer.
_QUICK_SECONDS = 2.0


class _Held:
    """A lock that this process holds, or shares with another process of its job."""

    def __init__(self, uri: str, owner: Owner, generation: int) -> None:
        self.token = owner.token
        self.generation = generation
        self._uri = uri
        self._text = owner.to_json()
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="recordmill-lock", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """No more signs of life; the object stays."""
        self._released.set()

    def is_beating(self) -> bool:
        """Whether it still gives signs of life: not if the lock was lost."""
        return self._thread.is_alive()

    def _beat_on(self) -> None:
        while not self._released.wait(_BEAT_SECONDS):
            try:
                if not self._has_beaten():
                    return
            except (OSError, JobError):
                continue  # what may pass, and has not

    def _has_beaten(self) -> bool:
        """Gives a sign of life, unless another process of the job just has; False where it is not ours."""
        present = _present(self._uri)
        if present is None or present[0].token != self.token:
            return False
        if present[1].generation == self.generation:
            # ChangedError is another process's that was faster.
            self.generation = file_system(self._uri).write(self._uri, [self._text], self.generation).generation
        else:
            self.generation = present[1].generation
        return True


_mutex = threading.Lock()
_held: dict[str, _Held] = {}


def acquire(output: str, token: str, command: str) -> None:
    """As `lock.acquire`."""
    uri = _uri(output)
    with _mutex, naming_faults(uri):
        held = _held.get(uri)
        if held is not None:
            if held.token == token and held.is_beating():
                return
            _held.pop(uri).close()
        # A job of this very process that has it has failed, as one in a notebook may have.
        ours = {token, held.token} if held is not None else {token}
        _held[uri] = _taken(output, uri, Owner.here(token, command), ours)


def owner(output: str) -> Owner | None:
    """Who has the lock, dead or alive."""
    present = _present(_uri(output))
    return present and present[0]


def holder(output: str) -> str | None:
    """As `lock.holder`."""
    uri = _uri(output)
    if uri in _held:
        return None
    try:
        present = _present(uri)
        if present is None or _is_dead(uri, *present):
            return None
        return _refusal(output, *present)
    except OSError:
        return None


def release(output: str, token: str) -> None:
    """As `lock.release`."""
    uri = _uri(output)
    with _mutex:
        held = _held.get(uri)
        if held is not None and held.token == token:
            held.close()
            del _held[uri]
        with contextlib.suppress(OSError, JobError):
            present = _present(uri)
            if present is not None and present[0].token == token:
                file_system(uri).remove(uri, present[1].generation)


def release_all() -> None:
    """As `lock.release_all`."""
    for uri, held in list(_held.items()):
        held.close()
        with contextlib.suppress(Exception):
            found = cloud.blob(uri)
            found.delete(if_generation_match=held.generation, timeout=_QUICK_SECONDS, retry=None)
        _held.pop(uri, None)


def is_lock_file(uri: str) -> bool:
    """Whether an object under `.recordmill` has the name of a lock or of the clock object."""
    return os.path.basename(uri) in (LOCK, CLOCK)


def _uri(output: str) -> str:
    return os.path.join(output, RUNS, LOCK)


def _taken(output: str, uri: str, owner: Owner, ours: Collection[str]) -> _Held:
    """The lock at `uri`, for `owner`; it may be of a job of `ours` before."""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_TRY_SECONDS)
        present = _present(uri)
        if present is None:
            generation = NEW
        elif present[0].token in ours or _is_dead(uri, *present):
            generation = present[1].generation
        else:
            raise JobError(_refusal(output, *present))
        try:
            written = file_system(uri).write(uri, [owner.to_json()], generation)
        except ChangedError:
            continue  # another job was faster
        return _Held(uri, owner, written.generation)
    raise JobError(f"--output is {output!r}, where other jobs come and go; give the command again")


def _present(uri: str) -> tuple[Owner, Status] | None:
    """Who has the lock, and which state of the object says so.

    Raises:
        JobError: the object is not a lock that a job wrote.
    """
    for _ in range(_TRIES):
        found = file_system(uri).find(uri)
        if found is None:
            return None
        try:
            text = file_system(uri).read(uri)
        except FileNotFoundError:
            return None
        again = file_system(uri).find(uri)
        if again is not None and again.generation == found.generation:
            if not Owner.is_begun(text):
                raise JobError(f"{uri} is not a lock that recordmill wrote; move it away")
            return Owner.of_json(text) or Owner("", "an unknown host", 0, "an unknown time", ""), found
    return None


def _is_dead(uri: str, owner: Owner, found: Status) -> bool:
    return owner.is_gone() or _age(uri, found) > DEAD_SECONDS


def _age(uri: str, found: Status) -> float:
    """Seconds since the last sign of life, by the clock of the service: hosts' own may be far apart."""
    clock = os.path.join(os.path.dirname(uri), CLOCK)
    for _ in range(_TRIES):
        present = file_system(clock).find(clock)
        if present is not None and present.size:
            raise JobError(f"{clock} is not an object that recordmill wrote; move it away")
        with contextlib.suppress(ChangedError):  # another process was faster
            written = file_system(clock).write(clock, [b""], NEW if present is None else present.generation)
            with contextlib.suppress(FileNotFoundError, ChangedError):
                file_system(clock).remove(clock, written.generation)
            return (written.modified - found.modified) / 1e9
    return 0.0


def _refusal(output: str, owner: Owner, found: Status) -> str:
    uri = _uri(output)
    left = max(DEAD_SECONDS - _age(uri, found), 1)
    return (
        f"--output is {output!r}, where another job is at work: {owner}; wait for it, or give another "
        f"folder; if it is dead, give the same command again in {left:.0f} s"
    )


def _forget() -> None:
    """In a forked child: the lock stays with the parent, whose thread it is that shows that it lives."""
    global _mutex
    _mutex = threading.Lock()
    _held.clear()


os.register_at_fork(after_in_child=_forget)
