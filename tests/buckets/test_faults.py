"""The faults of the bucket server: which come, and that Google's own client survives them."""

from __future__ import annotations

import io
import os

import pytest
import requests
from google.api_core import exceptions
from google.cloud import storage
from google.cloud.storage.retry import DEFAULT_RETRY

from tests.buckets.calls import Request
from tests.buckets.faults import KINDS, Fault, Faults
from tests.buckets.server import BucketServer

QUICK = DEFAULT_RETRY.with_delay(initial=0.01, maximum=0.02)
# What a caller may meet where nothing is tried again.
BROKEN = (exceptions.GoogleAPICallError, requests.exceptions.RequestException)


def of_kind(server: BucketServer, kind: str) -> list[Request]:
    return [request for request in server.requests if request.kind == kind]


@pytest.mark.parametrize("kind", [503, 429, 408, "reset", "reset-after", "truncated"])
def test_reads_survive(bucket_server: BucketServer, photos: storage.Bucket, kind: int | str) -> None:
    data = os.urandom(100_000)
    bucket_server.put("gs://photos/x", data)
    bucket_server.faults = Faults(1, kinds=(kind,))
    with pytest.raises(BROKEN):
        photos.blob("x").download_as_bytes(retry=None)
    assert photos.blob("x").download_as_bytes(retry=QUICK) == data
    reads = of_kind(bucket_server, "get-media")
    assert [read.fault for read in reads] == [str(kind)] * 3 + [""]
    statuses = [read.status for read in reads]
    if kind == "truncated":
        assert statuses == [200, 200, 206, 206]  # the client goes on where the bytes ended
    else:
        assert statuses == [kind if isinstance(kind, int) else 0] * 3 + [200]
    assert bucket_server.faults.injected[kind] == len([r for r in bucket_server.requests if r.fault])


@pytest.mark.parametrize("size", [0, 5, 100_000])
def test_slow_answers_are_whole(bucket_server: BucketServer, photos: storage.Bucket, size: int) -> None:
    data = os.urandom(size)
    for number in range(8):
        bucket_server.put(f"gs://photos/{number}", data)
    bucket_server.faults = Faults(1, kinds=("slow",), slow_seconds=0.05)
    for number in range(8):
        assert photos.blob(str(number)).download_as_bytes(retry=None) == data
    assert bucket_server.faults.injected["slow"] >= 8


@pytest.mark.parametrize("kind", [503, 429, 408, "reset", "reset-after"])
def test_a_conditional_write_happens_once(
    bucket_server: BucketServer, photos: storage.Bucket, kind: int | str
) -> None:
    bucket_server.faults = Faults(1, kinds=(kind,))
    blob = photos.blob("x")
    if kind == "reset-after":
        with pytest.raises(exceptions.PreconditionFailed):
            blob.upload_from_string(b"data", if_generation_match=0, retry=QUICK)
        fate = [0, 0, 0, 412]
    else:
        blob.upload_from_string(b"data", if_generation_match=0, retry=QUICK)
        fate = [kind if isinstance(kind, int) else 0] * 3 + [200]
    assert bucket_server.get("gs://photos/x") == b"data"
    assert [request.status for request in of_kind(bucket_server, "insert")] == fate


@pytest.mark.parametrize("seed", range(4))
def test_a_resumable_upload_survives(bucket_server: BucketServer, photos: storage.Bucket, seed: int) -> None:
    data = os.urandom(2_000_000)
    bucket_server.faults = Faults(0.4, seed, (503, 429, 408, "reset", "reset-after"))
    blob = photos.blob("x", chunk_size=256 * 1024)
    blob.upload_from_file(io.BytesIO(data), retry=QUICK)
    assert bucket_server.get("gs://photos/x") == data
    assert bucket_server.faults.injected.total() > 0


def test_listings_and_copies_survive(bucket_server: BucketServer, photos: storage.Bucket) -> None:
    names = [f"{number:03}" for number in range(40)]
    for name in names:
        bucket_server.put(f"gs://photos/in/{name}", name.encode())
    bucket_server.page_size = 3
    bucket_server.faults = Faults(0.3, 1, (503, 429, 408, "reset", "reset-after", "truncated"))
    listed = list(photos.list_blobs(prefix="in/", retry=QUICK))
    assert [blob.name for blob in listed] == [f"in/{name}" for name in names]
    for blob, name in zip(listed, names, strict=True):
        photos.blob(f"out/{name}").rewrite(blob, retry=QUICK)
    assert [bucket_server.get(uri).decode() for uri in bucket_server.names("gs://photos/out/")] == names
    assert len(bucket_server.faults.injected) > 3


def test_a_part_of_a_batch_fails_alone(bucket_server: BucketServer, photos: storage.Bucket) -> None:
    for name in "abcdefgh":
        bucket_server.put(f"gs://photos/{name}", b"")
    bucket_server.faults = Faults(0.5, 2, (503,))
    with photos.client.batch(raise_exception=False) as batch:
        for name in "abcdefgh":
            photos.blob(name).delete()
    statuses = [response.status_code for response in batch._responses]
    assert set(statuses) == {204, 503}
    left = [f"gs://photos/{name}" for name, status in zip("abcdefgh", statuses, strict=True) if status == 503]
    assert bucket_server.names("gs://photos/") == left


def test_the_seed_decides(bucket_server: BucketServer) -> None:
    asked = [Request("GET", "get-media", "b", str(number % 500)) for number in range(2000)]

    def drawn(seed: int, requests: list[Request]) -> dict[str, list[Fault | None]]:
        faults = Faults(0.1, seed)
        found: dict[str, list[Fault | None]] = {}
        for request in requests:
            found.setdefault(request.name, []).append(faults.draw(request))
        assert faults.injected.total() == sum(fault is not None for each in found.values() for fault in each)
        return found

    one = drawn(1, asked)
    assert drawn(1, asked[500:] + asked[:500][::-1]) == one  # whatever the order among objects
    assert drawn(2, asked) != one
    hit = [fault for each in one.values() for fault in each if fault is not None]
    assert 140 < len(hit) < 260
    assert {fault.kind for fault in hit} == set(KINDS) - {"cut"}  # which only listings can have
    assert {fault.retry_after for fault in hit if fault.kind == 503} == {None, 1}


def test_no_object_fails_four_times_in_a_row() -> None:
    faults = Faults(1, kinds=(503,))
    read = Request("GET", "get-media", "b", "x")
    assert [faults.draw(read) is not None for _ in range(8)] == [True, True, True, False] * 2


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="'teapot'"):
        Faults(kinds=("teapot",))
