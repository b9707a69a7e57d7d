"""Turns unexpected exceptions in image and annotation code into failed records, with one traceback logged."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable, Iterator

from recordmill.transforms.records import BadInput, JobError

INTERNAL_ERROR = "internal error"
"""The reason is this and the exception's class: `internal error: IndexError`."""

_LONGEST_TRACEBACK, _LONGEST_DETAIL = 10_000, 500

_LOGGER = logging.getLogger(__name__)
_logged: set[str] = set()
_receiver: Callable[[str, str], None] | None = None


@contextlib.contextmanager
def internal_errors(stage: str) -> Iterator[None]:
    """Turns an unexpected exception into a BadInput, and logs its traceback. Also a decorator.

    JobError, MemoryError and the errors of the system pass through: the machine is at fault.

    Raises:
        BadInput: `internal error: <class>`.
    """
    try:
        yield
    except (BadInput, JobError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # Pillow's own errors have no number
        detail = logged(error, "an internal error failed a record; please report it")
        raise BadInput(stage, f"{INTERNAL_ERROR}: {type(error).__name__}", detail) from error


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
