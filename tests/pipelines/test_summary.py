"""What is printed at the end: the lines that read the dataset are run as they are."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.drawings import draw
from tests.pipelines.conversion import convert


def printed(capsys: pytest.CaptureFixture[str], source: Path, output: Path, *args: str) -> str:
    """What a conversion prints."""
    assert convert("--input", source, "--output", output, *args) == 0
    return capsys.readouterr().out


def run(text: str) -> dict[str, Any]:
    """Runs the indented lines below the table of a text; what they have defined."""
    lines = [
        line.strip() for line in text.rpartition("To read it:")[2].splitlines() if line.startswith("    ")
    ]
    defined: dict[str, Any] = {}
    exec("\n".join(lines), defined)
    return defined


def test_the_printed_lines_read_the_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        path = tmp_path / "it's" / name / "0.png"
        path.parent.mkdir(parents=True)
        draw("circle", 1, 40, 20).save(path)
    output = tmp_path / 'the "out"'
    text = printed(capsys, tmp_path / "it's", output, "--splits=only=1")
    assert f"The dataset is in {output}/. Its report.html shows what it is. To read it:\n" in text
    ours, _, theirs = text.partition("TensorFlow Datasets reads it too:")
    assert {example["image/encoded"].shape for example in run(ours)["dataset"]} == {(20, 40, 3)}
    assert "image/encoded" in capsys.readouterr().out  # the first example
    assert sorted(int(one["image/class/label"]) for one in run(theirs)["dataset"]) == [0, 1]


def test_sequences_are_not_said_to_be_read_by_tfds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "in" / "clip" / "0.png"
    path.parent.mkdir(parents=True)
    draw("circle", 1, 40, 20).save(path)
    text = printed(capsys, tmp_path / "in", tmp_path / "out", "--source=frames")
    assert "tfds" not in text
    assert len(list(run(text)["dataset"])) == 1
