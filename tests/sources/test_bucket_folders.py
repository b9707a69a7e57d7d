"""The folder source over a bucket: the same as over the same folder on disk, in few requests."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.transforms.records import Failure, ImageRecord, JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.folder import FolderSource
from recordmill.transforms.sources.look import Look
from recordmill.transforms.storage import listing
from recordmill.transforms.storage.file_system import Entry, file_system
from recordmill.transforms.storage.gcs import GcsFileSystem
from tests.buckets.faults import Faults
from tests.buckets.server import BucketServer
from tests.sources.placeless import without_place
from tests.sources.sniffing import sniff

SOURCE = FolderSource()
Item = ImageRecord | Failure


def grow(root: Path, *names: str) -> Path:
    """Makes files, each of as many bytes as its name has."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * len(name.encode()))
    return root


def listed(place: str, **options: object) -> list[Item]:
    return list(SOURCE.read(SourceConfig("folder", place, **options), "/nowhere"))  # type: ignore[arg-type]


def keys(items: list[Item]) -> list[str]:
    return [item.key for item in items if isinstance(item, ImageRecord)]


def faults(items: list[Item]) -> list[tuple[str, str, bool]]:
    return [(item.key, item.reason, item.skipped) for item in items if isinstance(item, Failure)]


@pytest.mark.parametrize(
    ("names", "options"),
    [
        (["b.jpg", "a.png", "c.txt", "d"], {}),
        (["dog/1.jpg", "cat/deep/er/2.jpg", "cat/1.jpg", "top.jpg"], {}),
        (["train/cat/x/1.jpg", "Validation/dog/1.jpg", "test/1.jpg", "1.jpg", "notes/a.txt"], {}),
        (["train/1.jpg", "other/1.jpg"], {}),
        ([".git/1", "__MACOSX/1.jpg", "a/.b.jpg", "a/Thumbs.db", "a/.c/d.jpg", "val/1.jpg"], {}),
        (["a/1.jpg", "a-b/1.jpg", "a.jpg", "a b/1.jpg", "a0.jpg", "aé/1.jpg", "a/b/c.jpg", "a/b.jpg"], {}),
        (
            [
                f"{odd}/{odd}.jpg"
                for odd in ("ü ö", "中", "100%", "%2F", "a#b", "a?b", "a&b=c", "a+b", "\U0001f600")
            ],
            {},
        ),
        (["a\nb/c\nd.jpg", "back\\slash/1.jpg", "'quo\"te'.jpg", "[x]*.jpg"], {}),
        (["a/1.jpg", "a/2.png", "b/1.jpg", "b/2.jpg", "c/1.jpg"], {"exclude": ("b/1*",), "limit": 3}),
        (["x/cat_0.jpg", "x/dog_1.jpg", "x/unknown.jpg"], {"label_pattern": "([a-z]+)_"}),
        ([f"{folder:02}/{file:02}.jpg" for folder in range(12) for file in range(12)], {}),
    ],
)
def test_a_bucket_gives_what_the_disk_gives(
    tmp_path: Path, bucket: str, bucket_server: BucketServer, names: list[str], options: dict[str, object]
) -> None:
    bucket_server.page_size = 5
    bucket_server.upload_folder(grow(tmp_path, *names), f"{bucket}/in")
    for name in ("in-private/1.jpg", "in.jpg", "i/2.jpg", "in0/3.jpg"):
        bucket_server.put(f"{bucket}/{name}", b"x")
    expected = list(map(without_place, listed(str(tmp_path), **options)))
    assert list(map(without_place, listed(f"{bucket}/in", **options))) == expected
    assert list(map(without_place, listed(f"{bucket}/in/", **options))) == expected
    configs = [SourceConfig("folder", place, **options) for place in (str(tmp_path), f"{bucket}/in")]  # type: ignore[arg-type]
    assert SOURCE.split_names(configs[0]) == SOURCE.split_names(configs[1])
    assert sniff(SOURCE, configs[0]) == sniff(SOURCE, configs[1])
    SOURCE.check(configs[1])


def test_a_whole_bucket_is_a_folder(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    bucket_server.upload_folder(grow(tmp_path, "train/cat/1.jpg", "val/dog/2.jpg"), bucket)
    expected = list(map(without_place, listed(str(tmp_path))))
    for place in (bucket, f"{bucket}/"):
        assert list(map(without_place, listed(place))) == expected
        assert detect(SourceConfig("auto", place))[0] == "folder"


def test_a_record_refers_to_the_object_its_size_and_its_version(
    bucket: str, bucket_server: BucketServer
) -> None:
    uri = f"{bucket}/in/ü ö/100%#?.jpg"
    bucket_server.put(uri, b"image")
    stored = file_system(uri).find(uri)
    assert stored is not None
    for place in (f"{bucket}/in", uri):
        (record,) = listed(place)
        assert isinstance(record, ImageRecord) and record.image is not None
        assert (record.image.uri, record.image.offset, record.image.length) == (uri, 0, None)
        assert (record.size, record.image.version) == (5, stored.version)


def test_one_image_file(bucket: str, bucket_server: BucketServer) -> None:
    for name in ("1.jpg", "2.jpg", "notes.txt"):
        bucket_server.put(f"{bucket}/a/{name}", b"x")
    assert keys(listed(f"{bucket}/a/1.jpg")) == ["1.jpg"]
    SOURCE.check(SourceConfig("folder", f"{bucket}/a/1.jpg"))
    with pytest.raises(ValueError, match=r"notes.txt', a file that is not an image by its name"):
        SOURCE.check(SourceConfig("folder", f"{bucket}/a/notes.txt"))


def test_names_that_no_disk_has(bucket: str, bucket_server: BucketServer) -> None:
    names = ["cat/", "cat/1.jpg", "cat", "dog/", "x.jpg", "x.jpg/1.jpg", "a//b.jpg", "//b.jpg", "c/../d.jpg"]
    for name in ["", *names]:
        bucket_server.put(f"{bucket}/in/{name}", b"x")
    items = listed(f"{bucket}/in")
    assert keys(items) == ["cat/1.jpg", "x.jpg", "x.jpg/1.jpg"]
    assert faults(items) == [
        ("/", "folder without a name", False),
        ("a//", "folder without a name", False),
        ("c/../", "hidden", True),
        ("cat", "not an image by name", True),
    ]
    labels = {item.key: item.annotations.labels for item in items if isinstance(item, ImageRecord)}
    assert labels == {"cat/1.jpg": ("cat",), "x.jpg": (), "x.jpg/1.jpg": ("x.jpg",)}


def test_the_output_is_left_out_without_a_word_or_a_request(bucket: str, bucket_server: BucketServer) -> None:
    for name in ("train/1.jpg", "train/out/2.jpg", "out/preview.jpg", "out/x/1.tfrecord", "out-2/1.txt"):
        bucket_server.put(f"{bucket}/in/{name}", b"x")
    skip = (f"{bucket}/in/out", f"{bucket}/in/train/out", "/elsewhere")
    bucket_server.clear()
    items = listed(f"{bucket}/in", skip_dirs=skip)
    assert (keys(items), faults(items)) == (["train/1.jpg"], [("out-2/1.txt", "not an image by name", True)])
    assert isinstance(items[1], ImageRecord) and items[1].split == "train"
    # is it a folder; its names; out-2, whether it holds images, and what; train
    assert len(bucket_server.requests) == 5


def test_a_look_at_a_folder_is_one_request(bucket: str, bucket_server: BucketServer) -> None:
    bucket_server.put(f"{bucket}/in/a.txt", b"x")
    bucket_server.clear()
    assert Look(SourceConfig("auto", f"{bucket}/in")).names() == ["a.txt"]
    assert len(bucket_server.requests) == 1
    assert Look(SourceConfig("auto", f"{bucket}/in/a.txt")).names() == []


def test_a_request_a_folder_and_one_a_page(bucket: str, bucket_server: BucketServer) -> None:
    for folder in range(40):
        for file in range(25):
            bucket_server.put(f"{bucket}/in/{folder:02}/{file:02}.jpg", b"x")
    bucket_server.page_size = 10
    bucket_server.clear()
    assert len(keys(listed(f"{bucket}/in"))) == 1000
    # whether it is a folder; 4 pages of 40 folders; 3 pages of each folder; ends are told with the last page
    assert {request.kind for request in bucket_server.requests} == {"list"}
    assert len(bucket_server.requests) == 1 + 4 + 40 * 3
    bucket_server.clear()
    assert len(keys(listed(f"{bucket}/in", limit=1))) == 1
    assert len(bucket_server.requests) == 1 + 4 + 3
    bucket_server.page_size = 1000
    bucket_server.clear()
    SOURCE.check(SourceConfig("folder", f"{bucket}/in"))
    assert len(bucket_server.requests) < 8


def test_what_is_listed_ahead_is_bounded(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in range(30):
        for file in range(9):
            bucket_server.put(f"{bucket}/in/{folder:02}/{file}.jpg", b"x")
    expected = list(map(without_place, listed(f"{bucket}/in")))
    bucket_server.page_size = 2
    monkeypatch.setattr(listing, "_HELD_AHEAD", 3)
    items: Iterator[Item] = SOURCE.read(SourceConfig("folder", f"{bucket}/in"), "/nowhere")
    bucket_server.clear()
    seen = [without_place(next(items)) for _ in range(9 * 15)]
    # whether it is a folder; 15 pages of 30 folders; 5 of each one visited, 2 of each that is begun
    assert len(bucket_server.requests) <= 1 + 15 + 15 * 5 + listing._AHEAD * 2
    assert seen + list(map(without_place, items)) == expected


def test_faults_that_pass_do_not_show(bucket: str, bucket_server: BucketServer) -> None:
    for folder in range(30):
        for file in range(5):
            bucket_server.put(f"{bucket}/in/{folder:02}/{file}.jpg", b"x")
    expected = listed(f"{bucket}/in")
    bucket_server.page_size = 3
    bucket_server.faults = Faults(0.1, seed=1, kinds=(503, 429, "reset"))
    assert listed(f"{bucket}/in") == expected
    assert sum(bucket_server.faults.injected.values()) > 0


def test_a_folder_that_may_not_be_listed_is_a_failure_and_a_lasting_fault_fails_the_job(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/1.jpg", "b/1.jpg", "c/1.jpg"):
        bucket_server.put(f"{bucket}/in/{name}", b"x")
    really, fault = GcsFileSystem.list, PermissionError(errno.EACCES, "no", f"{bucket}/in/b")

    def refuse(system: GcsFileSystem, uri: str, *between: str, most: int | None = None) -> Iterator[Entry]:
        if uri.endswith("/b"):
            raise fault
        return really(system, uri, *between, most=most)

    monkeypatch.setattr(GcsFileSystem, "list", refuse)
    items = listed(f"{bucket}/in")
    assert (keys(items), faults(items)) == (["a/1.jpg", "c/1.jpg"], [("b/", "permission denied", False)])
    fault = OSError(errno.EIO, "HTTP 503: no", f"{bucket}/in/b")  # type: ignore[assignment]
    with pytest.raises(JobError, match=f"cannot be listed: http 503: no, reading '{bucket}/in/b'$"):
        listed(f"{bucket}/in")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gs://nowhere/in", "--input is 'gs://nowhere/in': there is no such bucket$"),
        ("gs://nowhere", "--input is 'gs://nowhere': there is no such bucket$"),
        ("{bucket}/nothing", "--input is '{bucket}/nothing': there is no such object or folder$"),
        ("{bucket}/i", "--input is '{bucket}/i': there is no such object or folder$"),
        (
            "{bucket}/text",
            r"--input is '{bucket}/text': there is no image to convert \(2 not an image by name\)",
        ),
        ("gs://", "--input is 'gs://'; it names no bucket"),
        ("gs:///in", "--input is 'gs:///in'; it names no bucket"),
        ("{bucket}/in/../x", "--input is '{bucket}/in/../x'; names in a bucket are read to the letter"),
        ("{bucket}//in", "--input is '{bucket}//in'; names in a bucket are read to the letter"),
        ("s3://b/x", "--input is 's3://b/x'; local paths and gs:// URIs are read$"),
        ("https://h/x.jpg", "--input is 'https://h/x.jpg'; local paths and gs:// URIs are read$"),
    ],
)
def test_bad_inputs(bucket: str, bucket_server: BucketServer, name: str, message: str) -> None:
    for other in ("in/1.jpg", "text/1.txt", "text/2.txt"):
        bucket_server.put(f"{bucket}/{other}", b"x")
    with pytest.raises(ValueError, match=message.format(bucket=bucket)) as caught:
        SOURCE.check(SourceConfig("folder", name.format(bucket=bucket)))
    assert "\n" not in str(caught.value)


def test_image_roots_are_looked_at_too(bucket: str, bucket_server: BucketServer) -> None:
    bucket_server.put(f"{bucket}/in/1.jpg", b"x")
    for root, message in (
        (bucket, "which --source folder uses only for links, .*; remove it, or give another --source"),
        (f"{bucket}/none", "there is no such folder"),
        (f"{bucket}/in/1.jpg", "there is no such folder"),
        ("ftp://h/x", "local paths and gs:// URIs are read"),
    ):
        with pytest.raises(ValueError, match=f"--image_root is '{root}'[:;,] {message}"):
            SOURCE.check(SourceConfig("folder", f"{bucket}/in", image_roots=(root,)))


def test_a_bucket_that_may_not_be_read(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(system: GcsFileSystem, uri: str) -> bool:
        raise PermissionError(errno.EACCES, "caller has no storage.objects.list access; log in", uri)

    monkeypatch.setattr(GcsFileSystem, "is_folder", refuse)
    with pytest.raises(
        ValueError, match=f"--input is '{bucket}/in': caller has no storage.objects.list access"
    ):
        detect(SourceConfig("auto", f"{bucket}/in"))


def test_an_error_lists_no_whole_bucket(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        bucket_server.put(f"{bucket}/in/{number:02}.txt", b"x")
    bucket_server.put(f"{bucket}/in/", b"")
    with pytest.raises(ValueError, match="no input of a supported kind: it has 60 .txt; --source may be"):
        detect(SourceConfig("auto", f"{bucket}/in"))
    monkeypatch.setattr("recordmill.transforms.sources.look._NAMES_REMOTE", 20)
    monkeypatch.setattr("recordmill.transforms.sources.detection.rules._SEARCHED", 20)
    with pytest.raises(ValueError, match="no input of a supported kind: it has (19|20) .txt"):
        detect(SourceConfig("auto", f"{bucket}/in"))
    with pytest.raises(ValueError, match="it is a file with the extension .txt"):
        detect(SourceConfig("auto", f"{bucket}/in/00.txt"))
