"""A sweep at Dataflow: submitted, run with the staged code alone, and told of as a local one is."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines import cli
from tests.dataflow.submitting import Submitter
from tests.dataflow.test_staged import run_staged
from transforms.sweeping.output import NAMES

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
    local = tmp_path / "local"
    assert cli.main(["sweep", "--input", str(photos), "--output", str(local), "--quiet", *FLAGS]) == 0
    found = [json.loads(sweeper.buckets.get("gs://pictures/out/sweep.json"))]
    found.append(json.loads((local / "sweep.json").read_text()))
    for one, other in zip(*(sweep["rows"] for sweep in found), strict=True):
        for figure in ("tfrecord_bytes", "ssim_mean", "ssim_worst_key", "psnr_mean"):
            assert one[figure] == other[figure]
        assert f"{one['tfrecord_bytes']:,}" in done.out


def test_a_job_that_fails_is_one_line(sweeper: Submitter) -> None:
    sweeper.dataflow.states = ["JOB_STATE_RUNNING", "JOB_STATE_CANCELLED"]
    done = sweeper.run("--progress=none", *FLAGS)
    assert done.status == 1
    assert done.err.splitlines()[-1] == ("recordmill sweep: error: Dataflow ended the job as cancelled")
    assert not sweeper.buckets.names("gs://pictures/out/")
