"""Plain archives of images: what is in them by range, and what is refused."""

from __future__ import annotations

import io
import os
import tarfile
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from recordmill.transforms.records import Failure, ImageRecord
from recordmill.transforms.sources.archives.archive import ArchiveSource
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.source import Item
from recordmill.transforms.storage.reader import ImageReader
from tests.buckets.server import BucketServer
from tests.sources.sniffing import sniff

SOURCE = ArchiveSource()
FILES = {
    "photos/train/cat/1.jpg": b"one" * 100,
    "photos/train/dog/deep/2.png": b"two",
    "photos/test/cat/3.jpg": b"three" * 50,
    "photos/README": b"no",
    "__MACOSX/photos/._1.jpg": b"no",
}


def tar_bytes(files: Mapping[str, bytes], mode: str = "w") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def zip_bytes(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made.getvalue()


def packed(name: str, files: Mapping[str, bytes]) -> bytes:
    if name.endswith(".zip"):
        return zip_bytes(files)
    return tar_bytes(files, "w" if name.endswith(".tar") else "w:gz")


def listed(place: object, scratch: object, **options: object) -> list[Item]:
    config = SourceConfig("archive", str(place), **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return list(SOURCE.read(config, str(scratch)))


def records(items: list[Item]) -> list[ImageRecord]:
    return [item for item in items if isinstance(item, ImageRecord)]


def failures(items: list[Item]) -> list[tuple[str, str, bool]]:
    return [(item.key, item.reason, item.skipped) for item in items if isinstance(item, Failure)]


def contents(items: list[Item]) -> dict[str, bytes]:
    reader = ImageReader()
    return {record.key: reader.read(record.image) for record in records(items) if record.image}


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tgz", "a.zip"])
@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_splits_labels_and_bytes(
    tmp_path: Path, bucket: str, bucket_server: BucketServer, name: str, place: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(packed(name, FILES))
    bucket_server.upload_folder(tmp_path / "in", f"{bucket}/in")
    items = listed(f"{tmp_path if place == 'disk' else bucket}/in/{name}", tmp_path)
    found = {record.key: (record.split, record.annotations.labels) for record in records(items)}
    assert found == {
        "photos/train/cat/1.jpg": ("train", ("cat",)),
        "photos/train/dog/deep/2.png": ("train", ("dog",)),
        "photos/test/cat/3.jpg": ("test", ("cat",)),
    }
    assert contents(items) == {key: FILES[key] for key in found}
    assert failures(items) == [
        ("photos/README", "not an image by name", True),
        ("__MACOSX/photos/._1.jpg", "hidden", True),
    ]


def test_a_folder_of_archives(tmp_path: Path) -> None:
    (tmp_path / "train.zip").write_bytes(zip_bytes({"cat/1.jpg": b"1"}))
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "b.tar").write_bytes(tar_bytes({"1.jpg": b"2"}))
    (tmp_path / "bad.zip").write_bytes(b"no archive")
    (tmp_path / "notes.txt").write_bytes(b"x")
    items = listed(tmp_path, "/nowhere")
    assert {(record.key, record.split, record.annotations.labels) for record in records(items)} == {
        ("train/cat/1.jpg", "train", ("cat",)),
        ("test/b/1.jpg", "test", ()),
    }
    assert failures(items) == [
        ("bad", "not a ZIP file", False),
        ("notes.txt", "not an archive by name", True),
    ]
    assert sniff(SOURCE, SourceConfig("auto", str(tmp_path))) is None  # the first one is none


@pytest.mark.parametrize(
    ("folders", "found"),
    [
        (
            ("dataset/images/train/cat", "dataset/images/val2017/dog"),
            [("train", ("cat",)), ("val", ("dog",))],
        ),
        (("images/train", "images/test"), [("train", ()), ("test", ())]),
        (("a/b/train2017/cat", "a/b/test2017/cat"), [("train", ("cat",)), ("test", ("cat",))]),
        (("a/photos/cat", "a/photos/dog"), [(None, ("cat",)), (None, ("dog",))]),
        (("ds/images", "ds/images"), [(None, ()), (None, ())]),
        (("images", "apple"), [(None, ("images",)), (None, ("apple",))]),
        (("photos/cat", "photos/cat"), [(None, ("cat",)), (None, ("cat",))]),
        (("train/cat", "train/dog"), [("train", ("cat",)), ("train", ("dog",))]),
        (("cat", "cat"), [(None, ("cat",)), (None, ("cat",))]),
        (("", "cat"), [(None, ()), (None, ("cat",))]),
        (("ds", "ds/cat", "ds/dog"), [(None, ()), (None, ("cat",)), (None, ("dog",))]),
        (("ds", "ds/train", "ds/test"), [(None, ()), ("train", ()), ("test", ())]),
        (("ds", "ds", "ds/cat", "ds/dog"), [(None, ("ds",))] * 4),
        (("ds", "ds/cat"), [(None, ("ds",))] * 2),
    ],
)
def test_folders_that_hold_all(tmp_path: Path, folders: tuple[str, ...], found: list[object]) -> None:
    files = {f"{folder}/{number}.jpg".lstrip("/"): b"1" for number, folder in enumerate(folders)}
    for name in ("a.zip", "a.tar"):
        (tmp_path / name).write_bytes(packed(name, files))
        items = records(listed(tmp_path / name, tmp_path))
        assert [(one.split, one.annotations.labels) for one in items] == found


@pytest.mark.parametrize("name", ["../1.jpg", "/1.jpg", "a/../../1.jpg", "C:/1.jpg", "a\\..\\1.jpg"])
def test_names_that_lead_outside(tmp_path: Path, name: str) -> None:
    for archive in ("a.tar", "a.zip", "a.tgz"):
        (tmp_path / archive).write_bytes(packed(archive, {name: b"x", "in.jpg": b"y"}))
        items = listed(tmp_path / archive, tmp_path)
        assert contents(items) == {"in.jpg": b"y"}
        assert failures(items) == [(name, "outside the archive", False)]


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_links_and_devices_in_a_tar(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("a.tar" if mode == "w" else "a.tar.gz")
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        info = tarfile.TarInfo("1.jpg")
        info.size = 5
        archive.addfile(info, io.BytesIO(b"12345"))
        for name, kind, leads_to in (
            ("hard.jpg", tarfile.LNKTYPE, "1.jpg"),
            ("gone.jpg", tarfile.LNKTYPE, "none.jpg"),
            ("soft.jpg", tarfile.SYMTYPE, "/etc/passwd"),
            ("pipe.jpg", tarfile.FIFOTYPE, ""),
        ):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, leads_to
            archive.addfile(link)
    items = listed(path, tmp_path)
    assert contents(items) == {"1.jpg": b"12345", "hard.jpg": b"12345"}
    assert failures(items) == [(name, "not a file", False) for name in ("gone.jpg", "soft.jpg", "pipe.jpg")]


@pytest.mark.parametrize("name", ["a.tar", "a.tgz"])
def test_what_is_before_damage_is_read(tmp_path: Path, name: str) -> None:
    files = {f"{at}.jpg": os.urandom(3000) for at in range(4)}
    whole = packed(name, files)
    (tmp_path / name).write_bytes(whole[: 9000 if name == "a.tar" else len(whole) * 7 // 10])
    items = listed(tmp_path / name, tmp_path)
    assert contents(items) == {key: files[key] for key in ("0.jpg", "1.jpg")}
    assert failures(items)[-1] == (name, "damaged archive", False)


def test_a_header_that_is_none_is_damage(tmp_path: Path) -> None:
    data = tar_bytes({"1.jpg": b"1", "2.jpg": b"2"})
    (tmp_path / "a.tar").write_bytes(data[:1024] + b"\xff" * 512 + data[1536:])
    items = listed(tmp_path / "a.tar", tmp_path)
    assert ([record.key for record in records(items)], failures(items)) == (
        ["1.jpg"],
        [("a.tar", "damaged archive", False)],
    )


def test_zip_members_that_are_not_read(tmp_path: Path) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("1.jpg", b"first")
        archive.writestr("1.jpg", b"second")
        archive.writestr("bz.jpg", b"x" * 100, zipfile.ZIP_BZIP2)
        link = zipfile.ZipInfo("link.jpg")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    items = listed(tmp_path / "a.zip", tmp_path)
    assert [record.key for record in records(items)] == ["1.jpg"]
    assert [(key, reason) for key, reason, _ in failures(items)] == [
        ("1.jpg", "another member of the same name"),
        ("bz.jpg", "compression is not read"),
        ("link.jpg", "not a file"),
    ]


def test_members_that_share_bytes_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("1.jpg", b"first")
        archive.writestr("2.jpg", b"second")
        archive.infolist()[1].header_offset = 0
    items = listed(tmp_path / "a.zip", tmp_path)
    assert failures(items) == [("2.jpg", "members overlap", False)]


def test_limit_keeps_what_was_unpacked(tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_bytes(packed("a.tgz", FILES))
    items = listed(tmp_path / "a.tgz", tmp_path, limit=1)
    assert contents(items) == {"photos/train/cat/1.jpg": FILES["photos/train/cat/1.jpg"]}


def test_selection_and_label_pattern(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zip_bytes({"cat_1.jpg": b"1", "dog_1.jpg": b"2", "no.jpg": b"3"}))
    items = listed(tmp_path / "a.zip", tmp_path, label_pattern="^([a-z]+)_", exclude=("dog*",))
    assert [record.annotations.labels for record in records(items)] == [("cat",)]
    assert [reason for _, reason, _ in failures(items)] == [
        "excluded by --include/--exclude",
        "label pattern does not match",
    ]


def test_calls_that_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"--input is .*a.zip': not a ZIP file"):
        listed(tmp_path / "a.zip", tmp_path)
    with pytest.raises(ValueError, match="--image_column is 'x'"):
        listed(tmp_path / "a.zip", tmp_path, image_column="x")
    (tmp_path / "a.zip").unlink()
    with pytest.raises(ValueError, match="no file there is called .tar"):
        listed(tmp_path, tmp_path)


@pytest.mark.corpus
def test_real_zips(corpus: Path, tmp_path: Path) -> None:
    items = listed(f"{corpus}/layouts/image_zip_dataset", tmp_path)
    found = contents(items)
    assert sorted(found) == ["1/1.jpg", "2/2.jpg"]
    assert all(data.startswith(b"\xff\xd8\xff") and len(data) == 631 for data in found.values())


@pytest.mark.parametrize(
    ("written", "system", "read"),
    [
        ("café/ü.jpg".encode(), 3, "café/ü.jpg"),  # Info-ZIP and macOS: UTF-8 without its flag
        (b"caf\x82/1.jpg", 0, "café/1.jpg"),
        (b"cat\\1.jpg", 0, "cat/1.jpg"),  # .NET and PowerShell
    ],
)
def test_names_of_zip_members(tmp_path: Path, written: bytes, system: int, read: str) -> None:
    class Info(zipfile.ZipInfo):
        def _encodeFilenameFlags(self) -> tuple[bytes, int]:
            return written, 0

    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        info = Info("x")
        info.create_system = system
        archive.writestr(info, b"one")
    items = listed(tmp_path / "a.zip", tmp_path)
    assert contents(items) == {read: b"one"}
    assert [record.annotations.labels for record in records(items)] == [(read.split("/")[0],)]


def test_hard_links_are_unpacked_once(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("x/1.jpg")
        info.size = 3
        archive.addfile(info, io.BytesIO(b"one"))
        for name in ("y/1.jpg", "z/1.jpg"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.LNKTYPE, "x/1.jpg"
            archive.addfile(link)
    items = listed(tmp_path / "a.tar.gz", tmp_path)
    assert contents(items) == {"x/1.jpg": b"one", "y/1.jpg": b"one", "z/1.jpg": b"one"}
    assert len({record.image for record in records(items)}) == 1


def test_a_header_of_gigabytes_is_damage(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 3 << 30
    (tmp_path / "a.tar").write_bytes(tar_bytes({"1.jpg": b"one"})[:1024] + info.tobuf(tarfile.PAX_FORMAT))
    items = listed(tmp_path / "a.tar", tmp_path)
    assert contents(items) == {"1.jpg": b"one"}
    (failure,) = [item for item in items if isinstance(item, Failure)]
    assert failure.reason == "damaged archive" and "a header has 3221225472 bytes" in failure.detail


def test_an_empty_zip_beside_others(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("cat/1.png", b"x")
    zipfile.ZipFile(tmp_path / "b.zip", "w").close()
    config = SourceConfig("archive", str(tmp_path))
    items = list(ArchiveSource().read(config, str(tmp_path)))
    assert [item.key for item in items] == ["a/cat/1.png"]
    with pytest.raises(ValueError, match="an archive without a file in it"):
        ArchiveSource().check(SourceConfig("archive", str(tmp_path / "b.zip")))
