"""The benchmarks measure what they say, and their contenders do the same work."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import simplejpeg
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from benchmarks import write
from benchmarks.contenders import BEAM, CODEC, CONTENDERS, KEPT_HEADER, LOOP, Q90, memory_cases
from benchmarks.inputs import draw_digits, draw_inputs, draw_jpegs, draw_manifest
from benchmarks.measure import Memory, Times, peak_memory, processes_importing, wall_seconds
from benchmarks.report import markdown_table
from benchmarks.write import memory_goals, speed_goals
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect

IMAGES = 24


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs") / "photos"
    draw_jpegs(folder, IMAGES)
    return folder


def records_of(folder: Path) -> list[bytes]:
    tf = pytest.importorskip("tensorflow")
    files = sorted(map(str, folder.glob("*.tfrecord")))
    return sorted(record.numpy() for record in tf.data.TFRecordDataset(files))


def test_photos_are_like_a_cameras(photos: Path) -> None:
    files = sorted(photos.rglob("*.jpg"))
    assert len({path.read_bytes() for path in files}) == len(files) == IMAGES
    for path in files:
        assert 50_000 < path.stat().st_size < 90_000
        assert simplejpeg.decode_jpeg_header(path.read_bytes()) == (360, 480, "YCbCr", "420")
        with Image.open(path) as image:
            image.load()
            assert image.info["comment"] == path.stem.encode()
            assert isinstance(image, JpegImageFile)
            assert image.quantization[0][0] == 2  # quality 95: a tenth of the standard table's 16


def test_manifest_and_digits_are_taken_for_what_they_are(tmp_path: Path) -> None:
    draw_digits(tmp_path / "digits", 20)
    draw_manifest(tmp_path / "rows.csv", 20)
    assert detect(SourceConfig("auto", str(tmp_path / "digits")))[0] == "idx"
    kind, why, _ = detect(SourceConfig("auto", str(tmp_path / "rows.csv")))
    assert kind == "csv" and "features alone" in why


def test_inputs_are_drawn_once(tmp_path: Path) -> None:
    first = draw_inputs(tmp_path, images=10, digits=5, rows=3)
    drawn = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert draw_inputs(tmp_path, images=10, digits=5, rows=3) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == drawn
    assert not list(tmp_path.glob("run-*"))
    assert first.image_bytes == sum(path.stat().st_size for path in first.all_images.rglob("*.jpg"))


@pytest.mark.slow
def test_contenders_write_the_same_records(photos: Path, tmp_path: Path) -> None:
    expected = None
    for contender in (KEPT_HEADER, BEAM, LOOP):
        output = tmp_path / str(len(contender.name))
        wall_seconds(contender.arguments(photos, output))
        contender.check(output, IMAGES)
        records = records_of(output)
        assert len(records) == IMAGES
        assert records == (expected or records), contender.name
        expected = records


@pytest.mark.slow
def test_the_loop_reports_its_shards(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "loop"
    wall_seconds(LOOP.arguments(photos, output))
    shards = json.loads((output / "manifest.json").read_text())["shards"]
    assert sum(shard["records"] for shard in shards) == IMAGES
    for shard in shards:
        content = (output / shard["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == shard["sha256"]
        lines = (output / shard["file"]).with_suffix(".idx").read_text().splitlines()
        frames = [tuple(map(int, line.split())) for line in lines]
        assert len(frames) == shard["records"]
        assert sum(length for _, length in frames) == len(content) == shard["bytes"]


@pytest.mark.slow
def test_the_codec_loop_reencodes_everything(photos: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wall_seconds(CODEC.arguments(photos, photos))
    from benchmarks.codec_loop import main

    main(str(photos), "1")
    total = int(capfd.readouterr().out)
    assert 0.4 < total / sum(path.stat().st_size for path in photos.rglob("*.jpg")) < 0.8


def test_a_contender_that_did_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"actions": {"kept": 3, "reencoded": 7}}')
    with pytest.raises(RuntimeError, match="expected 10 reencoded, got .*'kept': 3"):
        Q90.check(tmp_path, 10)


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="status 3:\nno such luck"):
        wall_seconds(["-c", "import sys; print('no such luck'); sys.exit(3)"])


def test_wall_time_is_of_the_whole_process() -> None:
    assert 0.3 < wall_seconds(["-c", "import time; time.sleep(0.3)"]) < 5


@pytest.mark.slow
def test_memory_is_of_the_whole_tree() -> None:
    hold = "import time; held = b'x' * 100_000_000; time.sleep(0.6)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    alone, both = peak_memory(["-c", hold]), peak_memory(["-c", parent])
    assert alone.processes == 1 and both.processes == 2
    assert 100_000_000 < alone.rss < 140_000_000
    assert 100_000_000 < both.rss < 160_000_000
    assert both.rss > alone.rss
    if sys.platform == "linux":
        assert 100_000_000 < both.pss <= both.rss


def test_an_import_of_tensorflow_is_noticed_in_any_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow/__init__.py").write_text("import tensorflow.dtypes\n")
    (tmp_path / "tensorflow/dtypes.py").touch()
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    child = "import importlib, os, signal; importlib.import_module('tensorflow.dtypes')"
    child += "; os.kill(os.getpid(), signal.SIGTERM)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    assert processes_importing(["-c", parent]) == (2, 1)
    assert processes_importing(["-c", "import json"]) == (1, 0)


def made_up_speeds(beam: float) -> dict[str, Times]:
    speeds = {contender.name: Times([2.0], [5.0]) for contender in CONTENDERS}
    speeds[BEAM.name] = Times([2.0], [beam, 1000.0, 0.0])
    return speeds


def test_goals_are_judged_by_medians() -> None:
    goals = speed_goals(made_up_speeds(beam=30.0))
    assert [(goal.measured, goal.met) for goal in goals] == [
        ("6.00", True),
        ("1.00", True),
        ("1.00", True),
        ("2.00 s", True),
    ]
    assert not speed_goals(made_up_speeds(beam=29.0))[0].met


def test_memory_goals_are_limits_and_growth(tmp_path: Path) -> None:
    cases = memory_cases(draw_inputs(tmp_path, images=10, digits=5, rows=3))
    peaks = {case.name: Memory(rss=300_000_000) for case in cases}
    assert all(goal.met for goal in memory_goals(cases, peaks))
    peaks[cases[1].name] = Memory(rss=346_000_000)
    missed = [goal for goal in memory_goals(cases, peaks) if not goal.met]
    assert [(goal.limit, goal.measured) for goal in missed] == [("≤ 1.15", "1.15")]
    peaks[cases[7].name] = Memory(rss=1_500_000_001)
    assert len([goal for goal in memory_goals(cases, peaks) if not goal.met]) == 2


def test_tables_are_markdown() -> None:
    assert markdown_table(("a", "b"), [("c", "1")]) == "| a | b |\n| --- | ---: |\n| c | 1 |"


def cheap(_: Path, output: Path) -> list[str]:
    return ["-c", f"import os, time; os.mkdir({str(output)!r}); time.sleep(0.1)"]


@pytest.mark.slow
def test_a_whole_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stand-ins for what is timed and weighed: the true commands are run above."""
    stand_ins = [dataclasses.replace(one, arguments=cheap, action=None) for one in CONTENDERS]
    monkeypatch.setattr(write, "CONTENDERS", stand_ins)
    monkeypatch.setattr(
        write,
        "memory_cases",
        lambda inputs: [dataclasses.replace(case, arguments=cheap) for case in memory_cases(inputs)],
    )
    work = tmp_path / "work"
    arguments = ["--images", "10", "--digits", "5", "--rows", "3", "--repeats", "2"]
    write.main([*arguments, "--work", str(work)])
    text = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    first = {row[0]: row[1:] for row in rows}
    assert [row[0] for row in rows[2:8]] == [one.name for one in stand_ins]
    assert [len(row[3].split(", ")) for row in rows[2:8]] == [2] * len(stand_ins)
    found, met = first["processes that import TensorFlow"][1:]
    if find_spec("tensorflow"):
        assert re.fullmatch("0 of [1-9]", found) and met == "yes"
    else:
        assert found == "TensorFlow is not installed here" and met == "**no**"
    graphs = [row for row in rows if row[0].startswith("bytes of the job graph")]
    assert [row[-1] for row in graphs] == ["yes", "yes"]
    tables = {"speed": 6, "memory": 10, "goals": 4 + 8 + 3 + 1 + 2}
    assert len(rows) == sum(2 + length for length in tables.values())
    assert not (work / "output").exists()


@pytest.mark.parametrize("flag", ["--images", "--digits", "--rows", "--repeats"])
def test_a_wrong_call(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        write.main([flag, "0"])
    assert "--images must be at least 10" in capsys.readouterr().err
