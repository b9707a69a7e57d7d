"""Ctrl-C and SIGTERM: the job stops at once, and reports its remains. Imports little, to be early."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from recordmill.transforms.storage.file_system import Status

_INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# How long an interruption waits for a service.
_ANSWER_SECONDS = 5.0


class _Job:
    """The job that this process runs."""

    output: str | None = None  # folder that the job locks; None for a job that writes no dataset
    working: str = ""  # folder that it works in
    published: str = ""  # folder that readers will see
    has_latency: bool = False  # as of the file system of the output
    before: Status | None = None  # the manifest that was published before the job
    message: str = ""  # printed on an interruption, instead of a report about the folders


_job = _Job()


@contextlib.contextmanager
def stopping_at_once() -> Iterator[None]:
    """Ends the process on Ctrl-C and SIGTERM, and its writers with it.

    Any part of Beam could catch an exception instead, and Beam's threads would finish first.
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
    """From now on, Ctrl-C and SIGTERM end the process."""
    for number in _SIGNALS:
        signal.signal(number, _stop)


def begin(output: str, working: str, published: str) -> None:
    """A job begins to write a dataset: an interruption reports the contents of its folders, see `_Job`."""
    from recordmill.transforms.storage.file_system import file_system

    _job.before = _manifest(published)
    _job.working, _job.published = working, published
    _job.has_latency = file_system(output).has_latency
    _job.output = output


def set_message(text: str) -> None:
    """From now on, an interruption prints this text: no dataset is written, or the job runs elsewhere."""
    _job.message = text


def reusable_work(output: str, working: str) -> str:
    """A line about the work of an unpublished job that the next one reuses; empty if there is none.

    The folders are those of `_Job`. While another job holds the lock, the work belongs to that job.
    """
    from recordmill.transforms.storage import lock
    from recordmill.transforms.storage.file_system import file_system

    def answer() -> str:
        return _reusable_work(output, working) if lock.holder(output) is None else ""

    return _answered(answer, file_system(output).has_latency) or ""


def _reusable_work(output: str, working: str) -> str:
    from recordmill.transforms.storage.runs import finished_shards

    if working != output and _manifest(working) is not None:
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
    text = "interrupted; nothing was started\n"
    if _job.message or _job.output is not None:
        from recordmill.transforms.workers import process

        process.kill_all()
        _end_programs()
    if _job.message:
        text = f"interrupted; {_job.message}"
    elif (output := _job.output) is not None:
        unknown = f"{output} does not answer: its contents are unknown\n"
        text = f"interrupted; {_answered(lambda: _remains(output), _job.has_latency) or unknown}"
    os.write(2, f"\n{text}".encode())
    os._exit(_INTERRUPTED)


def _end_programs() -> None:
    """Ends the programs that Beam started, such as a job server, which Beam itself ends only at exit."""
    import psutil

    for program in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            program.terminate()


def _answered(question: Callable[[], str], has_latency: bool) -> str | None:
    """The answer to a question about files; None for a failure, or if a service does not answer in time."""
    answers: list[str] = []

    def ask() -> None:
        with contextlib.suppress(Exception):
            answers.append(question())

    if has_latency:
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(_ANSWER_SECONDS)
    else:
        ask()
    return answers[0] if answers else None


def _remains(output: str) -> str:
    """Describes the remains of the job, and releases the lock."""
    from recordmill.transforms.storage import lock

    lock.release_all()
    now = _manifest(_job.published)
    if now is not None and now != _job.before:
        return f"the new dataset is published in {_job.published}\n{_pointer(output)}"
    text = f"nothing is published in {_job.published}"
    if now is not None:
        text = f"{_job.published} still has the previous dataset"
    return f"{text}\n{_reusable_work(output, _job.working)}"


def _pointer(output: str) -> str:
    """A line for a published version that latest.json does not name yet; else empty."""
    from recordmill.transforms.storage.layout import LATEST
    from recordmill.transforms.storage.versions import latest_version

    if _job.published == output or str(latest_version(output)) == os.path.basename(_job.published):
        return ""
    return f"{LATEST} does not name it yet: the next job updates it\n"


def _manifest(output: str) -> Status | None:
    from recordmill.transforms.storage.file_system import file_system
    from recordmill.transforms.storage.layout import MANIFEST

    return file_system(output).find(os.path.join(output, MANIFEST))
