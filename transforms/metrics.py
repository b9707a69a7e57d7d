"""Counters of a conversion, under one namespace, by step."""

from __future__ import annotations

from apache_beam.metrics import Metrics

from transforms.shards.report import WriteStats

NAMESPACE = "recordmill"


def count(name: str, amount: int = 1) -> None:
    """Adds to the counter `name`; runners count a retried bundle twice, so nothing depends on it."""
    Metrics.counter(NAMESPACE, name).inc(amount)


def count_written(stats: WriteStats, size: int) -> None:
    """Counts what was made of records, given the bytes that they take in shards."""
    count("records_written", stats.written)
    count("bytes_written", size)
    for action, times in stats.actions.items():
        count(f"images_{action}", times)
    for (_, reason), times in stats.failed.items():
        count(f"failed: {reason}", times)
