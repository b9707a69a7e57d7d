"""Listings and ranges of the bucket server, as Google's own client and plain HTTP see them."""

from __future__ import annotations

import base64
import json
import os

import google_crc32c
import pytest
from google.api_core import exceptions
from google.cloud import storage

from tests.buckets.asking import ask
from tests.buckets.server import BucketServer

KIB = 1024
# In the order of their UTF-8 bytes; in UTF-16 the last two change places.
NAMES = ["a b+c", "a%2Fb", "a//b", "a/b", "a/c/d", "b?x=1&y#z", "c\\d", "é", "\uffee", "\U0001f600"]


@pytest.mark.parametrize("page_size", [1, 2, 3, 1000])
def test_listings_come_in_pages_in_order(
    bucket_server: BucketServer, photos: storage.Bucket, page_size: int
) -> None:
    bucket_server.page_size = page_size
    for name in reversed(NAMES):
        bucket_server.put(f"gs://photos/{name}", name.encode())
    blobs = list(photos.list_blobs())
    assert [blob.name for blob in blobs] == NAMES == sorted(NAMES, key=str.encode)
    assert [blob.download_as_bytes().decode() for blob in blobs] == NAMES
    between = photos.list_blobs(start_offset="a/b", end_offset="é")
    assert [blob.name for blob in between] == ["a/b", "a/c/d", "b?x=1&y#z", "c\\d"]
    listing = photos.list_blobs(delimiter="/", prefix="a")
    sizes, items = [], []
    for page in listing.pages:
        names = [blob.name for blob in page]
        items += names
        sizes.append(page.num_items)
    assert (items, listing.prefixes) == (["a b+c", "a%2Fb"], {"a/"})
    assert max(sizes) <= page_size
    below = photos.list_blobs(delimiter="/", prefix="a/")
    assert ([blob.name for blob in below], below.prefixes) == (["a/b"], {"a//", "a/c/"})
    short = photos.list_blobs(max_results=2)
    assert [blob.name for blob in short] == NAMES[:2]


def test_a_page_counts_items_and_prefixes(bucket_server: BucketServer, photos: storage.Bucket) -> None:
    for name in ("a/1", "a/2", "b", "c/", "c/1", "d"):
        bucket_server.put(f"gs://photos/{name}", b"")
    pages, query = [], "delimiter=/&maxResults=2&includeTrailingDelimiter=true"
    path = f"/storage/v1/b/photos/o?{query}"
    while True:
        answer = json.loads(ask(bucket_server, "GET", path)[1])
        pages.append(([item["name"] for item in answer.get("items", [])], answer.get("prefixes")))
        if "nextPageToken" not in answer:
            break
        path = f"/storage/v1/b/photos/o?{query}&pageToken={answer['nextPageToken']}"
    assert pages == [(["b"], ["a/"]), (["c/"], ["c/"]), (["d"], None)]
    empty = json.loads(ask(bucket_server, "GET", "/storage/v1/b/photos/o?prefix=none")[1])
    assert empty == {"kind": "storage#objects"}
    assert ask(bucket_server, "GET", "/storage/v1/b/photos/o?pageToken=none")[0] == 400
    assert ask(bucket_server, "GET", "/storage/v1/b/none/o")[0] == 404


def test_only_the_fields_that_were_named_come(bucket_server: BucketServer, photos: storage.Bucket) -> None:
    bucket_server.page_size = 2
    for name in "abc":
        bucket_server.put(f"gs://photos/{name}", b"1234")
    whole = list(photos.list_blobs(fields="items(name,size),nextPageToken"))
    assert [blob._properties for blob in whole] == [{"name": name, "size": "4"} for name in "abc"]
    assert [blob.name for blob in photos.list_blobs(fields="items/name")] == ["a", "b"]


@pytest.mark.parametrize(
    ("given", "status", "body", "shown"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=8-", 206, b"89", "bytes 8-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=10-", 416, None, None),
        ("bytes=-0", 416, None, None),
        ("bytes=5-2", 200, b"0123456789", None),
        ("bytes=0-1,3-4", 200, b"0123456789", None),
    ],
)
def test_ranges(
    bucket_server: BucketServer, given: str, status: int, body: bytes | None, shown: str | None
) -> None:
    bucket_server.bucket("photos")
    bucket_server.put("gs://photos/x", b"0123456789")
    found = ask(bucket_server, "GET", "/storage/v1/b/photos/o/x?alt=media", Range=given)
    assert (found[0], found[2].get("Content-Range")) == (status, shown)
    assert body is None or found[1] == body
    assert bucket_server.requests[-1].byte_range == given
    if status < 300:
        assert found[2]["X-Goog-Stored-Content-Length"] == "10"
        assert found[2]["X-Goog-Generation"] == bucket_server.generation("gs://photos/x")
        crc32c = base64.b64encode(google_crc32c.Checksum(b"0123456789").digest()).decode()
        assert f"crc32c={crc32c}" in found[2]["X-Goog-Hash"].split(",")


def test_ranges_through_the_client(bucket_server: BucketServer, photos: storage.Bucket) -> None:
    data = os.urandom(600 * KIB)
    bucket_server.put("gs://photos/x", data)
    assert photos.blob("x").download_as_bytes(start=5, end=9) == data[5:10]
    with photos.blob("x").open("rb", chunk_size=256 * KIB) as file:
        assert file.read() == data
    with pytest.raises(exceptions.RequestRangeNotSatisfiable):
        photos.blob("x").download_as_bytes(start=len(data))
