"""Warnings about a dataset, from the plan to the page; --strict, which makes them a failure."""

import csv
import json
from pathlib import Path

import pytest

from benchmarks.drawings import draw
from recordmill.transforms.shards.overview import DataWarning
from tests.lazy import jsonschema
from tests.pipelines.conversion import convert, digests, failures, manifest

SCHEMA = Path(__file__).parents[2] / "transforms/shards/manifest.schema.json"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A CSV file of eight images, one of them broken, whose classes are `cat`, `Cat`, `dog` and none."""
    folder = tmp_path / "photos"
    folder.mkdir()
    labels = ["cat", "cat", "Cat", "dog", "dog", "dog", "", "dog"]
    for number in range(7):
        draw("circle", number, 40, 20).save(folder / f"{number}.png")
    (folder / "7.png").write_bytes(b"no image")
    with open(folder / "labels.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "split"])
        for number, label in enumerate(labels):
            writer.writerow([f"{number}.png", label, "val" if number == 0 else "train"])
    return folder / "labels.csv"


EXPECTED = [
    {
        "kind": "unlabelled_records",
        "found": "1 of 7 records has no label (train 1 of 6)",
        "check": "Check that their folders, rows or annotation files were found and name a class",
    },
    {
        "kind": "class_spelling",
        "found": "1 class has more than one spelling: 'Cat' (1), 'cat' (2)",
        "check": "Check whether they are the same class. If so, use one spelling in the input",
    },
]


def lines_of(warnings: list[dict[str, str]]) -> list[str]:
    return [f"WARNING: {DataWarning(**one).text}" for one in warnings]


def warned(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("WARNING")]


@pytest.mark.parametrize("writer", ["shards", pytest.param("beam", marks=pytest.mark.slow)])
def test_they_are_printed_and_in_the_manifest_and_on_the_page(
    rows: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], writer: str
) -> None:
    output = tmp_path / "out"
    flags = ("--max_failure_ratio=0.5", f"--writer={writer}", "--num_shards=train=2,val=1")
    assert convert("--input", rows, "--output", output, *flags) == 0
    text = capfd.readouterr().out
    made = manifest(output)
    jsonschema.validate(made, json.loads(SCHEMA.read_text("utf-8")))
    assert made["warnings"] == EXPECTED
    assert made["classes"] == {
        "labels": {
            "classes": 3,
            "largest": {"name": "dog", "count": 3},
            "smallest": {"name": "Cat", "count": 1},
        }
    }
    assert made["provenance"]["source_reason"].endswith("; splits: split")
    assert warned(text) == lines_of(EXPECTED)
    table = " ".join(text.split())
    assert table.startswith("source csv (")
    assert "schema classification classes 3: the largest is 'dog' with 3 labels, the smallest is" in table
    page = (output / "report.html").read_text("utf-8")
    assert page.count("<b><bdi>1 class has more than one spelling") == 1
    assert page.count("<b><bdi>1 of 7 records has no label (train 1 of 6)</bdi>.</b>") == 1
    assert "3: the largest is &#39;dog&#39; with 3 labels" in page
    assert "csv (" in page and "; splits: split)" in page


@pytest.mark.slow
def test_the_plan_has_them_before_an_image_is_read(
    rows: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    call = ("--input", rows, "--output", tmp_path / "out", "--plan")
    assert convert(*call) == 0
    text = capfd.readouterr().out
    listed = [{**EXPECTED[0], "found": "1 of 8 records has no label (train 1 of 7)"}, EXPECTED[1]]
    assert warned(text) == lines_of(listed)
    assert "classes      3: the largest is 'dog' with 4 labels, the" in text
    assert convert(*call, "--strict") == 1
    assert warned(capfd.readouterr().out) == lines_of(listed)
    assert not (tmp_path / "out").exists()


def test_a_strict_plan_without_warnings(photos: Path, tmp_path: Path) -> None:
    assert convert("--input", photos, "--output", tmp_path / "out", "--plan", "--strict") == 0


@pytest.mark.parametrize("writer", ["shards", pytest.param("beam", marks=pytest.mark.slow)])
def test_a_strict_job_publishes_nothing(
    rows: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], writer: str
) -> None:
    output = tmp_path / "out"
    flags = ("--name=x", "--max_failure_ratio=0.5", f"--writer={writer}", "--num_shards=train=2,val=1")
    call = ("--input", rows, "--output", output, *flags)
    assert convert(*call, "--strict") == 1
    text = capfd.readouterr().err
    listed = ". ".join(DataWarning(**one).text for one in EXPECTED)
    assert f"the dataset has 2 warnings, and --strict is set; nothing is published: {listed}\n" in text
    assert not list(output.glob("*.tfrecord")) and not (output / "manifest.json").exists()
    assert [one["key"] for one in failures(output)] == ["7.png"]
    if writer == "shards":
        assert "3 finished shards are kept" in text and "or without --strict" in text
    assert convert(*call) == 0
    made = manifest(output)
    assert made["warnings"] == EXPECTED
    assert made["provenance"]["reused_shards"] == (3 if writer == "shards" else 0)
    assert convert("--input", rows, "--output", tmp_path / "other", *flags) == 0
    if writer == "shards":
        assert digests(tmp_path / "other") == digests(output)
        assert manifest(tmp_path / "other")["config_digest"] == made["config_digest"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of three images."""
    folder = tmp_path / "classes"
    for number in range(6):
        path = folder / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        draw("circle", number, 40, 20).save(path)
    return folder


@pytest.mark.slow
def test_a_strict_job_without_warnings_is_published(photos: Path, tmp_path: Path) -> None:
    assert convert("--input", photos, "--output", tmp_path / "out", "--strict") == 0
    assert manifest(tmp_path / "out")["warnings"] == []


@pytest.mark.slow
def test_versions(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A reused shard has the same warnings; neither they nor --strict make another version."""
    output = tmp_path / "out"
    draw("square", 1, 40, 20).save(photos / "x.png")
    call = ("--input", photos, "--output", output, "--dataset_version=auto", "--num_shards=2")
    assert convert(*call) == 0
    first = manifest(output / "1.0.0")
    assert [one["kind"] for one in first["warnings"]] == ["unlabelled_records"]
    capfd.readouterr()
    assert convert(*call, "--source=folder") == 0  # for another reason
    assert "Nothing has changed since version 1.0.0" in capfd.readouterr().out
    assert convert(*call, "--strict") == 1
    assert "the dataset has 1 warning, and --strict is set" in capfd.readouterr().err
    draw("square", 2, 40, 20).save(photos / "a/more.png")
    assert convert(*call, "--strict") == 1
    assert convert(*call) == 0
    second = manifest(output / "1.0.1")
    assert [one["found"] for one in second["warnings"]] == ["1 of 8 records has no label"]
    assert second["provenance"]["taken_over"]["records"] == 7
    assert sorted(path.name for path in output.iterdir()) == ["1.0.0", "1.0.1", "latest.json"]
