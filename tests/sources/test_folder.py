"""What the folder source makes of trees of files. It lists; it never looks into a file."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.records import Failure, ImageRecord, JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.folder import FolderSource
from recordmill.transforms.storage.local import LocalFileSystem, version_of
from tests.sources.sniffing import sniff

SOURCE = FolderSource()


def grow(root: Path, names: Iterable[str]) -> Path:
    """Makes files, each of as many bytes as its name has characters; names that end in / are folders."""
    for name in names:
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_bytes(b"x" * len(name))
    return root


def listed(root: Path, **options: object) -> list[ImageRecord | Failure]:
    return list(SOURCE.read(SourceConfig("folder", str(root), **options), "/nowhere"))  # type: ignore[arg-type]


def rows(items: Iterable[ImageRecord | Failure]) -> list[tuple[str, str | None, tuple[str | int, ...]]]:
    return [
        (item.key, item.split, item.annotations.labels) for item in items if isinstance(item, ImageRecord)
    ]


def faults(items: Iterable[ImageRecord | Failure]) -> list[tuple[str, str, bool]]:
    return [(item.key, item.reason, item.skipped) for item in items if isinstance(item, Failure)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["b.jpg", "a.png"], [("a.png", None, ()), ("b.jpg", None, ())]),
        (
            ["dog/1.jpg", "cat/deep/er/2.jpg", "top.jpg"],
            [("cat/deep/er/2.jpg", None, ("cat",)), ("dog/1.jpg", None, ("dog",)), ("top.jpg", None, ())],
        ),
        (
            ["train/cat/x/1.jpg", "Validation/dog/1.jpg", "test/1.jpg", "1.jpg"],
            [
                ("1.jpg", None, ()),
                ("Validation/dog/1.jpg", "validation", ("dog",)),
                ("test/1.jpg", "test", ()),
                ("train/cat/x/1.jpg", "train", ("cat",)),
            ],
        ),
        (
            ["train/1.jpg", "other/1.jpg"],
            [("other/1.jpg", None, ("other",)), ("train/1.jpg", None, ("train",))],
        ),
        (["val/1.jpg", ".git/1", "__MACOSX/1.jpg"], [("val/1.jpg", "val", ())]),
        (
            ["train/test/1.jpg", "dev/1.jpg"],
            [("dev/1.jpg", "dev", ()), ("train/test/1.jpg", "train", ("test",))],
        ),
        (["ü ö/a b\nc.JPG"], [("ü ö/a b\nc.JPG", None, ("ü ö",))]),
    ],
)
def test_layouts(
    tmp_path: Path, names: list[str], expected: list[tuple[str, str | None, tuple[str, ...]]]
) -> None:
    assert rows(listed(grow(tmp_path, names))) == expected


def test_a_record_is_a_reference_with_its_size(tmp_path: Path) -> None:
    grow(tmp_path, ["cat/1.jpg"])
    (record,) = listed(tmp_path)
    assert isinstance(record, ImageRecord) and record.image is not None
    assert (record.image.uri, record.image.offset, record.image.length) == (f"{tmp_path}/cat/1.jpg", 0, None)
    assert record.size == len("cat/1.jpg")


def test_the_version_is_when_the_file_was_modified(tmp_path: Path) -> None:
    grow(tmp_path, ["cat/1.jpg", "cat/2.jpg"])
    (tmp_path / "cat/link.jpg").symlink_to("2.jpg")
    os.utime(tmp_path / "cat/2.jpg", ns=(1, 1_718_031_234_567_890_123))
    versions = {
        item.key: item.image.version
        for item in listed(tmp_path)
        if isinstance(item, ImageRecord) and item.image
    }
    one, two = (version_of(os.stat(tmp_path / f"cat/{number}.jpg")) for number in (1, 2))
    assert versions == {"cat/1.jpg": one, "cat/2.jpg": two, "cat/link.jpg": two}
    os.utime(tmp_path / "cat/2.jpg", ns=(1, 2_000_000_000))
    (only,) = listed(tmp_path / "cat/2.jpg")
    later = version_of(os.stat(tmp_path / "cat/2.jpg"))
    assert isinstance(only, ImageRecord) and only.image and only.image.version == later != two


def test_what_is_no_image_is_counted_with_its_reason(tmp_path: Path) -> None:
    names = ["a.jpg", "a.xml", "README", ".b.jpg", "Thumbs.db", "@eaDir/c.jpg", "s/.d/e.jpg", "jpg", "a.jpg~"]
    assert faults(listed(grow(tmp_path, names))) == [
        (".b.jpg", "hidden", True),
        ("@eaDir/", "hidden", True),
        ("README", "not an image by name", True),
        ("Thumbs.db", "hidden", True),
        ("a.jpg~", "not an image by name", True),
        ("a.xml", "not an image by name", True),
        ("jpg", "not an image by name", True),
        ("s/.d/", "hidden", True),
    ]


def test_include_exclude_and_limit(tmp_path: Path) -> None:
    grow(tmp_path, ["a/1.jpg", "a/2.png", "b/1.jpg", "b/2.jpg", "c/1.jpg"])
    items = listed(tmp_path, include=("*.jpg",), exclude=("b/1*",), limit=2)
    assert [item[0] for item in rows(items)] == ["a/1.jpg", "b/2.jpg"]
    excluded = "excluded by --include/--exclude"
    assert faults(items) == [("a/2.png", excluded, True), ("b/1.jpg", excluded, True)]


def test_label_pattern_takes_the_place_of_folders(tmp_path: Path) -> None:
    grow(tmp_path, ["x/cat_0.jpeg", "x/dog_1.jpg", "x/unknown.jpg"])
    items = listed(tmp_path, label_pattern="([a-z]+)_")
    assert rows(items) == [("x/cat_0.jpeg", None, ("cat",)), ("x/dog_1.jpg", None, ("dog",))]
    assert faults(items) == [("x/unknown.jpg", "label pattern does not match", False)]


def test_symbolic_links(tmp_path: Path) -> None:
    root = grow(tmp_path / "in", ["cat/1.jpg", "dog/2.jpg"])
    grow(tmp_path / "out", ["3.jpg"])
    (root / "cat/to_dog.jpg").symlink_to("../dog/2.jpg")
    (root / "cat/to_out.jpg").symlink_to("../../out/3.jpg")
    (root / "cat/dangling.jpg").symlink_to("none.jpg")
    (root / "cat/self.jpg").symlink_to("self.jpg")
    (root / "cat/folder.jpg").symlink_to(tmp_path / "in/dog")
    (root / "cat/up").symlink_to("..")
    (root / "here").symlink_to(".")
    (root / "out").symlink_to("../out")
    (root / "root").symlink_to("/")
    items = listed(root)
    assert rows(items) == [
        ("cat/1.jpg", None, ("cat",)),
        ("cat/folder.jpg/2.jpg", None, ("cat",)),
        ("cat/to_dog.jpg", None, ("cat",)),
        ("dog/2.jpg", None, ("dog",)),
    ]
    assert faults(items) == [
        ("cat/dangling.jpg", "not found", False),
        ("cat/self.jpg", "not found", False),
        ("cat/to_out.jpg", "outside the input root", False),
        ("cat/up/", "loop of symbolic links", True),
        ("here/", "loop of symbolic links", True),
        ("out/", "outside the input root", False),
        ("root/", "outside the input root", False),
    ]
    uris = {item.key: item.image.uri for item in items if isinstance(item, ImageRecord) and item.image}
    assert uris["cat/to_dog.jpg"] == f"{root}/dog/2.jpg"
    allowed = rows(listed(root, image_roots=(str(tmp_path / "out"),)))
    assert [key for key, _, _ in allowed if "out" in key] == ["cat/to_out.jpg", "out/3.jpg"]


def test_folders_that_link_to_each_other_come_to_an_end(tmp_path: Path) -> None:
    folders = [f"d{number}" for number in range(6)]
    grow(tmp_path, [f"{name}/1.jpg" for name in folders])
    for name in folders:
        for other in folders:
            (tmp_path / name / f"to_{other}").symlink_to(f"../{other}")
    items = listed(tmp_path)
    assert len(items) < 6 * 6**5
    assert {f"{name}/1.jpg" for name in folders} <= {key for key, _, _ in rows(items)}


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS refuses names that are not UTF-8")
def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    grow(tmp_path, ["good/1.jpg"])
    for name in (b"b\xffd.jpg", b"f\xfe/1.jpg", b"f\xfe/x.txt"):
        path = os.path.join(os.fsencode(tmp_path), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb"):
            pass
    items = listed(tmp_path)
    assert rows(items) == [("good/1.jpg", None, ("good",))]
    assert faults(items) == [
        ("b\\xffd.jpg", "name is not UTF-8", False),
        ("f\\xfe/1.jpg", "name is not UTF-8", False),
        ("f\\xfe/x.txt", "not an image by name", True),
    ]
    for item in items:
        item.key.encode()


def test_a_pipe_fails_and_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    assert faults(listed(tmp_path)) == [("pipe.jpg", "not a file", False)]


def test_a_folder_that_may_not_be_read_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(tmp_path, ["a/1.jpg", "b/1.jpg"])
    scandir = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("/a"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr("recordmill.transforms.sources.folder.os.scandir", refuse)
    items = listed(tmp_path)
    assert (rows(items), faults(items)) == ([("b/1.jpg", None, ("b",))], [("a/", "permission denied", False)])


def test_a_fault_that_may_pass_fails_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    grow(tmp_path, ["a/1.jpg", "b/1.jpg"])
    scandir = os.scandir

    def fail(path: str) -> object:
        if path.endswith("/b"):
            raise OSError(errno.EIO, "I/O error", path)
        return scandir(path)

    monkeypatch.setattr("recordmill.transforms.sources.folder.os.scandir", fail)
    listing = SOURCE.read(SourceConfig("folder", str(tmp_path)), "/nowhere")
    assert rows([next(listing)]) == [("a/1.jpg", None, ("a",))]
    with pytest.raises(JobError, match=f"the input cannot be listed: i/o error, reading '{tmp_path}/b'$"):
        next(listing)
    assert len(waits) == 3


class Entry:
    """An entry of a folder, for which `is_dir` fails where there is an error left."""

    def __init__(self, entry: os.DirEntry[str], errors: list[OSError]) -> None:
        self._entry = entry
        self._errors = errors
        self.name = entry.name
        self.path = entry.path
        self.is_symlink = entry.is_symlink
        self.stat = entry.stat

    def is_dir(self) -> bool:
        if self.name == "link" and self._errors:
            raise self._errors.pop()
        return self._entry.is_dir()


@pytest.mark.parametrize(
    ("number", "times", "expected"),
    [
        (errno.EIO, 3, [("link/1.jpg", None, ("link",)), ("cat/1.jpg", None, ("cat",))]),
        (errno.EACCES, 1, [("cat/1.jpg", None, ("cat",))]),
    ],
)
def test_a_folder_is_not_taken_for_a_file_for_a_fault_that_passes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    waits: list[float],
    number: int,
    times: int,
    expected: list[tuple[str, str | None, tuple[str, ...]]],
) -> None:
    grow(tmp_path, ["cat/1.jpg"])
    (tmp_path / "link").symlink_to("cat")
    scandir = os.scandir
    errors = [OSError(number, "no") for _ in range(times)]

    @contextlib.contextmanager
    def wrapped(path: str) -> Iterator[list[Entry]]:
        with scandir(path) as entries:
            yield [Entry(entry, errors) for entry in entries]

    monkeypatch.setattr("recordmill.transforms.sources.folder.os.scandir", wrapped)
    items = listed(tmp_path)
    assert (sorted(rows(items)), errors) == (sorted(expected), [])
    assert faults(items) == ([("link", "not an image by name", True)] if number == errno.EACCES else [])
    assert len(waits) == (3 if number == errno.EIO else 0)


@pytest.mark.parametrize("times", [3, 4])
@pytest.mark.parametrize(("name", "failing"), [("stat", "cat/1.jpg"), ("lstat", "cat/dog"), ("stat", "")])
def test_looking_at_files_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float], name: str, failing: str, times: int
) -> None:
    grow(tmp_path, ["bird/1.jpg", "cat/1.jpg"])
    (tmp_path / "cat/2.jpg").symlink_to("1.jpg")
    (tmp_path / "cat/dog").symlink_to("../bird")
    expected = listed(tmp_path)
    where, function, calls = os.path.join(tmp_path, failing).rstrip("/"), getattr(os, name), 0

    def flaky(path: str, **options: object) -> object:
        nonlocal calls
        calls += path == where
        if path == where and calls <= times:
            raise OSError(errno.EIO, "I/O error", path)
        return function(path, **options)

    monkeypatch.setattr(os, name, flaky)
    if times == 3:
        assert listed(tmp_path) == expected
    else:
        with pytest.raises(JobError, match=f"i/o error, reading '{where}'$"):
            listed(tmp_path)
    assert len(waits) == 3


def test_a_lone_image_that_vanishes_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(tmp_path, ["a/1.jpg"])
    monkeypatch.setattr(LocalFileSystem, "find", lambda system, path: None)
    assert faults(listed(tmp_path / "a/1.jpg")) == [("1.jpg", "not found", False)]


def test_what_is_said_of_a_folder(tmp_path: Path) -> None:
    names = [f"train/{at % 3}-{at}.jpg" for at in range(1200)]
    grow(tmp_path, [*names, "val/7-1.jpg", "Test2017/8-1.jpg"])
    said = sniff(SOURCE, SourceConfig("auto", str(tmp_path), label_pattern="/([0-9])-"))
    assert said == (
        "it holds image files such as 'Test2017/8-1.jpg'; splits: test, train, val; labels: 8, 0, 1, 2"
    )


@pytest.mark.parametrize(
    ("names", "input", "splits"),
    [
        (["train/x/1.jpg", "validation/x/1.jpg"], "", ("train", "validation")),
        (["Train/1.jpg", "test/"], "", ("test", "train")),
        (["train/1.jpg", "1.jpg"], "", ("train",)),
        (["cat/1.jpg", "dog/1.jpg"], "", ()),
        (["train/1.jpg", "cat/1.jpg"], "", ()),
        (["1.jpg"], "", ()),
        (["train/1.jpg"], "train/1.jpg", ()),
    ],
)
def test_split_names(tmp_path: Path, names: list[str], input: str, splits: tuple[str, ...]) -> None:
    grow(tmp_path, names)
    assert SOURCE.split_names(SourceConfig("folder", str(tmp_path / input))) == splits


def test_the_output_is_left_out_without_a_word(tmp_path: Path) -> None:
    grow(tmp_path, ["train/1.jpg", "out/preview.jpg", "out/train-00000-of-00001.tfrecord"])
    (tmp_path / "train/link").symlink_to("../out")
    items = listed(tmp_path, skip_dirs=(str(tmp_path / "out"),))
    assert (rows(items), faults(items)) == ([("train/1.jpg", "train", ())], [])


def test_one_image_file(tmp_path: Path) -> None:
    grow(tmp_path, ["a/1.jpg", "a/2.jpg", "a/notes.txt"])
    assert rows(listed(tmp_path / "a/1.jpg")) == [("1.jpg", None, ())]
    SOURCE.check(SourceConfig("folder", str(tmp_path / "a/1.jpg")))
    with pytest.raises(ValueError, match=r"notes.txt', a file that is not an image by its name"):
        SOURCE.check(SourceConfig("folder", str(tmp_path / "a/notes.txt")))


NAMES = st.text(st.sampled_from("aB./-_ 0é中\n"), min_size=1, max_size=6)


@given(st.sets(st.lists(NAMES, min_size=1, max_size=3).map("/".join), max_size=12), st.randoms())
def test_keys_come_in_code_point_order_whatever_the_order_of_creation(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], random: object
) -> None:
    root = tmp_path_factory.mktemp("tree")
    shuffled = sorted(names)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    made = set()
    for name in shuffled:
        path = os.path.normpath(f"{name}.png")
        try:
            grow(root, [path])
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue
        hidden = any(part.startswith(".") for part in path.split("/"))
        if not hidden and not path.startswith("/"):
            made.add(path)
    assert [key for key, _, _ in rows(listed(root))] == sorted(made)


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ([], {}, r"there is no image to convert \(it is empty\)"),
        (["a.txt", "b.txt", ".c"], {}, r"\(2 not an image by name, 1 hidden\)"),
        (
            ["a/b.jpg", "c.jpg", "d.txt"],
            {"include": ("*.png",)},
            r"^--include is '\*.png', which leaves out all 2 images, such as 'a/b.jpg'$",
        ),
        (
            ["a.jpg"],
            {"include": ("*.jpg",), "exclude": ("a*", "b*")},
            r"^--include is '\*.jpg' and --exclude is 'a\*', 'b\*', which leaves out all 1 images",
        ),
        (
            ["a.jpg", "b.jpg", "c.png"],
            {"label_pattern": "(x)", "include": ("*.jpg",)},
            r"^--label_pattern is '\(x\)', which matches none of 2 keys, such as 'a.jpg'$",
        ),
        (["a.jpg"], {"label_pattern": "x"}, "--label_pattern is 'x', which has no group"),
        (
            ["a.jpg"],
            {"annotations": ("a.csv",)},
            "--annotations is 'a.csv', and --source folder does not use it",
        ),
        (
            ["a.jpg"],
            {"image_column": "path"},
            "--image_column is 'path', and --source folder does not use it",
        ),
        (
            ["a.jpg"],
            {"label_column": "path"},
            "--label_column is 'path', and --source folder does not use it",
        ),
        (["a.jpg"], {"image_roots": ("/nowhere",)}, "--image_root is '/nowhere': there is no such folder"),
    ],
)
def test_bad_calls(tmp_path: Path, names: list[str], options: dict[str, object], message: str) -> None:
    config = SourceConfig("folder", str(grow(tmp_path, names)), **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message) as caught:
        SOURCE.check(config)
    assert "\n" not in str(caught.value)


def test_missing_input() -> None:
    with pytest.raises(ValueError, match="--input is '/nowhere/x': there is no such file or folder"):
        SOURCE.check(SourceConfig("folder", "/nowhere/x"))


def test_check_looks_no_further_than_the_first_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(tmp_path, ["a/1.jpg", "b/1.jpg"])
    visited: list[str] = []
    scandir = os.scandir

    def watch(path: str) -> object:
        visited.append(path)
        return scandir(path)

    monkeypatch.setattr("recordmill.transforms.sources.folder.os.scandir", watch)
    SOURCE.check(SourceConfig("folder", str(tmp_path)))
    assert visited == [str(tmp_path), str(tmp_path), f"{tmp_path}/a"]  # may it be read, and what is in it


@pytest.mark.parametrize(
    ("names", "splits", "expected"),
    [
        (
            ["annotations/1.txt"],
            ("train", "val"),
            [("train/1.jpg", "train", ()), ("val/x/1.jpg", "val", ("x",))],
        ),
        (["annotations/"], ("train", "val"), None),
        (["annotations/.1.jpg", "annotations/.x/1.jpg"], ("train", "val"), None),
        ([f"{number}/1.txt" for number in range(10)], ("train", "val"), None),
        ([f"{number}/1.txt" for number in range(11)], (), None),
        (
            ["annotations/deep/er/1.jpg"],
            (),
            [
                ("annotations/deep/er/1.jpg", None, ("annotations",)),
                ("train/1.jpg", None, ("train",)),
                ("val/x/1.jpg", None, ("val",)),
            ],
        ),
    ],
)
def test_folders_without_images_beside_splits(
    tmp_path: Path,
    names: list[str],
    splits: tuple[str, ...],
    expected: list[tuple[str, str | None, tuple[str, ...]]] | None,
) -> None:
    grow(tmp_path, ["train/1.jpg", "val/x/1.jpg", *names])
    assert SOURCE.split_names(SourceConfig("folder", str(tmp_path))) == splits
    items = listed(tmp_path)
    assert {item[1] for item in rows(items)} == set(splits or (None,))
    assert expected is None or rows(items) == expected
    skipped = {name for name in names if name.endswith(".txt")}
    assert {key for key, _, _ in faults(items) if key.endswith(".txt")} == skipped


def test_whether_a_folder_beside_splits_counts_does_not_depend_on_what_is_taken(tmp_path: Path) -> None:
    grow(tmp_path, ["train/1.jpg", "other/1.jpg"])
    assert rows(listed(tmp_path, exclude=("other/*",))) == [("train/1.jpg", None, ("train",))]
    (tmp_path / "other/1.jpg").unlink()
    (tmp_path / "other/up").symlink_to("..")
    (tmp_path / "other/link.jpg").symlink_to("../train/1.jpg")
    assert rows(listed(tmp_path))[0] == ("other/link.jpg", None, ("other",))
    (tmp_path / "other/link.jpg").unlink()
    (tmp_path / "other/up").unlink()
    assert rows(listed(tmp_path)) == [("train/1.jpg", "train", ())]


def test_only_folders_beside_splits_are_searched_and_to_the_first_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path, ["train/1.jpg", "val/1.jpg", "a/0.txt", "b/1.jpg", "b/c/2.jpg", "d/1.jpg"])
    visited: list[str] = []
    scandir = os.scandir

    def watch(path: str) -> object:
        visited.append(path.removeprefix(f"{tmp_path}"))
        return scandir(path)

    monkeypatch.setattr("recordmill.transforms.sources.folder.os.scandir", watch)
    assert SOURCE.split_names(SourceConfig("folder", str(tmp_path))) == ()
    assert visited == ["", "/a", "/b"]
    for name in ("b/1.jpg", "b/c/2.jpg", "d/1.jpg"):
        (tmp_path / name).unlink()
    visited.clear()
    assert SOURCE.split_names(SourceConfig("folder", str(tmp_path))) == ("train", "val")
    assert visited == ["", "/a", "/b", "/b/c", "/d"]
