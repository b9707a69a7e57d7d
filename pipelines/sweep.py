"""Measures costs and savings of image settings: a table, a plot and a page. Writes no dataset.

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

from recordmill.pipelines.running import interruption

if __name__ == "__main__":
    interruption.install()  # the imports below take a while

from recordmill.pipelines.options.sweep import SweepOptions, parse_sweep
from recordmill.pipelines.running.beam_job import run_command
from recordmill.pipelines.running.job import Job, run_job
from recordmill.pipelines.sweep_table import print_table
from recordmill.transforms.shards import progress
from recordmill.transforms.storage.files import read_text
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.sweeping.output import SWEEP_JSON
from recordmill.transforms.sweeping.tables import read_json

if TYPE_CHECKING:
    import apache_beam as beam


def main(argv: Sequence[str] | None = None, prog: str = "python -m recordmill.pipelines.sweep") -> int:
    """Measures; returns the exit status (see `--help`)."""
    return run_command(parse_sweep, run, argv, prog)


def run(options: SweepOptions) -> int:
    """Runs the checked call."""
    if not options.quiet:
        print(f"source: {options.source.kind} ({options.source_reason})", file=sys.stderr)
    progress.reset("measured")
    if not run_job(options, _Sweep(options)):
        return 0
    if not options.quiet:
        # The program that reads the output may have ended.
        with contextlib.suppress(BrokenPipeError, SystemExit):  # rich makes a SystemExit of a broken pipe
            print_table(read_json(read_text(os.path.join(absolute(options.output), SWEEP_JSON))))
            print(
                f"\nThe pictures and the figures are in {options.output.rstrip('/')}/: sweep.html shows all"
            )
    return 0


class _Sweep(Job):
    def __init__(self, options: SweepOptions) -> None:
        super().__init__(options.dataset.workers, f"nothing new is written to {options.output}")
        self._options = options

    def assemble(self, pipeline: beam.Pipeline) -> None:
        from recordmill.transforms.read import ReadSource
        from recordmill.transforms.sweep import MeasureSettings, SweptSource

        options = self._options
        swept = SweptSource(options.source.input, options.source.kind, options.scratch)
        read = ReadSource(options.source, options.scratch, options.listing_parts, is_located=True)
        measure = MeasureSettings(options.output, options.sweep, options.dataset, swept)
        (pipeline | "ReadSource" >> read | "MeasureSettings" >> measure)


if __name__ == "__main__":
    sys.exit(main())
