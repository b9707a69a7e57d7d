"""Measures image settings: what each costs and saves, as a table, a plot and a page. Writes no dataset.

recordmill sweep --input photos/ --output sweep/
python -m recordmill.pipelines.sweep --input photos/ --output sweep/ --limit 200 --qualities 95,90,75
recordmill sweep --input gs://bucket/photos --output gs://bucket/sweep --limit 1000 --runner DataflowRunner \\
    --project my-project --region europe-west4 --temp_location gs://bucket/tmp
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if __package__ in (None, ""):
    # Run as a file: its own folder is first on the path, and holds no package.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from recordmill.pipelines import interruption

if __name__ == "__main__":
    interruption.install()  # what follows takes a while to import

from recordmill.pipelines.beam_job import exit_status, new_pipeline, set_up_logging
from recordmill.pipelines.findings_job import run_job
from recordmill.pipelines.runner_flags import listing_parts
from recordmill.pipelines.sweep_options import SweepOptions, parse_sweep
from recordmill.pipelines.sweep_table import print_table
from recordmill.transforms.shards import progress
from recordmill.transforms.storage.files import read_text
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.sweeping.output import SWEEP_JSON
from recordmill.transforms.sweeping.tables import read_json
from recordmill.transforms.workers import own_process

if TYPE_CHECKING:
    import apache_beam as beam


def main(argv: Sequence[str] | None = None, prog: str = "python -m recordmill.pipelines.sweep") -> int:
    """Measures; returns the exit status (see `--help`)."""
    with interruption.stopping_at_once():
        return _swept(sys.argv[1:] if argv is None else argv, prog)


def _swept(argv: Sequence[str], prog: str) -> int:
    """The exit status of a call; what is wrong is told in one line."""
    own_process.set_up()
    set_up_logging(verbose=False)
    options = parse_sweep(argv, prog)
    set_up_logging(options.verbose)
    return exit_status(lambda: run(options), prog, options.runner, options.verbose, str)


def run(options: SweepOptions) -> int:
    """Runs the checked call."""
    if not options.quiet:
        print(f"source: {options.source.kind} ({options.source_reason})", file=sys.stderr)
    progress.reset("measured")
    unfinished = f"nothing new is written to {options.output}"
    if not run_job(options, options.dataset.workers, lambda args: _assembled(options, args), unfinished):
        return 0
    if not options.quiet:
        # Nobody may be reading any more; it was written all the same.
        with contextlib.suppress(BrokenPipeError, SystemExit):  # rich makes a SystemExit of a broken pipe
            print_table(read_json(read_text(os.path.join(absolute(options.output), SWEEP_JSON))))
            print(
                f"\nThe pictures and the figures are in {options.output.rstrip('/')}/: sweep.html shows all"
            )
    return 0


def _assembled(options: SweepOptions, beam_args: Sequence[str]) -> beam.Pipeline:
    """The whole job."""
    from recordmill.transforms.read import ReadSource
    from recordmill.transforms.sweep import MeasureSettings, SweptSource

    pipeline = new_pipeline(options.runner, beam_args)
    swept = SweptSource(options.source.input, options.source.kind, options.scratch)
    (
        pipeline
        | "ReadSource"
        >> ReadSource(options.source, options.scratch, listing_parts(options.runner), is_located=True)
        | "MeasureSettings" >> MeasureSettings(options.output, options.sweep, options.dataset, swept)
    )
    return pipeline


if __name__ == "__main__":
    sys.exit(main())
