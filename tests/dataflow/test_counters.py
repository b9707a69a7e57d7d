"""What the monitoring of a job shows: counters by step, and log lines that name the inputs that failed."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from benchmarks.drawings import draw, draw_folder
from recordmill.pipelines.options.convert import parse_convert
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.metrics import NAMESPACE, FailureLog
from recordmill.transforms.read import ReadSource
from recordmill.transforms.records import Failure
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.registry import source_of
from recordmill.transforms.write import WriteDataset
from tests.pipelines.conversion import convert, manifest


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """6 images, 2 of them PNG; 1 that is broken, 1 file without an image's name, 1 with none's content."""
    folder = tmp_path_factory.mktemp("input") / "mixed"
    assert len(list(draw_folder(folder, each=2))) == 6
    for number in range(2):
        draw("circle", number).save(folder / "circle" / f"drawn_{number}.png")
    (folder / "circle" / "broken.jpg").write_bytes(b"\xff\xd8\xff no more")
    (folder / "circle" / "text.png").write_bytes(b"this is text, and no image")
    (folder / "square" / "notes.txt").write_bytes(b"notes")
    return folder


def counters(input_folder: Path, output: Path, writer: str) -> dict[str, dict[str, int]]:
    """Values of our counters, by name and step."""
    source = SourceConfig(kind="folder", input=str(input_folder))
    config = DatasetConfig(
        policy=ImagePolicy(image_format="jpeg"),
        untyped_features=source_of(source).untyped,
        num_shards=1,
        writer=writer,
        max_failure_ratio=0.5,
    )
    pipeline = beam.Pipeline(FnApiRunner())
    _ = pipeline | "Read" >> ReadSource(source) | "Write" >> WriteDataset(str(output), config)
    result = pipeline.run()
    result.wait_until_finish()
    found: dict[str, dict[str, int]] = {}
    for counter in result.metrics().query()["counters"]:
        if counter.key.metric.namespace == NAMESPACE:
            found.setdefault(counter.key.metric.name, {})[counter.key.step] = counter.committed
    return found


@pytest.mark.parametrize("writer", [pytest.param("shards", marks=pytest.mark.slow), "beam"])
def test_counters(writer: str, mixed: Path, tmp_path: Path) -> None:
    found = counters(mixed, tmp_path / "out", writer)
    published = manifest(tmp_path / "out")
    values = {name: sum(steps.values()) for name, steps in found.items()}
    assert published["counts"] == {"read": 11, "written": 8, "failed": 2, "skipped": 1}
    expected = {
        "read": 11,
        "written": 8,
        "bytes/source": published["bytes"]["source"],
        "bytes/images": published["bytes"]["encoded"],
        "bytes/shards": published["bytes"]["shards"],
        "shards/written" if writer == "shards" else "shards/read back": 1,
        "published": 1,
        **{f"actions/{name}": count for name, count in published["actions"].items()},
    }
    for kind in ("failed", "skipped"):
        for row in published["reasons"][kind]:
            expected[f"{kind}/{row['stage']}/{row['reason']}"] = row["count"]
    assert values == expected
    assert sum(name.startswith("failed/decode/") for name in values) == 2
    assert len(published["actions"]) > 1
    steps = {"read": "Survey", "skipped/list": "Survey", "failed/decode": "Write", "written": "Write"}
    if writer == "beam":
        steps = {**steps, "failed/decode": "Encode", "written": "Encode"}
    for name, by_step in found.items():
        for start, step in steps.items():
            if name.startswith(start):
                assert [each.split("/ParDo(")[0].rpartition("/")[2] for each in by_step] == [step], name


@pytest.mark.slow
def test_shards_that_were_finished_before(mixed: Path, tmp_path: Path) -> None:
    call = ("--input", mixed, "--output", tmp_path / "out", "--image_format=jpeg", "--num_shards=1")
    assert convert(*call, "--quiet", "--max_failure_ratio=0") == 1
    source = SourceConfig(kind="folder", input=str(mixed))
    assert source_of(source).untyped is False
    # The same call as that of the command line, but for what may differ.
    options = parse_convert([*map(str, call), "--max_failure_ratio=0.5"], "x")
    pipeline = beam.Pipeline(FnApiRunner())
    write = WriteDataset(options.output, options.dataset, options.source.as_json())
    _ = pipeline | ReadSource(options.source) | write
    result = pipeline.run()
    result.wait_until_finish()
    names = {counter.key.metric.name for counter in result.metrics().query()["counters"]}
    assert "shards/reused" in names
    assert "shards/written" not in names


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["shards", "beam"])
def test_each_failed_input_is_named_in_the_log(
    writer: str, mixed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "recordmill"):
        counters(mixed, tmp_path / "out", writer)
    lines = sorted(record.getMessage() for record in caplog.records if record.name.startswith("recordmill"))
    assert [line.partition(" (")[0] for line in lines] == [
        "circle/broken.jpg: decode: truncated",
        "circle/text.png: decode: not an image",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "named"), [([], False), pytest.param(["--verbose"], True, marks=pytest.mark.slow)]
)
def test_the_terminal_does_not_show_them_unasked(
    flags: list[str], named: bool, mixed: Path, tmp_path: Path
) -> None:
    call = [
        sys.executable,
        "-m",
        "recordmill.pipelines.cli",
        "convert",
        f"--input={mixed}",
        "--max_failure_ratio=0.5",
    ]
    done = subprocess.run(
        [*call, f"--output={tmp_path / 'out'}", "--progress=none", *flags],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert ("circle/broken.jpg: decode: truncated" in done.stderr) is named


def test_the_log_of_many_failures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = [{"key": f"{number}.jpg", "stage": "load", "reason": "not found"} for number in range(30)]
    lines.append({"key": "s", "stage": "list", "reason": "hidden", "skipped": True})  # type: ignore[dict-item]
    path = tmp_path / "failures.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    log = FailureLog()
    for _ in range(2):
        log.add(Failure("a\u2028b.jpg", "load", "not found", "it is gone"))
        log.add_file(str(path))
        log.finish()
        assert [record.getMessage() for record in caplog.records] == [
            "a\u2028b.jpg: load: not found (it is gone)",
            *(f"{number}.jpg: load: not found" for number in range(19)),
            "11 more inputs failed; failures.jsonl names each",
        ]
        caplog.clear()
    log.finish()
    assert caplog.records == []
