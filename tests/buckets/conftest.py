"""The fixtures of buckets, for the tests of the server itself."""

from __future__ import annotations

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.buckets.fixtures import beam_credentials, bucket, bucket_server
from tests.buckets.server import BucketServer

__all__ = ["beam_credentials", "bucket", "bucket_server"]


@pytest.fixture
def photos(bucket_server: BucketServer) -> storage.Bucket:
    """A bucket as Google's own client sees it."""
    bucket_server.bucket("photos")
    endpoint = {"api_endpoint": bucket_server.host}
    client = storage.Client(project="p", credentials=AnonymousCredentials(), client_options=endpoint)
    return client.bucket("photos")
