"""Objects of a bucket: each operation, what it asks for, and what its faults are."""

import errno
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recordmill.transforms.records import BadInput, ImageRef
from recordmill.transforms.storage import files, gcs, gcs_client, listing
from recordmill.transforms.storage.confinement import CachedPages
from recordmill.transforms.storage.file_system import NEW, ChangedError, Entry, file_system
from recordmill.transforms.storage.gcs import GcsFileSystem
from recordmill.transforms.storage.reader import ImageReader
from tests.buckets.calls import Answer
from tests.buckets.server import BucketServer, Drop, Faults

GCS = GcsFileSystem()


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
    assert gcs_client.client() is gcs_client.client()
    with ThreadPoolExecutor(4) as threads:
        assert {id(client) for client in threads.map(lambda _: gcs_client.client(), range(8))} == {
            id(gcs_client.client())
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
    assert gcs._read_range(uri, 0, 5, generation) == b"first"
    bucket_server.put(uri, b"other")
    with pytest.raises(ChangedError, match="replaced while the job read it"):
        gcs._read_range(uri, 0, 5, generation)


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
    monkeypatch.setattr(gcs, "_UPLOAD_PIECE", 1 << 18)
    monkeypatch.setattr(gcs_client, "_FIRST_WAIT_SECONDS", 0.01)
    gcs_client._retry.cache_clear()
    data = bytes(range(256)) * 300
    (tmp_path / "large").write_bytes(data * 30)
    bucket_server.faults = Faults(0.3, seed=3, kinds=(kind,))
    for number in range(8):
        uri = f"{bucket}/{number}"
        assert GCS.write(uri, [data]).size == len(data)
        assert GCS.read(uri) == data
        assert GCS.find(uri) is not None
        GCS.link(uri, f"{uri}-copy")
        GCS.move(f"{uri}-copy", f"{uri}-moved")
    GCS.put(str(tmp_path / "large"), f"{bucket}/large")
    injected = bucket_server.faults.injected.total()
    assert [found.path for found in GCS.list_below(bucket)] == sorted(
        [f"{bucket}/large", *(f"{bucket}/{number}{end}" for number in range(8) for end in ("", "-moved"))]
    )
    bucket_server.faults = None
    assert injected > 3
    assert bucket_server.get(f"{bucket}/large") == data * 30
    assert {bucket_server.get(f"{bucket}/{number}-moved") for number in range(8)} == {data}
    gcs_client._retry.cache_clear()


def test_the_answer_that_there_is_none_may_be_cut_short(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gcs_client, "_FIRST_WAIT_SECONDS", 0.01)
    bucket_server.faults = Faults(0.6, seed=1, kinds=("truncated",))
    for number in range(12):
        with pytest.raises(FileNotFoundError):
            GCS.read(f"{bucket}/{number}")
    assert bucket_server.faults.injected.total() > 5


def test_a_fault_that_does_not_pass_is_no_fault_of_the_image(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gcs_client, "_RETRY_SECONDS", 0.3)
    gcs_client._retry.cache_clear()
    bucket_server.put(f"{bucket}/a.jpg", b"12345")
    bucket_server.faults = Faults(1.0, kinds=(503,))
    bucket_server.faults._in_a_row = Counter()
    monkeypatch.setattr("tests.buckets.faults._IN_A_ROW", 10_000)
    try:
        with pytest.raises(OSError, match="503") as caught:
            ImageReader().read(ImageRef(f"{bucket}/a.jpg"))
    finally:
        gcs_client._retry.cache_clear()
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, f"{bucket}/a.jpg")


def test_one_of_many_makes_an_object(bucket: str, bucket_server: BucketServer) -> None:
    def make(number: int) -> bool:
        try:
            GCS.write(f"{bucket}/lock", [b"%d" % number], NEW)
        except ChangedError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(make, range(8))) == 1


def test_a_write_whose_answer_is_lost_is_still_ours(bucket: str, bucket_server: BucketServer) -> None:
    def lose(number: int, request: object, when: str) -> None:
        if number == 1 and when == "after":
            raise Drop

    bucket_server.on_mutation(lose)
    written = GCS.write(f"{bucket}/lock", [b"mine"], NEW)
    assert str(written.generation) == bucket_server.generation(f"{bucket}/lock")
    assert kinds(bucket_server)["insert"] == 2
    with pytest.raises(ChangedError):
        GCS.write(f"{bucket}/lock", [b"another's"], NEW)
    assert bucket_server.get(f"{bucket}/lock") == b"mine"


def test_a_folder_is_listed_in_pages(bucket: str, bucket_server: BucketServer) -> None:
    names = ["a/", "a/1.jpg", "a/b/2.jpg", "a/b/3.jpg", "a/c.jpg", "a/ü", "ab/4.jpg", "z"]
    for name in names:
        bucket_server.put(f"{bucket}/{name}", name.encode())
    bucket_server.page_size = 2
    bucket_server.clear()
    listed = list(GCS.list(f"{bucket}/a"))
    assert [entry.name for entry in listed] == ["1.jpg", "b/", "c.jpg", "ü"]
    assert kinds(bucket_server) == {"list": 3}
    assert listed[1] == Entry("b/", f"{bucket}/a/b")
    assert listed[0].status == GCS.find(f"{bucket}/a/1.jpg")
    assert [entry.name for entry in GCS.list(bucket)] == ["a/", "ab/", "z"]
    assert list(GCS.list(f"{bucket}/none")) == []
    assert [found.path for found in GCS.list_below(f"{bucket}/a/b")] == [
        f"{bucket}/a/b/2.jpg",
        f"{bucket}/a/b/3.jpg",
    ]


LISTINGS: dict[str, Callable[[str], object]] = {
    "list": lambda folder: [entry.name for entry in GCS.list(folder)],
    "list_below": lambda folder: [found.path for found in GCS.list_below(folder)],
    "list_page": lambda folder: GCS.list_page(folder, first="2"),
    "is_folder": GCS.is_folder,
    "check_output": GCS.check_output,
    "contents": lambda folder: [found.name for found in GCS.contents(folder)],
    "listing.entries": lambda folder: [found.name for found in listing.entries(folder)],
    "CachedPages": lambda folder: CachedPages().find(f"{folder}/8.jpg", f"{folder}/") is not None,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_with_incomplete_json_is_complete_or_raises(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(gcs_client, "_FIRST_WAIT_SECONDS", 0.01)
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
    monkeypatch.setattr(gcs_client, "_FIRST_WAIT_SECONDS", 0.01)
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
    assert GCS.is_folder(bucket)
    assert GCS.is_folder(f"{bucket}/a")
    assert GCS.is_folder(f"{bucket}/a/")
    assert not GCS.is_folder(f"{bucket}/a/b.jpg")
    assert not GCS.is_folder(f"{bucket}/a/b")
    assert not GCS.is_folder("gs://no-such-bucket")
    GCS.check_output(f"{bucket}/none/yet")
    with pytest.raises(ValueError, match="there is no bucket 'no-such-bucket'"):
        GCS.check_output("gs://no-such-bucket/a")


def test_an_object_is_read_in_order_in_few_requests(bucket: str, bucket_server: BucketServer) -> None:
    data = bytes(range(256)) * 40_000  # 10 MB
    bucket_server.put(f"{bucket}/labels.csv", data)
    bucket_server.clear()
    with GCS.open(f"{bucket}/labels.csv") as file:
        assert file.read(10) == data[:10]
        assert b"".join(iter(lambda: file.read(100_000), b"")) == data[10:]
        assert file.seek(-3, 2) == len(data) - 3
        assert file.read() == data[-3:]
    assert kinds(bucket_server)["get-media"] <= 5
    with pytest.raises(FileNotFoundError):
        GCS.open(f"{bucket}/none")


def story(root: str) -> list[object]:
    """Calls of every kind in a folder, and what came of them."""
    system = file_system(root)
    results: list[object] = []
    for name in ("a.txt", "b/c.txt", "b/d.txt"):
        system.make_folder(f"{root}/{name}".rpartition("/")[0])
        system.write(f"{root}/{name}", [name.encode()])
    results += [system.exists(f"{root}/{name}") for name in ("a.txt", "none")]
    results += [system.is_file(f"{root}/b/c.txt"), system.is_folder(f"{root}/b")]
    results += [
        system.is_folder(f"{root}/a.txt"),
        system.is_file(f"{root}/b"),
        system.is_file(f"{root}/a.txt/"),
    ]
    results += [system.is_there(f"{root}/{name}") for name in ("b", "a.txt", "none", "a.txt/none")]
    results += [system.is_link(f"{root}/a.txt"), system.stat(f"{root}/a.txt").size]
    results += [(entry.name, entry.is_folder) for entry in system.contents(root)]
    results += [system.contents(f"{root}/none"), system.sizes(f"{root}/b"), system.sizes(root)]
    results += [entry.name for entry in system.list_below(root)]
    pages = (system.list_page(root, most=2), system.list_page(root, "b/", "b/d"))
    results += [([entry.name for entry in page], more) for page, more in pages]
    results.append(system.existing(root, ["a.txt", "b/c.txt", "b/x", "x/y"]))
    results += [files.read_bytes(f"{root}/a.txt"), files.read_text(f"{root}/b/c.txt")]
    results.append(system.sha256(f"{root}/a.txt"))
    with files.open_named(f"{root}/b/d.txt") as file:
        results.append(file.read())
    for missing in (system.read, system.remove, system.stat, system.open):
        with pytest.raises(FileNotFoundError):
            missing(f"{root}/none")
    with pytest.raises(ChangedError):
        system.write(f"{root}/a.txt", [b"new"], NEW)
    with pytest.raises(ChangedError):
        system.remove(f"{root}/a.txt", 1)
    written = system.write(f"{root}/a.txt", [b"n", b"ew"], system.stat(f"{root}/a.txt").generation)
    results += [written == system.find(f"{root}/a.txt"), system.read(f"{root}/a.txt")]
    results.append(system.is_unchanged(f"{root}/a.txt", written.version, b"new"))
    results.append(system.is_unchanged(f"{root}/a.txt", 1, b"new"))
    system.link(f"{root}/a.txt", f"{root}/b/e.txt")
    results.append(system.stat(f"{root}/b/e.txt").stamp == written.stamp)
    system.move(f"{root}/a.txt", f"{root}/b/c.txt")
    results += [files.read_text(f"{root}/b/c.txt"), system.exists(f"{root}/a.txt")]
    with pytest.raises(FileNotFoundError):
        system.move(f"{root}/none", f"{root}/b/c.txt")
    system.remove(f"{root}/b/e.txt", system.stat(f"{root}/b/e.txt").generation)
    system.remove_existing(f"{root}/b/d.txt", f"{root}/none")
    results.append([entry.name for entry in system.contents(f"{root}/b")])
    system.remove_entries(entry for entry in system.contents(root) if entry.name == "b/")
    results.append(system.contents(root))
    return results


def test_files_of_a_bucket_and_of_a_disk_are_alike(
    bucket: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    assert story(f"{bucket}/out") == story(str(tmp_path))


def test_a_folder_without_a_name_is_not_the_folder_around_it(
    bucket: str, bucket_server: BucketServer
) -> None:
    for name in ("out/a", "out//b", "out/c//d"):
        bucket_server.put(f"{bucket}/{name}", b"1")
    assert [entry.name for entry in GCS.list(f"{bucket}/out")] == ["/", "a", "c/"]
    assert [entry.name for entry in GCS.contents(f"{bucket}/out")] == ["a", "c/"]
    GCS.remove_entries(entry for entry in GCS.list(f"{bucket}/out") if entry.name == "/")
    assert len(bucket_server.names(f"{bucket}/out")) == 3
    GCS.remove_entries(GCS.contents(f"{bucket}/out"))
    assert bucket_server.names(f"{bucket}/out") == [f"{bucket}/out//b"]


def test_a_removal_that_does_not_wait(bucket: str, bucket_server: BucketServer) -> None:
    bucket_server.put(f"{bucket}/lock", b"1")
    with pytest.raises(ChangedError):
        GCS.remove(f"{bucket}/lock", 1, within=5)
    bucket_server.faults = Faults(1, kinds=(503,))
    with pytest.raises(OSError, match="503"):
        GCS.remove(f"{bucket}/lock", within=5)
    bucket_server.faults = None
    bucket_server.clear()
    GCS.remove(f"{bucket}/lock", within=5)
    with pytest.raises(FileNotFoundError):
        GCS.remove(f"{bucket}/lock", within=5)
    assert kinds(bucket_server) == {"delete": 2}


def test_reading_ahead_asks_for_several_at_a_time(bucket: str, bucket_server: BucketServer) -> None:
    for number in range(4):
        bucket_server.put(f"{bucket}/{number}", b"%d" % number)
    together = threading.Barrier(4, timeout=20)
    read = gcs._bounded

    def waits(uri: str, **options: object) -> bytes:
        together.wait()  # nobody gets on unless four have asked
        return read(uri, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gcs, "_bounded", waits)
        begun = [ImageReader().begin(ImageRef(f"{bucket}/{number}")) for number in range(4)]
        assert [future and future.result() for future in begun] == [b"0", b"1", b"2", b"3"]


def test_credentials_are_not_searched_for_an_emulator(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("google.auth.default", lambda **_: pytest.fail("searched"))
    assert gcs_client.is_anonymous()
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    monkeypatch.setenv(gcs_client.NO_AUTH, "1")
    assert gcs_client.is_anonymous()


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
    monkeypatch.setattr(gcs, "_LARGEST_COPY", 4)
    bucket_server.put(uri, b"large")
    bucket_server.clear()
    large = ImageRef(uri, 1, 2, version=int(bucket_server.generation(uri)))
    assert [ImageReader().read(large) for _ in range(2)] == [b"ar", b"ar"]
    assert kinds(bucket_server) == {"get-metadata": 1, "get-media": 2}


def test_a_copy_is_checked(bucket: str, bucket_server: BucketServer, tmp_path: Path) -> None:
    bucket_server.put(f"{bucket}/a", b"12345")
    found = GCS.find(f"{bucket}/a")
    assert found is not None
    with open(tmp_path / "a", "wb") as file:
        gcs._download(f"{bucket}/a", found, file)
    assert (tmp_path / "a").read_bytes() == b"12345"
    with open(tmp_path / "b", "wb") as file, pytest.raises(OSError, match="checksum does not match"):
        gcs._download(f"{bucket}/a", found._replace(crc32c="AAAAAA=="), file)


def test_cached_listings_list_a_folder_once_and_not_to_its_end(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_LISTED", 4)
    bucket_server.page_size = 2
    for number in range(9):
        bucket_server.put(f"{bucket}/a/{number}.jpg", b"1")
    bucket_server.clear()
    with listing.cached_listings():
        first = [listing.entries(f"{bucket}/a") for _ in range(3)]
    assert kinds(bucket_server) == {"list": 2}
    assert [entry.name for entry in first[2]] == [f"{number}.jpg" for number in range(4)]
    assert len(listing.entries(f"{bucket}/a")) == 9
