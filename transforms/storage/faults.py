"""Faults of the file system: those of one file, and those that may pass and so are tried again."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import ParamSpec, TypeVar

# Not imported where it is needed: what may pass is also that no more files can be opened.
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from recordmill.transforms.records import BadInput

_P = ParamSpec("_P")
_T = TypeVar("_T")

OUTSIDE = "outside the input root"
"""The reason of what leads out of all roots."""

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
    """Whether an error is a fault of the file system that is not one file's own: EIO, a time-out, ESTALE."""
    return isinstance(error, OSError) and error.errno is not None and error.errno not in PERMANENT_FAULTS


_RETRYING = Retrying(
    retry=retry_if_exception(may_pass),
    stop=stop_after_attempt(4),
    wait=wait_exponential(multiplier=0.1, exp_base=4),  # 0.1, 0.4 and 1.6 seconds
    reraise=True,
)


def os_fault(error: OSError, stage: str) -> BadInput:
    """The failed record that a fault of the file system is.

    Args:
        error: what the file system said of one file.
        stage: what was being done, as in `BadInput`.

    Raises:
        OSError: `error` itself where it is not the file's own fault (EIO, a time-out, too many open
            files): it has not passed, or concerns the whole machine.
    """
    reason = PERMANENT_FAULTS.get(error.errno or 0)
    if reason is None:
        raise error
    detail = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    return BadInput(stage, reason, detail)


def retried(function: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> _T:
    """The result of a function, called up to four times while its fault may pass.

    Raises:
        OSError: one that does not pass, or the last one.
    """
    try:
        return function(*args, **options)
    except OSError as error:
        return tried_again(error, function, *args, **options)


def tried_again(error: OSError, function: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> _T:
    """The result of a function, called up to three times, in place of a first try that failed.

    Args:
        error: of the first try.
        function: the same again, or what also tidies up first.
        *args: its arguments.
        **options: its arguments by name.

    Raises:
        OSError: one that does not pass, or the last one.
    """
    failed = [error]

    def attempt() -> _T:
        if failed:
            raise failed.pop()
        return function(*args, **options)

    return _RETRYING(attempt)
