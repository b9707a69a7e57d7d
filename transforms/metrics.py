"""Counters of a conversion, under one namespace, by step."""

from __future__ import annotations

from apache_beam.metrics import Metrics

NAMESPACE = "recordmill"


def count(name: str, amount: int = 1) -> None:
    """Adds to the counter `name`; runners count a retried bundle twice, so nothing depends on it."""
    Metrics.counter(NAMESPACE, name).inc(amount)
