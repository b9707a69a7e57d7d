"""What the walk over folders makes of trees of files, on disk and in a bucket."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from recordmill.transforms.records import Failure
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.local import version_of
from tests.buckets.server import BucketServer

Items = list[TreeFile | Failure]


def grow(root: Path, *names: str) -> Path:
    """Makes files, each of as many bytes as its name has characters."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * len(name))
    return root


def keys(items: Items) -> list[str]:
    return [item.key for item in items if isinstance(item, TreeFile)]


def faults(items: Items) -> list[tuple[str, str, bool]]:
    return [(item.key, item.reason, item.skipped) for item in items if isinstance(item, Failure)]


def test_files_come_in_the_order_of_their_keys(tmp_path: Path) -> None:
    names = ["a/1", "a-b/1", "a.x", "a b/1", "a0", "aé/1", "a/b/c", "a/b.x", "b"]
    items = list(Tree(str(grow(tmp_path, *names))).files())
    assert (keys(items), faults(items)) == (sorted(names), [])


def test_a_file_has_its_path_size_and_version(tmp_path: Path) -> None:
    path = grow(tmp_path, "a/b.x") / "a/b.x"
    os.utime(path, ns=(1, 1_718_031_234_567_890_123))
    (file,) = Tree(str(tmp_path)).files()
    assert file == TreeFile("a/b.x", str(path), 5, version_of(path.stat()))
    assert (file.ref.uri, file.ref.version) == (str(path), version_of(path.stat()))


def test_hidden_files_and_folders_are_skipped(tmp_path: Path) -> None:
    grow(tmp_path, ".a", ".b/c", "d/Thumbs.db", "d/e", "__MACOSX/f")
    items = list(Tree(str(tmp_path)).files())
    assert keys(items) == ["d/e"]
    hidden = [".a", ".b/", "__MACOSX/", "d/Thumbs.db"]
    assert faults(items) == [(key, "hidden", True) for key in hidden]


def test_links_lead_into_the_roots_or_nowhere(tmp_path: Path) -> None:
    root = grow(tmp_path / "in", "a/1", "b/2")
    grow(tmp_path / "out", "3")
    for link, target in (
        ("a/file", "../b/2"),
        ("a/folder", "../b"),
        ("a/none", "nowhere"),
        ("a/out", "../../out"),
        ("a/out3", "../../out/3"),
        ("a/up", ".."),
    ):
        (root / link).symlink_to(target)
    items = list(Tree(str(root)).files())
    assert keys(items) == ["a/1", "a/file", "a/folder/2", "b/2"]
    assert [item.path for item in items if isinstance(item, TreeFile)][1:3] == [f"{root}/b/2"] * 2
    assert faults(items) == [
        ("a/none", "not found", False),
        ("a/out/", "outside the input root", False),
        ("a/out3", "outside the input root", False),
        ("a/up/", "loop of symbolic links", True),
    ]
    allowed = keys(list(Tree(str(root), (str(tmp_path / "out"),)).files()))
    assert allowed == ["a/1", "a/file", "a/folder/2", "a/out/3", "a/out3", "b/2"]


def test_folders_that_link_to_each_other_come_to_an_end(tmp_path: Path) -> None:
    grow(tmp_path, *(f"{number}/x" for number in range(6)))
    for number in range(6):
        for other in range(6):
            (tmp_path / f"{number}/to{other}").symlink_to(f"../{other}")
    found = keys(list(Tree(str(tmp_path)).files()))
    assert {f"{number}/x" for number in range(6)} <= set(found)
    assert max(key.count("to") for key in found) == 4


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS refuses names that are not UTF-8")
def test_names_that_are_not_utf8_fail(tmp_path: Path) -> None:
    grow(tmp_path, "ü/1")
    for name in (b"b\xff", b"f\xfe/1"):
        path = os.path.join(os.fsencode(tmp_path), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "wb").close()
    items = list(Tree(str(tmp_path)).files())
    assert keys(items) == ["ü/1"]
    assert faults(items) == [("b\\xff", "name is not UTF-8", False), ("f\\xfe/1", "name is not UTF-8", False)]


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert faults(list(Tree(str(tmp_path)).files())) == [("pipe", "not a file", False)]


def test_folders_to_skip_are_left_out_without_a_word(tmp_path: Path) -> None:
    grow(tmp_path, "a/1", "out/2", "b/out/3")
    (tmp_path / "link").symlink_to("out")
    tree = Tree(str(tmp_path), (), (str(tmp_path / "out"), str(tmp_path / "b/out")))
    items = list(tree.files())
    assert (keys(items), faults(items)) == (["a/1"], [])
    assert [name for name in ("a", "b", "link", "out", ".x") if tree.leaves_out(name)] == [
        "link",
        "out",
        ".x",
    ]


def test_a_walk_may_begin_further_in(tmp_path: Path) -> None:
    tree = Tree(str(grow(tmp_path, "a/1", "a/b/2", "a/b/c/3", "a/.d/4", "e/5")), (), (str(tmp_path / "e"),))
    assert keys(list(tree.files("a/b/"))) == ["a/b/2", "a/b/c/3"]
    assert faults(list(tree.files("a/.d/"))) == [("a/.d/", "hidden", True)]
    assert faults(list(tree.files("a/x/"))) == [("a/x/", "not found", False)]
    assert list(tree.files("e/")) == []


def test_what_is_in_the_first_folder_is_told_once_and_first(tmp_path: Path) -> None:
    listed: list[list[str]] = []
    files = Tree(str(grow(tmp_path, "a/1", "a/b/2", "c"))).files(
        on_listed=lambda found: listed.append([entry.name for entry in found])
    )
    assert not listed
    next(files)
    assert listed == [["a/", "c"]]
    assert keys(list(files)) == ["a/b/2", "c"]
    assert len(listed) == 1


def test_files_that_are_passed_over_are_not_looked_at(tmp_path: Path) -> None:
    (grow(tmp_path, "a/1.x", "a/.2.y") / "a/3.y").symlink_to("nowhere")
    tree = Tree(str(tmp_path), passes_over=lambda key: "no" if key.endswith(".y") else None)
    items = list(tree.files())
    assert (keys(items), faults(items)) == (["a/1.x"], [("a/.2.y", "hidden", True), ("a/3.y", "no", True)])


def test_one_file_of_the_root(tmp_path: Path) -> None:
    tree = Tree(str(grow(tmp_path, "a", ".b")))
    found, hidden, missing = map(tree.file, ("a", ".b", "c"))
    assert isinstance(found, TreeFile) and (found.key, found.path) == ("a", f"{tmp_path}/a")
    assert faults([hidden, missing]) == [(".b", "hidden", True), ("c", "not found", False)]


def test_a_bucket_has_the_same_files(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    grow(tmp_path, "a/1", "a-b/1", "a.x", "ü/100%", ".h/1", "out/2", "b/c/d/e")
    bucket_server.upload_folder(tmp_path, f"{bucket}/in")
    bucket_server.put(f"{bucket}/in0", b"x")
    local = list(Tree(str(tmp_path), (), (str(tmp_path / "out"),)).files())
    remote = list(Tree(f"{bucket}/in", (), (f"{bucket}/in/out",)).files())
    assert keys(remote) == keys(local) == ["a-b/1", "a.x", "a/1", "b/c/d/e", "ü/100%"]
    assert faults(remote) == faults(local)
    for file in remote:
        if isinstance(file, TreeFile):
            path = f"{bucket}/in/{file.key}"
            assert file[1:] == (path, len(file.key), file_system(path).stat(path).version)


def test_a_folder_without_a_name_in_a_bucket_fails(bucket: str, bucket_server: BucketServer) -> None:
    for name in ("a//b", "a/c"):
        bucket_server.put(f"{bucket}/in/{name}", b"x")
    items = list(Tree(f"{bucket}/in").files())
    assert (keys(items), faults(items)) == (["a/c"], [("a//", "folder without a name", False)])
