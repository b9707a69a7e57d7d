"""Reads a complete dataset back, and reports what is wrong with it.

recordmill verify out/
recordmill verify out/ --input photos/
python -m recordmill.pipelines.verify gs://bucket/out --report verified.json
recordmill verify gs://bucket/out --report gs://bucket/verified.json --runner DataflowRunner \\
    --project my-project --region europe-west4 --temp_location gs://bucket/tmp
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):
    # Run as a file: its own folder is first on the path, and holds no package.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from recordmill.pipelines.running import interruption

if __name__ == "__main__":
    interruption.install()  # what follows takes a while to import

from recordmill.pipelines.options.runner import DIRECT_RUNNER, listing_parts
from recordmill.pipelines.options.verify import VerifyOptions, parse_verify, report_in, scratch_next_to
from recordmill.pipelines.running.beam_job import exit_status, set_up_logging
from recordmill.pipelines.running.job import Job, run_job
from recordmill.pipelines.verify_table import print_verified
from recordmill.transforms.shards import progress
from recordmill.transforms.storage.files import read_text
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.storage.scratch import scratch_folder
from recordmill.transforms.workers import own_process

if TYPE_CHECKING:
    import apache_beam as beam


def main(argv: Sequence[str] | None = None, prog: str = "python -m recordmill.pipelines.verify") -> int:
    """Verifies; returns the exit status (see `--help`)."""
    with interruption.stopping_at_once():
        own_process.set_up()
        set_up_logging(verbose=False)
        options = parse_verify(sys.argv[1:] if argv is None else argv, prog)
        set_up_logging(options.verbose)
        return exit_status(lambda: run(options), prog, options.runner, options.verbose)


def run(options: VerifyOptions) -> int:
    """Runs the checked call; 1 where something is wrong."""
    progress.reset("verified")
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        report = report_in(options, folder)
        if not run_job(options, _Verification(options, report)):
            return 0
        found: dict[str, Any] = json.loads(read_text(absolute(report)))
    if not options.quiet:
        # Nobody may be reading any more.
        with contextlib.suppress(BrokenPipeError, SystemExit):  # rich makes a SystemExit of a broken pipe
            print_verified(found)
    return 0 if found["sound"] else 1


class _Verification(Job):
    """The job that reads everything back, and writes its findings to the path `report`."""

    def __init__(self, options: VerifyOptions, report: str) -> None:
        super().__init__(options.workers, "it was not verified to its end")
        self._options = options
        self._report = report

    def assemble(self, pipeline: beam.Pipeline) -> None:
        from recordmill.transforms.verify import VerifyShards
        from recordmill.transforms.verify_against import SourceAgain

        options = self._options
        against = None
        if options.source is not None and options.dataset is not None:
            # Workers of other machines share nothing but the report's folder.
            scratch = None if options.runner == DIRECT_RUNNER else scratch_next_to(self._report)
            against = SourceAgain(options.source, options.dataset, scratch, listing_parts(options.runner))
        verify = VerifyShards(options.path, self._report, options.workers, against)
        _ = pipeline | "VerifyShards" >> verify


if __name__ == "__main__":
    sys.exit(main())
