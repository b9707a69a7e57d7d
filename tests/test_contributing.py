"""CONTRIBUTING.md: its source is one file and one line; its section on file systems is true."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from PIL import Image

from recordmill.pipelines import cli
from recordmill.transforms.sources import registry
from recordmill.transforms.storage.file_system import FileSystem
from tests.lazy import tf

ROOT = Path(__file__).parent.parent


@pytest.fixture
def corners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source of CONTRIBUTING.md with its row in the registry, and a folder for it."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    path = tmp_path / "corners.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location("corners", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, f"{registry.__package__}.corners", module)
    spec.loader.exec_module(module)
    (row,) = re.findall(r'`"corners": (Row\(.*\))`', text)
    monkeypatch.setitem(registry.ROWS, "corners", eval(row, vars(registry)))
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, color in enumerate(("red", "green", "blue")):
        Image.new("RGB", (40, 20), color).save(folder / f"{number}.png")
    lines = ["0.png cat 4 5 20 15", "1.png dog 0 0 40 20", "2.png cat 4 5 20", "3.png cat 0 0 1 1"]
    (folder / "corners.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.slow
def test_the_example_converts(corners: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    command = ["convert", "--input", str(corners), "--output", str(out), "--max_failure_ratio", "0.5"]
    assert cli.main([*command, "--num_shards", "1", "--quiet"]) == 0
    found = {}
    for record in tf.data.TFRecordDataset(sorted(map(str, out.glob("*.tfrecord")))):
        example = tf.train.Example.FromString(record.numpy()).features.feature
        box = [
            example[f"image/object/bbox/{side}"].float_list.value[0]
            for side in ("xmin", "ymin", "xmax", "ymax")
        ]
        label = example["image/object/class/text"].bytes_list.value[0]
        found[example["image/filename"].bytes_list.value[0]] = (label, box)
    assert found == {
        b"0.png": (b"cat", [pytest.approx(0.1), 0.25, 0.5, 0.75]),
        b"1.png": (b"dog", [0.0, 0.0, 1.0, 1.0]),
    }
    failures = (out / "failures.jsonl").read_text().splitlines()
    assert [re.findall(r'"key": "([^"]*)"', line) for line in failures] == [
        ["corners.txt:3"],
        ["corners.txt:4"],
    ]


def test_formats_lists_it(corners: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["formats", "corners"]) == 0
    assert "an image, its label and the corners of its box on each line" in capsys.readouterr().out


def test_what_a_file_system_needs() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    section = text.partition("## Add a file system\n")[2].partition("\n## ")[0]
    (abstract,) = re.findall(r"([^.]*) are abstract", section)
    assert set(re.findall(r"`(\w+)`", abstract)) == FileSystem.__abstractmethods__
    flags = {name: value for name, value in vars(FileSystem).items() if name.startswith("has_")}
    assert dict(re.findall(r"^\| `(has_\w+)` \| (\w+) \|", section, re.M)) == {
        name: "yes" if value else "no" for name, value in flags.items()
    }
    for name in re.findall(r"`([a-z]\w+)`", section):
        assert name in ("file_system", "story", "if_generation", "gs") or hasattr(FileSystem, name), name
    for path in re.findall(r"`([\w/]+\.py)`", section):
        assert (ROOT / path).is_file()
