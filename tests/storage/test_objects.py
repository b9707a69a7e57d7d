"""Objects of a bucket: each operation, what it asks for, and what its faults are."""

import errno
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recordmill.transforms.records import BadInput, ImageRef
from recordmill.transforms.storage import cloud, containers, files, listing, objects
from recordmill.transforms.storage.cached_pages import CachedPages
from recordmill.transforms.storage.objects import Entry
from recordmill.transforms.storage.reader import ImageReader
from tests.buckets.calls import Answer
from tests.buckets.server import BucketServer, Drop, Faults


def kinds(server: BucketServer) -> Counter[str]:
    return Counter(request.kind for request in server.requests)


def test_an_image_is_one_request(bucket: str, bucket_server: BucketServer) -> None:
    bucket_server.put(f"{bucket}/a b/ü%#?.jpg", b"bytes")
    bucket_server.clear()
    assert ImageReader().read(ImageRef(f"{bucket}/a b/ü%#?.jpg")) == b"bytes"
    assert ImageReader().read(ImageRef(f"{bucket}/a b/ü%#?.jpg", 1, 3)) == b"yte"
    assert ImageReader().read(ImageRef(f"{bucket}/a b/ü%#?.jpg", 3)) == b"es"
    assert kinds(bucket_server) == {"get-media": 3}
    assert [request.byte_range for request in bucket_server.requests] == ["", "bytes=1-3", "bytes=3-"]


def test_an_image_of_too_many_bytes(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket_server.put(f"{bucket}/x.jpg", bytes(2000))
    monkeypatch.setattr("recordmill.transforms.storage.zip_member.LARGEST", 1999)
    for ref in (ImageRef(f"{bucket}/x.jpg"), ImageRef(f"{bucket}/x.jpg", 0, 2000)):
        with pytest.raises(BadInput) as caught:
            ImageReader().read(ref)
        assert (caught.value.stage, caught.value.reason) == ("load", "too large")
    monkeypatch.setattr("recordmill.transforms.storage.zip_member.LARGEST", 2000)
    assert ImageReader().read(ImageRef(f"{bucket}/x.jpg")) == bytes(2000)


def test_one_client_serves_the_whole_process(bucket: str) -> None:
    assert cloud.client() is cloud.client()
    with ThreadPoolExecutor(4) as threads:
        assert {id(client) for client in threads.map(lambda _: cloud.client(), range(8))} == {
            id(cloud.client())
        }


@pytest.mark.parametrize(
    ("ref", "reason"),
    [
        (ImageRef("gs://pictures/missing.jpg"), "not found"),
        (ImageRef("gs://no-such-bucket/a.jpg"), "not found"),
        (ImageRef("gs://pictures/empty.jpg"), "empty file"),
        (ImageRef("gs://pictures/a.jpg", 3, 3), "out of range"),
        (ImageRef("gs://pictures/a.jpg", 9, 1), "out of range"),
        (ImageRef("gs://pictures/a.jpg", -1, 1), "out of range"),
        (ImageRef("gs://pictures/a.jpg", 0, -1), "out of range"),
        (ImageRef("gs://pictures/a.jpg", 2, 0), "empty file"),
    ],
)
def test_what_is_wrong_with_one_image(
    bucket: str, bucket_server: BucketServer, ref: ImageRef, reason: str
) -> None:
    bucket_server.put(f"{bucket}/a.jpg", b"12345")
    bucket_server.put(f"{bucket}/empty.jpg", b"")
    with pytest.raises(BadInput) as caught:
        ImageReader().read(ref)
    assert (caught.value.stage, caught.value.reason) == ("load", reason)


def test_a_container_that_is_replaced_is_not_read_on(bucket: str, bucket_server: BucketServer) -> None:
    uri = f"{bucket}/images.idx"
    bucket_server.put(uri, b"first")
    generation = int(bucket_server.generation(uri))
    assert objects.read_range(uri, 0, 5, generation) == b"first"
    bucket_server.put(uri, b"other")
    with pytest.raises(cloud.ChangedError, match="replaced while the job read it"):
        objects.read_range(uri, 0, 5, generation)


@pytest.mark.parametrize(
    "kind",
    [
        503,
        "reset-after",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in (429, 408, "reset", "truncated")),
    ],
)
def test_what_may_pass_is_tried_again(
    bucket: str,
    bucket_server: BucketServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: int | str,
) -> None:
    monkeypatch.setattr(objects, "_UPLOAD_PIECE", 1 << 18)
    monkeypatch.setattr(cloud, "_FIRST_WAIT_SECONDS", 0.01)
    cloud._retry.cache_clear()
    data = bytes(range(256)) * 300
    (tmp_path / "large").write_bytes(data * 30)
    bucket_server.faults = Faults(0.3, seed=3, kinds=(kind,))
    for number in range(8):
        uri = f"{bucket}/{number}"
        assert objects.write(uri, data).size == len(data)
        assert objects.read(uri) == data
        assert objects.stat(uri) is not None
        objects.copy(uri, f"{uri}-copy")
        objects.move(f"{uri}-copy", f"{uri}-moved")
    objects.upload(str(tmp_path / "large"), f"{bucket}/large")
    injected = bucket_server.faults.injected.total()
    assert [found.uri for found in objects.list_tree(bucket)] == sorted(
        [f"{bucket}/large", *(f"{bucket}/{number}{end}" for number in range(8) for end in ("", "-moved"))]
    )
    bucket_server.faults = None
    assert injected > 3
    assert bucket_server.get(f"{bucket}/large") == data * 30
    assert {bucket_server.get(f"{bucket}/{number}-moved") for number in range(8)} == {data}
    cloud._retry.cache_clear()


def test_the_answer_that_there_is_none_may_be_cut_short(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud, "_FIRST_WAIT_SECONDS", 0.01)
    bucket_server.faults = Faults(0.6, seed=1, kinds=("truncated",))
    for number in range(12):
        with pytest.raises(FileNotFoundError):
            objects.read(f"{bucket}/{number}")
    assert bucket_server.faults.injected.total() > 5


def test_a_fault_that_does_not_pass_is_no_fault_of_the_image(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud, "_RETRY_SECONDS", 0.3)
    cloud._retry.cache_clear()
    bucket_server.put(f"{bucket}/a.jpg", b"12345")
    bucket_server.faults = Faults(1.0, kinds=(503,))
    bucket_server.faults._in_a_row = Counter()
    monkeypatch.setattr("tests.buckets.faults._IN_A_ROW", 10_000)
    try:
        with pytest.raises(OSError, match="503") as caught:
            ImageReader().read(ImageRef(f"{bucket}/a.jpg"))
    finally:
        cloud._retry.cache_clear()
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, f"{bucket}/a.jpg")


def test_one_of_many_makes_an_object(bucket: str, bucket_server: BucketServer) -> None:
    def make(number: int) -> bool:
        try:
            objects.write(f"{bucket}/lock", b"%d" % number, objects.NEW)
        except cloud.ChangedError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(make, range(8))) == 1


def test_a_write_whose_answer_is_lost_is_still_ours(bucket: str, bucket_server: BucketServer) -> None:
    def lose(number: int, request: object, when: str) -> None:
        if number == 1 and when == "after":
            raise Drop

    bucket_server.on_mutation(lose)
    written = objects.write(f"{bucket}/lock", b"mine", objects.NEW)
    assert str(written.generation) == bucket_server.generation(f"{bucket}/lock")
    assert kinds(bucket_server)["insert"] == 2
    with pytest.raises(cloud.ChangedError):
        objects.write(f"{bucket}/lock", b"another's", objects.NEW)
    assert bucket_server.get(f"{bucket}/lock") == b"mine"


def test_a_folder_is_listed_in_pages(bucket: str, bucket_server: BucketServer) -> None:
    names = ["a/", "a/1.jpg", "a/b/2.jpg", "a/b/3.jpg", "a/c.jpg", "a/ü", "ab/4.jpg", "z"]
    for name in names:
        bucket_server.put(f"{bucket}/{name}", name.encode())
    bucket_server.page_size = 2
    bucket_server.clear()
    listed = list(objects.list_folder(f"{bucket}/a"))
    assert [entry.name for entry in listed] == ["1.jpg", "b/", "c.jpg", "ü"]
    assert kinds(bucket_server) == {"list": 3}
    assert listed[1] == Entry("b/", None)
    assert listed[0].stored == objects.stat(f"{bucket}/a/1.jpg")
    assert [entry.name for entry in objects.list_folder(bucket)] == ["a/", "ab/", "z"]
    assert list(objects.list_folder(f"{bucket}/none")) == []
    assert [found.uri for found in objects.list_tree(f"{bucket}/a/b")] == [
        f"{bucket}/a/b/2.jpg",
        f"{bucket}/a/b/3.jpg",
    ]


LISTINGS: dict[str, Callable[[str], object]] = {
    "list_folder": lambda folder: [entry.name for entry in objects.list_folder(folder)],
    "list_tree": lambda folder: [found.uri for found in objects.list_tree(folder)],
    "list_names": lambda folder: objects.list_names(folder, "", first="2"),
    "is_folder": objects.is_folder,
    "check_bucket": objects.check_bucket,
    "files.entries": lambda folder: [found.name for found in files.entries(folder)],
    "listing.entries": lambda folder: [name for name, _ in listing.entries(folder)],
    "CachedPages": lambda folder: CachedPages().find(f"{folder}/8.jpg", f"{folder}/") is not None,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_with_incomplete_json_is_complete_or_raises(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(cloud, "_FIRST_WAIT_SECONDS", 0.01)
    bucket_server.page_size = 2
    for number in range(9):
        bucket_server.put(f"{bucket}/a/{number}.jpg", b"1")
    undisturbed = LISTINGS[name](f"{bucket}/a")

    bucket_server.faults = Faults(1, kinds=("cut",))  # each page three times, then it comes
    assert LISTINGS[name](f"{bucket}/a") == undisturbed
    assert bucket_server.faults.injected["cut"] >= 3

    monkeypatch.setattr("tests.buckets.faults._IN_A_ROW", 10_000)
    with pytest.raises(OSError) as caught:
        LISTINGS[name](f"{bucket}/a")
    assert caught.value.errno == errno.EIO
    assert caught.value.filename.startswith(bucket)


@pytest.mark.slow
@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"items": [{"name": "a'])
def test_a_listing_that_is_no_listing_raises(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setattr(cloud, "_FIRST_WAIT_SECONDS", 0.01)
    bucket_server.put(f"{bucket}/a/1.jpg", b"1")
    monkeypatch.setitem(
        bucket_server._service._handlers,
        "list",
        lambda call: Answer(200, body, {"Content-Type": "text/plain"}),
    )
    for listed in LISTINGS.values():
        with pytest.raises(OSError) as caught:
            listed(f"{bucket}/a")
        assert caught.value.errno == errno.EIO


def test_what_is_a_folder(bucket: str, bucket_server: BucketServer) -> None:
    bucket_server.put(f"{bucket}/a/b.jpg", b"1")
    assert objects.is_folder(bucket)
    assert objects.is_folder(f"{bucket}/a")
    assert objects.is_folder(f"{bucket}/a/")
    assert not objects.is_folder(f"{bucket}/a/b.jpg")
    assert not objects.is_folder(f"{bucket}/a/b")
    assert not objects.is_folder("gs://no-such-bucket")
    objects.check_bucket(f"{bucket}/none/yet")
    with pytest.raises(FileNotFoundError):
        objects.check_bucket("gs://no-such-bucket/a")


def test_an_object_is_read_in_order_in_few_requests(bucket: str, bucket_server: BucketServer) -> None:
    data = bytes(range(256)) * 40_000  # 10 MB
    bucket_server.put(f"{bucket}/labels.csv", data)
    bucket_server.clear()
    with objects.open_object(f"{bucket}/labels.csv") as file:
        assert file.read(10) == data[:10]
        assert b"".join(iter(lambda: file.read(100_000), b"")) == data[10:]
        assert file.seek(-3, 2) == len(data) - 3
        assert file.read() == data[-3:]
    assert kinds(bucket_server)["get-media"] <= 5
    with pytest.raises(FileNotFoundError):
        objects.open_object(f"{bucket}/none")


def test_files_of_a_bucket_and_of_a_disk_are_alike(
    bucket: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    """The same calls, and the same answers."""

    def story(root: str) -> list[object]:
        told: list[object] = []
        for name in ("a.txt", "b/c.txt", "b/d.txt"):
            files.make_folder(f"{root}/{name}".rpartition("/")[0])
            if root.startswith("gs://"):
                objects.write(f"{root}/{name}", name.encode())
            else:
                Path(f"{root}/{name}").write_text(name)
        told += [
            files.exists(f"{root}/a.txt"),
            files.exists(f"{root}/none"),
            files.is_file(f"{root}/b/c.txt"),
        ]
        told += [files.is_own_folder(f"{root}/b"), files.is_own_folder(f"{root}/a.txt")]
        told += [
            (entry.name, entry.is_folder, entry.is_folder or entry.size) for entry in files.entries(root)
        ]
        told += [
            files.entries(f"{root}/none"),
            dict(files.sizes(f"{root}/b")),
        ]
        told.append(files.taken(root, ["a.txt", "b/c.txt", "b/x", "x/y"]))
        told += [files.read_bytes(f"{root}/a.txt"), files.read_text(f"{root}/b/c.txt")]
        with files.open_stream(f"{root}/b/d.txt") as file:
            told.append(file.read())
        for missing in (files.read_bytes, files.remove):
            with pytest.raises(FileNotFoundError):
                missing(f"{root}/none")
        files.replace(f"{root}/a.txt", f"{root}/b/c.txt")
        told += [files.read_text(f"{root}/b/c.txt"), files.exists(f"{root}/a.txt")]
        with pytest.raises(FileNotFoundError):
            files.replace(f"{root}/none", f"{root}/b/c.txt")
        files.remove_if_there(f"{root}/b/d.txt", f"{root}/none")
        told.append([entry.name for entry in files.entries(f"{root}/b")])
        files.remove_all(entry for entry in files.entries(root) if entry.name == "b")
        told.append(files.entries(root))
        return told

    assert story(f"{bucket}/out") == story(str(tmp_path))


def test_reading_ahead_asks_for_several_at_a_time(bucket: str, bucket_server: BucketServer) -> None:
    for number in range(4):
        bucket_server.put(f"{bucket}/{number}", b"%d" % number)
    together = threading.Barrier(4, timeout=20)
    read = objects.read

    def waits(uri: str) -> bytes:
        together.wait()  # nobody gets on unless four have asked
        return read(uri)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "read", waits)
        begun = [ImageReader().begin(ImageRef(f"{bucket}/{number}")) for number in range(4)]
        assert [future and future.result() for future in begun] == [b"0", b"1", b"2", b"3"]


def test_credentials_are_not_searched_for_an_emulator(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("google.auth.default", lambda **_: pytest.fail("searched"))
    assert cloud.is_anonymous()
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    monkeypatch.setenv(cloud.NO_AUTH, "1")
    assert cloud.is_anonymous()


def test_a_small_container_is_asked_for_once(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(range(256)) * 20_000  # 5 MB, in pieces of 4
    uri = f"{bucket}/images.idx"
    bucket_server.put(uri, data)
    refs = [ImageRef(uri, 700 * n, 700, version=int(bucket_server.generation(uri))) for n in range(50)]
    bucket_server.clear()
    begun = [ImageReader().begin(ref) for ref in refs]
    assert [future and future.result() for future in begun] == [
        data[700 * n : 700 * (n + 1)] for n in range(50)
    ]
    assert kinds(bucket_server) == {"get-metadata": 1, "get-media": 2}
    last = ImageRef(uri, len(data) - 5, None, version=refs[0].version)
    assert ImageReader().read(last) == data[-5:]
    with pytest.raises(BadInput, match="out of range"):
        ImageReader().read(ImageRef(uri, len(data) - 5, 6, version=refs[0].version))
    # One that is replaced is not read from the copy.
    bucket_server.put(uri, b"other")
    replaced = ImageRef(uri, 1, 2, version=int(bucket_server.generation(uri)))
    assert ImageReader().read(replaced) == b"th"
    # A large one is read in ranges.
    monkeypatch.setattr(containers, "_LARGEST_BYTES", 4)
    bucket_server.put(uri, b"large")
    bucket_server.clear()
    large = ImageRef(uri, 1, 2, version=int(bucket_server.generation(uri)))
    assert [ImageReader().read(large) for _ in range(2)] == [b"ar", b"ar"]
    assert kinds(bucket_server) == {"get-metadata": 1, "get-media": 2}


def test_a_copy_is_checked(bucket: str, bucket_server: BucketServer, tmp_path: Path) -> None:
    bucket_server.put(f"{bucket}/a", b"12345")
    found = objects.stat(f"{bucket}/a")
    assert found is not None
    with open(tmp_path / "a", "wb") as file:
        objects.download(found, file)
    assert (tmp_path / "a").read_bytes() == b"12345"
    with open(tmp_path / "b", "wb") as file, pytest.raises(OSError, match="checksum does not match"):
        objects.download(found._replace(crc32c="AAAAAA=="), file)


def test_a_glance_lists_a_folder_once_and_not_to_its_end(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_GLANCED", 4)
    bucket_server.page_size = 2
    for number in range(9):
        bucket_server.put(f"{bucket}/a/{number}.jpg", b"1")
    bucket_server.clear()
    with listing.glance():
        first = [listing.entries(f"{bucket}/a") for _ in range(3)]
    assert kinds(bucket_server) == {"list": 2}
    assert [name for name, _ in first[2]] == [f"{number}.jpg" for number in range(4)]
    assert len(listing.entries(f"{bucket}/a")) == 9
