"""Identities of images: of every kind of input, and of files that change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recordmill.transforms.records import ImageRecord, ImageRef, JobError
from recordmill.transforms.shards.identity import NO_IDENTITY, HashWork, Identity, ImageHasher
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.registry import source_of
from recordmill.transforms.storage import reader
from recordmill.transforms.storage.file_system import version_of_bytes
from recordmill.transforms.storage.files import status_of
from recordmill.transforms.storage.hash_cache import HashCache
from tests.sources.small_inputs import INPUTS, picture

RAW = ("npy", "npz", "idx", "idx.gz", "frames", "sequence")


def identity_of(data: bytes) -> Identity:
    return Identity(version_of_bytes(data), len(data))


def identities(records: list[ImageRecord], cache: HashCache | None = None) -> tuple[list[Identity], HashWork]:
    hasher = ImageHasher(2, cache)
    try:
        return hasher.identities(records), hasher.work
    finally:
        hasher.close()


@pytest.mark.parametrize("name", INPUTS)
def test_every_kind_of_input(name: str, tmp_path: Path) -> None:
    """A file, a member that is read in place, and one that is unpacked have the hash of their bytes."""
    given = INPUTS[name]
    for path, data in given.files([1, 2, 1]).items():
        (tmp_path / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / path).write_bytes(data)
    config = SourceConfig(given.kind, str(tmp_path / "in" / given.place), **given.options)
    (tmp_path / "scratch").mkdir()
    found = source_of(config).read(config, str(tmp_path / "scratch"), None)
    records = [one for one in found if isinstance(one, ImageRecord)]
    assert len(records) >= 3
    images, work = identities(records)
    if name in RAW:
        assert (set(images), work) == ({NO_IDENTITY}, HashWork())
        return
    assert [images.count(identity_of(picture(number))) for number in (1, 2)] == [2, 1]
    assert work.read + work.listed == 3
    assert (work.listed == 3) == name.endswith(".gz")


def stored(path: Path, data: bytes) -> ImageRecord:
    path.write_bytes(data)
    found = status_of(str(path))
    return ImageRecord(path.name, ImageRef(str(path), version=found.version), size=found.size)


def test_the_cache_is_of_one_state_of_a_file(tmp_path: Path) -> None:
    folder, path = str(tmp_path / "hashes"), tmp_path.resolve() / "a"
    first = stored(path, b"first")
    assert identities([first], HashCache(folder, "0" * 32)) == (
        [identity_of(b"first")],
        HashWork(read=1, read_bytes=5),
    )
    assert identities([first], HashCache(folder, "1" * 32)) == ([identity_of(b"first")], HashWork(cached=1))
    os.utime(path, ns=(1, 1))
    again = stored(path, b"other")
    assert identities([again], HashCache(folder, "2" * 32)) == (
        [identity_of(b"other")],
        HashWork(read=1, read_bytes=5),
    )
    # A file that changes after it was listed is not stored as what was listed.
    listed = stored(path, b"third")
    path.write_bytes(b"changed meanwhile")
    assert identities([listed], HashCache(folder, "3" * 32))[0] == [identity_of(b"changed meanwhile")]
    assert HashCache(folder).find(listed.image or ImageRef("")) is None
    # Without a version, nothing is stored.
    unversioned = ImageRecord("a", ImageRef(str(path)))
    for _ in range(2):
        assert identities([unversioned], HashCache(folder, "4" * 32))[1] == HashWork(read=1)


def test_ranges_of_one_file_are_stored_apart(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"onetwoone")
    path, folder = str(tmp_path.resolve() / "a"), str(tmp_path / "hashes")
    version = status_of(path).version
    records = [ImageRecord(str(at), ImageRef(path, at, 3, version=version)) for at in (0, 3, 6)]
    expected = [identity_of(data) for data in (b"one", b"two", b"one")]
    assert identities(records, HashCache(folder, "0" * 32))[0] == expected
    assert identities(records, HashCache(folder, "1" * 32)) == (expected, HashWork(cached=3))


def test_unreadable_images_have_no_identity(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "short").write_bytes(b"abc")
    root = tmp_path.resolve()
    refs = [
        ImageRef(f"{root}/missing"),
        ImageRef(f"{root}/empty"),
        ImageRef(f"{root}/short", 1, 9),
        ImageRef(f"{root}"),
        ImageRef(f"{root}/short", wrapping="no such wrapping"),
    ]
    records = [ImageRecord(str(at), ref) for at, ref in enumerate(refs)]
    found, work = identities(records, HashCache(str(tmp_path / "hashes"), "0" * 32))
    assert (found, work) == ([NO_IDENTITY] * 5, HashWork(read=5, read_bytes=9))
    assert not (tmp_path / "hashes").exists()


def test_a_fault_of_the_machine_ends_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> bytes:
        raise OSError(5, "Input/output error", "the disk")

    monkeypatch.setattr(reader, "_read", fails)
    with pytest.raises(JobError, match="the disk: Input/output error"):
        identities([ImageRecord("a", ImageRef(str(tmp_path)))])
