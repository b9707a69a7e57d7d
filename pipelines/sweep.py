"""Measures image settings: what each costs and saves, as a table, a plot and a page. Writes no dataset.

recordmill sweep --input photos/ --output sweep/
python -m pipelines.sweep --input photos/ --output sweep/ --limit 200 --qualities 95,90,75
recordmill sweep --input gs://bucket/photos --output gs://bucket/sweep --limit 1000 --runner DataflowRunner \\
    --project my-project --region europe-west4 --temp_location gs://bucket/tmp
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

if __package__ in (None, ""):
    # Run as a file: its own folder is first on the path, and holds no package.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from pipelines import interruption

if __name__ == "__main__":
    interruption.install()  # what follows takes a while to import

from pipelines import dataflow_job
from pipelines.beam_job import exit_status, new_pipeline, run_to_end, set_up_logging
from pipelines.code_archive import pack
from pipelines.dataflow import DATAFLOW_RUNNER
from pipelines.display import job_lines, progress_display
from pipelines.quiet_threads import quiet_threads
from pipelines.runner_flags import DIRECT_RUNNER
from pipelines.sweep_options import SweepOptions, parse_sweep
from pipelines.sweep_table import print_table
from transforms.shards import process, progress
from transforms.storage.files import read_text
from transforms.storage.paths import absolute
from transforms.storage.scratch import scratch_folder
from transforms.sweeping.output import SWEEP_JSON
from transforms.sweeping.tables import read_json

if TYPE_CHECKING:
    import apache_beam as beam


def main(argv: Sequence[str] | None = None, prog: str = "python -m pipelines.sweep") -> int:
    """Measures; returns the exit status (see `--help`)."""
    with interruption.stopping_at_once():
        return _swept(sys.argv[1:] if argv is None else argv, prog)


def _swept(argv: Sequence[str], prog: str) -> int:
    """The exit status of a call; what is wrong is told in one line."""
    set_up_logging(verbose=False)
    options = parse_sweep(argv, prog)
    set_up_logging(options.verbose)
    return exit_status(lambda: run(options), prog, options.runner, options.verbose, str)


def run(options: SweepOptions) -> int:
    """Runs the checked call."""
    if not options.quiet:
        print(f"source: {options.source.kind} ({options.source_reason})", file=sys.stderr)
    progress.reset("measured")
    if options.runner == DATAFLOW_RUNNER:
        if not _run_elsewhere(options):
            return 0
    else:
        interruption.leave(
            "the job may go on where it runs: cancel it there\n"
            if options.on_a_cluster
            else f"nothing new is written to {options.output}\n"
        )
        try:
            with progress_display("quiet" if options.quiet else options.progress):
                _run_here(options)
        finally:
            process.stop_idle()
    if not options.quiet:
        # Nobody may be reading any more; it was written all the same.
        with contextlib.suppress(BrokenPipeError, SystemExit):  # rich makes a SystemExit of a broken pipe
            print_table(read_json(read_text(os.path.join(absolute(options.output), SWEEP_JSON))))
            print(
                f"\nThe pictures and the figures are in {options.output.rstrip('/')}/: sweep.html shows all"
            )
    return 0


def _run_here(options: SweepOptions) -> None:
    """Runs the job, and waits for it."""
    if options.dataset.workers > 1:
        process.prestart(options.dataset.workers)
    pipeline = _assembled(options)
    is_quiet = options.runner != DIRECT_RUNNER and not options.verbose
    with quiet_threads() if is_quiet else contextlib.nullcontext():
        run_to_end(pipeline, "nothing is written")


def _run_elsewhere(options: SweepOptions) -> bool:
    """Submits the job to Dataflow, and follows it; whether it has run, and was not only described."""
    from transforms.beam_credentials import spare_search

    spare_search()
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        if options.setup_file is not None:
            archive = f"--extra_package={pack(options.setup_file, folder)}"
            options = dataclasses.replace(options, beam_args=(*options.beam_args, archive))
        pipeline = _assembled(options)
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


def _assembled(options: SweepOptions) -> beam.Pipeline:
    """The whole job."""
    from transforms.read import ReadSource
    from transforms.sweep import MeasureSettings, SweptSource

    pipeline = new_pipeline(options.runner, options.beam_args)
    swept = SweptSource(options.source.input, options.source.kind, options.scratch)
    (
        pipeline
        | "ReadSource" >> ReadSource(options.source, options.scratch)
        | "MeasureSettings" >> MeasureSettings(options.output, options.sweep, options.dataset, swept)
    )
    return pipeline


if __name__ == "__main__":
    sys.exit(main())
