"""What is printed at the end: the lines that read the dataset are run as they are."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.drawings import draw
from recordmill.pipelines import summary
from tests.pipelines.conversion import convert


def printed(capsys: pytest.CaptureFixture[str], source: Path, output: Path, *args: str) -> str:
    """What a conversion prints."""
    assert convert("--input", source, "--output", output, *args) == 0
    return capsys.readouterr().out


def run(text: str) -> dict[str, Any]:
    """Runs the indented lines below the table of a text; what they have defined."""
    lines = [line.strip() for line in text.rpartition(" To read ")[2].splitlines() if line.startswith("    ")]
    defined: dict[str, Any] = {}
    exec("\n".join(lines), defined)
    return defined


@pytest.mark.slow
def test_the_printed_lines_read_the_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        path = tmp_path / "it's" / name / "0.png"
        path.parent.mkdir(parents=True)
        draw("circle", 1, 40, 20).save(path)
    output = tmp_path / 'the "out"'
    text = printed(capsys, tmp_path / "it's", output, "--splits=only=1")
    assert f"The dataset is in {output}/. Its report.html describes it. To read it:\n" in text
    ours, _, theirs = text.partition("TensorFlow Datasets reads it too:")
    assert {example["image/encoded"].shape for example in run(ours)["dataset"]} == {(20, 40, 3)}
    assert "image/encoded" in capsys.readouterr().out  # the first example
    assert sorted(int(one["image/class/label"]) for one in run(theirs)["dataset"]) == [0, 1]


@pytest.mark.slow
def test_sequences_are_not_said_to_be_read_by_tfds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "in" / "clip" / "0.png"
    path.parent.mkdir(parents=True)
    draw("circle", 1, 40, 20).save(path)
    text = printed(capsys, tmp_path / "in", tmp_path / "out", "--source=frames")
    assert "tfds" not in text
    assert len(list(run(text)["dataset"])) == 1


@pytest.mark.parametrize(
    ("records", "split"),
    [
        ({"test": 9, "train": 1, "val": 5}, "train"),
        ({"test": 3, "training": 7, "val": 5}, "training"),
        ({"b": 5, "c": 5, "a": 1}, "b"),
    ],
)
def test_the_printed_lines_read_the_split_that_people_start_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], records: dict[str, int], split: str
) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(manifest(splits=records)))
    summary.print_result(str(path))
    text = capsys.readouterr().out
    assert f"load_dataset({str(tmp_path)!r}, split={split!r})" in text
    assert f"as_dataset(split={split!r})" in text


def manifest(splits: dict[str, int]) -> dict[str, Any]:
    """A manifest of an earlier version, as far as the table reads it."""
    time = "2026-01-02T03:04:05+00:00"
    return {
        "source": {"kind": "folder", "input": "/photos"},
        "config": {"schema": "classification", "optimize": "none"},
        "counts": {"read": 9, "written": 9, "failed": 0, "skipped": 0},
        "reasons": {"failed": [], "skipped": []},
        "bytes": {"source": 9, "encoded": 9, "shards": 9},
        "actions": {},
        "alpha": {"images": 0},
        "jpeg_qualities": {},
        "splits": {name: {"records": count, "shards": [{}]} for name, count in splits.items()},
        "annotations": {"stored": {}, "changed": {}},
        "labels": {"0": "cat", "1": "dog"},
        "provenance": {"started": time, "finished": time, "reused_shards": 0},
        "files": ["dataset_info.json"],
    }


def test_a_manifest_of_an_earlier_version_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(manifest({"train": 9})))
    summary.print_result(str(path))
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert rows[:4] == ["source folder", "input /photos", "schema classification", "classes 2 named"]


def test_warnings_are_lines_of_their_own_below_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {
        **manifest({"train": 9}),
        "classes": {
            "objects": {
                "classes": 2,
                "largest": {"name": "[bold]cat", "count": 7},
                "smallest": {"name": "dog", "count": 1},
            }
        },
        "warnings": [{"kind": "x", "found": "[red]9 of 10", "check": f"Check {'that ' * 40}[/red]"}],
    }
    found["provenance"]["source_reason"] = "it holds images"
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(found))
    summary.print_result(str(path))
    lines = capsys.readouterr().out.splitlines()
    table = " ".join(" ".join(lines).split())
    assert table.startswith(
        "source folder (it holds images) input /photos schema classification object classes 2: "
    )
    assert "the largest is '[bold]cat' with 7 objects, the smallest is 'dog' with 1" in table
    assert f"WARNING: [red]9 of 10. Check {'that ' * 40}[/red]" in lines
    assert lines.index(f"The dataset is in {tmp_path}/. To read it:") > lines.index(
        f"WARNING: [red]9 of 10. Check {'that ' * 40}[/red]"
    )
