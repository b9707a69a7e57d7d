"""--source auto: which source an input is, and why."""

from __future__ import annotations

import errno
import gzip
import os
import struct
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from recordmill.transforms.records import JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.registry import SOURCES, source_of
from tests.sources.sniffing import sniff


def grow(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("files", "input", "annotations", "kind", "why"),
    [
        ({"a.jpg": ""}, "", (), "folder", "such as 'a.jpg'; splits: none; labels: none"),
        ({"cat/a.jpg": "", "cat/b.xml": ""}, "", (), "folder", "labels: cat; other files, not read: 1 .xml"),
        ({"train/x/a.jpg": "", "val/y/b.jpg": ""}, "", (), "folder", "splits: train, val; labels: x, y"),
        ({f"{name}/a.jpg": "" for name in "abcdefg"}, "", (), "folder", "labels: a, b, c, d, e, …"),
        ({"a.jpg": "", "sizes.csv": "size\n10\n"}, "", (), "folder", "other files, not read: 1 .csv"),
        ({"a.jpg": ""}, "a.jpg", (), "folder", "an image file by name"),
        (
            {"m.csv": "image,class\na.jpg,x\n"},
            "m.csv",
            (),
            "csv",
            "images: image; labels: class; splits: none",
        ),
        ({"m.TSV": "x\ty\n1\t2\n"}, "m.TSV", (), "csv", "features alone, no image; labels: none"),
        ({"m.csv": "TRAIN,gs://b/a.jpg,x\n"}, "m.csv", (), "csv", "Vertex AI's import file"),
        (
            {"m.csv": "path,split\n1,2\n", "a.jpg": ""},
            "",
            ("m.csv",),
            "csv",
            "images: path; labels: none; splits: split",
        ),
        ({"m.csv": ""}, "m.csv", (), "csv", "is a CSV file by name"),
        ({"m.jsonl": '{"image": "a"}'}, "m.jsonl", (), "jsonl", "images: image; labels: none"),
        ({"m.ndjson": "{"}, "m.ndjson", (), "jsonl", "is a JSON Lines file by name"),
        (
            {"train-images-idx3-ubyte.gz": ""},
            "",
            (),
            "idx",
            "'train-images-idx3-ubyte.gz' is an IDX file by name",
        ),
        ({"train-images-idx3-ubyte": ""}, "train-images-idx3-ubyte", (), "idx", "is an IDX file by name"),
    ],
)
def test_detect(
    tmp_path: Path, files: dict[str, str], input: str, annotations: tuple[str, ...], kind: str, why: str
) -> None:
    grow(tmp_path, files)
    found = detect(SourceConfig("auto", str(tmp_path / input), annotations))
    assert found[0] == kind
    assert why in found[1] and "\n" not in found[1]


@pytest.mark.parametrize(
    ("files", "input", "annotations", "message"),
    [
        ({}, "", (), "it is an empty folder"),
        ({"instances.json": "{}"}, "", (), "it has 1 .json"),
        ({"a.mp4": "", "b.mp4": "", "x/m.pbtxt": ""}, "", (), "it has 2 .mp4, 1 .pbtxt"),
        ({"a.rar": ""}, "a.rar", (), "it is a file with the extension .rar"),
        ({"rows": "a,b"}, "rows", (), "it is a file without an extension"),
        ({"a.json": "{}"}, "a.json", (), "it is a file with the extension .json"),
        (
            {"m.txt": "", "a.jpg": ""},
            "",
            ("m.txt",),
            r"--annotations is 'm.txt'; manifests are called .csv, .tsv or .jsonl",
        ),
        ({"m.csv": "", "n.jsonl": ""}, "", ("m.csv", "n.jsonl"), "--annotations is 'm.csv, n.jsonl'"),
    ],
)
def test_what_no_source_reads_is_refused_with_what_was_found(
    tmp_path: Path, files: dict[str, str], input: str, annotations: tuple[str, ...], message: str
) -> None:
    grow(tmp_path, files)
    with pytest.raises(ValueError, match=message) as caught:
        detect(SourceConfig("auto", str(tmp_path / input), annotations))
    assert str(caught.value).endswith(f"--source may be {', '.join(SOURCES)}")


def test_missing_input() -> None:
    with pytest.raises(ValueError, match="--input is '/nowhere': there is no such file or folder"):
        detect(SourceConfig("auto", "/nowhere"))


def test_registry_names() -> None:
    assert [name for name, source in SOURCES.items() if source.untyped] == ["csv"]
    assert list(SOURCES)[-1] == "folder"  # which any image makes
    for name, source in SOURCES.items():
        told = source.description
        assert name == source.name
        assert all(text and "\n" not in text and "|" not in text for text in (told.reads, told.label))
        assert all(text and "\n" not in text and "|" not in text for text in (told.split, told.key))
        assert told.example.count("\n") >= 1 or name in ("archive", "csv", "sequence")


def test_source_of() -> None:
    assert source_of(SourceConfig("csv", "x")) is SOURCES["csv"]
    with pytest.raises(ValueError, match="kind is 'zip'; it may be idx, .*, folder$"):
        source_of(SourceConfig("zip", "x"))
    with pytest.raises(ValueError, match=r"kind is 'auto'; it may be .*; detect\(\) finds the one that fits"):
        source_of(SourceConfig("auto", "x"))


def test_two_ways_to_label_are_one_too_many() -> None:
    with pytest.raises(
        ValueError,
        match="SourceConfig.label_column is 'x' and SourceConfig.label_pattern '[(].[)]', which both",
    ):
        SourceConfig("csv", "x", label_column="x", label_pattern="(.)")


@pytest.mark.parametrize(
    ("kind", "input", "annotations", "refused"),
    [
        ("folder", "", (), ""),
        ("folder", "a.jpg", (), "a.jpg"),
        ("idx", "", (), ""),
        ("idx", "", (), "t10k-images-idx3-ubyte"),
        ("csv", "m.csv", (), "m.csv"),
        ("csv", "", ("m.csv",), "m.csv"),
        ("jsonl", "m.jsonl", (), "m.jsonl"),
        ("jsonl", "", ("m.jsonl",), "m.jsonl"),
    ],
)
def test_what_may_not_be_read_is_refused_by_flag_and_path(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    input: str,
    annotations: tuple[str, ...],
    refused: str,
) -> None:
    """Tests may run as root, whom nothing is forbidden."""
    grow(tmp_path, dict.fromkeys(("a.jpg", "m.csv", "m.jsonl", "t10k-images-idx3-ubyte"), "x"))
    config = SourceConfig(kind, str(tmp_path / input), tuple(str(tmp_path / name) for name in annotations))
    secret = str(tmp_path / refused)

    def refusing(function: Callable[..., object]) -> Callable[..., object]:
        def called(path: object, *args: object, **options: object) -> object:
            if path == secret:
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return function(path, *args, **options)

        return called

    for name in ("scandir", "listdir", "open"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    calls: list[Callable[[SourceConfig], object]] = [source_of(config).check]
    if secret == config.input:
        calls.append(detect)
        calls += [source_of(config).split_names] if kind == "folder" and not refused else []
    calls += [partial(sniff, source_of(config))] if kind == "idx" and not refused else []
    for call in calls:
        with pytest.raises(ValueError, match="permission denied") as caught:
            call(config)
        flag, path = ("--annotations", secret) if annotations else ("--input", config.input)
        assert str(caught.value).startswith(f"{flag} is {path!r}: ")
        assert secret in str(caught.value)


@pytest.mark.parametrize("times", [3, 4])
@pytest.mark.parametrize(
    ("kind", "input", "annotations", "failing"),
    [
        ("folder", "", (), ""),
        ("folder", "", (), "cat"),
        ("folder", "a.jpg", (), ""),
        ("idx", "", (), ""),
        ("idx", "", (), "t10k-images-idx3-ubyte"),
        ("idx", "", (), "train-images-idx3-ubyte.gz"),
        ("csv", "m.csv", (), "m.csv"),
        ("csv", "", ("m.csv",), "m.csv"),
        ("jsonl", "m.jsonl", (), "m.jsonl"),
        ("jsonl", "", ("m.jsonl",), "m.jsonl"),
    ],
)
@pytest.mark.parametrize("call", ["detect", "check", "read"])
def test_faults_that_pass_do_not_show_and_others_are_told_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    waits: list[float],
    call: str,
    kind: str,
    input: str,
    annotations: tuple[str, ...],
    failing: str,
    times: int,
) -> None:
    idx = struct.pack(">HBB3I", 0, 8, 3, 1, 1, 1) + b"x"
    texts = {"cat/a.jpg": "x", "a.jpg": "x", "m.csv": "image\na.jpg\n", "m.jsonl": '{"image": "a.jpg"}\n'}
    grow(tmp_path, {name: text for name, text in texts.items() if kind != "idx"})
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx))
    (tmp_path / "scratch").mkdir()
    config = SourceConfig(kind, str(tmp_path / input), tuple(str(tmp_path / name) for name in annotations))

    def called() -> object:
        if call == "detect":
            return detect(config)[0]
        if call == "check":
            return source_of(config).check(config)
        return list(source_of(config).read(config, str(tmp_path / "scratch")))

    expected = called()
    where, calls = str(tmp_path / failing), 0

    def flaky(function: Callable[..., object]) -> Callable[..., object]:
        def one(path: object, *args: object, **options: object) -> object:
            nonlocal calls
            calls += path == where
            if path == where and calls <= times:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return function(path, *args, **options)

        return one

    for name in ("scandir", "listdir", "open"):
        monkeypatch.setattr(os, name, flaky(getattr(os, name)))
    try:
        assert called() == expected
    except (ValueError, JobError) as error:
        assert (times, type(error)) == (4, JobError if call == "read" else ValueError)
        assert "input/output error" in str(error) and where in str(error) and "\n" not in str(error)
    else:
        # what a manifest holds is no part of which source it is of
        assert not calls or times == 3 or (call == "detect" and annotations)
    assert len(waits) == (min(times, 3) if calls else 0)


def test_a_path_that_may_not_even_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(tmp_path, {"in/a.jpg": "", "more/b.jpg": ""})
    stat = os.stat

    def refuse(path: object, **options: object) -> object:
        if str(path).endswith(hidden):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return stat(path, **options)  # type: ignore[arg-type]

    config = SourceConfig("folder", f"{tmp_path}/in", image_roots=(f"{tmp_path}/more",))
    hidden = "nothing"
    monkeypatch.setattr("recordmill.transforms.sources.config.os.stat", refuse)
    assert detect(config)[0] == "folder"
    for hidden, flag in (("/in", "--input"), ("/more", "--image_root")):
        with pytest.raises(ValueError, match=f"{flag} is '{tmp_path}{hidden}': permission denied$"):
            detect(config)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS refuses names that are not UTF-8")
def test_a_path_that_is_not_utf8(tmp_path: Path) -> None:
    path = os.fsdecode(os.path.join(os.fsencode(tmp_path), b"caf\xe9"))
    os.mkdir(path)
    grow(tmp_path, {"in/a.jpg": "", "in/m.csv": "image\na.jpg\n"})
    with open(os.path.join(path, "m.csv"), "w") as file:
        file.write("image\na.jpg\n")
    os.symlink(path, tmp_path / "link")
    good = f"{tmp_path}/in"
    for config, message in [
        (SourceConfig("folder", path), rf"--input is '{tmp_path}/caf\\xe9', which is not UTF-8; rename it"),
        (SourceConfig("folder", f"{tmp_path}/link"), r"--input is .*/link', which leads to '.*/caf\\xe9'"),
        (SourceConfig("csv", f"{good}/m.csv", image_roots=(path,)), r"--image_root is '.*/caf\\xe9', which"),
        (
            SourceConfig("csv", good, (f"{path}/m.csv",)),
            r"--annotations is '.*/caf\\xe9/m.csv', which is not",
        ),
    ]:
        with pytest.raises(ValueError, match=message) as caught:
            source_of(config).check(config)
        str(caught.value).encode()
