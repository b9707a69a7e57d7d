"""The main job: images and labels from a source, to a published TFRecord dataset.

recordmill convert --input photos/ --output out/
python -m pipelines.convert --input photos/ --output out/ --image_format jpeg --jpeg_quality 90
python pipelines/convert.py --input photos/ --output out/
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):
    # Run as a file: its own folder is first on the path, and holds no package.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from pipelines import interruption

if __name__ == "__main__":
    interruption.install()  # what follows takes a while to import

from pipelines import summary
from pipelines.display import progress_display
from pipelines.options import DIRECT_RUNNER, ConvertOptions, parse_convert
from transforms.records import JobError
from transforms.shards import process, progress
from transforms.sources.source import SourceConfig
from transforms.storage import lock
from transforms.storage.layout import MANIFEST

if TYPE_CHECKING:
    import apache_beam as beam

# How a JobError, or an error of the machine (disk full, no permission), reads in the message of whatever
# exception a runner makes of it.
_JOB_ERROR = re.compile(r"(?:JobError: |Error: (?=\[Errno))(.*?)(?: \[while running .*)?$", re.MULTILINE)


class BadCall(Exception):
    """The call is wrong, which only Beam could tell."""


def main(argv: Sequence[str] | None = None, prog: str = "python -m pipelines.convert") -> int:
    """Converts; returns the exit status (see `--help`)."""
    with interruption.stopping_at_once():
        return _converted(sys.argv[1:] if argv is None else argv, prog)


def _converted(argv: Sequence[str], prog: str) -> int:
    """The exit status of a call; what is wrong is told in one line."""
    # Records are many and live to the end: collecting them over and over frees nothing.
    gc.set_threshold(100_000, 20, 20)
    # Beam's warnings of missing optional parts, and its tracebacks, help nobody who did not ask.
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    options = parse_convert(argv, prog)
    if options.verbose:
        logging.getLogger().setLevel(logging.INFO)
    try:
        return run(options)
    except BadCall as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        message = _job_error(error)
        if message is None and options.runner != DIRECT_RUNNER and not options.verbose:
            last = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            message = f"--runner={options.runner} failed: {last[0]} (--verbose shows all)"
        if message is None:
            raise
        print(f"{prog}: error: {message}", file=sys.stderr)
        # What lies there while another job is at work is that job's.
        if not options.quiet and lock.holder(options.output) is None:
            print(interruption.what_is_kept(options.output), end="", file=sys.stderr)
        return 1


def run(options: ConvertOptions) -> int:
    """Runs the checked call: the plan alone, or the whole job."""
    if not options.quiet:
        print(f"source: {options.source.kind} ({options.source_reason})", file=sys.stderr)
    progress.reset()
    display = progress_display("quiet" if options.quiet else options.progress)
    if options.plan:
        with tempfile.TemporaryDirectory() as folder, display:
            described = _run_plan(options, folder)
        summary.print_plan(described, options.output)
        return 0
    if (owner := lock.holder(options.output)) is not None:
        raise JobError(owner)
    interruption.begin(options.output)
    try:
        with display:
            manifest = _run_job(options)
    finally:
        lock.release_all()
        process.stop_idle()
    if not options.quiet:
        # Nobody may be reading any more, or the manifest may be gone; it was published all the same.
        with contextlib.suppress(OSError, SystemExit):  # rich makes a SystemExit of a broken pipe
            summary.print_result(manifest)
    return 0


def _run_job(options: ConvertOptions) -> str:
    """Runs the whole job; returns the path of manifest.json."""
    if options.dataset.workers > 1:
        process.prestart(options.dataset.workers)
    from transforms.read import ReadSource
    from transforms.write import WriteDataset

    pipeline = _pipeline(options)
    write = WriteDataset(
        options.output, options.dataset, _source_settings(options.source), _job_name(pipeline)
    )
    (
        pipeline
        | "ReadSource" >> ReadSource(options.source, os.path.join(write.run, "scratch"))
        | "WriteDataset" >> write
    )
    _run_to_end(pipeline)
    return os.path.join(options.output, MANIFEST)


def _run_plan(options: ConvertOptions, folder: str) -> dict[str, Any]:
    """Runs the job as far as its plan, in `folder`; returns the plan in words."""
    from transforms.plan import WritePlan
    from transforms.read import ReadSource

    path = os.path.join(folder, "plan.json")
    pipeline = _pipeline(options)
    (
        pipeline
        | "ReadSource" >> ReadSource(options.source, os.path.join(folder, "scratch"))
        | "WritePlan" >> WritePlan(options.dataset, options.output, path)
    )
    _run_to_end(pipeline)
    with open(path, encoding="utf-8") as file:
        described: dict[str, Any] = json.load(file)
    return described


def _pipeline(options: ConvertOptions) -> beam.Pipeline:
    """An empty pipeline for the runner; DirectRunner is the in-process one, which downloads nothing.

    Raises:
        BadCall: Beam knows no such runner, or one of its flags has a value that it does not take.
    """
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    runner = FnApiRunner() if options.runner == DIRECT_RUNNER else options.runner
    try:
        return beam.Pipeline(runner, PipelineOptions(list(options.beam_args)))
    except ValueError as error:
        raise BadCall(f"--runner is {options.runner!r}: {' '.join(str(error).split())}") from error


def _run_to_end(pipeline: beam.Pipeline) -> None:
    result = pipeline.run()
    result.wait_until_finish()
    if result.state != "DONE":
        raise JobError(f"the runner ended the job in state {result.state}; nothing is published")


def _job_name(pipeline: beam.Pipeline) -> str:
    from apache_beam.options.pipeline_options import GoogleCloudOptions

    return pipeline.options.view_as(GoogleCloudOptions).job_name or ""


def _source_settings(source: SourceConfig) -> dict[str, object]:
    """The source's settings, for the manifest: those that were given."""
    fields = dataclasses.asdict(source)
    del fields["skip_dirs"]
    fields["input"] = os.path.abspath(source.input)
    return {name: value for name, value in fields.items() if value}


def _job_error(error: BaseException) -> str | None:
    """The one line of a JobError that the pipeline raised, or of an error of the machine."""
    match = _JOB_ERROR.search(f"{type(error).__name__}: {error}")
    return match.group(1) if match is not None else None


if __name__ == "__main__":
    sys.exit(main())
