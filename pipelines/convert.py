"""The main job: images and labels from a source, to a published TFRecord dataset.

recordmill convert --input photos/ --output out/
python -m recordmill convert --input photos/ --output out/ --image_format jpeg --jpeg_quality 90
python pipelines/convert.py --input photos/ --output out/
recordmill convert --input gs://bucket/photos --output gs://bucket/out --runner DataflowRunner \\
    --project my-project --region europe-west4 --temp_location gs://bucket/tmp
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

if __package__ in (None, ""):
    # Run as a file: its own folder comes first on the path, and is no package. Above it is a checkout,
    # or the installed package.
    _above = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    sys.path[0] = _above if os.path.isdir(os.path.join(_above, "recordmill")) else os.path.dirname(_above)

from recordmill.pipelines.running import beam_import, interruption

if __name__ == "__main__":
    interruption.install()  # what follows takes a while to import


def main(argv: Sequence[str] | None = None, prog: str = "python -m recordmill.pipelines.convert") -> int:
    """Converts; returns the exit status (see `--help`)."""
    if argv is None:
        beam_import.run_one_job()
    with interruption.stopping_at_once():
        # Modules and records are many and live to the end: collecting them over and over frees nothing.
        gc.set_threshold(100_000, 20, 20)
        from recordmill.pipelines.options.convert import parse_convert

        options = parse_convert(sys.argv[1:] if argv is None else argv, prog, _set_up)
        from recordmill.pipelines.convert_job import run
        from recordmill.pipelines.running.beam_job import exit_status, set_up_logging

        set_up_logging(options.verbose)
        return exit_status(
            lambda: run(options),
            prog,
            options.runner,
            options.verbose,
            lambda: "" if options.quiet else interruption.reusable_work(options.output, options.working),
        )


def _set_up() -> None:
    from recordmill.pipelines.running.beam_job import set_up_logging
    from recordmill.transforms.workers import own_process

    own_process.set_up()
    set_up_logging(verbose=False)


if __name__ == "__main__":
    sys.exit(main())
