"""Copies of small containers of a bucket, from which many images are read: one request for all of them."""

from __future__ import annotations

import hashlib
import os
import threading

from recordmill.transforms.storage import objects
from recordmill.transforms.storage.scratch import scratch_folder

_LARGEST_BYTES = 256 << 20
_MOST_BYTES = 1 << 30


class _Copies:
    """What this process has copied, by URI and generation; None where it is not worth it."""

    def __init__(self) -> None:
        self._paths: dict[tuple[str, int | None], str | None] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def path(self, uri: str, generation: int | None) -> str | None:
        """Path of the copy, made when it is first asked for."""
        key = (uri, generation)
        with self._lock:  # who asks for the same waits, and finds it
            if key not in self._paths:
                self._paths[key] = self._copied(uri, generation)
            return self._paths[key]

    def _copied(self, uri: str, generation: int | None) -> str | None:
        found = objects.stat(uri)
        if found is None or generation not in (None, found.generation):
            return None  # reading a range tells what is wrong
        if found.size > _LARGEST_BYTES or self._bytes + found.size > _MOST_BYTES:
            return None
        name = hashlib.sha256(f"{uri} {generation}".encode()).hexdigest()[:16]
        path = os.path.join(scratch_folder(), f"container-{name}")
        try:
            with open(path, "wb") as file:
                objects.download(found, file)
        except OSError as error:
            if error.filename != path:
                raise
            return None  # no room: it goes without
        self._bytes += found.size
        return path


_copies = _Copies()


def local_copy(uri: str, generation: int | None) -> str | None:
    """Path of a copy of a container on this machine, whose bytes are right; None for a large one.

    Args:
        uri: of the container.
        generation: that it has to be of; None where it never changes.

    Raises:
        OSError: it cannot be read.
    """
    return _copies.path(uri, generation)


def _forget() -> None:
    """In a forked child: the copies go with the parent."""
    global _copies
    _copies = _Copies()


os.register_at_fork(after_in_child=_forget)
