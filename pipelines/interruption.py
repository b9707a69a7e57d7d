"""Ctrl-C and SIGTERM: the job stops at once, and says what it leaves. Imports little: it has to be early."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Job:
    """The job that runs in this process: its output, and what tells which manifest was there before it."""

    output: str | None = None
    before: tuple[int, int] | None = None


_job = _Job()


@contextlib.contextmanager
def stopping_at_once() -> Iterator[None]:
    """Ends the process on Ctrl-C and SIGTERM, and its writers with it.

    An exception would be caught by whatever part of Beam it hits, and Beam's threads would finish first.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets only the main thread handle signals
        return
    former = {number: signal.getsignal(number) for number in _SIGNALS}
    install()
    try:
        yield
    finally:
        _job.output = None
        for number, handler in former.items():
            signal.signal(number, handler)


def install() -> None:
    """From here on, Ctrl-C and SIGTERM end the process."""
    for number in _SIGNALS:
        signal.signal(number, _stop)


def begin(output: str) -> None:
    """A job begins to write a dataset: what an interruption leaves is told of this folder."""
    _job.before = _manifest_state(output)
    _job.output = output


def what_is_kept(output: str) -> str:
    """What a job that did not publish has left for the next, a line of words; empty where that is nothing."""
    from transforms.storage.runs import finished_shards

    count = finished_shards(output)
    if not count:
        return ""
    shards = "1 finished shard is" if count == 1 else f"{count} finished shards are"
    return f"{shards} kept: the same command goes on from there, also with another --max_failure_ratio\n"


def _stop(number: int, _: FrameType | None) -> NoReturn:
    text = "interrupted; nothing was begun\n"
    if _job.output is not None:
        from transforms.shards import process
        from transforms.storage import lock

        process.kill_all()
        lock.release_all()
        text = f"interrupted; {_what_is_left(_job.output)}"
    os.write(2, f"\n{text}".encode())
    os._exit(_INTERRUPTED)


def _what_is_left(output: str) -> str:
    now = _manifest_state(output)
    if now is not None and now != _job.before:
        return f"the new dataset is published in {output}\n"
    told = f"nothing is published in {output}"
    if now is not None:
        told = f"the dataset in {output} is the one that was there before"
    return f"{told}\n{what_is_kept(output)}"


def _manifest_state(output: str) -> tuple[int, int] | None:
    """What tells one manifest.json from another that takes its place."""
    try:
        status = os.stat(os.path.join(output, "manifest.json"))
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
