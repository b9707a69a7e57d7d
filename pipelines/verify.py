"""Reads a dataset back, whole, and tells what is wrong with it.

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

from recordmill.pipelines import interruption

if __name__ == "__main__":
    interruption.install()  # what follows takes a while to import

from recordmill.pipelines.beam_job import exit_status, new_pipeline, set_up_logging
from recordmill.pipelines.findings_job import run_job
from recordmill.pipelines.runner_flags import DIRECT_RUNNER, listing_parts
from recordmill.pipelines.verify_options import VerifyOptions, parse_verify, report_in, scratch_beside
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
        return _verified(sys.argv[1:] if argv is None else argv, prog)


def _verified(argv: Sequence[str], prog: str) -> int:
    """The exit status of a call; what is wrong with it is told in one line."""
    own_process.set_up()
    set_up_logging(verbose=False)
    options = parse_verify(argv, prog)
    set_up_logging(options.verbose)
    return exit_status(lambda: run(options), prog, options.runner, options.verbose, str)


def run(options: VerifyOptions) -> int:
    """Runs the checked call; 1 where something is wrong."""
    progress.reset("verified")
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        report = report_in(options, folder)
        unfinished = "it was not verified to its end"
        if not run_job(options, options.workers, lambda args: _assembled(options, args, report), unfinished):
            return 0
        found: dict[str, Any] = json.loads(read_text(absolute(report)))
    if not options.quiet:
        # Nobody may be reading any more.
        with contextlib.suppress(BrokenPipeError, SystemExit):  # rich makes a SystemExit of a broken pipe
            print_verified(found)
    return 0 if found["sound"] else 1


def _assembled(options: VerifyOptions, beam_args: Sequence[str], report: str) -> beam.Pipeline:
    """The whole job."""
    from recordmill.transforms.verify import VerifyShards
    from recordmill.transforms.verify_against import SourceAgain

    pipeline = new_pipeline(options.runner, beam_args)
    against = None
    if options.source is not None and options.dataset is not None:
        # Workers of other machines share nothing but the report's folder.
        scratch = None if options.runner == DIRECT_RUNNER else scratch_beside(report)
        against = SourceAgain(options.source, options.dataset, scratch, listing_parts(options.runner))
    _ = pipeline | "VerifyShards" >> VerifyShards(options.path, report, options.workers, against)
    return pipeline


if __name__ == "__main__":
    sys.exit(main())
