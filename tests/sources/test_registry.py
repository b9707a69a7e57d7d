"""--source auto: which source an input is, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from transforms.sources.registry import SOURCES, detect
from transforms.sources.source import SourceConfig


def grow(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("files", "input", "annotations", "kind", "why"),
    [
        ({"a.jpg": ""}, "", (), "folder", "such as 'a.jpg'; splits: none; labels: none"),
        ({"cat/a.jpg": "", "cat/a.xml": ""}, "", (), "folder", "labels: cat; other files, not read: 1 .xml"),
        ({"train/x/a.jpg": "", "val/y/b.jpg": ""}, "", (), "folder", "splits: train, val; labels: x, y"),
        ({f"{name}/a.jpg": "" for name in "abcdefg"}, "", (), "folder", "labels: a, b, c, d, e, …"),
        ({"a.jpg": "", "labels.csv": "image\na.jpg\n"}, "", (), "folder", "other files, not read: 1 .csv"),
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
        ({"a.tfrecord": "", "b.tfrecord": "", "x/m.pbtxt": ""}, "", (), "it has 2 .tfrecord, 1 .pbtxt"),
        ({"a.tar": ""}, "a.tar", (), "it is a file with the extension .tar"),
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
    assert str(caught.value).endswith("--source may be folder, csv, jsonl, idx")


def test_missing_input() -> None:
    with pytest.raises(ValueError, match="--input is '/nowhere': there is no such file or folder"):
        detect(SourceConfig("auto", "/nowhere"))


def test_registry_names() -> None:
    assert {name: source.untyped for name, source in SOURCES.items()} == {
        "folder": False,
        "csv": True,
        "jsonl": False,
        "idx": False,
    }
    assert all(name == source.name and "\n" not in source.summary for name, source in SOURCES.items())
