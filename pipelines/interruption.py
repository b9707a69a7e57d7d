"""Ctrl-C and SIGTERM: the job stops at once, and says what it leaves."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from transforms.shards import process
from transforms.storage import lock
from transforms.storage.layout import MANIFEST
from transforms.storage.runs import finished_shards

_INTERRUPTED = 130


@contextlib.contextmanager
def stopping_at_once(output: str) -> Iterator[None]:
    """Ends the process on Ctrl-C and SIGTERM, and its writers with it.

    An exception would be caught by whatever part of Beam it hits, and Beam's threads would finish first.
    """
    before = _manifest_state(output)

    def stop(number: int, _: FrameType | None) -> NoReturn:
        process.kill_all()
        lock.release_all()
        text = f"\ninterrupted; {_what_is_published(output, before)}\n"
        if kept := what_is_kept(output):
            text += f"{kept}\n"
        os.write(2, text.encode())
        os._exit(_INTERRUPTED)

    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets only the main thread handle signals
        return
    former = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def what_is_kept(output: str) -> str:
    """What a job that did not publish has left for the next, in words; empty where that is nothing."""
    count = finished_shards(output)
    if not count:
        return ""
    shards = "1 finished shard is" if count == 1 else f"{count} finished shards are"
    return f"{shards} kept: the same command goes on from there, also with another --max_failure_ratio"


def _what_is_published(output: str, before: tuple[int, int] | None) -> str:
    now = _manifest_state(output)
    if now is None:
        return f"nothing is published in {output}"
    if now == before:
        return f"the dataset in {output} is the one that was there before"
    return f"the new dataset is published in {output}"


def _manifest_state(output: str) -> tuple[int, int] | None:
    """What tells one manifest.json from another that takes its place."""
    try:
        status = os.stat(os.path.join(output, MANIFEST))
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
