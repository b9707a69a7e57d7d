"""Counters of a conversion, by step.

A runner's console shows a counter's name and step, and not its namespace; names sort by subject:
`read`, `written`, `failed/decode/truncated`, `skipped/list/not an image`, `actions/kept`, `bytes/shards`, …
"""

from __future__ import annotations

from apache_beam.metrics import Metrics

from recordmill.transforms.records import Failure
from recordmill.transforms.shards.report import WriteStats

NAMESPACE = "recordmill"


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
    for name, times in stats.annotations.items():
        count(f"annotations/{name}", times)
    for reason, times in stats.notes.items():
        count(f"annotations/{reason}", times)
    for (stage, reason), times in stats.failed.items():
        count(f"failed/{stage}/{reason}", times)


def count_left_out(failure: Failure) -> None:
    """Counts an input that is not a record."""
    count(f"{'skipped' if failure.skipped else 'failed'}/{failure.stage}/{failure.reason}")
