"""A file whose bytes are hashed and counted as they are read."""

from __future__ import annotations

import hashlib
from typing import Protocol

_READ_BYTES = 1 << 20


class Readable(Protocol):
    """What is read from."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, none at the end."""


class HashedFile:
    """A file that is read through from its start.

    Args:
        file: at its start.

    Attributes:
        size: bytes that were read.
        digest: SHA-256 of them.
    """

    def __init__(self, file: Readable) -> None:
        self._file = file
        self.size = 0
        self.digest = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most so many; none at the end."""
        data = self._file.read(size)
        self.digest.update(data)
        self.size += len(data)
        return data

    def finish(self) -> None:
        """Reads what is left."""
        while self.read(_READ_BYTES):
            pass
