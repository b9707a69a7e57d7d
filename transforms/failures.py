"""Log lines of failed inputs, for the logs of a runner's workers: failures.jsonl has them all."""

from __future__ import annotations

import json
import logging

from recordmill.transforms.records import Failure
from recordmill.transforms.storage.files import read_text

_LOGGER = logging.getLogger(__name__)
_LINES = 20
"""What a bundle logs: a source that is broken throughout would else flood the log, and hold up the work."""


class FailureLog:
    """One warning a failed input, that names it; of many in a bundle, the first, and how many more."""

    def __init__(self) -> None:
        self._failed = 0

    def add(self, failure: Failure) -> None:
        """An input that failed; one that is skipped on purpose, or that is in the dataset, is no news."""
        if failure.skipped or failure.kept:
            return
        self._failed += 1
        if self._failed <= _LINES:
            detail = f" ({failure.detail})" if failure.detail else ""
            _LOGGER.warning("%s: %s: %s%s", failure.key, failure.stage, failure.reason, detail)

    def add_file(self, path: str) -> None:
        """The lines of a failures.jsonl."""
        for line in filter(None, read_text(path).split("\n")):
            self.add(Failure(**json.loads(line)))

    def finish(self) -> None:
        """The bundle ends."""
        if self._failed > _LINES:
            _LOGGER.warning("%d more inputs failed; failures.jsonl names each", self._failed - _LINES)
        self._failed = 0
