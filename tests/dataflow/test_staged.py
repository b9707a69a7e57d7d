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


@pytest.mark.parametrize("writer", ["shards", "beam"])
def test_the_staged_pipeline_makes_the_dataset(
    writer: str, submitter: Submitter, photos: Path, tmp_path: Path
) -> None:
    local, remote = tmp_path / "local", tmp_path / "remote"
    assert convert("--input", photos, "--output", local, *FLAGS, "--quiet") == 0
    assert submitter.run("--async", "--quiet", f"--writer={writer}", *FLAGS).status == 0
    (job,) = submitter.dataflow.jobs
    found = run_staged(submitter, tmp_path)
    assert found["state"] == "DONE"
    assert (found["counters"]["read"], found["counters"]["written"]) == (13, 12)
    submitter.buckets.download("gs://pictures/out", remote)
    assert not any(".recordmill" in name for name in submitter.buckets.names("gs://pictures/out"))
    published, expected = manifest(remote), manifest(local)
    assert published["counts"] == expected["counts"] == {"read": 13, "written": 12, "failed": 1, "skipped": 0}
    assert published["provenance"]["runner"] == "DataflowRunner"
    assert published["provenance"]["job"] == job["name"]
    assert published["source"]["input"] == "gs://pictures/photos"
    if writer == "shards":
        assert digests(remote) == digests(local)
        shards = {shard["file"]: shard["sha256"] for shard in published["splits"]["train"]["shards"]}
        for name, digest in shards.items():
            assert hashlib.sha256((remote / name).read_bytes()).hexdigest() == digest
    assert by_key(remote) == by_key(local)
    assert len(by_key(remote)) == 12


def test_a_job_that_is_run_as_it_is_followed(submitter: Submitter, tmp_path: Path) -> None:
    """The whole way: submitted, run elsewhere, done, and told of as a local run is."""
    submitter.dataflow.states = ["JOB_STATE_RUNNING", "JOB_STATE_DONE"]
    counters: dict[str, int] = {}

    def run(job: dict[str, Any]) -> None:
        counters.update(run_staged(submitter, tmp_path)["counters"])
        submitter.dataflow.metrics = {(name, "s1"): value for name, value in counters.items()}

    submitter.dataflow.on_job = run
    done = submitter.run("--writer=shards", *FLAGS)
    assert done.status == 0, done.err
    assert "read 13, written 12, failed 1" in done.err
    assert "12 records in 3 shards" in done.out
    assert "gs://pictures/out" in done.out
    assert counters["failed/decode/truncated"] == 1
