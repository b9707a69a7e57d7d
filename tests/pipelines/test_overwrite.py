"""Datasets that are replaced: the old one stays until the new one is complete; nothing else is touched."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.read import ReadSource
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.runs import finished_shards
from recordmill.transforms.write import WriteDataset
from tests.pipelines.conversion import convert, convert_call, digests, failures, manifest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def older(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of three splits, with files of others beside it."""
    output = tmp_path_factory.mktemp("older") / "out"
    splits = "--splits=train=0.5,val=0.25,test=0.25"
    assert convert("--input", photos, "--output", output, "--num_shards=3", splits) == 0
    for name in ("notes.txt", "index/notes.txt", "train-00000-of-00009.tfrecord", "manifest.json.bak"):
        (output / name).write_text("not the dataset's")
    return output


@pytest.fixture(scope="module")
def fresh(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in two shards that replaced none."""
    output = tmp_path_factory.mktemp("fresh") / "out"
    assert convert("--input", photos, "--output", output, "--num_shards=2") == 0
    return output


@pytest.fixture
def output(older: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(older, tmp_path / "out"))


def files(folder: Path) -> dict[str, str]:
    """sha256 of all files below a folder but those of runs."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    found = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    return {name: sha for name, sha in found.items() if not name.startswith(".recordmill/")}


def foreign(older: Path) -> dict[str, str]:
    listed = manifest(older)["files"]
    return {name: sha for name, sha in files(older).items() if name not in listed}


def test_the_manifest_lists_every_file(older: Path) -> None:
    others = {"notes.txt", "index/notes.txt", "train-00000-of-00009.tfrecord", "manifest.json.bak"}
    assert set(foreign(older)) == others
    listed = manifest(older)["files"]
    assert sorted(listed) == listed == sorted(set(files(older)) - others)
    assert manifest(older)["provenance"]["reused_shards"] == 0


def test_a_dataset_is_kept_unless_that_is_asked_for(
    photos: Path, output: Path, older: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert convert("--input", photos, "--output", output) == 2
    assert "which holds a dataset already; --overwrite replaces it" in capfd.readouterr().err
    assert files(output) == files(older)
    assert not (output / ".recordmill").exists()


@pytest.mark.slow
def test_below_the_gate_the_old_dataset_stays(
    photos: Path, older: Path, output: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    worse = Path(shutil.copytree(photos, tmp_path / "worse"))
    (worse / "circle/broken.jpg").write_text("no image")
    call = ("--input", worse, "--output", output, "--num_shards=2", "--overwrite")
    assert convert(*call) == 1
    assert files(output) == files(older)
    message = capfd.readouterr().err
    named = Path(message.split("nothing is published, ")[1].split(" names each")[0])
    assert [json.loads(line)["key"] for line in named.read_text().splitlines()] == ["circle/broken.jpg"]
    assert named.is_relative_to(output / ".recordmill")
    # The same again with a higher ratio has nothing to do but to publish.
    assert convert(*call, "--max_failure_ratio=0.5") == 0
    assert manifest(output)["provenance"]["reused_shards"] == 2
    assert [failure["key"] for failure in failures(output)] == ["circle/broken.jpg"]
    assert foreign(output) == foreign(older)


def test_a_job_that_cannot_be_planned_leaves_all_as_it_is(
    output: Path, older: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "labels.csv").write_text("path,label\n../../etc/passwd,a\n")
    assert convert("--input", tmp_path / "labels.csv", "--output", output, "--overwrite") == 1
    message = capfd.readouterr().err
    assert "there is no record to write: 1 inputs failed, 0 were skipped" in message
    named = Path(message.rsplit("; ", 1)[1].split(" names each")[0])
    assert [json.loads(line)["key"] for line in named.read_text().splitlines()] == ["labels.csv:2"]
    assert named.is_relative_to(output / ".recordmill")
    assert files(output) == files(older)


@pytest.mark.slow
def test_a_job_that_cannot_be_planned_keeps_what_another_has_finished(photos: Path, tmp_path: Path) -> None:
    worse = Path(shutil.copytree(photos, tmp_path / "worse"))
    (worse / "circle/broken.jpg").write_text("no image")
    call = ("--input", worse, "--output", tmp_path / "out", "--num_shards=2")
    assert convert(*call) == 1
    (tmp_path / "labels.csv").write_text("path,label\n../../etc/passwd,a\n")
    assert convert("--input", tmp_path / "labels.csv", "--output", tmp_path / "out") == 1
    assert failures(tmp_path / "out")[0]["key"] == "labels.csv:2"
    assert finished_shards(str(tmp_path / "out")) == 2
    assert convert(*call, "--max_failure_ratio=0.5") == 0
    assert manifest(tmp_path / "out")["provenance"]["reused_shards"] == 2
    assert failures(tmp_path / "out")[0]["key"] == "circle/broken.jpg"


DYING = """
import os, sys
left, call = int(sys.argv.pop(1)), os.replace
def dying(source, target):
    global left
    if "/.recordmill/" not in target:
        if left == 0:
            os._exit(9)
        left -= 1
    call(source, target)
os.replace = dying
from recordmill.pipelines import convert
convert.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("moves", [0, 1, 4, 6])
def test_a_process_that_dies_while_it_publishes(
    moves: int, photos: Path, older: Path, fresh: Path, output: Path
) -> None:
    """Shards and indexes of two shards are four moves, failures.jsonl the fifth, then metadata."""
    call = ["--input", str(photos), "--output", str(output), "--num_shards=2", "--overwrite", "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    died = subprocess.run([sys.executable, "-c", DYING, str(moves), *call], env=environment, timeout=120)
    assert died.returncode == 9
    assert not (output / "manifest.json").exists()
    assert foreign(older).items() <= files(output).items()
    # Without --overwrite too: what it replaced is gone already.
    assert convert(*call[:-2]) == 0
    assert manifest(output)["provenance"]["reused_shards"] == 2
    assert digests(fresh).items() <= digests(output).items()
    assert set(files(output)) == {*files(fresh), *foreign(older)}
    assert not (output / ".recordmill").exists()


@contextlib.contextmanager
def held(output: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process has the lock."""
    script = (
        "import sys\n"
        "from recordmill.transforms.storage import lock\n"
        "lock.acquire(sys.argv[1], 'theirs', 'their command')\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(output)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as popen:
        assert popen.stdout is not None
        assert popen.stdout.readline() == "held\n"
        yield popen
        popen.kill()


def test_a_second_job_is_refused_until_the_first_is_dead(
    photos: Path, output: Path, older: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    call = ("--input", photos, "--output", output, "--overwrite", "--quiet")
    with held(output) as first:
        assert convert(*call) == 1
        message = capfd.readouterr().err
        assert f"another job is at work: process {first.pid} on " in message
        assert "(their command)" in message
        assert "Traceback" not in message
        # In people's own pipelines too.
        with pytest.raises(Exception, match=f"another job is at work: process {first.pid} on "):
            write(photos, output, DatasetConfig(overwrite=True))
        assert files(output) == files(older)
        first.kill()
        first.wait()
        assert convert(*call) == 0
    assert foreign(output) == foreign(older)


@pytest.mark.slow
def test_jobs_that_start_at_once_make_one_dataset(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    call = convert_call(photos, output)
    jobs = [
        subprocess.Popen([*call, "--quiet"], cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    printed = [job.communicate(timeout=120)[1] for job in jobs]
    statuses = [job.returncode for job in jobs]
    assert sorted(statuses)[0] == 0 < sorted(statuses)[1] <= 2
    refusal = printed[statuses.index(max(statuses))]
    assert refusal.count("\n") == 1
    assert "another job is at work: process" in refusal or "holds a dataset already" in refusal
    assert sorted(manifest(output)["files"]) == sorted(files(output))


def write(photos: Path, output: Path, config: DatasetConfig) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        records = pipeline | ReadSource(SourceConfig("folder", str(photos)))
        _ = records | WriteDataset(str(output), config)


@pytest.mark.slow
def test_in_one_process_a_job_follows_one_that_failed(photos: Path, tmp_path: Path) -> None:
    worse = Path(shutil.copytree(photos, tmp_path / "worse"))
    (worse / "circle/broken.jpg").write_text("no image")
    with pytest.raises(Exception, match="1 of 13 inputs failed"):
        write(worse, tmp_path / "out", DatasetConfig())
    assert lock.holder(str(tmp_path / "out")) is None
    write(worse, tmp_path / "out", DatasetConfig(max_failure_ratio=0.5))
    assert manifest(tmp_path / "out")["counts"]["failed"] == 1
    assert not (tmp_path / "out/.recordmill").exists()


@pytest.mark.slow
def test_with_workers_of_beam(photos: Path, output: Path, older: Path) -> None:
    flags = ("--direct_running_mode=multi_processing", "--direct_num_workers=2", "--overwrite")
    assert convert("--input", photos, "--output", output, "--num_shards=2", *flags) == 0
    assert foreign(output) == foreign(older)
    assert sorted({*manifest(output)["files"], *foreign(older)}) == sorted(files(output))
    assert not (output / ".recordmill").exists()
