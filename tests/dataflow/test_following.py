"""What is said of a job while Dataflow runs it, and how it ends."""

import datetime
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from recordmill.pipelines.running import dataflow_job
from recordmill.pipelines.running.dataflow_job import SubmittedJob, counters, follow, progress_line
from recordmill.transforms.flags import as_parameters
from recordmill.transforms.records import JobError

TRACEBACK = (
    'Traceback (most recent call last):\n  File "transforms/plan.py", line 88, in make_plan\n'
    "recordmill.transforms.records.JobError: split 'val' is empty: --splits names it "
    "[while running 'WriteDataset/PlanDataset/Plan-ptransform-33']\n\nDuring handling …\n"
)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataflow_job, "POLL_SECONDS", 0)
    monkeypatch.setattr(dataflow_job, "LINE_SECONDS", 0)


class FakeClient:
    """Says what it is told to, a state a question; messages come with the question of their number."""

    def __init__(
        self, states: Sequence[str], messages: Sequence[tuple[int, str, str]] = (), read: Sequence[int] = ()
    ) -> None:
        self.states, self.messages, self.read = states, messages, read
        self.asked = self.pages = self.looked = 0

    def get_job(self, job_id: str) -> Any:
        assert job_id == "id"
        state = self.states[min(self.asked, len(self.states) - 1)]
        self.asked += 1
        return SimpleNamespace(current_state=SimpleNamespace(name=f"JOB_STATE_{state}"))

    def list_messages(
        self, job_id: str, start_time: Any = None, end_time: Any = None, page_token: str | None = None
    ) -> tuple[list[Any], str]:
        """One message a page."""
        self.pages += not page_token
        known = [
            SimpleNamespace(
                id=f"m{number}",
                time=datetime.datetime(2026, 11, 21, 7, number),
                message_importance=SimpleNamespace(name=f"JOB_MESSAGE_{importance}"),
                message_text=text,
            )
            for number, (page, importance, text) in enumerate(self.messages)
            if page <= self.pages
        ]
        if start_time is not None:
            known = [message for message in known if message.time >= start_time]
        at = int(page_token or 0)
        return known[at : at + 1], str(at + 1) if at + 1 < len(known) else ""

    def get_job_metrics(self, job_id: str) -> Any:
        value = self.read[min(self.looked, len(self.read) - 1)] if self.read else 0
        self.looked += 1
        return SimpleNamespace(metrics=[metric("read", value)] if value else [])


def metric(name: str, value: int, **context: str) -> Any:
    context = {"namespace": "recordmill", "step": "s1", **context}
    return SimpleNamespace(
        name=SimpleNamespace(name=name, origin=context.pop("origin", "user"), context=context), scalar=value
    )


def followed(client: FakeClient) -> tuple[list[str], list[str], str]:
    """What was said, what was counted, and the error that it ended in."""
    said: list[str] = []
    counted: list[str] = []
    try:
        follow(SubmittedJob(client, "id", "name", "p", "r"), said.append, counted.append)
    except JobError as error:
        return said, counted, str(error)
    return said, counted, ""


def test_a_job_that_is_done() -> None:
    messages = [(1, "BASIC", "Workers start"), (2, "WARNING", "quota is low"), (2, "ERROR", "a worker died")]
    client = FakeClient(["PENDING", "RUNNING", "RUNNING", "DONE"], messages, [0, 10, 10, 12])
    assert followed(FakeClient(["UNKNOWN", "DONE"])) == (["Dataflow: done"], [], "")
    said, counted, error = followed(client)
    assert said == [
        "Dataflow: pending",
        "Dataflow: running",
        "Dataflow: warning: quota is low",
        "Dataflow: error: a worker died",
        "Dataflow: done",
    ]
    assert counted == [f"read {count}, written 0" for count in (10, 10, 12)]
    assert error == ""


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([(1, "ERROR", TRACEBACK)], "split 'val' is empty: --splits names it"),
        ([(3, "ERROR", TRACEBACK)], "split 'val' is empty: --splits names it"),
        (
            [(1, "ERROR", TRACEBACK), (1, "ERROR", "The work item was attempted 4 times without success.")],
            "split 'val' is empty: --splits names it",
        ),
        (
            [(1, "ERROR", "Traceback (most recent call last):\n  …\nKeyError: 'x'"), (1, "ERROR", "Failed")],
            "Dataflow ended the job as failed: KeyError: 'x'",
        ),
        ([(1, "ERROR", "No quota\nfor IPs")], "Dataflow ended the job as failed: for IPs"),
        ([(1, "WARNING", "slow")], "Dataflow ended the job as failed"),
        ([(99, "ERROR", "too late")], "Dataflow ended the job as failed"),
    ],
)
def test_a_job_that_fails(messages: list[tuple[int, str, str]], error: str) -> None:
    assert followed(FakeClient(["RUNNING", "FAILED"], messages))[2] == as_parameters(error)


@pytest.mark.parametrize("state", ["CANCELLED", "UPDATED", "DRAINED"])
def test_other_ends(state: str) -> None:
    client = FakeClient(["RUNNING", state])
    assert followed(client)[2] == f"Dataflow ended the job as {state.lower()}"
    assert client.pages == 2


def test_a_connection_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(self: FakeClient, job_id: str) -> Any:
        raise ConnectionError("Connection refused")

    monkeypatch.setattr(FakeClient, "get_job", lost)
    assert followed(FakeClient([]))[2] == (
        "the job continues, but can no longer be followed (Connection refused): "
        "https://console.cloud.google.com/dataflow/jobs/r/id?project=p"
    )


def test_counters_are_summed_over_steps() -> None:
    metrics = SimpleNamespace(
        metrics=[
            metric("written", 3, step="s1"),
            metric("written", 4, step="s2"),
            metric("written", 4, step="s1", tentative="true"),
            metric("written", 4, step="s2", tentative="true"),
            metric("failed/decode/truncated", 1),
            metric("failed/load/not found", 2),
            metric("skipped/list/no image", 9),
            metric("read", 5, namespace="another"),
            metric("read", 6, origin="dataflow/v1b3"),
        ]
    )
    found = counters(metrics)
    assert found == {
        "written": 8,
        "failed/decode/truncated": 1,
        "failed/load/not found": 2,
        "skipped/list/no image": 9,
    }
    assert progress_line(found) == "read 0, written 8, failed 3"
    assert progress_line(Counter()) == ""
    assert progress_line(Counter(read=12345, written=1)) == "read 12,345, written 1"
