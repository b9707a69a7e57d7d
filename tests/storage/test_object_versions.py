"""What tells one state of an object's bytes from another: of whole objects, and of those read in ranges."""

from __future__ import annotations

import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.cloud import storage

from recordmill.transforms.records import ImageRef
from recordmill.transforms.storage import gcs, listing
from recordmill.transforms.storage.confinement import CachedPages, Confinement
from recordmill.transforms.storage.file_system import Status, file_system, version_of_bytes
from recordmill.transforms.storage.files import status_of
from recordmill.transforms.storage.gcs import GcsFileSystem
from recordmill.transforms.storage.local import version_of
from recordmill.transforms.storage.reader import ListedReader
from recordmill.transforms.storage.spool import Spool
from tests.buckets.server import BucketServer

GCS = GcsFileSystem()


def stored(uri: str) -> Status:
    found = GCS.find(uri)
    assert found is not None
    return found


def composed(bucket: str, name: str, *parts: str) -> Status:
    client = storage.Client.create_anonymous_client()
    handle = client.bucket(bucket.removeprefix("gs://"))
    made = handle.blob(name)
    made.compose([handle.blob(part) for part in parts])
    assert made.md5_hash is None
    return stored(f"{bucket}/{name}")


def test_the_same_bytes_again_are_the_same_version_of_another_generation(
    bucket: str, bucket_server: BucketServer
) -> None:
    uri = f"{bucket}/a"
    bucket_server.put(uri, b"image")
    first = stored(uri)
    bucket_server.put(uri, b"image")
    again = stored(uri)
    assert (again.version, again.generation == first.generation) == (first.version, False)
    bucket_server.put(uri, b"other")
    assert stored(uri).version != first.version
    bucket_server.put(f"{bucket}/b", b"image")
    GCS.link(f"{bucket}/b", f"{bucket}/c")
    assert stored(f"{bucket}/c").version == stored(f"{bucket}/b").version == first.version


def test_a_composed_object_is_of_another_version_each_time(bucket: str, bucket_server: BucketServer) -> None:
    for name in "xy":
        bucket_server.put(f"{bucket}/{name}", name.encode())
    found = [composed(bucket, "xy", "x", "y") for _ in range(2)]
    assert found[0].crc32c == found[1].crc32c
    assert found[0].version != found[1].version
    assert stored(f"{bucket}/xy").version == found[1].version


def test_the_version_of_an_object_with_an_md5_is_that_of_its_bytes(
    tmp_path: Path, bucket: str, bucket_server: BucketServer
) -> None:
    for name in ("a", "b"):
        bucket_server.put(f"{bucket}/{name}", name.encode())
    assert GCS.is_content_version(stored(f"{bucket}/a").version)
    assert stored(f"{bucket}/a").version == version_of_bytes(b"a")
    assert not GCS.is_content_version(composed(bucket, "c", "a", "b").version)
    with Spool(str(tmp_path), "container", 1) as spool:
        assert spool.add(b"a").version == -version_of_bytes(b"a")
    (tmp_path / "a").write_bytes(b"a")
    assert not file_system(str(tmp_path)).is_content_version(status_of(str(tmp_path / "a")).version)


def status_of_object(**changed: Any) -> Status:
    """The status of an object whose metadata are as given."""
    known = {"size": 3, "generation": 7, "crc32c": "x", "updated": None, "md5_hash": "md5=="}
    return gcs._status(SimpleNamespace(**known | changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"md5_hash": "other=="},
        {"size": 4},
        {"md5_hash": None},
        {"md5_hash": None, "generation": 8},
        {"md5_hash": None, "crc32c": "y"},
    ],
)
def test_what_makes_another_version(changed: dict[str, object]) -> None:
    one, other, composite = (status_of_object(**given) for given in ({}, changed, {"md5_hash": None}))
    assert other.version != one.version
    assert (other.version == composite.version) == (other == composite)
    for found in (one, other):
        assert 0 < found.version < 2**63


@pytest.mark.parametrize(
    "changed",
    [{"generation": 8}, {"crc32c": ""}, {"updated": datetime.datetime(2026, 1, 2)}],
)
def test_what_does_not(changed: dict[str, object]) -> None:
    assert status_of_object(**changed).version == status_of_object().version


def test_every_way_to_ask_gives_the_same(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    uri = f"{bucket}/in/a.jpg"
    written = GCS.write(uri, [b"image"])
    (tmp_path / "b").write_bytes(b"image")
    assert GCS.put(str(tmp_path / "b"), f"{bucket}/in/b.jpg").version == written.version
    for name in "xy":
        bucket_server.put(f"{bucket}/parts/{name}", name.encode())
    composed(bucket, "in/c.jpg", "parts/x", "parts/y")
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        uri = f"{bucket}/in/{name}"
        one = stored(uri)
        listed = {entry.name: entry.status for entry in listing.entries(f"{bucket}/in")}
        assert status_of(uri) == listed[name] == one
        assert GCS.list_page(f"{bucket}/in", first=name, most=1)[0][0].status == one
        assert CachedPages().find(uri, f"{bucket}/in/") == (one.size, one.version)
        located = Confinement((f"{bucket}/in",)).find(name, (f"{bucket}/in",))
        assert (located.size, located.version) == (one.size, one.version)


def test_an_object_beyond_the_first_thousand_has_the_same_version_too(
    bucket: str, bucket_server: BucketServer
) -> None:
    for number in range(1002):
        bucket_server.put(f"{bucket}/in/{number:04}", b"%d" % number)
    uri = f"{bucket}/in/1001"
    last = stored(uri)
    bucket_server.clear()
    assert CachedPages().find(uri, f"{bucket}/in/") == (4, last.version)
    assert [request.kind for request in bucket_server.requests] == ["list", "get-metadata"]


def test_a_file_has_one_version_for_all(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"image")
    written = version_of(path.stat())
    assert status_of(str(path)) == Status(5, written, written, path.stat().st_mtime_ns)


def test_an_object_that_was_replaced_is_known_by_what_was_read(
    bucket: str, bucket_server: BucketServer
) -> None:
    for name in "xy":
        bucket_server.put(f"{bucket}/{name}", name.encode())
    found = {"xy": composed(bucket, "xy", "x", "y"), "x": stored(f"{bucket}/x")}
    refs = [ImageRef(f"{bucket}/{name}", version=status.version) for name, status in found.items()]
    reader = ListedReader()

    def read() -> list[bool]:
        for number, ref in enumerate(refs):
            begun = reader.begin(ref) if number else None
            reader.read(ref) if begun is None else begun.result()
        return [reader.is_as_listed(ref) for ref in refs]

    assert read() == [True, True]
    bucket_server.put(f"{bucket}/x", b"x")  # the same bytes
    assert read() == [True, True]
    composed(bucket, "xy", "x", "y")
    bucket_server.put(f"{bucket}/x", b"z")
    assert read() == [False, False]


def test_a_file_that_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    refs = [ImageRef(str(path), version=version_of(path.stat())), ImageRef(str(path))]
    for expected in ([True, True], [False, True]):
        reader = ListedReader()
        for ref in refs:
            reader.read(ref)
        assert [reader.is_as_listed(ref) for ref in refs] == expected
        path.write_bytes(b"other")
