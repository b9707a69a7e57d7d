"""A verification at Dataflow: submitted, run with the staged code alone, and told of as a local one is."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.dataflow.submitting import Submitter
from tests.dataflow.test_staged import run_staged
from tests.pipelines.conversion import convert

REPORT = "gs://pictures/found.json"


@pytest.fixture
def verifier(submitter: Submitter, monkeypatch: pytest.MonkeyPatch) -> Submitter:
    """Calls `recordmill verify gs://pictures/out --input=gs://pictures/photos`."""
    call = submitter.call

    def changed(*flags: str) -> list[str]:
        words = []
        for word in call(*flags):
            words += ["verify", "gs://pictures/out"] if word == "convert" else [word]
        return [f"--report={REPORT}" if word.startswith("--output=") else word for word in words]

    monkeypatch.setattr(submitter, "call", changed)
    return submitter


@pytest.mark.slow
def test_a_verification_that_is_run_as_it_is_followed(
    verifier: Submitter, photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert convert("--input", photos, "--output", out, "--max_failure_ratio=0.1", "--quiet") == 0
    shard = next(out.glob("*.tfrecord"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    verifier.buckets.upload_folder(out, "gs://pictures/out")
    verifier.dataflow.states = ["JOB_STATE_RUNNING", "JOB_STATE_DONE"]
    counters: dict[str, int] = {}

    def run(job: dict[str, Any]) -> None:
        counters.update(run_staged(verifier, tmp_path)["counters"])

    verifier.dataflow.on_job = run
    done = verifier.run()
    assert done.status == 1, done.err
    assert f"{shard.name}, record 11 at byte" in done.out
    assert counters["verified"] == 11 and counters["faults/damaged record"] == 1
    found = json.loads(verifier.buckets.get(REPORT))
    assert found["checked"]["compared"] == 11 and found["faults"]["damaged record"] == 1
    assert verifier.buckets.names(REPORT) == [REPORT]
