"""Shows the progress of a job: of a local job as a bar or lines, of another job as lines."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from recordmill.transforms.shards.progress import ProgressState, snapshot

OURS = "recordmill"
"""The names of our own threads begin with it."""

_BAR_SECONDS = 0.1
_FIRST_LINE_SECONDS = 2.0
_LINE_SECONDS = 10.0
_NOTE_SECONDS = 0.2
_DOING = {"wrote": "writing", "verified": "verifying", "measured": "measuring"}


@contextlib.contextmanager
def progress_display(kind: str) -> Iterator[None]:
    """Shows progress and notes on stderr while the block runs.

    Args:
        kind: `bar`, `lines`, `auto` (a bar on a terminal, lines elsewhere), `none` (notes alone) or `quiet`.
    """
    console = Console(stderr=True)
    if kind == "auto":
        kind = "bar" if console.is_terminal else "lines"
    if kind == "quiet":
        yield
        return
    stop = threading.Event()
    if kind == "bar":
        show = functools.partial(_show_bar, console, stop)
    else:
        show = functools.partial(_show_lines, stop, only_notes=kind == "none")
    thread = threading.Thread(target=show, name=f"{OURS}-display", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def job_lines(kind: str) -> tuple[Callable[[str], None], Callable[[str], None]]:
    """Two functions that print a line about a job that runs elsewhere: about its state, and its progress.

    Args:
        kind: as of `progress_display`.
    """
    say = _ignore if kind == "quiet" else _print_timed
    return say, _ignore if kind in ("quiet", "none") else _print_timed


def _print_timed(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _ignore(_: str) -> None:
    return


def _show_bar(console: Console, stop: threading.Event) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("listing", total=None, detail="")
        noted = 0
        while True:
            last = stop.wait(_BAR_SECONDS)
            state = snapshot()
            for note in state.notes[noted:]:
                console.print(note, markup=False, highlight=False, soft_wrap=True)
            noted = len(state.notes)
            _update_bar(bar, task, state)
            if last:
                return


def _update_bar(bar: Progress, task: TaskID, state: ProgressState) -> None:
    if not state.records:
        doing, completed = ("hashing", state.hashed) if state.hashed else ("listing", state.listed)
        bar.update(task, description=doing, completed=completed, detail=_hashed_bytes(state))
        return
    bar.update(
        task,
        description=_DOING[state.verb],
        total=state.records,
        completed=state.done_records,
        detail=_detail(state, _seconds(state)),
    )


def _show_lines(stop: threading.Event, only_notes: bool) -> None:
    shown, noted = "", 0
    due = time.monotonic() + _FIRST_LINE_SECONDS
    while True:
        last = stop.wait(_NOTE_SECONDS)
        state = snapshot()
        lines = list(state.notes[noted:])
        noted = len(state.notes)
        if not only_notes and (shown if last else time.monotonic() >= due):
            line = _line(state)
            is_repeated = line == shown or (last and line.partition("%")[0] == shown.partition("%")[0])
            lines += [line] if line and not is_repeated else []
            shown = line
            due = time.monotonic() + _LINE_SECONDS
        for line in lines:
            print(line, file=sys.stderr, flush=True)
        if last:
            return


def _line(state: ProgressState) -> str:
    if not state.records:
        hashed = f", hashed {state.hashed:,} images, {_hashed_bytes(state)}" if state.hashed else ""
        return f"listed {state.listed:,}{hashed}" if state.listed else ""
    share = state.done_records / state.records
    line = f"{state.verb} {state.done_records:,} of {state.records:,} ({share:.0%})"
    seconds = _seconds(state)
    if detail := _detail(state, seconds):
        line += f", {detail}, {seconds * (1 - share) / share:.0f} s left"
    return line


def _hashed_bytes(state: ProgressState) -> str:
    return decimal(state.hashed_bytes) if state.hashed else ""


def _seconds(state: ProgressState) -> float:
    return time.monotonic() - state.writing_since


def _detail(state: ProgressState, seconds: float) -> str:
    """Images a second, and bytes."""
    if not state.done_records:
        return ""
    rate = state.done_records / seconds
    return f"{rate:,.{0 if rate >= 10 else 1}f} images/s, {decimal(state.done_bytes)}"


class _OwnThreads:
    """A stream that drops the output of other threads than ours."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        thread = threading.current_thread()
        is_ours = (
            thread is threading.main_thread()
            or thread.name.startswith(OURS)
            or type(thread).__module__.startswith("rich")  # draws the bar
        )
        return self._stream.write(text) if is_ours else len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet_threads() -> Iterator[None]:
    """In the block, only our own threads write to stderr, and logging is off."""
    former = sys.stderr
    sys.stderr = _OwnThreads(former)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        sys.stderr = former
        logging.disable(logging.NOTSET)
