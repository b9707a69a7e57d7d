"""Beam's own files on gs:// work on the bucket server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.buckets.server import BucketServer

pytest.importorskip("apache_beam.io.gcp.gcsio", reason="Beam's files on gs:// are in apache-beam[gcp]")


@pytest.fixture(autouse=True)
def fresh_credentials(beam_credentials: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beam keeps the credentials that it found first; this test's are its own."""
    from apache_beam.internal.gcp import auth

    monkeypatch.setattr(auth._Credentials, "_credentials_init", False)
    monkeypatch.setattr(auth._Credentials, "_credentials", None)


@pytest.mark.slow
def test_files(bucket_server: BucketServer, bucket: str) -> None:
    from apache_beam.io.filesystems import FileSystems

    data = os.urandom(3_000_000)
    paths = [f"{bucket}/in/{number:03}.bin" for number in range(120)]
    for path in paths[:-1]:
        bucket_server.put(path, path.encode())
    with FileSystems.create(paths[-1]) as file:
        file.write(data)
    assert bucket_server.get(paths[-1]) == data
    with FileSystems.open(paths[-1]) as file:
        assert file.read() == data
    (found,) = FileSystems.match([f"{bucket}/in/*.bin"])
    assert sorted((each.path, each.size_in_bytes) for each in found.metadata_list) == [
        *((path, len(path)) for path in paths[:-1]),
        (paths[-1], len(data)),
    ]
    assert FileSystems.exists(paths[0])
    assert not FileSystems.exists(f"{bucket}/none")
    moved = [path.replace("/in/", "/out/") for path in paths]
    FileSystems.rename(paths, moved)
    assert bucket_server.names(bucket) == moved
    assert bucket_server.get(moved[-1]) == data
    FileSystems.delete(moved[1:])
    assert bucket_server.names(bucket) == moved[:1]
    parts = [request for request in bucket_server.requests if request.in_batch]
    assert [request.kind for request in parts].count("delete") == len(paths) + len(moved[1:])
