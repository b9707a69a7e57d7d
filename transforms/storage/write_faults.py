"""Faults of the machine while writing, as the user reads them: the file, what is wrong, what to do."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator

from rich.filesize import decimal

from recordmill.transforms.records import JobError
from recordmill.transforms.storage.paths import below, is_remote

_NO_ROOM = "free space on that disk, or give another --output"
_NO_TEMPORARY_ROOM = (
    "free space on that disk, or give another folder: with --output for the dataset, in the environment "
    "variable TMPDIR for temporary files"
)
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

_REMEDIES_IN_A_BUCKET = {
    errno.ENOENT: _GONE,
    errno.EIO: "give the same command again when the service answers",
}

_KEPT_FREE = 1 << 30  # of a large disk, or
_SHARE_KEPT_FREE = 50  # the 50th part of a small one


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
    where = str(error.filename or path)
    remedy = _REMEDIES.get(error.errno or 0, "")
    if is_remote(where):
        remedy = _REMEDIES_IN_A_BUCKET.get(error.errno or 0, "")
    elif remedy == _NO_ROOM and below(os.path.realpath(tempfile.gettempdir()), os.path.realpath(where)):
        remedy = _NO_TEMPORARY_ROOM
    if error.errno == errno.ENOSPC and not is_remote(where):
        remedy = f"{decimal(free_bytes(where))} are free there; {remedy}"
    return JobError(f"{where}: {said}" + (f"; {remedy}" if remedy else ""))


def check_room(folder: str, size: int, what: str) -> None:
    """Raises JobError if a folder's disk cannot take so many bytes and keep some room for others."""
    disk = shutil.disk_usage(folder)
    if size + min(_KEPT_FREE, disk.total // _SHARE_KEPT_FREE) > disk.free:
        raise JobError(
            f"{folder}: {decimal(disk.free)} are free there, too few for {what}, {decimal(size)} or more; "
            f"{_NO_TEMPORARY_ROOM}"
        )


def free_bytes(path: str) -> int:
    """Free bytes on the disk of `path`, which need not exist."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return shutil.disk_usage(path).free
