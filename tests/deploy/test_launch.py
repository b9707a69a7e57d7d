"""A launch of the template, as its launcher does it: the entry file in a process of its own, all as text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.drawings import draw_folder
from recordmill.pipelines import convert
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


# A call to Dataflow itself would find nobody at that port.
NOBODY = ("--no_auth", "--dataflow_endpoint=http://localhost:1")


def launch(buckets: BucketServer, parameters: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What the launcher starts."""
    return subprocess.run(
        [sys.executable, str(ROOT / "pipelines/convert.py"), *launched(parameters), *NOBODY],
        cwd="/",
        env={**os.environ, "STORAGE_EMULATOR_HOST": buckets.host},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def launch_here(
    buckets: BucketServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """The same in this process: exit status, and what goes to standard output and error."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", buckets.host)

    def run(parameters: dict[str, str], *more: str) -> tuple[int, str, str]:
        try:
            status = convert.main([*launched(parameters), *NOBODY, *more])
        except SystemExit as stop:
            assert isinstance(stop.code, int)
            status = stop.code
        return status, *capsys.readouterr()

    return run


@pytest.mark.slow
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


def test_a_launch_that_cannot_be_says_why_and_describes_nothing(
    buckets: BucketServer, launch_here: Callable[..., tuple[int, str, str]]
) -> None:
    buckets.put("gs://pictures/out/notes.txt", b"mine")
    status, _, said = launch_here({**EVERYWHERE, "overwrite": "false"})
    assert status == 2
    assert "--output is 'gs://pictures/out', which is not empty ('notes.txt')" in said
    assert "Traceback" not in said
    assert buckets.names("gs://pictures/staging/") == []


@pytest.mark.slow
def test_a_plan_tells_the_cost_and_starts_nothing(
    buckets: BucketServer, launch_here: Callable[..., tuple[int, str, str]]
) -> None:
    flags = ("--plan", "--machine_type=n2-highmem-8")
    status, printed, said = launch_here({**EVERYWHERE, "splits": "all=1"}, *flags)
    assert status == 0, said
    plan = " ".join(printed.split())
    # All but the time that a machine takes to start.
    assert "worker hours about 0.07: 1 worker for about 4 minutes" in plan
    assert "workers are n2-highmem-8: 8 vCPUs, 64 GB of memory" in plan
    # Of kept images, whose headers are looked at.
    assert "3,218 images of 67 KB a second" in plan
    assert buckets.names("gs://pictures/staging/") == []
    assert buckets.names("gs://pictures/out") == []
