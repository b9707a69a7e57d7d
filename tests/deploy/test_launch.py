"""A launch of the template, as its launcher does it: the entry file in a process of its own, all as text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.drawings import draw_folder
from tests.buckets.server import BucketServer
from tests.deploy.test_metadata import BY_KEY, EVERYWHERE, launched

ROOT = Path(__file__).parents[2]
pytest.importorskip("google.cloud.dataflow", reason="Beam's parts for Google Cloud")


@pytest.fixture
def buckets(tmp_path: Path) -> Iterator[BucketServer]:
    """With images, and the names of their labels, in gs://pictures."""
    assert len(list(draw_folder(tmp_path / "photos", each=2))) == 6
    with BucketServer() as server:
        bucket = server.bucket("pictures")
        server.upload_folder(tmp_path / "photos", f"{bucket}/photos")
        server.put(f"{bucket}/labels.txt", b"circle\nsquare\ntriangle\n")
        yield server


def launch(buckets: BucketServer, parameters: dict[str, str], *more: str) -> subprocess.CompletedProcess[str]:
    """What the launcher starts; a call to Dataflow itself would find nobody at that port."""
    command = [sys.executable, str(ROOT / "pipelines/convert.py"), *launched(parameters)]
    return subprocess.run(
        [*command, *more, "--no_auth", "--dataflow_endpoint=http://localhost:1"],
        cwd="/",
        env={**os.environ, "STORAGE_EMULATOR_HOST": buckets.host},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_launcher_finds_the_description_of_the_job(buckets: BucketServer) -> None:
    done = launch(buckets, {**EVERYWHERE, **BY_KEY})
    assert done.returncode == 0, done.stderr
    path = "gs://pictures/staging/template_launches/1/job_object"
    job: dict[str, Any] = json.loads(buckets.get(path))
    assert job["name"] == "nightly"
    (pool,) = job["environment"]["workerPools"]
    images = {one["containerImage"] for one in pool["sdkHarnessContainerImages"]}
    assert images == {EVERYWHERE["sdk_container_image"]}
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 20
    # All code is in the image: beside the pipeline nothing is staged that workers would install.
    staged = {uri.rpartition("/")[2] for uri in buckets.names("gs://pictures/staging/")}
    assert staged == {"job_object", "pipeline.pb", "submission_environment_dependencies.txt"}
    assert buckets.names("gs://pictures/out") == []


@pytest.mark.slow
def test_a_launch_that_cannot_be_says_why_and_describes_nothing(buckets: BucketServer) -> None:
    buckets.put("gs://pictures/out/notes.txt", b"mine")
    done = launch(buckets, {**EVERYWHERE, "overwrite": "false"})
    assert done.returncode == 2
    assert "--output is 'gs://pictures/out', which is not empty ('notes.txt')" in done.stderr
    assert "Traceback" not in done.stderr
    assert buckets.names("gs://pictures/staging/") == []


@pytest.mark.slow
def test_a_plan_tells_the_cost_and_starts_nothing(buckets: BucketServer) -> None:
    done = launch(buckets, {**EVERYWHERE, "splits": "all=1"}, "--plan", "--machine_type=n2-highmem-8")
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    # All but the time that a machine takes to start.
    assert "worker hours about 0.07: 1 worker for about 4 minutes" in told
    assert "workers are n2-highmem-8: 8 vCPUs, 64 GB of memory" in told
    # Of kept images, whose headers are looked at.
    assert "3,218 images of 67 KB a second" in told
    assert buckets.names("gs://pictures/staging/") == []
    assert buckets.names("gs://pictures/out") == []
