"""Faults of the machine while writing, as the user reads them: the file, what is wrong, what to do."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from transforms.records import JobError

_NO_ROOM = "free space there, or give another --output"
_NOT_ALLOWED = "allow to write there, or give another --output"
_GONE = "it was there a moment ago: let nothing else change --output while a job runs"
_REMEDIES = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.EROFS: _NOT_ALLOWED,
    errno.ENOENT: _GONE,
    errno.ENOTDIR: _GONE,
    errno.ESTALE: "mount the file system again, then give the same command",
    errno.EIO: "look after the disk, then give the same command",
}


@contextlib.contextmanager
def naming_faults(path: str) -> Iterator[None]:
    """Turns an OSError into a JobError of one line.

    Args:
        path: named where the error itself names none.
    """
    try:
        yield
    except OSError as error:
        raise fault(error, path) from error


def fault(error: OSError, path: str) -> JobError:
    """What an OSError at `path`, or at the file it names itself, is to the user."""
    said = error.strerror or str(error) or type(error).__name__
    remedy = _REMEDIES.get(error.errno or 0, "")
    return JobError(f"{error.filename or path}: {said}" + (f"; {remedy}" if remedy else ""))
