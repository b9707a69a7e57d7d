"""A job that tells what it finds, and publishes nothing: run here, or submitted to Dataflow and followed."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from pipelines import dataflow_job, interruption
from pipelines.beam_job import run_to_end
from pipelines.code_archive import pack
from pipelines.dataflow import DATAFLOW_RUNNER
from pipelines.display import job_lines, progress_display
from pipelines.quiet_threads import quiet_threads
from pipelines.runner_flags import DIRECT_RUNNER
from transforms.shards import process
from transforms.storage.scratch import scratch_folder

if TYPE_CHECKING:
    import apache_beam as beam

Assemble = Callable[[Sequence[str]], "beam.Pipeline"]
"""Makes the whole pipeline, of Beam's flags."""


class JobOptions(Protocol):
    """What of a checked call decides how its job is run."""

    @property
    def progress(self) -> str:
        """`auto`, `bar`, `lines` or `none`."""

    @property
    def verbose(self) -> bool:
        """Log what Beam logs."""

    @property
    def quiet(self) -> bool:
        """Say nothing but errors."""

    @property
    def runner(self) -> str:
        """Beam's runner, by name."""

    @property
    def beam_args(self) -> tuple[str, ...]:
        """The flags that are Beam's, --runner among them."""

    @property
    def setup_file(self) -> str | None:
        """Of which the workers get this program; None where they have it."""

    @property
    def on_a_cluster(self) -> bool:
        """The job goes on when this process ends."""


def run_job(options: JobOptions, workers: int, assemble: Assemble, unfinished: str) -> bool:
    """Runs a job to its end; whether it has run, and was not only described.

    Args:
        options: of the call.
        workers: processes on this machine.
        assemble: makes the pipeline.
        unfinished: what is true where it does not come to its end: `nothing new is written to sweep/`.
    """
    if options.runner == DATAFLOW_RUNNER:
        return _run_elsewhere(options, assemble)
    interruption.leave(
        "the job may go on where it runs: cancel it there\n" if options.on_a_cluster else f"{unfinished}\n"
    )
    try:
        with progress_display("quiet" if options.quiet else options.progress):
            if workers > 1:
                process.prestart(workers)
            pipeline = assemble(options.beam_args)
            is_quiet = options.runner != DIRECT_RUNNER and not options.verbose
            with quiet_threads() if is_quiet else contextlib.nullcontext():
                run_to_end(pipeline, unfinished)
    finally:
        process.stop_idle()
    return True


def _run_elsewhere(options: JobOptions, assemble: Assemble) -> bool:
    """Submits the job to Dataflow, and follows it."""
    from transforms.beam_credentials import spare_search

    spare_search()
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        beam_args = options.beam_args
        if options.setup_file is not None:
            beam_args = (*beam_args, f"--extra_package={pack(options.setup_file, folder)}")
        pipeline = assemble(beam_args)
        interruption.leave("the job was being submitted: `gcloud dataflow jobs list` tells of it\n")
        job = dataflow_job.submit(pipeline)
    if job is None:
        if not options.quiet:
            print("the job is described, and not submitted, as the flags say", file=sys.stderr)
        return False
    interruption.leave(f"the job goes on: {job.described()}")
    say, count = job_lines("quiet" if options.quiet else options.progress)
    say(job.described().rstrip("\n"))
    dataflow_job.follow(job, say, count)
    return True
