"""What people see of a job while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from rich.progress import Progress

from recordmill.pipelines.running import display
from recordmill.pipelines.running.display import progress_display
from recordmill.transforms.shards import progress


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(display, "_NOTE_SECONDS", 0.01)
    monkeypatch.setattr(display, "_FIRST_LINE_SECONDS", 0.05)
    yield
    progress.reset()


def test_the_last_line_is_how_the_job_ended(capsys: pytest.CaptureFixture[str]) -> None:
    progress.reset("verified")
    with progress_display("lines"):
        progress.add_total(1)
        progress.add_total(3)
        progress.add_done(2, 1000)
        time.sleep(0.3)
        progress.add_done(2, 1000)
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("verified 2 of 4 (50%), ") and ", 1.0 kB, " in first
    assert last.startswith("verified 4 of 4 (100%), ") and last.endswith(", 2.0 kB, 0 s left")


def test_a_job_that_is_over_before_its_first_line_shows_none(capsys: pytest.CaptureFixture[str]) -> None:
    progress.reset("verified")
    with progress_display("lines"):
        progress.add_total(1)
        progress.add_done(1, 1000)
    assert capsys.readouterr().err == ""


def test_hashing_is_shown_before_writing(capsys: pytest.CaptureFixture[str]) -> None:
    progress.reset()
    with progress_display("lines"):
        progress.add_listed(2000)
        progress.add_hashed(1200, 3_000_000)
        time.sleep(0.3)
    assert capsys.readouterr().err == "listed 2,000, hashed 1,200 images, 3.0 MB\n"
    bar = Progress()
    task = bar.add_task("listing", total=None, detail="")
    display._update_bar(bar, task, progress.snapshot())
    assert (bar.tasks[0].description, bar.tasks[0].completed) == ("hashing", 1200)
    assert bar.tasks[0].fields["detail"] == "3.0 MB"


def test_a_slow_rate_is_not_zero() -> None:
    state = progress.ProgressState(done_records=3, done_bytes=9)
    assert display._detail(state, 10) == "0.3 images/s, 9 bytes"
    assert display._detail(state, 0.1) == "30 images/s, 9 bytes"


@pytest.mark.parametrize(
    ("verb", "doing"), [("wrote", "writing"), ("verified", "verifying"), ("measured", "measuring")]
)
def test_the_bar_says_what_is_done(verb: str, doing: str) -> None:
    progress.reset(verb)
    progress.add_total(4)
    progress.add_done(1, 10)
    bar = Progress()
    task = bar.add_task("listing", total=None, detail="")
    display._update_bar(bar, task, progress.snapshot())
    [shown] = bar.tasks
    assert (shown.description, shown.completed, shown.total) == (doing, 1, 4)
