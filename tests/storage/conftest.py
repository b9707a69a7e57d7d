"""Fixtures of the tests of storage."""

from __future__ import annotations

from tests.buckets.fixtures import bucket as bucket
from tests.buckets.fixtures import bucket_server as bucket_server
from tests.pipelines.conftest import quick as quick
