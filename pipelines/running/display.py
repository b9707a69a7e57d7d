"""Shows how far a conversion has come: in this process, a bar on a terminal or lines; elsewhere, lines."""

from __future__ import annotations

import contextlib
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
"""What names of our own threads begin with."""

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
    show = {"bar": _show_bar, "lines": _show_lines, "none": _show_notes}[kind]
    thread = threading.Thread(target=show, args=(console, stop), name=f"{OURS}-display", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def job_lines(kind: str) -> tuple[Callable[[str], None], Callable[[str], None]]:
    """What shows a line about a job that runs elsewhere, and what shows how far it has come.

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
        notes = _Notes()
        while True:
            last = stop.wait(_BAR_SECONDS)
            state = snapshot()
            for note in notes.new(state):
                console.print(note, markup=False, highlight=False, soft_wrap=True)
            _update_bar(bar, task, state)
            if last:
                return


def _update_bar(bar: Progress, task: TaskID, state: ProgressState) -> None:
    if not state.records:
        bar.update(task, completed=state.listed)
        return
    bar.update(
        task,
        description=_DOING[state.verb],
        total=state.records,
        completed=state.done_records,
        detail=_detail(state, _seconds(state)),
    )


def _show_lines(console: Console, stop: threading.Event) -> None:
    shown = ""
    due = time.monotonic() + _FIRST_LINE_SECONDS
    notes = _Notes()
    while not stop.wait(_NOTE_SECONDS):
        state = snapshot()
        notes.print(state)
        if time.monotonic() >= due:
            line = _line(state)
            if line not in ("", shown):
                print(line, file=sys.stderr, flush=True)
            shown = line
            due = time.monotonic() + _LINE_SECONDS
    state = snapshot()
    notes.print(state)
    if shown and (line := _line(state)) not in ("", shown):
        print(line, file=sys.stderr, flush=True)


def _show_notes(console: Console, stop: threading.Event) -> None:
    notes = _Notes()
    while not stop.wait(_NOTE_SECONDS):
        notes.print(snapshot())
    notes.print(snapshot())


class _Notes:
    """Prints the new notes."""

    def __init__(self) -> None:
        self._seen = 0

    def new(self, state: ProgressState) -> tuple[str, ...]:
        """Those since the last call."""
        found = state.notes[self._seen :]
        self._seen = len(state.notes)
        return found

    def print(self, state: ProgressState) -> None:
        """Prints them on stderr."""
        for note in self.new(state):
            print(note, file=sys.stderr, flush=True)


def _line(state: ProgressState) -> str:
    if not state.records:
        return f"listed {state.listed:,}" if state.listed else ""
    share = state.done_records / state.records
    line = f"{state.verb} {state.done_records:,} of {state.records:,} ({share:.0%})"
    seconds = _seconds(state)
    if detail := _detail(state, seconds):
        line += f", {detail}, {seconds * (1 - share) / share:.0f} s left"
    return line


def _seconds(state: ProgressState) -> float:
    return time.monotonic() - state.writing_since


def _detail(state: ProgressState, seconds: float) -> str:
    """Images a second, and bytes."""
    if not state.done_records:
        return ""
    rate = state.done_records / seconds
    return f"{rate:,.{0 if rate >= 10 else 1}f} images/s, {decimal(state.done_bytes)}"


class _OwnThreads:
    """A stream that takes what our own threads write, and drops the rest."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        thread = threading.current_thread()
        is_ours = (
            thread is threading.main_thread()
            or thread.name.startswith(OURS)
            or type(thread).__module__.startswith("rich")  # which draws the bar
        )
        return self._stream.write(text) if is_ours else len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet_threads() -> Iterator[None]:
    """In the block, only our own threads write to stderr, and nothing is logged."""
    former = sys.stderr
    sys.stderr = _OwnThreads(former)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        sys.stderr = former
        logging.disable(logging.NOTSET)
