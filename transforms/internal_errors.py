"""Turns unexpected exceptions in image and annotation code into failed records, with one traceback logged."""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from collections.abc import Callable

from recordmill.transforms.records import BadInput, JobError

INTERNAL_ERROR = "internal error"
"""The reason is this and the exception's class: `internal error: IndexError`."""

_LONGEST_TRACEBACK, _LONGEST_DETAIL = 10_000, 500

_LOGGER = logging.getLogger(__name__)
_logged: set[str] = set()
_logging = threading.Lock()  # the connection of a worker process takes one message at a time
_receiver: Callable[[str, str], None] | None = None


class internal_errors(contextlib.ContextDecorator):
    """Turns an unexpected exception into a BadInput, as `fault_of`. Also a decorator."""

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def __enter__(self) -> None:
        """The block begins."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        fault = None if error is None else fault_of(error, self._stage)
        if fault is not None and fault is not error:
            raise fault from error


def fault_of(error: BaseException, stage: str) -> BadInput | None:
    """The BadInput for an exception: itself, or `internal error: <class>`, whose traceback is logged.

    None for JobError, MemoryError, errors of the system, and what is no Exception: no input is at fault.
    """
    if isinstance(error, BadInput):
        return error
    if not isinstance(error, Exception) or isinstance(error, JobError | MemoryError):
        return None
    if isinstance(error, OSError) and error.errno is not None:
        return None  # Pillow's own errors have no number
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
    with _logging:
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
