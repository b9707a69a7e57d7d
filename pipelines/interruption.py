"""Ctrl-C and SIGTERM: the job stops at once, and says what it leaves. Imports little: it has to be early."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# What whoever interrupts waits for the answers of a bucket.
_ASK_SECONDS = 5.0


class _Job:
    """The job that this process runs: its folders, and what tells which manifest was there before it.

    Where it runs elsewhere, `left` says how it is to be found there.
    """

    output: str | None = None
    working: str = ""
    published: str = ""
    before: tuple[float, int] | None = None
    left: str = ""


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
        _job.left = ""
        for number, handler in former.items():
            signal.signal(number, handler)


def install() -> None:
    """From here on, Ctrl-C and SIGTERM end the process."""
    for number in _SIGNALS:
        signal.signal(number, _stop)


def begin(output: str, working: str, published: str) -> None:
    """A job begins to write a dataset: what an interruption leaves is told of its folders.

    Args:
        output: that the job locks.
        working: that it works in.
        published: that readers will see.
    """
    _job.before = _manifest_state(published)
    _job.working, _job.published = working, published
    _job.output = output


def leave(told: str) -> None:
    """From here on an interruption ends this process, and not the job, of which `told` says where it is."""
    _job.left = told


def what_is_kept(output: str, working: str) -> str:
    """What a job that did not publish has left for the next, a line of words; empty where that is nothing.

    What lies there while another job is at work is that job's.

    Args:
        output: that the job has locked.
        working: that it worked in.
    """
    from recordmill.transforms.storage import lock

    def told() -> str:
        return _what_is_kept(output, working) if lock.holder(output) is None else ""

    return (_asked(told) or "") if _is_remote(output) else told()


def _what_is_kept(output: str, working: str) -> str:
    from recordmill.transforms.storage.runs import finished_shards

    if working != output and _manifest_state(working) is not None:
        return f"the new dataset is complete in {working}: the next job publishes it\n"
    count = finished_shards(working)
    if not count:
        return ""
    shards, them = ("1 finished shard is", "it") if count == 1 else (f"{count} finished shards are", "them")
    return (
        f"{shards} kept: the same command reuses {them}, also with another --max_failure_ratio, or "
        "without --strict\n"
    )


def _stop(number: int, _: FrameType | None) -> NoReturn:
    text = "interrupted; nothing was begun\n"
    if _job.left or _job.output is not None:
        from recordmill.transforms.workers import process

        process.kill_all()
        _end_programs()
    if _job.left:
        text = f"interrupted; {_job.left}"
    elif _job.output is not None:
        from recordmill.transforms.storage import lock

        if _is_remote(_job.output):
            text = f"interrupted; {_what_is_left_in_a_bucket(_job.output)}"
        else:
            lock.release_all()
            text = f"interrupted; {_what_is_left(_job.output)}"
    os.write(2, f"\n{text}".encode())
    os._exit(_INTERRUPTED)


def _end_programs() -> None:
    """Ends what Beam has started for its runners, such as a job server: it would do so at exit only."""
    import psutil

    for program in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            program.terminate()


def _what_is_left_in_a_bucket(output: str) -> str:
    """What is left there; the lock is given back."""
    from recordmill.transforms.storage import lock

    def told() -> str:
        lock.release_all()
        return _what_is_left(output)

    return _asked(told) or f"{output} does not answer, so that what is left there is not known\n"


def _asked(question: Callable[[], str]) -> str | None:
    """The answer to a question about a bucket; None where none comes soon, or none at all."""
    answers: list[str] = []

    def ask() -> None:
        with contextlib.suppress(Exception):
            answers.append(question())

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_ASK_SECONDS)
    return answers[0] if answers else None


def _is_remote(output: str) -> bool:
    return output.startswith("gs://")  # a look at the storage's own would import it


def _what_is_left(output: str) -> str:
    now = _manifest_state(_job.published)
    if now is not None and now != _job.before:
        return f"the new dataset is published in {_job.published}\n{_pointer(output)}"
    told = f"nothing is published in {_job.published}"
    if now is not None:
        told = f"the dataset in {_job.published} is the one that was there before"
    return f"{told}\n{_what_is_kept(output, _job.working)}"


def _pointer(output: str) -> str:
    """What is to be said where latest.json does not name the version that is published."""
    from recordmill.transforms.storage.layout import LATEST
    from recordmill.transforms.storage.versions import latest_version

    if _job.published == output or str(latest_version(output)) == os.path.basename(_job.published):
        return ""
    return f"{LATEST} does not name it yet: the next job sees to that\n"


def _manifest_state(output: str) -> tuple[float, int] | None:
    """What tells one manifest.json from another that takes its place."""
    if _is_remote(output):
        from recordmill.transforms.storage import objects

        found = objects.stat(f"{output.rstrip('/')}/manifest.json")
        return found and (found.updated, found.generation)
    try:
        status = os.stat(os.path.join(output, "manifest.json"))
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
