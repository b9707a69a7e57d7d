"""The bucket server does to Google's own client what Cloud Storage does."""

from __future__ import annotations

import base64
import hashlib
import http.client
import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import google_crc32c
import pytest
from gcp_storage_emulator.handlers import objects
from google.api_core import exceptions
from google.cloud import storage

from tests.buckets.asking import ask, asked, kinds
from tests.buckets.server import BucketServer, Drop, Request

KIB = 1024
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("data", [b"", b"\r\n--x\r\n\r\n", b"\x00" * 3, os.urandom(700 * KIB)], ids=len)
def test_objects_come_back_as_they_were_stored(
    bucket_server: BucketServer, photos: storage.Bucket, data: bytes
) -> None:
    photos.blob("one").upload_from_string(data, content_type="image/png")
    two = photos.blob("two", chunk_size=256 * KIB)
    two.upload_from_file(io.BytesIO(data), content_type="image/png")
    crc32c = base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
    for name in ("one", "two"):
        assert bucket_server.get(f"gs://photos/{name}") == data
        blob = photos.get_blob(name)
        assert blob.download_as_bytes() == data
        assert (blob.size, blob.crc32c, blob.content_type) == (len(data), crc32c, "image/png")
        assert blob.md5_hash == base64.b64encode(hashlib.md5(data).digest()).decode()
        assert blob.metageneration == 1


def test_a_resumable_upload_comes_in_chunks(bucket_server: BucketServer, photos: storage.Bucket) -> None:
    blob = photos.blob("big", chunk_size=256 * KIB)
    blob.upload_from_file(io.BytesIO(os.urandom(600 * KIB)))
    assert kinds(bucket_server) == ["resumable-start"] + ["resumable-chunk"] * 3
    chunks = [request for request in bucket_server.requests if request.kind == "resumable-chunk"]
    assert [chunk.byte_range for chunk in chunks] == [
        "bytes 0-262143/*",
        "bytes 262144-524287/*",
        "bytes 524288-614399/614400",
    ]
    assert [(chunk.name, chunk.status) for chunk in chunks] == [("big", 308), ("big", 308), ("big", 200)]


def test_a_resumable_upload_goes_on_where_it_was(bucket_server: BucketServer) -> None:
    bucket_server.bucket("photos")
    start = "/upload/storage/v1/b/photos/o?uploadType=resumable&name=x"
    headers = ask(bucket_server, "POST", start)[2]
    session = headers["Location"].removeprefix(bucket_server.host)

    def put(data: bytes, given: str) -> tuple[int, str | None]:
        status, _, headers = ask(bucket_server, "PUT", session, data, Content_Range=given)
        return status, headers.get("Range")

    first, last = b"a" * 256 * KIB, b"b" * 10
    total = len(first + last)
    assert put(b"", "bytes */*") == (308, None)
    assert put(first[:-1], f"bytes 0-{len(first) - 2}/{total}")[0] == 400
    assert put(first, f"bytes 0-{len(first) - 1}/{total}") == (308, "bytes=0-262143")
    assert put(b"", f"bytes */{total}") == (308, "bytes=0-262143")
    assert put(last, f"bytes {len(first) + 1}-{total}/{total + 1}")[0] == 503
    assert bucket_server.names("gs://photos/") == []
    assert put(first + last, f"bytes 0-{total - 1}/{total}")[0] == 200
    assert put(b"", f"bytes */{total}")[0] == 200
    assert bucket_server.get("gs://photos/x") == first + last
    assert ask(bucket_server, "DELETE", session)[0] == 499
    assert put(b"", "bytes */*")[0] == 404


def test_a_body_may_come_in_chunks_of_http(bucket_server: BucketServer) -> None:
    bucket_server.bucket("photos")

    def body() -> Iterator[bytes]:
        yield from (b"one", b"two")

    path = "/upload/storage/v1/b/photos/o?uploadType=media&name=x"
    assert ask(bucket_server, "POST", path, body())[0] == 200
    assert bucket_server.get("gs://photos/x") == b"onetwo"


@pytest.mark.parametrize(
    "sent", [b"Content-Length: 9\r\n\r\none", b"Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n"]
)
def test_half_a_request_is_none(bucket_server: BucketServer, sent: bytes) -> None:
    bucket_server.bucket("photos")
    host, _, port = bucket_server.host.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        start = b"POST /upload/storage/v1/b/photos/o?uploadType=media&name=x HTTP/1.1\r\n"
        connection.sendall(start + sent)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert bucket_server.names("gs://photos/") == []
    assert bucket_server.requests == []


def test_a_wrong_checksum_is_refused(bucket_server: BucketServer) -> None:
    bucket_server.bucket("photos")
    start = "/upload/storage/v1/b/photos/o?uploadType=resumable&name=x"
    session = ask(bucket_server, "POST", start)[2]["Location"].removeprefix(bucket_server.host)
    assert ask(bucket_server, "PUT", session, b"abc", X_Goog_Hash="crc32c=AAAAAA==")[0] == 400
    parts = b'--x\r\n\r\n{"name": "x", "crc32c": "AAAAAA=="}\r\n--x\r\n\r\nabc\r\n--x--'
    path = "/upload/storage/v1/b/photos/o?uploadType=multipart"
    assert ask(bucket_server, "POST", path, parts, Content_Type="multipart/related; boundary=x")[0] == 400
    assert bucket_server.names("gs://photos/") == []


@pytest.mark.parametrize("chunk_size", [None, 256 * KIB], ids=["multipart", "resumable"])
def test_one_of_many_creators_wins(
    bucket_server: BucketServer,
    photos: storage.Bucket,
    chunk_size: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    insert = objects.insert

    def slow(*args: object) -> None:
        time.sleep(0.02)  # between the check and the write
        insert(*args)

    monkeypatch.setattr(objects, "insert", slow)

    def create(number: int) -> bool:
        blob = photos.blob("lock", chunk_size=chunk_size)
        try:
            size = None if chunk_size else 1
            blob.upload_from_file(io.BytesIO(b"%d" % number), size=size, if_generation_match=0)
        except exceptions.PreconditionFailed:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))
    assert sum(won) == 1
    assert bucket_server.get("gs://photos/lock") == b"%d" % won.index(True)


def test_conditions(bucket_server: BucketServer, photos: storage.Bucket) -> None:
    blob = photos.blob("x")
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string(b"", if_generation_match=7)
    blob.upload_from_string(b"old")
    old = blob.generation
    blob.metadata = {"a": "b"}
    blob.patch()
    assert (blob.generation, blob.metageneration) == (old, 2)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string(b"", if_metageneration_match=1)
    with pytest.raises(exceptions.NotModified):
        photos.blob("x").download_as_bytes(if_generation_not_match=old)
    blob.upload_from_string(b"new", if_generation_match=old)
    assert blob.generation > old
    refused: list[Callable[[], object]] = [
        lambda: photos.blob("x").download_as_bytes(if_generation_match=old),
        lambda: photos.blob("x").reload(if_generation_match=old),
        lambda: photos.blob("x").delete(if_generation_match=old),
        lambda: photos.blob("y").rewrite(photos.blob("x"), if_source_generation_match=old),
        lambda: photos.blob("x").rewrite(photos.blob("x"), if_generation_match=0),
        lambda: photos.copy_blob(photos.blob("x"), photos, "x", if_generation_match=0),
    ]
    for call in refused:
        with pytest.raises(exceptions.PreconditionFailed):
            call()
    assert bucket_server.get("gs://photos/x") == b"new"
    with pytest.raises(exceptions.NotFound):
        photos.blob("none").delete(if_generation_match=old)


def test_a_generation_is_the_live_one_or_none(bucket_server: BucketServer, photos: storage.Bucket) -> None:
    blob = photos.blob("x")
    blob.upload_from_string(b"old")
    pinned = photos.blob("x", generation=blob.generation)
    assert pinned.download_as_bytes() == b"old"
    bucket_server.put("gs://photos/x", b"new")
    for call in (pinned.download_as_bytes, pinned.reload, pinned.delete):
        with pytest.raises(exceptions.NotFound):
            call()
    with pytest.raises(exceptions.NotFound):
        photos.blob("y").rewrite(pinned)
    assert bucket_server.names("gs://photos/") == ["gs://photos/x"]


def test_a_rewrite_may_take_several_calls(bucket_server: BucketServer, photos: storage.Bucket) -> None:
    bucket_server.rewrite_calls = 3
    bucket_server.put("gs://photos/x", b"0123456789", "image/png")
    token: str | None = None
    done: list[tuple[list[int], list[str]]] = []
    while not done or token is not None:
        token, *counts = photos.blob("to/y").rewrite(photos.blob("x"), token=token, if_generation_match=0)
        done.append((counts, bucket_server.names("gs://photos/to/")))
    assert done == [([3, 10], []), ([6, 10], []), ([10, 10], ["gs://photos/to/y"])]
    copy = photos.get_blob("to/y")
    assert (copy.download_as_bytes(), copy.content_type, copy.metageneration) == (
        b"0123456789",
        "image/png",
        1,
    )
    rewrites = [request for request in bucket_server.requests if request.kind == "rewrite"]
    assert {(request.name, request.source) for request in rewrites} == {("to/y", "photos/x")}


def test_a_composed_object_has_no_md5(bucket_server: BucketServer, photos: storage.Bucket) -> None:
    for name in "ab":
        bucket_server.put(f"gs://photos/{name}", name.encode())
    photos.blob("ab").compose([photos.blob("a"), photos.blob("b")])
    blob = photos.get_blob("ab")
    assert (blob.download_as_bytes(), blob.size, blob.md5_hash) == (b"ab", 2, None)
    assert blob.crc32c is not None


def test_the_parts_of_a_batch_succeed_or_fail_alone(
    bucket_server: BucketServer, photos: storage.Bucket
) -> None:
    for name in ("a/1", "a 2", "b"):
        bucket_server.put(f"gs://photos/{name}", b"")
    bucket_server.clear()
    client = photos.client
    with client.batch(raise_exception=False) as batch:
        photos.blob("a/1").delete()
        photos.blob("a 2").delete(if_generation_match=1)
        photos.blob("none").delete()
        photos.blob("b").delete(if_generation_match=int(bucket_server.generation("gs://photos/b")))
    assert [response.status_code for response in batch._responses] == [204, 412, 404, 204]
    assert bucket_server.names("gs://photos/") == ["gs://photos/a 2"]
    assert kinds(bucket_server) == ["delete"] * 4 + ["batch"]
    assert [request.in_batch for request in asked(bucket_server)] == [True] * 4 + [False]
    with pytest.raises(exceptions.BadRequest), client.batch():
        for number in range(101):
            photos.blob(str(number)).delete()


def test_folders(bucket_server: BucketServer, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "deep").mkdir(parents=True)
    (there / "a.jpg").write_bytes(b"a")
    (there / "deep" / "b.jpg").write_bytes(b"b")
    uri = bucket_server.bucket("photos")
    bucket_server.upload_folder(there, f"{uri}/in")
    assert bucket_server.names(uri) == ["gs://photos/in/a.jpg", "gs://photos/in/deep/b.jpg"]
    bucket_server.download(f"{uri}/in", tmp_path / "back")
    back = {path.name: path.read_bytes() for path in (tmp_path / "back").rglob("*.jpg")}
    assert back == {"a.jpg": b"a", "b.jpg": b"b"}


def test_buckets_as_a_client_makes_them(bucket_server: BucketServer, photos: storage.Bucket) -> None:
    photos.client.create_bucket("more")
    bucket_server.put("gs://more/x", b"")
    with pytest.raises(exceptions.Conflict):
        photos.client.create_bucket("more")
    assert photos.client.lookup_bucket("none") is None
    with pytest.raises(exceptions.NotFound):
        photos.client.bucket("none").blob("x").upload_from_string(b"")


CLIENT = """
import sys
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
endpoint = {"api_endpoint": sys.argv[1]}
client = storage.Client(project="p", credentials=AnonymousCredentials(), client_options=endpoint)
for number in range(9):
    client.bucket("photos").blob(str(number)).upload_from_string(b"", retry=None)
"""


@pytest.mark.parametrize(("moment", "left"), [("before", 4), ("after", 5)])
def test_a_client_can_be_killed_at_any_mutation(bucket_server: BucketServer, moment: str, left: int) -> None:
    bucket_server.bucket("photos")
    process = None

    def kill(number: int, request: Request, at: str) -> None:
        assert request.name == str(number - 1)
        if (number, at) == (5, moment):
            assert process is not None
            os.killpg(process.pid, signal.SIGKILL)
            raise Drop

    bucket_server.on_mutation(kill)
    process = subprocess.Popen([sys.executable, "-c", CLIENT, bucket_server.host], start_new_session=True)
    try:
        assert process.wait(60) == -signal.SIGKILL
    finally:
        process.kill()
    assert len(bucket_server.names("gs://photos/")) == left
    assert bucket_server.mutations == 5
    deadline = time.monotonic() + 60  # the server notes the request after it has dropped the connection
    while len(asked(bucket_server)) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [request.status for request in asked(bucket_server)] == [200] * 4 + [0]


def test_the_command_serves_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "tests.buckets.server", "--bucket", "photos"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            host = process.stdout.readline().strip().removeprefix("export STORAGE_EMULATOR_HOST=http://")
            connection = http.client.HTTPConnection(host, timeout=20)
            connection.request("GET", "/storage/v1/b/photos/o")
            assert connection.getresponse().status == 200
            connection.close()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            process.kill()
