"""Keeps the annotations of an input on disk, to read those of one image together."""

from __future__ import annotations

import os
import struct
import tempfile
from array import array
from collections.abc import Iterator

from recordmill.transforms.storage.faults import fault, naming_faults
from recordmill.transforms.storage.scratch import scratch_folder

_BUFFER = 1 << 20
_HEAD = struct.Struct("<qI")  # offset of the previous entry of the same image, and bytes of this one


class EntriesByImage:
    """Entries by the number of their image, in a temporary file; memory is 8 bytes per image.

    Each entry in the file holds the offset of the previous entry of its image.
    """

    def __init__(self) -> None:
        self._folder = scratch_folder()
        with naming_faults(self._folder):
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=_BUFFER)  # noqa: SIM115
        self._last = array("q")
        self._size = 0

    def close(self) -> None:
        self._file.close()

    def add(self, number: int, data: bytes) -> None:
        """Adds an entry of an image. Raises JobError if the disk is full."""
        last = self._last
        if number >= len(last):
            last.extend([-1] * (number + 1 - len(last)))
        try:
            self._file.write(_HEAD.pack(last[number], len(data)) + data)
        except OSError as error:
            raise fault(error, self._folder) from error
        last[number] = self._size
        self._size += _HEAD.size + len(data)

    def has(self, number: int) -> bool:
        return number < len(self._last) and self._last[number] >= 0

    def of(self, number: int) -> Iterator[bytes]:
        """The entries of an image, in the order of `add`."""
        with naming_faults(self._folder):
            self._file.flush()
        file, found = self._file.fileno(), []
        offset = self._last[number] if self.has(number) else -1
        while offset >= 0:
            start = offset + _HEAD.size
            offset, length = _HEAD.unpack(os.pread(file, _HEAD.size, offset))
            found.append((length, start))
        return (os.pread(file, length, start) for length, start in reversed(found))
