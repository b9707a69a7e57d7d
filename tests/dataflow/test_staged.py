"""What is staged for Dataflow, run: with the staged code alone, by a portable runner, in the bucket."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.dataflow.submitting import ROOT, Submitter
from tests.pipelines.conversion import by_key, convert, digests, manifest

FLAGS = ("--image_format=jpeg", "--max_failure_ratio=0.1", "--num_shards=3")


def run_staged(submitter: Submitter, folder: Path) -> dict[str, Any]:
    """State and counters of the staged pipeline, run in a process that finds our code nowhere else."""
    pipeline = folder / "pipeline.pb"
    pipeline.write_bytes(submitter.buckets.get(submitter.pipeline_url()))
    code = submitter.unpack_code(folder / "code")
    environment = {name: value for name, value in submitter.environment.items() if name != "PYTHONPATH"}
    call = [sys.executable, str(ROOT / "tests" / "dataflow" / "staged.py"), str(pipeline), str(code)]
    done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(submitter: Submitter, folder: Path, found: dict[str, Any], local: Path) -> dict[str, Any]:
    """The manifest of the dataset in the bucket: that of a local run, made by a job of Dataflow."""
    assert found["state"] == "DONE"
    assert (found["counters"]["read"], found["counters"]["written"]) == (13, 12)
    remote = folder / "remote"
    submitter.buckets.download("gs://pictures/out", remote)
    assert not any(".recordmill" in name for name in submitter.buckets.names("gs://pictures/out"))
    published, expected = manifest(remote), manifest(local)
    assert published["counts"] == expected["counts"] == {"read": 13, "written": 12, "failed": 1, "skipped": 0}
    assert published["provenance"]["runner"] == "DataflowRunner"
    assert published["provenance"]["job"] == submitter.dataflow.jobs[0]["name"]
    assert published["source"]["input"] == "gs://pictures/photos"
    assert by_key(remote) == by_key(local)
    assert len(by_key(remote)) == 12
    return published


@pytest.fixture(scope="module")
def local(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset that this machine makes of the same images."""
    output = tmp_path_factory.mktemp("local") / "out"
    assert convert("--input", photos, "--output", output, *FLAGS, "--quiet") == 0
    return output


@pytest.mark.slow
def test_the_staged_pipeline_makes_the_dataset(submitter: Submitter, local: Path, tmp_path: Path) -> None:
    assert submitter.run("--async", "--quiet", "--writer=beam", *FLAGS).status == 0
    check(submitter, tmp_path, run_staged(submitter, tmp_path), local)


STEP = """
from recordmill import Sample


def halves(sample: Sample):
    if sample.key == "circle/circle_001.jpg":
        return "left out"
    return cut(sample)


def cut(sample):
    height, width = sample.pixels.shape[:2]
    for left in (0, width // 2):
        yield sample.crop(left, 0, left + width // 2, height)
"""


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["shards", "beam"])
def test_the_staged_pipeline_has_the_function(
    writer: str, submitter: Submitter, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module of `--map_image` is on the submitting machine only."""
    steps = tmp_path / "steps"
    steps.mkdir()
    name = f"staged_{writer}"
    (steps / f"{name}.py").write_text(STEP)
    monkeypatch.syspath_prepend(steps)
    flags = [f"--map_image={name}:halves", f"--writer={writer}", *FLAGS]
    assert convert("--input", photos, "--output", tmp_path / "local", *flags, "--quiet") == 0
    assert submitter.run("--async", "--quiet", *flags).status == 0
    found = run_staged(submitter, tmp_path)
    assert found["counters"]["added"] == 11
    assert found["counters"]["skipped/map/left out by map_image"] == 1
    submitter.buckets.download("gs://pictures/out", tmp_path / "remote")
    made, expected = manifest(tmp_path / "remote"), manifest(tmp_path / "local")
    assert made["counts"] == {"read": 13, "written": 22, "failed": 1, "skipped": 1, "added": 11}
    assert (made["counts"], made["config"]["map_image"]) == (
        expected["counts"],
        expected["config"]["map_image"],
    )
    assert by_key(tmp_path / "remote") == by_key(tmp_path / "local")
    if writer == "shards":
        assert digests(tmp_path / "remote") == digests(tmp_path / "local")


@pytest.mark.slow
def test_a_job_that_is_run_as_it_is_followed(submitter: Submitter, local: Path, tmp_path: Path) -> None:
    """The whole way: submitted, run elsewhere, done, and told of as a local run is."""
    submitter.dataflow.states = ["JOB_STATE_RUNNING", "JOB_STATE_DONE"]
    found: dict[str, Any] = {}

    def run(job: dict[str, Any]) -> None:
        found.update(run_staged(submitter, tmp_path))
        submitter.dataflow.metrics = {(name, "s1"): value for name, value in found["counters"].items()}

    submitter.dataflow.on_job = run
    done = submitter.run("--writer=shards", *FLAGS)
    assert done.status == 0, done.err
    assert "read 13, written 12, failed 1" in done.err
    assert "12 records in 3 shards" in done.out
    assert "gs://pictures/out" in done.out
    assert found["counters"]["failed/decode/truncated"] == 1
    published = check(submitter, tmp_path, found, local)
    assert digests(tmp_path / "remote") == digests(local)
    for shard in published["splits"]["train"]["shards"]:
        contents = (tmp_path / "remote" / shard["file"]).read_bytes()
        assert hashlib.sha256(contents).hexdigest() == shard["sha256"]
