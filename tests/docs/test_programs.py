"""Programs of the documents that build pipelines: what their datasets hold."""

from __future__ import annotations

from pathlib import Path
from types import CodeType

import numpy as np
import pytest

from tests.docs.inputs import draw_inputs
from tests.docs.pages import PAGES, blocks, text_of
from tests.lazy import tf
from tests.pipelines.conversion import by_key, failures, manifest


def program(containing: str) -> CodeType:
    """The Python block with this text."""
    found = [
        one
        for page in PAGES
        for one in blocks(text_of(page))
        if one.language == "python" and containing in one.text
    ]
    assert found, f"no page has a program with {containing}"
    return compile(found[0].text, containing, "exec")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with drawn photos."""
    draw_inputs("photos", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(containing: str) -> None:
    exec(program(containing), {"__name__": "page"})


def test_a_source_in_your_own_pipeline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("ReadSource(source)")
    assert capsys.readouterr().out.splitlines() == [str(folder / "from_source/manifest.json")]
    output = folder / "from_source"
    made = manifest(output)
    assert (made["source"]["kind"], made["config"]["name"]) == ("folder", "shapes")
    assert {name: len(split["shards"]) for name, split in made["splits"].items()} == {"train": 2, "val": 2}
    found = by_key(output)
    assert set(found) == {str(path.relative_to(folder / "photos")) for path in folder.rglob("photos/*/*.jpg")}
    for key, one in found.items():
        assert one["image/class/text"] == [key.split("/")[0].encode()]
        assert tf.io.decode_jpeg(one["image/encoded"][0]).shape == (240, 320, 3)
        assert len(one["image/encoded"][0]) < (folder / "photos" / key).stat().st_size
    assert made["counts"] == {"read": 30, "written": 27, "failed": 0, "skipped": 3}


@pytest.mark.slow
def test_your_own_step_behind_a_source(folder: Path) -> None:
    run("beam.FlatMap(polygons_only")
    output = folder / "polygons"
    found = by_key(output)
    assert {key.split("/")[0] for key in found} == {"square", "triangle"}
    assert {(one["image/class/text"][0], one["sides"][0]) for one in found.values()} == {
        (b"square of 4 sides", 4),
        (b"triangle of 3 sides", 3),
    }
    made = manifest(output)
    assert made["labels"] == {"0": "square of 4 sides", "1": "triangle of 3 sides"}
    assert made["counts"] == {"read": 30, "written": 18, "failed": 0, "skipped": 12}
    skipped = [one for one in failures(output) if one["reason"] == "not a polygon"]
    assert [one["key"].split("/")[0] for one in skipped] == ["circle"] * 9


@pytest.mark.slow
def test_your_own_records(folder: Path) -> None:
    run("beam.Create(ROWS)")
    output = folder / "from_rows"
    found = by_key(output)
    assert {key: (one["camera"], one["image/class/label"]) for key, one in found.items()} == {
        "circle/circle_000.jpg": ([7], [0]),
        "square/square_000.jpg": ([3], [1]),
    }
    for key, one in found.items():
        stored = (folder / "photos" / key).read_bytes()
        np.testing.assert_array_equal(tf.io.decode_image(one["image/encoded"][0]), tf.io.decode_image(stored))
    assert failures(output) == [{"key": "camera 3", "stage": "list", "reason": "no file"}]


@pytest.mark.slow
def test_images_made_in_the_pipeline(folder: Path) -> None:
    run("beam.Create(range(27))")
    output = folder / "drawn"
    found = by_key(output)
    assert set(found) == {f"grey/{value:03d}.png" for value in range(0, 251, 10)}
    for key, one in found.items():
        value = int(key[5:8])
        assert one["image/class/text"] == [b"dark" if value < 128 else b"light"]
        decoded = tf.io.decode_png(one["image/encoded"][0])
        np.testing.assert_array_equal(decoded, np.full((32, 32, 1), value))
    assert failures(output) == [{"key": "grey/260", "stage": "draw", "reason": "too bright"}]
    assert not (output / ".recordmill").exists() or not list((output / ".recordmill").glob("*/"))
