"""Counters of a conversion, by step; and log lines of failed inputs, for the logs of a runner's workers.

A runner's console shows a counter's name and step, and not its namespace; names sort by subject:
`read`, `written`, `failed/decode/truncated`, `skipped/list/not an image`, `actions/kept`, `bytes/shards`, …
"""

from __future__ import annotations

import json
import logging

from apache_beam.metrics import Metrics

from recordmill.transforms.records import Failure
from recordmill.transforms.shards.report import WriteStats
from recordmill.transforms.storage.files import read_text

NAMESPACE = "recordmill"
_LOGGER = logging.getLogger(__name__)
# Of a bundle: a source in which everything fails would flood the log, and delay the work.
_LINES = 20


def count(name: str, amount: int = 1) -> None:
    """Adds to the counter `name`; runners count a retried bundle twice, so nothing depends on it."""
    Metrics.counter(NAMESPACE, name).inc(amount)


def count_written(stats: WriteStats, size: int) -> None:
    """Counts written and failed records; `size` is their bytes in shards."""
    count("written", stats.written)
    count("bytes/source", stats.source_bytes)
    count("bytes/images", stats.encoded_bytes)
    count("bytes/shards", size)
    for action, times in stats.actions.items():
        count(f"actions/{action}", times)
    for name, times in [*stats.annotations.items(), *stats.notes.items()]:
        count(f"annotations/{name}", times)
    if stats.added:
        count("added", stats.added)
    for (stage, reason), times in stats.failed.items():
        count(f"failed/{stage}/{reason}", times)
    for (stage, reason), times in stats.skipped.items():
        count(f"skipped/{stage}/{reason}", times)


def count_left_out(failure: Failure) -> None:
    """Counts an input that is not a record."""
    count(f"{'skipped' if failure.skipped else 'failed'}/{failure.stage}/{failure.reason}")


class FailureLog:
    """Logs a warning for each failed input; for many in a bundle, the first ones and how many more."""

    def __init__(self) -> None:
        self._failed = 0

    def add(self, failure: Failure) -> None:
        """Logs a failure, unless the input was skipped on purpose, or is in the dataset."""
        if failure.skipped or failure.kept:
            return
        self._failed += 1
        if self._failed <= _LINES:
            detail = f" ({failure.detail})" if failure.detail else ""
            _LOGGER.warning("%s: %s: %s%s", failure.key, failure.stage, failure.reason, detail)

    def add_file(self, path: str) -> None:
        """Logs the lines of a failures.jsonl."""
        for line in filter(None, read_text(path).split("\n")):
            self.add(Failure(**json.loads(line)))

    def finish(self) -> None:
        """Logs, at the end of a bundle, how many were left out."""
        if self._failed > _LINES:
            _LOGGER.warning("%d more inputs failed; failures.jsonl names each", self._failed - _LINES)
        self._failed = 0
