"""What tells whether a finished file is still as it was, without reading it."""

from __future__ import annotations

import errno
import os

from recordmill.transforms.storage import objects
from recordmill.transforms.storage.paths import is_remote


def stamp_of(path: str) -> tuple[int, str]:
    """Size of a file; and its time of modification in nanoseconds, or the CRC-32C of an object.

    Neither changes when it gets another name, nor by a link or a copy in the bucket.

    Raises:
        FileNotFoundError: there is none.
    """
    if not is_remote(path):
        found = os.stat(path)
        return found.st_size, str(found.st_mtime_ns)
    stored = objects.stat(path)
    if stored is None:
        raise FileNotFoundError(errno.ENOENT, "no such object", path)
    return stored.size, stored.crc32c
