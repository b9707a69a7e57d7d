"""Fixtures of the tests that need a bucket; a conftest.py imports them by name."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from tests.buckets.server import BucketServer


@functools.cache
def lasting_server() -> BucketServer:
    """A server of buckets on loopback, which ends with this process: who found it once finds it again."""
    return BucketServer().__enter__()


@pytest.fixture
def bucket_server() -> BucketServer:
    """The same, with no bucket in it."""
    lasting_server().empty()
    return lasting_server()


@pytest.fixture
def bucket(bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """URI of an empty bucket, which clients made from here on, and processes started, find.

    A client that the process has kept from before still asks the server it was made for.
    """
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", bucket_server.host)
    return bucket_server.bucket("pictures")


@pytest.fixture
def beam_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Credentials that no server is asked about, for this process and those it starts.

    Without any, Beam's own files on gs:// look for some for 20 seconds in every process; its --no_auth
    and NO_GCE_CHECK do not change that.
    """
    path = tmp_path / "credentials.json"
    secrets = dict.fromkeys(("client_id", "client_secret", "refresh_token", "token"), "none")
    path.write_text(json.dumps({"type": "authorized_user", "expiry": "2100-01-01T00:00:00Z", **secrets}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "none")
    return path
