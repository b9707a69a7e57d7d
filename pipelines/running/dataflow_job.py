"""A job on Dataflow: packs its code, submits it and follows it. Imports Beam only to submit."""

from __future__ import annotations

import dataclasses
import glob
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from recordmill.pipelines.running.beam_job import job_error_in, last_line
from recordmill.transforms.records import JobError

if TYPE_CHECKING:
    import apache_beam as beam

NAMESPACE = "recordmill"
"""The namespace of our counters."""

POLL_SECONDS = 5.0
LINE_SECONDS = 30.0
# Dataflow reports why a job has failed a while after it reports the failure.
_REASON_POLLS = 12

_UNKNOWN = "JOB_STATE_UNKNOWN"  # the service has not processed the job yet
_DONE = "JOB_STATE_DONE"
_ENDS = (_DONE, "JOB_STATE_FAILED", "JOB_STATE_CANCELLED", "JOB_STATE_UPDATED", "JOB_STATE_DRAINED")
_WARNING, _ERROR = "JOB_MESSAGE_WARNING", "JOB_MESSAGE_ERROR"


class Client(Protocol):
    """The methods of Beam's Dataflow client that we use."""

    def get_job(self, job_id: str) -> Any:
        """The job; its `current_state` has a name."""

    def list_messages(
        self, job_id: str, start_time: Any = None, end_time: Any = None, page_token: str | None = None
    ) -> tuple[list[Any], str]:
        """A page of messages, and the token of the next."""

    def get_job_metrics(self, job_id: str) -> Any:
        """All counters, in `metrics`."""


@dataclasses.dataclass(frozen=True)
class SubmittedJob:
    """A job that Dataflow has accepted."""

    client: Client
    job_id: str
    name: str
    project: str
    region: str

    @property
    def page(self) -> str:
        """Its page in the console."""
        job = f"{self.region}/{self.job_id}?project={self.project}"
        return f"https://console.cloud.google.com/dataflow/jobs/{job}"

    def described(self) -> str:
        """Its name, its id and its page, as lines of text."""
        return f"job {self.name} is at Dataflow, id {self.job_id}\n  to look at it:  {self.page}\n"

    def left(self) -> str:
        """The same, with the command that cancels it."""
        cancel = f"cancel {self.job_id} --project={self.project} --region={self.region}"
        return f"{self.described()}  to cancel it:   gcloud dataflow jobs {cancel}\n"


def pack(setup_file: str, folder: str) -> str:
    """Makes the source distribution of a checkout in `folder`; returns its path. Raises JobError.

    Beam's own --setup_file prints the errors of its first attempt, and writes into the checkout.
    """
    steps = ["egg_info", "--egg-base", folder, "sdist", "--dist-dir", folder]
    call = [sys.executable, "setup.py", "--quiet", *steps]
    done = subprocess.run(call, cwd=os.path.dirname(setup_file), capture_output=True, text=True)
    archives = glob.glob(os.path.join(glob.escape(folder), "*.tar.gz"))
    if done.returncode or not archives:
        raise JobError(
            f"{setup_file} makes no archive of this program for the workers ({last_line(done.stderr)}): pip "
            "install setuptools, or give --sdk_container_image, an image with this program"
        )
    return archives[0]


def submit(pipeline: beam.Pipeline) -> SubmittedJob | None:
    """Submits a pipeline to Dataflow; None if the flags ask for the description of the job only.

    Raises:
        JobError: Dataflow, or the bucket, refuses it.
    """
    from apache_beam.options.pipeline_options import GoogleCloudOptions
    from apache_beam.runners.dataflow.internal.apiclient import DataflowJobAlreadyExistsError
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError

    try:
        result = pipeline.run()
    except DataflowJobAlreadyExistsError as error:
        raise JobError(str(error)) from error
    except GoogleAPICallError as error:
        raise JobError(f"Dataflow refuses the job: {error.code} {last_line(error.message)}") from error
    except GoogleAuthError as error:
        raise JobError(f"Google Cloud needs credentials: {' '.join(str(error).split())}") from error
    if not getattr(result, "has_job", False):
        return None
    options = pipeline.options.view_as(GoogleCloudOptions)
    client: Client = result._runner.dataflow_client
    return SubmittedJob(client, result.job_id(), options.job_name, options.project, options.region)


def described_at(pipeline: beam.Pipeline) -> str:
    """The end of a sentence about a job that was not submitted: its description, and the reason."""
    from apache_beam.options.pipeline_options import GoogleCloudOptions

    location = pipeline.options.view_as(GoogleCloudOptions).template_location
    return f" to {location}; not submitted (--template_location)." if location else "; not submitted."


class JobFailed(JobError):
    """The job has failed."""


def follow(job: SubmittedJob, say: Callable[[str], None], count: Callable[[str], None]) -> None:
    """Waits until the job is done.

    Args:
        job: to follow.
        say: prints a line about its states, warnings and errors.
        count: prints a line about its progress, at intervals.

    Raises:
        JobFailed: the job has failed; the reason is from its error messages.
        JobError: it can no longer be followed.
    """
    messages = _Messages(job)
    try:
        state = _last_state(job, messages, say, count)
        if state != _DONE:
            raise JobFailed(_why(state, messages, say))
    except JobError:
        raise
    except Exception as error:  # of the connection, after Beam's retries
        reason = last_line(str(error)) or type(error).__name__
        raise JobError(f"the job continues, but can no longer be followed ({reason}): {job.page}") from error


def _last_state(
    job: SubmittedJob, messages: _Messages, say: Callable[[str], None], count: Callable[[str], None]
) -> str:
    """Waits for the end of the job; returns its last state."""
    shown, due = "", time.monotonic()
    while True:
        current = job.client.get_job(job.job_id).current_state
        state = getattr(current, "name", str(current))  # a number if the state is new to this client
        if state not in (shown, _UNKNOWN):
            say(f"Dataflow: {_words(state)}")
            shown = state
        for text in messages.new():
            say(text)
        if state in _ENDS or time.monotonic() >= due:
            if line := progress_line(counters(job.client.get_job_metrics(job.job_id))):
                count(line)
            due = time.monotonic() + LINE_SECONDS
        if state in _ENDS:
            return state
        time.sleep(POLL_SECONDS)


def counters(metrics: Any) -> Counter[str]:
    """Our counters, by name, summed over the steps: committed, or tentative if that is more."""
    committed: Counter[str] = Counter()
    tentative: Counter[str] = Counter()
    for metric in metrics.metrics:
        context = metric.name.context
        if metric.name.origin == "user" and context.get("namespace") == NAMESPACE:
            sums = tentative if context.get("tentative") == "true" else committed
            sums[metric.name.name] += int(metric.scalar)
    return committed | tentative


def progress_line(found: Counter[str]) -> str:
    """The progress of a job; empty before it has read anything."""
    if not found:
        return ""
    failed = sum(count for name, count in found.items() if name.startswith("failed/"))
    done = "measured" if "measured" in found else "written"
    line = f"read {found['read']:,}, {done} {found[done]:,}"
    return f"{line}, failed {failed:,}" if failed else line


class _Messages:
    """The messages of a job, each once."""

    def __init__(self, job: SubmittedJob) -> None:
        self._job = job
        self._since: Any = None
        self._seen: set[str] = set()
        self.errors: list[str] = []

    def new(self) -> Iterator[str]:
        """Warnings and errors since the last call, a line each."""
        token: str | None = None
        while token != "":
            page, token = self._job.client.list_messages(
                self._job.job_id, start_time=self._since, page_token=token
            )
            for message in page:
                if message.id not in self._seen:
                    self._seen.add(message.id)
                    self._since = max(self._since or message.time, message.time)
                    yield from self._lines(message.message_importance.name, message.message_text)
            token = token or ""

    def _lines(self, importance: str, text: str) -> Iterator[str]:
        if importance == _ERROR:
            self.errors.append(text)
        if importance in (_WARNING, _ERROR):
            kind = "warning" if importance == _WARNING else "error"
            yield f"Dataflow: {kind}: {job_error_in(text) or last_line(text)}"


def _why(state: str, messages: _Messages, say: Callable[[str], None]) -> str:
    """The reason why a job is not done."""
    polls = _REASON_POLLS if state == "JOB_STATE_FAILED" else 0
    while not messages.errors and polls:
        polls -= 1
        time.sleep(POLL_SECONDS)
        for text in messages.new():
            say(text)
    ours = [line for line in map(job_error_in, messages.errors) if line]
    if ours:
        return ours[-1]
    traced = [text for text in messages.errors if "Traceback" in text] or messages.errors
    reason = f": {last_line(traced[-1])}" if traced else ""
    return f"Dataflow ended the job as {_words(state)}{reason}"


def _words(state: str) -> str:
    return state.removeprefix("JOB_STATE_").lower().replace("_", " ")
