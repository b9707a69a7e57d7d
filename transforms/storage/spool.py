"""Writes bytes that have no file, such as members of a container, into files that references lead to."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from types import TracebackType
from typing import IO

from recordmill.transforms.records import ImageRef, JobError
from recordmill.transforms.storage.faults import check_room, naming_faults
from recordmill.transforms.storage.file_system import NEW, ChangedError, file_system, version_of_bytes
from recordmill.transforms.storage.paths import real_path
from recordmill.transforms.storage.scratch import scratch_folder

# A worker copies a complete file of a bucket, for many of its images.
_FILE_BYTES = 128 << 20
_LOOKED_AFTER = 16 << 20  # bytes written between two looks at the free space


class Spool:
    """Writes pieces of bytes one after the other, into as many files as necessary.

    The same pieces in the same order get the same references each time; the version in a reference is minus
    the `content_version` of the piece. References may be followed once the spool is closed.

    with Spool(scratch, "train.parquet", version) as spool:
        ref = spool.add(data)

    Args:
        scratch: a folder that lives as long as the references.
        name: of the source, such as its path: each source and version has its own files.
        version: of the source, as of `Status`.
    """

    def __init__(self, scratch: str, name: str, version: int) -> None:
        digest = hashlib.sha256(f"{name}\0{version}".encode(errors="surrogateescape")).hexdigest()[:16]
        self._prefix = f"{real_path(scratch)}/{digest}"
        self._folder = file_system(scratch).working_folder(scratch) or scratch_folder()
        self._number = 0
        self._size = 0
        self._room = 0
        self._path = ""
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None or kind is GeneratorExit:  # who stops asking may follow what he was given
                self.close()
        finally:
            self.discard()

    def check_room(self, size: int) -> None:
        """Raises JobError if the disk has no room for so many more bytes, of which nothing is written."""
        with naming_faults(self._prefix):
            check_room(self._folder, size, "what is unpacked")

    def add(self, data: bytes, pixels: tuple[int, int, int] | None = None) -> ImageRef:
        """Adds a piece, which is not empty; returns its reference. `pixels` is the shape of raw pixels.

        Raises:
            JobError: the scratch folder cannot hold it, or would have next to no free space left.
        """
        if self._file is not None and self._size + len(data) > _FILE_BYTES:
            self.close()
        if self._room < len(data):  # a packed file may have any number of bytes in it
            self.check_room(len(data) + _LOOKED_AFTER)
            self._room = len(data) + _LOOKED_AFTER
        self._room -= len(data)
        with naming_faults(self._prefix):
            if self._file is None:
                descriptor, self._path = tempfile.mkstemp(prefix="spool-", dir=self._folder)
                self._file = os.fdopen(descriptor, "wb")
            self._file.write(data)
        ref = ImageRef(self._target, self._size, len(data), pixels, -version_of_bytes(data))
        self._size += len(data)
        return ref

    def close(self) -> None:
        """Puts the open file under its final name; more may be added after."""
        if self._file is None:
            return
        with naming_faults(self._prefix):
            self._file.close()
            _put(self._path, self._target, self._size)
        self._file = None
        self._size = 0
        self._number += 1

    def discard(self) -> None:
        """Removes the open file."""
        if self._file is not None:
            self._file.close()
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._path)
            self._file = None

    @property
    def _target(self) -> str:
        return f"{self._prefix}-{self._number:05d}"


def _put(path: str, target: str, size: int) -> None:
    """Gives a file its path, unless a concurrent attempt of this job has written it."""
    system = file_system(target)
    if not system.has_conditions:
        system.move(path, target)
        return
    with contextlib.suppress(ChangedError):
        system.put(path, target, NEW)
        return
    stored = system.find(target)
    if stored is None or stored.size != size:
        raise JobError(f"{target!r} is not what was to be unpacked there; has the input changed meanwhile?")
    os.remove(path)
