"""Faults of file systems: of one file, those that may pass and are retried, and those that end a job."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from rich.filesize import decimal

# Not imported where it is needed: that no more files can be opened may pass, too.
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from recordmill.transforms.records import BadInput, JobError
from recordmill.transforms.storage.file_system import file_system

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

_REMEDIES_OF_A_SERVICE = {
    errno.ENOENT: _GONE,
    errno.EIO: "give the same command again when the service answers",
}

_KEPT_FREE = 1 << 30  # of a large disk, or
_SHARE_KEPT_FREE = 50  # the 50th part of a small one

_P = ParamSpec("_P")
_T = TypeVar("_T")

OUTSIDE = "outside the input root"
"""The reason for a path that leads out of all roots."""

PERMANENT_FAULTS = {
    errno.ENOENT: "not found",
    errno.ENOTDIR: "not found",
    errno.ELOOP: "not found",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ENAMETOOLONG: "name too long",
    errno.ENXIO: "not a file",
    errno.EISDIR: "not a file",
    errno.EXDEV: OUTSIDE,
}
"""The faults of one file that trying again does not mend, and the reason each is counted under."""


def may_pass(error: BaseException) -> bool:
    """Whether an error concerns the file system, and not one file: EIO, a time-out, ESTALE."""
    return isinstance(error, OSError) and error.errno is not None and error.errno not in PERMANENT_FAULTS


_RETRYING = Retrying(
    retry=retry_if_exception(may_pass),
    stop=stop_after_attempt(4),
    wait=wait_exponential(multiplier=0.1, exp_base=4),  # 0.1, 0.4 and 1.6 seconds
    reraise=True,
)


def os_fault(error: OSError, stage: str) -> BadInput:
    """The failed record for a fault of the file system, in a stage of `BadInput`.

    Raises:
        OSError: `error` itself if it concerns the machine, not the file: EIO, a time-out, too many
            open files.
    """
    reason = PERMANENT_FAULTS.get(error.errno or 0)
    if reason is None:
        raise error
    detail = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    return BadInput(stage, reason, detail)


def retried(function: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> _T:
    """The result of a function, called up to four times while its fault may pass."""
    try:
        return function(*args, **options)
    except OSError as error:
        return tried_again(error, function, *args, **options)


def tried_again(error: OSError, function: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> _T:
    """The result of a function, called up to three times after a first try that failed with `error`."""
    failed = [error]

    def attempt() -> _T:
        if failed:
            raise failed.pop()
        return function(*args, **options)

    return _RETRYING(attempt)


@contextlib.contextmanager
def naming_faults(path: str) -> Iterator[None]:
    """Turns an OSError into a JobError, about `path` if the error names no file."""
    try:
        yield
    except OSError as error:
        raise fault(error, path) from error


def fault(error: OSError, path: str) -> JobError:
    """The JobError for an OSError at `path`, or at the file that it names itself."""
    said = error.strerror or str(error) or type(error).__name__
    where = str(error.filename or path)
    system = file_system(where)
    remedies = _REMEDIES_OF_A_SERVICE if system.has_latency else _REMEDIES
    remedy = remedies.get(error.errno or 0, "")
    if remedy == _NO_ROOM and f"{os.path.realpath(where)}/".startswith(_temporary_folder()):
        remedy = _NO_TEMPORARY_ROOM
    if error.errno == errno.ENOSPC and (free := system.free_bytes(where)) is not None:
        remedy = f"{decimal(free)} are free there; {remedy}"
    return JobError(f"{where}: {said}" + (f"; {remedy}" if remedy else ""))


def check_room(folder: str, size: int, what: str) -> None:
    """Raises JobError if a folder's disk cannot take so many bytes and keep some room for others."""
    disk = shutil.disk_usage(folder)
    if size + min(_KEPT_FREE, disk.total // _SHARE_KEPT_FREE) > disk.free:
        raise JobError(
            f"{folder}: {decimal(disk.free)} are free there, too few for {what}, {decimal(size)} or more; "
            f"{_NO_TEMPORARY_ROOM}"
        )


def _temporary_folder() -> str:
    return f"{os.path.realpath(tempfile.gettempdir())}/"
