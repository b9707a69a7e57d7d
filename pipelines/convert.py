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
from typing import TYPE_CHECKING

if __package__ in (None, ""):
    # Run as a file: the path begins with its own folder, which is not a package. The parent folder is a
    # checkout or the installed package.
    _above = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    sys.path[0] = _above if os.path.isdir(os.path.join(_above, "recordmill")) else os.path.dirname(_above)

from recordmill.pipelines.running import beam_import, interruption

if TYPE_CHECKING:
    from recordmill.pipelines.options.convert import ConvertOptions

if __name__ == "__main__":
    interruption.install()  # the imports below take a while


def main(argv: Sequence[str] | None = None, prog: str = "python -m recordmill.pipelines.convert") -> int:
    """Converts; returns the exit status (see `--help`)."""
    if argv is None:
        beam_import.run_one_job()
    with interruption.stopping_at_once():
        # There are many modules and records, and they live to the end: frequent collections free nothing.
        gc.set_threshold(100_000, 20, 20)
        from recordmill.pipelines.options.convert import parse_convert
        from recordmill.pipelines.running.beam_job import run_command

        return run_command(parse_convert, _run, argv, prog, _kept)


def _run(options: ConvertOptions) -> int:
    from recordmill.pipelines.convert_job import run

    return run(options)


def _kept(options: ConvertOptions) -> str:
    return "" if options.quiet else interruption.reusable_work(options.output, options.working)


if __name__ == "__main__":
    sys.exit(main())
