"""The one line that a person should read of whatever a runner makes of an error."""

from __future__ import annotations

import re

from recordmill.transforms.records import JobError

# How a JobError, or an error of the machine (disk full, no permission), reads in the message of whatever
# exception a runner makes of it.
_JOB_ERROR = re.compile(r"(?:JobError: |Error: (?=\[Errno))(.*?)(?: \[while running .*)?$", re.MULTILINE)


def job_error(error: BaseException) -> str | None:
    """The line of a JobError that a pipeline raised, or of an error of the machine."""
    if isinstance(error, JobError):
        return job_error_in(f"JobError: {error}")
    return job_error_in(f"{type(error).__name__}: {error}")


def job_error_in(text: str) -> str | None:
    """The same, from a message with a traceback."""
    match = _JOB_ERROR.search(text)
    return match.group(1) if match is not None else None


def last_line(text: str) -> str:
    """Of a traceback: the line that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
