"""A Beam pipeline: created for a runner, run to its end, and its error as one line."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from recordmill.pipelines.options.runner import DIRECT_RUNNER, JobOptions
from recordmill.pipelines.running import interruption
from recordmill.transforms import internal_errors
from recordmill.transforms.flags import as_flags
from recordmill.transforms.records import JobError

if TYPE_CHECKING:
    import apache_beam as beam

_O = TypeVar("_O", bound=JobOptions)

# The text of a JobError, or of an error of the machine (disk full, no permission), in the message of the
# exception that a runner raises instead.
_JOB_ERROR = re.compile(r"(?:JobError: |Error: (?=\[Errno))(.*?)(?: \[while running .*)?$", re.MULTILINE)
# On Prism, Beam limits the run time of a job to the time-out of a job server's answer.
_PRISM_TIMEOUT = f"--job_server_timeout={30 * 24 * 3600}"


class BadCall(Exception):
    """Beam refuses the call."""


class _WorkerFaults(logging.Filter):
    """The first JobError that the workers of this process log.

    Prism cancels a job after a bundle has failed, and sometimes reports the cancellation as the reason.
    """

    def __init__(self, shown: bool) -> None:
        super().__init__()
        self._shown = shown
        self.first: str | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Looks at a record; whether it is logged."""
        self.first = self.first or job_error_in(record.getMessage())
        return self._shown

    def __enter__(self) -> _WorkerFaults:
        log = logging.getLogger("apache_beam.runners.worker.sdk_worker")
        if not log.isEnabledFor(logging.ERROR):
            log.setLevel(logging.ERROR)
        log.addFilter(self)
        return self

    def __exit__(self, *raised: object) -> None:
        logging.getLogger("apache_beam.runners.worker.sdk_worker").removeFilter(self)


def set_up_logging(verbose: bool) -> None:
    """Shows Beam's log if `verbose`; otherwise its warnings and tracebacks are noise."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    if verbose:
        logging.getLogger().setLevel(logging.INFO)
    logging.getLogger(internal_errors.__name__).setLevel(logging.ERROR)
    # If a job is refused, it logs the message of its own exception as critical.
    dataflow_log = logging.getLogger("apache_beam.runners.dataflow")
    dataflow_log.setLevel(logging.NOTSET if verbose else logging.CRITICAL + 1)


def run_command(
    parse: Callable[[Sequence[str], str], _O],
    run: Callable[[_O], int],
    argv: Sequence[str] | None,
    prog: str,
    kept: Callable[[_O], str] = lambda _: "",
) -> int:
    """Parses and checks a call, and runs its job; returns the exit status.

    Args:
        parse: from flags and `prog` to the checked options.
        run: runs the job.
        argv: the flags; None for those of this process.
        prog: name of the program, for messages.
        kept: further lines about a failed job.
    """
    with interruption.stopping_at_once():
        set_up_logging(verbose=False)
        options = parse(sys.argv[1:] if argv is None else argv, prog)
        set_up_logging(options.verbose)
        return exit_status(lambda: run(options), prog, options.runner, options.verbose, lambda: kept(options))


def exit_status(
    run: Callable[[], int], prog: str, runner: str, verbose: bool, kept: Callable[[], str] = str
) -> int:
    """The result of `run`; 2 if the call is wrong and 1 if the job fails, with one line on stderr."""
    with _WorkerFaults(shown=verbose) as faults:
        try:
            return run()
        except BadCall as error:
            print(f"{prog}: error: {as_flags(str(error))}", file=sys.stderr)
            return 2
        except Exception as error:
            message = _failure_line(error, faults.first, runner, verbose)
            if message is None:
                raise
            print(f"{prog}: error: {as_flags(message)}\n{kept()}", end="", file=sys.stderr)
            return 1


def _failure_line(error: Exception, logged: str | None, runner: str, verbose: bool) -> str | None:
    """The line about a failed job; None for an error in this program, which needs its traceback."""
    message = job_error(error) or logged
    if message is None and runner != DIRECT_RUNNER and not verbose:
        last = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        message = f"--runner={runner} failed: {last[0]} (--verbose shows all)"
    return message


def new_pipeline(runner: str, beam_args: Sequence[str]) -> beam.Pipeline:
    """An empty pipeline for the runner; DirectRunner is the in-process FnApiRunner, which downloads nothing.

    Raises:
        BadCall: Beam has no such runner, or refuses the value of a flag.
    """
    import apache_beam as beam
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    from recordmill.transforms.beam_options import Options

    flags = [_PRISM_TIMEOUT, *beam_args] if runner == "PrismRunner" else list(beam_args)
    try:
        return beam.Pipeline(FnApiRunner() if runner == DIRECT_RUNNER else runner, Options(flags))
    except ValueError as error:
        raise BadCall(f"--runner is {runner!r}: {' '.join(str(error).split())}") from error


def run_to_end(pipeline: beam.Pipeline, unfinished: str) -> None:
    """Runs a pipeline; `unfinished` describes the result of an unfinished job: `nothing is published`.

    Raises:
        JobError: the runner has ended it in another state.
    """
    result = pipeline.run()
    result.wait_until_finish()
    if result.state != "DONE":
        raise JobError(f"the runner ended the job in state {result.state}; {unfinished}")


def job_error(error: BaseException) -> str | None:
    """The line of a JobError that a pipeline raised, or of an error of the machine; else None."""
    if isinstance(error, JobError):
        return job_error_in(f"JobError: {error}")
    return job_error_in(f"{type(error).__name__}: {error}")


def job_error_in(text: str) -> str | None:
    """The same, from a message with a traceback."""
    match = _JOB_ERROR.search(text)
    return match.group(1) if match is not None else None


def last_line(text: str) -> str:
    """The last line of a traceback: the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
