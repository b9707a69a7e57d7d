"""A job that tells what it finds, and publishes nothing: run here, or submitted to Dataflow and followed."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recordmill.pipelines import dataflow_job, interruption
from recordmill.pipelines.beam_import import import_beam
from recordmill.pipelines.beam_job import run_to_end
from recordmill.pipelines.code_archive import pack
from recordmill.pipelines.dataflow import DATAFLOW_RUNNER
from recordmill.pipelines.display import job_lines, progress_display
from recordmill.pipelines.options import direct_args
from recordmill.pipelines.quiet_threads import quiet_threads
from recordmill.pipelines.runner_flags import DIRECT_RUNNER, code_to_send, is_on_a_cluster
from recordmill.transforms.storage.scratch import scratch_folder
from recordmill.transforms.workers import process

if TYPE_CHECKING:
    import apache_beam as beam

Assemble = Callable[[Sequence[str]], "beam.Pipeline"]
"""Makes the whole pipeline, of Beam's flags."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What of a checked call decides how its job is run.

    Attributes:
        progress: `auto`, `bar`, `lines` or `none`.
        verbose: log what Beam logs.
        quiet: say nothing but errors.
        runner: Beam's runner, by name.
        beam_args: the flags that are Beam's, --runner among them.
        setup_file: of which the workers get this program; None where they have it.
        on_a_cluster: the job goes on when this process ends.
    """

    progress: str
    verbose: bool
    quiet: bool
    runner: str
    beam_args: tuple[str, ...]
    setup_file: str | None
    on_a_cluster: bool


def job_options(args: argparse.Namespace, others: Sequence[str], flags: Mapping[str, Any]) -> JobOptions:
    """The options of a parsed call.

    Args:
        args: as our parser has them.
        others: the flags that are Beam's.
        flags: those by name.

    Raises:
        ValueError: flags exclude each other, or this program cannot be sent to the workers.
    """
    if args.verbose and args.quiet:
        raise ValueError("--verbose and --quiet are both given; give one of them")
    return JobOptions(
        progress=args.progress,
        verbose=args.verbose,
        quiet=args.quiet,
        runner=args.runner,
        beam_args=(*direct_args(args), *others),
        setup_file=code_to_send(args.runner, flags),
        on_a_cluster=is_on_a_cluster(args.runner, flags),
    )


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
                process.prestart(workers, "recordmill.transforms.images.store")
            import_beam(options.runner != DIRECT_RUNNER)
            pipeline = assemble(options.beam_args)
            is_quiet = options.runner != DIRECT_RUNNER and not options.verbose
            with quiet_threads() if is_quiet else contextlib.nullcontext():
                run_to_end(pipeline, unfinished)
    finally:
        process.stop_idle()
    return True


def _run_elsewhere(options: JobOptions, assemble: Assemble) -> bool:
    """Submits the job to Dataflow, and follows it."""
    from recordmill.transforms.beam_credentials import spare_search

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
    interruption.leave(f"the job continues: {job.described()}")
    say, count = job_lines("quiet" if options.quiet else options.progress)
    say(job.described().rstrip("\n"))
    dataflow_job.follow(job, say, count)
    return True
