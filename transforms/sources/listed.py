"""What becomes of files and members that are listed and go no further: failed, or skipped on purpose."""

from __future__ import annotations

from recordmill.transforms.records import BadInput, Failure
from recordmill.transforms.sources.names import printable

HIDDEN = "hidden"
NOT_AN_IMAGE = "not an image by name"


def failed(key: str, fault: BadInput) -> Failure:
    """The failed record of a key that may not be UTF-8."""
    return Failure(printable(key), fault.stage, fault.reason, printable(fault.detail))


def skipped(key: str, reason: str, detail: str = "") -> Failure:
    """What is left out on purpose; its key may not be UTF-8."""
    return Failure(printable(key), "list", reason, printable(detail), skipped=True)
