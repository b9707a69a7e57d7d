"""Turns unexpected exceptions in image and annotation code into failed records, with one traceback logged."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable

from recordmill.transforms.records import BadInput, JobError

INTERNAL_ERROR = "internal error"
"""The reason is this and the exception's class: `internal error: IndexError`."""

_LONGEST_TRACEBACK, _LONGEST_DETAIL = 10_000, 500

_LOGGER = logging.getLogger(__name__)
_logged: set[str] = set()
_receiver: Callable[[str, str], None] | None = None


# A class: for each image, a generator takes three times as long.
class internal_errors(contextlib.ContextDecorator):
    """Turns an unexpected exception into a BadInput, as `as_bad_input`. Also a decorator.

    Raises:
        BadInput: `internal error: <class>`.
    """

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and (found := as_bad_input(error, self._stage)) is not error:
            raise found from error


def as_bad_input(error: BaseException, stage: str) -> BaseException:
    """The failed record for an unexpected exception, whose traceback is logged.

    JobError, MemoryError and the errors of the system stay what they are: the machine is at fault. So do a
    BadInput, and what is no Exception.
    """
    if isinstance(error, BadInput | JobError | MemoryError) or not isinstance(error, Exception):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        return error  # Pillow's own errors have no number
    detail = logged(error, "an internal error failed a record; please report it")
    return BadInput(stage, f"{INTERNAL_ERROR}: {type(error).__name__}", detail)


def logged(error: Exception, headline: str) -> str:
    """Logs the traceback of an exception below `headline`; returns its message."""
    text = printable("".join(traceback.format_exception(error)), _LONGEST_TRACEBACK)
    log_once(f"{type(error).__name__} in {_origin(error)}", f"{headline}\n{text}")
    # Only that of the exception itself: `text` may end with a line of a message that has several.
    _, _, message = "".join(traceback.format_exception_only(error)).partition(": ")
    return printable(" ".join(message.split()))


def log_once(origin: str, text: str) -> None:
    """Logs a text, or sends it to the receiver, once for each `origin`: class, file and line."""
    if origin in _logged:
        return
    _logged.add(origin)
    if _receiver is not None:
        _receiver(origin, text)
    else:
        _LOGGER.error("%s", text.rstrip())


def send_to(receiver: Callable[[str, str], None]) -> None:
    """Sends the tracebacks of this process to `receiver`, with their origin, instead of logging them."""
    global _receiver
    _receiver = receiver


def printable(text: str, longest: int = _LONGEST_DETAIL) -> str:
    """The text without lone surrogates; only the end of a long text."""
    return text[-longest:].encode("utf-8", "backslashreplace").decode("utf-8")


def _origin(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}, line {frame.lineno}"
