"""A file or folder that becomes a link to the outside while the job runs: none of its bytes are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recordmill.transforms.records import BadInput, Failure, ImageRecord, ImageRef, JobError
from recordmill.transforms.shards.references import files_of as refs_of
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.registry import SOURCES
from recordmill.transforms.sources.source import Item
from recordmill.transforms.storage.reader import ImageReader
from tests.sources.special_cases import ALL, CASES, files_of, put


def config_of(name: str, root: Path) -> SourceConfig:
    one = ALL[name]
    return SourceConfig(one.kind, str(root / one.place), **one.options)


def swap(path: Path, outside: Path) -> None:
    """Moves a file or folder out, and puts a link to it in its place."""
    if not path.is_symlink():
        path.rename(outside / path.name)
        path.symlink_to(outside / path.name)


def read(name: str, root: Path, scratch: Path) -> list[Item]:
    scratch.mkdir(exist_ok=True)
    return list(SOURCES[ALL[name].kind].read(config_of(name, root), str(scratch)))


def refs_below(items: list[Item], root: Path) -> set[ImageRef]:
    found = {ref for item in items if isinstance(item, ImageRecord) for ref in refs_of(item)}
    return {ref for ref in found if ref.uri.startswith(f"{root}/")}


@pytest.mark.parametrize("name", ALL)
def test_references_are_real_paths(tmp_path: Path, name: str) -> None:
    store = tmp_path / "store"
    put(store, files_of(name))
    (tmp_path / "in").symlink_to(store)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "to scratch").symlink_to("scratch")
    items = read(name, tmp_path / "in", tmp_path / "to scratch")
    uris = {ref.uri for item in items if isinstance(item, ImageRecord) for ref in refs_of(item)}
    assert uris
    assert [uri for uri in uris if os.path.realpath(uri) != uri] == []


@pytest.mark.parametrize("what", ["file", "folder"])
@pytest.mark.parametrize("name", ALL)
def test_an_image_that_was_swapped_for_a_link_is_not_read(tmp_path: Path, name: str, what: str) -> None:
    root, outside = tmp_path / "in", tmp_path / "outside"
    put(root, files_of(name))
    outside.mkdir()
    refs = refs_below(read(name, root, tmp_path / "scratch"), root)
    if not refs:
        pytest.skip("its images leave their container as they are listed")
    reader = ImageReader()
    for path in {Path(ref.uri) for ref in refs}:
        if what == "file":
            swap(path, outside)
        else:
            swap(root / path.relative_to(root).parts[0] if path.parent != root else root, outside)
    for ref in refs:
        with pytest.raises(BadInput) as caught:
            reader.read(ref)
        assert (caught.value.stage, caught.value.reason) == ("load", "outside the input root")
        assert f"it leads to '{outside}/" in caught.value.detail


@pytest.mark.parametrize(("name", "key"), CASES)
def test_a_file_that_is_swapped_as_it_is_opened_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, key: str
) -> None:
    root, outside = tmp_path / "in", tmp_path / "outside"
    put(root, files_of(name))
    outside.mkdir()
    really, swapped = os.open, []

    def swapping(path: str, *args: int, **options: int) -> int:
        if path == str(root / key) and not swapped:
            swapped.append(path)
            swap(root / key, outside)
        return really(path, *args, **options)

    monkeypatch.setattr("recordmill.transforms.storage.local.os.open", swapping)
    try:
        items = read(name, root, tmp_path / "scratch")
        said = [f"{item.key} {item.reason} {item.detail}" for item in items if isinstance(item, Failure)]
        for ref in refs_below(items, root):
            try:
                ImageReader().read(ref)
            except BadInput as fault:
                said.append(str(fault))
    except (ValueError, JobError) as error:
        said = [str(error)]
    assert swapped
    assert [line for line in said if f"it leads to '{outside}/" in line]


def test_a_file_that_is_replaced_as_it_is_opened_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    put(tmp_path, {"a.jpg": b"old", "new": b"newer"})
    really, path = os.open, str(tmp_path / "a.jpg")

    def replacing(*args: int, **options: int) -> int:
        descriptor = really(*args, **options)
        if (tmp_path / "new").exists():
            (tmp_path / "new").rename(path)
        return descriptor

    monkeypatch.setattr("recordmill.transforms.storage.local.os.open", replacing)
    assert ImageReader().read(ImageRef(path)) == b"newer"
    assert len(waits) == 1


@pytest.mark.parametrize("link", ["a.jpg", "b"])
def test_without_proc_the_path_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    put(tmp_path, {"in/a.jpg": b"x", "in/b/c.jpg": b"x"})
    (tmp_path / "outside").mkdir()
    monkeypatch.setattr("recordmill.transforms.storage.local._path_of", lambda _: "")
    refs = [ImageRef(f"{tmp_path}/in/a.jpg"), ImageRef(f"{tmp_path}/in/b/c.jpg")]
    assert [ImageReader().read(ref) for ref in refs] == [b"x", b"x"]
    swap(tmp_path / "in" / link, tmp_path / "outside")
    read, refused = refs if link == "b" else refs[::-1]
    assert ImageReader().read(read) == b"x"
    with pytest.raises(BadInput, match="outside the input root"):
        ImageReader().read(refused)


def test_a_relative_path_may_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, {"in/a.jpg": b"x"})
    monkeypatch.chdir(tmp_path)
    assert ImageReader().read(ImageRef("in/a.jpg")) == b"x"
