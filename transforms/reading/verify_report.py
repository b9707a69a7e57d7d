"""The report of a verification: a JSON file, on this machine or in a bucket."""

from __future__ import annotations

import json
from typing import Any

from recordmill.transforms.reading.verify_tally import Tally
from recordmill.transforms.storage.files import replace_own
from recordmill.transforms.storage.paths import absolute

FORMAT_VERSION = 1
"""Of the report: changes when a reader would break."""

REPEATED = "key that another record has"


def report_of(tally: Tally, path: str, started: str, finished: str) -> dict[str, Any]:
    """What the report says.

    Args:
        tally: all that was found.
        path: that was verified.
        started: UTC, ISO 8601.
        finished: likewise.
    """
    return {
        "format_version": FORMAT_VERSION,
        "path": absolute(path),
        "sound": not tally.faults,
        "started": started,
        "finished": finished,
        **tally.as_json(),
    }


def is_report(data: bytes) -> bool:
    """Whether a file has the contents of a report that `write_report` wrote."""
    try:
        return bool({"format_version", "path", "sound", "started"} <= json.loads(data).keys())
    except (ValueError, AttributeError, RecursionError):
        return False


def write_report(path: str, text: str) -> None:
    """Writes it, in place of another.

    Raises:
        JobError: it cannot be written, or another file has appeared at the path.
    """
    replace_own(absolute(path), f"{text}\n", is_report)
