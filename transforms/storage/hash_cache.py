"""Hashes of images that were read, stored for the next job with the same output.

The folder has files of rows. A row is a fact about one state of a file, so the rows of several jobs may be
mixed, repeated and removed in any order.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import time
import uuid
from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from recordmill.transforms.records import ImageRef
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import Entry, file_system
from recordmill.transforms.storage.files import open_named, write_file
from recordmill.transforms.storage.owner import make_marked_folder, owner_of

# Two halves of a digest of the reference; the hash and the number of its bytes.
_ROW = struct.Struct("<4Q")
_HEAD = b"recordmill hashes 1\n"
_DIGEST_BYTES = 16
_NAME = re.compile(r"([0-9a-f]{32})-[0-9a-f]{12}\.hashes(\.[0-9a-f]{12}\.part)?")
_ROWS_A_FILE = 1 << 16
# Seconds between writes of new hashes: an interrupted job loses so much work.
_SECONDS = 10.0

_Rows = npt.NDArray[np.uint64]


class HashCache:
    """The hashes in a folder: 32 bytes of memory for each.

    Args:
        folder: which need not exist.
        token: of the job, for the names of its files; empty to only read.
    """

    def __init__(self, folder: str, token: str = "") -> None:
        self._folder = folder
        self._token = token
        with naming_faults(folder):
            self._high, self._low, self._hashed, self._size = _columns(list(_read(folder)))
        self._added = bytearray()
        self._written = time.monotonic()

    def find(self, ref: ImageRef) -> tuple[int, int] | None:
        """Hash and size of the bytes of a reference; None if they are not stored, or it has no version."""
        if not ref.version:
            return None
        high, low = _key(ref)
        at = int(np.searchsorted(self._high, np.uint64(high)))
        if at == len(self._high) or (self._high[at], self._low[at]) != (high, low):
            return None
        return int(self._hashed[at]), int(self._size[at])

    def add(self, ref: ImageRef, hashed: int, size: int) -> None:
        """Stores hash and size of the bytes of a reference with a version; also those that `find` returns."""
        if not ref.version or not self._token:
            return
        self._added += _ROW.pack(*_key(ref), hashed, size)
        is_due = time.monotonic() - self._written > _SECONDS
        if is_due or len(self._added) >= _ROWS_A_FILE * _ROW.size:
            self.flush()

    def flush(self) -> None:
        """Writes what was added."""
        rows, self._added = bytes(self._added), bytearray()
        self._written = time.monotonic()
        if rows:
            with naming_faults(self._folder):
                make_marked_folder(self._folder)
            name = f"{self._token}-{uuid.uuid4().hex[:12]}.hashes"
            write_file(os.path.join(self._folder, name), _HEAD + rows + _digest(rows))


def remove_other_hashes(folder: str, token: str) -> None:
    """Removes the hashes of earlier jobs, after this job, which has the lock, has stored all that it uses."""
    if owner_of(folder) is None:
        return
    system = file_system(folder)
    others = (found for found, owner in _files(folder) if owner != token and _is_ours(found.path))
    system.remove_existing(*(found.path for found in others))


def _files(folder: str) -> Iterator[tuple[Entry, str]]:
    """The files of hashes, and the token of the job of each."""
    for found in file_system(folder).contents(folder):
        if not found.name.endswith("/") and (name := _NAME.fullmatch(found.basename)):
            yield found, name[1]


def _is_ours(path: str) -> bool:
    with open_named(path) as file:
        return _HEAD.startswith(file.read(len(_HEAD)))


def _read(folder: str) -> Iterator[_Rows]:
    """The rows of each file that is complete."""
    if owner_of(folder) is None:
        return
    for found, _ in _files(folder):
        try:
            data = file_system(folder).read(found.path)
        except FileNotFoundError:  # another job has removed it
            continue
        rows, digest = data[len(_HEAD) : -_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if data.startswith(_HEAD) and digest == _digest(rows) and not len(rows) % _ROW.size:
            yield np.frombuffer(rows, "<u8").reshape(-1, 4)


def _columns(parts: list[_Rows]) -> _Rows:
    """The columns of all rows, each in one piece of memory, in the order of the first."""
    rows = np.concatenate([np.empty((0, 4), np.uint64), *parts])
    return np.ascontiguousarray(rows[np.argsort(rows[:, 0])].T)


def _key(ref: ImageRef) -> tuple[int, int]:
    """Two halves of a digest of a reference, with its version."""
    digest = hashlib.blake2b(msgspec.msgpack.encode(ref), digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")


def _digest(rows: bytes) -> bytes:
    return hashlib.blake2b(rows, digest_size=_DIGEST_BYTES).digest()
