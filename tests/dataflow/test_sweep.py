"""A sweep at Dataflow: submitted, run with the staged code alone, and told of as a local one is."""

import json
from pathlib import Path
from typing import Any

import pytest

from recordmill.transforms.images.store import store_image
from recordmill.transforms.sweeping.output import NAMES
from recordmill.transforms.sweeping.settings import SweepConfig, settings
from tests.dataflow.submitting import IMAGE, Submitter
from tests.dataflow.test_staged import run_staged

FLAGS = ("--qualities=80", "--target_ssim=none", "--worst=1")


@pytest.fixture
def sweeper(submitter: Submitter, monkeypatch: pytest.MonkeyPatch) -> Submitter:
    """Calls `recordmill sweep`."""
    convert = submitter.call
    monkeypatch.setattr(
        submitter,
        "call",
        lambda *flags: ["sweep" if word == "convert" else word for word in convert(*flags)],
    )
    return submitter


@pytest.mark.slow
def test_a_sweep_that_is_run_as_it_is_followed(sweeper: Submitter, photos: Path, tmp_path: Path) -> None:
    sweeper.dataflow.states = ["JOB_STATE_RUNNING", "JOB_STATE_DONE"]
    counters: dict[str, int] = {}

    def run(job: dict[str, Any]) -> None:
        counters.update(run_staged(sweeper, tmp_path)["counters"])

    sweeper.dataflow.on_job = run
    done = sweeper.run(*FLAGS)
    assert done.status == 0, done.err
    assert counters["measured"] == 12 and counters["failed/decode/truncated"] == 1
    names = sweeper.buckets.names("gs://pictures/out/")
    assert sorted(names) == [f"gs://pictures/out/{name}" for name in sorted(NAMES)]
    sources = [path.read_bytes() for path in photos.rglob("*.*") if path.name != "broken.jpg"]
    found = {
        row["setting"]: row for row in json.loads(sweeper.buckets.get("gs://pictures/out/sweep.json"))["rows"]
    }
    every = settings(SweepConfig(qualities=(80,), targets=()))
    left_out = {row.name for row in every} - found.keys()
    assert left_out == {"PNG to JPEG, q80", "PNG to JPEG, q80, optimised"}  # there is no PNG
    for row in (row for row in every if row.name in found):
        one = found.pop(row.name)
        assert one["image_bytes"] == sum(len(store_image(data, row.policy).data) for data in sources)
        assert f"{one['tfrecord_bytes']:,}" in done.out
    assert not found


@pytest.mark.slow
def test_a_job_that_fails_is_one_line(sweeper: Submitter) -> None:
    sweeper.dataflow.states = ["JOB_STATE_RUNNING", "JOB_STATE_CANCELLED"]
    done = sweeper.run("--progress=none", f"--sdk_container_image={IMAGE}", *FLAGS)
    assert done.status == 1
    assert done.err.splitlines()[-1] == ("recordmill sweep: error: Dataflow ended the job as cancelled")
    assert not sweeper.buckets.names("gs://pictures/out/")
