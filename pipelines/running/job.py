"""Runs the job of a checked call: waits for its end, or submits it to Dataflow and follows it."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import tempfile
from typing import TYPE_CHECKING

from recordmill.pipelines.options.dataflow import DATAFLOW_RUNNER
from recordmill.pipelines.options.runner import DIRECT_RUNNER, JobOptions
from recordmill.pipelines.running import dataflow_job, interruption
from recordmill.pipelines.running.beam_import import import_beam
from recordmill.pipelines.running.beam_job import job_error, new_pipeline, run_to_end
from recordmill.pipelines.running.display import job_lines, progress_display, quiet_threads
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.scratch import scratch_folder
from recordmill.transforms.workers import process

if TYPE_CHECKING:
    import apache_beam as beam


class Job:
    """A job of one command.

    Args:
        workers: processes on this machine.
        unfinished: describes the result of an unfinished job: `nothing is published`.
        uses_cloud: Beam itself reads or writes `gs://`.

    Attributes:
        preload: module that the processes import before their first task.
        preload_last: module that one of them imports after it, for a task at the end of the job.
    """

    preload = "recordmill.transforms.images.store"
    preload_last = ""

    def __init__(self, workers: int, unfinished: str, uses_cloud: bool = False) -> None:
        self.workers = workers
        self.unfinished = unfinished
        self.uses_cloud = uses_cloud

    def assemble(self, pipeline: beam.Pipeline) -> None:
        """Adds all steps to an empty pipeline."""
        raise NotImplementedError

    def begin(self) -> None:
        """Called before a job of this machine starts; sets the report of an interruption."""
        interruption.set_message(f"{self.unfinished}\n")

    def failed(self) -> None:
        """Called after the job has failed."""

    def result(self) -> str:
        """Lines of text that name the future path of the result, for a call that does not wait for it."""
        return ""


def run_job(options: JobOptions, job: Job) -> bool:
    """Runs a job; returns whether it is done, and not only described or submitted."""
    if options.runner == DATAFLOW_RUNNER:
        return _run_on_dataflow(options, job)
    job.begin()
    try:
        with progress_display(options.shown):
            if job.workers > 1:
                process.prestart(job.workers, job.preload, job.preload_last)
            pipeline = _assembled(options, job)
            if options.on_a_cluster:
                interruption.set_message("the job may continue on its cluster: cancel it there\n")
            is_quiet = options.runner != DIRECT_RUNNER and not options.verbose
            with quiet_threads() if is_quiet else contextlib.nullcontext():
                run_to_end(pipeline, job.unfinished)
    except Exception as error:
        if job_error(error) is not None:  # the job has ended; a worker that holds the lock may not have
            job.failed()
        raise
    finally:
        lock.release_all()
        process.stop_idle()
    return True


def _assembled(options: JobOptions, job: Job) -> beam.Pipeline:
    import_beam(job.uses_cloud or options.runner != DIRECT_RUNNER)
    pipeline = new_pipeline(options.runner, options.beam_args)
    job.assemble(pipeline)
    return pipeline


def _run_on_dataflow(options: JobOptions, job: Job) -> bool:
    """Submits the job to Dataflow, and follows it unless --async is given."""
    from recordmill.transforms.beam_credentials import spare_search

    spare_search()
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        if options.setup_file is not None:
            archive = f"--extra_package={dataflow_job.pack(options.setup_file, folder)}"
            options = dataclasses.replace(options, beam_args=(*options.beam_args, archive))
        pipeline = _assembled(options, job)
        interruption.set_message("the job was being submitted: `gcloud dataflow jobs list` may have it\n")
        submitted = dataflow_job.submit(pipeline)
    if submitted is None:  # the launcher of a template reads the description, and starts the job
        if not options.quiet:
            print(f"Wrote the job description{dataflow_job.described_at(pipeline)}", file=sys.stderr)
        return False
    left = f"{submitted.left()}{job.result()}"
    interruption.set_message(f"the job continues: {left}")
    if options.is_async:
        if not options.quiet:
            print(left, end="")
        return False
    say, count = job_lines(options.shown)
    say(submitted.described().rstrip("\n"))
    try:
        dataflow_job.follow(submitted, say, count)
    except dataflow_job.JobFailed:
        job.failed()
        raise
    return True
