"""Fixtures of the tests of sources."""

from __future__ import annotations

import pytest

from tests.buckets.fixtures import bucket as bucket
from tests.buckets.fixtures import bucket_server as bucket_server


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that retries would have waited."""
    waited: list[float] = []
    monkeypatch.setattr("tenacity.nap.time.sleep", waited.append)
    return waited
