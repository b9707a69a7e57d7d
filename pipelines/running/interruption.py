"""Ctrl-C and SIGTERM: the job stops at once, and reports what it leaves. Imports little, to be early."""

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
# How long an interruption waits for the answer of a bucket.
_ASK_SECONDS = 5.0


class _Job:
    """The job that this process runs.

    Attributes:
        output: folder that the job locks; None for a job that writes no dataset.
        working: folder that it works in.
        published: folder that readers will see.
        before: identifies the manifest that was published before the job.
        message: printed on an interruption, instead of what lies in the folders.
    """

    output: str | None = None
    working: str = ""
    published: str = ""
    before: tuple[float, int] | None = None
    message: str = ""


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
        _job.message = ""
        for number, handler in former.items():
            signal.signal(number, handler)


def install() -> None:
    """From here on, Ctrl-C and SIGTERM end the process."""
    for number in _SIGNALS:
        signal.signal(number, _stop)


def begin(output: str, working: str, published: str) -> None:
    """A job begins to write a dataset: an interruption reports what lies in its folders.

    Args:
        output: that the job locks.
        working: that it works in.
        published: that readers will see.
    """
    _job.before = _manifest_state(published)
    _job.working, _job.published = working, published
    _job.output = output


def set_message(text: str) -> None:
    """From here on, an interruption prints this text: no dataset is written, or the job runs elsewhere."""
    _job.message = text


def reusable_work(output: str, working: str) -> str:
    """A line about the work of an unpublished job that the next one reuses; empty if there is none.

    While another job holds the lock, the work belongs to that job.

    Args:
        output: folder that the job locked.
        working: folder that it worked in.
    """
    from recordmill.transforms.storage import lock

    def answer() -> str:
        return _reusable_work(output, working) if lock.holder(output) is None else ""

    return (_answered(answer) or "") if _is_remote(output) else answer()


def _reusable_work(output: str, working: str) -> str:
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
    if _job.message or _job.output is not None:
        from recordmill.transforms.workers import process

        process.kill_all()
        _end_programs()
    if _job.message:
        text = f"interrupted; {_job.message}"
    elif _job.output is not None:
        from recordmill.transforms.storage import lock

        if _is_remote(_job.output):
            text = f"interrupted; {_remains_in_bucket(_job.output)}"
        else:
            lock.release_all()
            text = f"interrupted; {_remains(_job.output)}"
    os.write(2, f"\n{text}".encode())
    os._exit(_INTERRUPTED)


def _end_programs() -> None:
    """Ends the programs that Beam started, such as a job server, which Beam itself ends only at exit."""
    import psutil

    for program in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            program.terminate()


def _remains_in_bucket(output: str) -> str:
    """What the job leaves there, in words; releases the lock."""
    from recordmill.transforms.storage import lock

    def answer() -> str:
        lock.release_all()
        return _remains(output)

    return _answered(answer) or f"{output} does not answer: what is left there is unknown\n"


def _answered(question: Callable[[], str]) -> str | None:
    """The answer to a question about a bucket; None if none comes in time."""
    answers: list[str] = []

    def ask() -> None:
        with contextlib.suppress(Exception):
            answers.append(question())

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_ASK_SECONDS)
    return answers[0] if answers else None


def _is_remote(output: str) -> bool:
    return output.startswith("gs://")  # the storage's own function takes a while to import


def _remains(output: str) -> str:
    now = _manifest_state(_job.published)
    if now is not None and now != _job.before:
        return f"the new dataset is published in {_job.published}\n{_pointer(output)}"
    text = f"nothing is published in {_job.published}"
    if now is not None:
        text = f"the dataset in {_job.published} is the one that was there before"
    return f"{text}\n{_reusable_work(output, _job.working)}"


def _pointer(output: str) -> str:
    """A line for a published version that latest.json does not name yet; else empty."""
    from recordmill.transforms.storage.layout import LATEST
    from recordmill.transforms.storage.versions import latest_version

    if _job.published == output or str(latest_version(output)) == os.path.basename(_job.published):
        return ""
    return f"{LATEST} does not name it yet: the next job sees to that\n"


def _manifest_state(output: str) -> tuple[float, int] | None:
    """Identifies the state of manifest.json; None if there is none."""
    if _is_remote(output):
        from recordmill.transforms.storage import objects

        found = objects.stat(f"{output.rstrip('/')}/manifest.json")
        return found and (found.updated, found.generation)
    try:
        status = os.stat(os.path.join(output, "manifest.json"))
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
