"""Runs the job of a checked call of `convert`: here, on Dataflow, or as far as its plan."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from recordmill.pipelines import dataflow_job, interruption, summary
from recordmill.pipelines.beam_import import import_beam
from recordmill.pipelines.beam_job import new_pipeline, run_to_end
from recordmill.pipelines.code_archive import pack
from recordmill.pipelines.dataflow import DATAFLOW_RUNNER
from recordmill.pipelines.display import job_lines, progress_display
from recordmill.pipelines.estimate import Estimate, estimate, workers_of
from recordmill.pipelines.job_errors import job_error
from recordmill.pipelines.options import ConvertOptions
from recordmill.pipelines.quiet_threads import quiet_threads
from recordmill.pipelines.runner_flags import DIRECT_RUNNER, listing_parts
from recordmill.transforms.records import JobError
from recordmill.transforms.shards import progress
from recordmill.transforms.shards.class_overview import source_facts
from recordmill.transforms.shards.plan import fewest_shards, slots_warning
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.files import exists
from recordmill.transforms.storage.layout import MANIFEST
from recordmill.transforms.storage.paths import is_remote
from recordmill.transforms.storage.scratch import scratch_folder
from recordmill.transforms.storage.versions import latest_version
from recordmill.transforms.workers import process

if TYPE_CHECKING:
    import apache_beam as beam

_HALF_SUBMITTED = (
    "the job was being submitted: `gcloud dataflow jobs list` tells whether Dataflow has taken it\n"
)


def run(options: ConvertOptions) -> int:
    """Runs the checked call: the plan alone, or the whole job."""
    if not options.quiet:
        schema = options.dataset.schema
        shown = "chosen from the records" if schema == "auto" else schema
        print(f"source: {options.source.kind} ({options.source_reason}); schema: {shown}", file=sys.stderr)
    progress.reset()
    display = progress_display("quiet" if options.quiet else options.progress)
    if options.plan:
        with tempfile.TemporaryDirectory() as folder, display:
            described = _run_plan(options, folder)
        version = os.path.basename(options.published) if options.dataset.dataset_version else ""
        source = source_facts(options.source.as_json(), options.source_reason)
        summary.print_plan(described, source, options.output, _cost(options, described), version)
        return 1 if options.dataset.strict and described["warnings"] else 0
    if (owner := lock.holder(options.output)) is not None:
        raise JobError(owner)
    if options.runner == DATAFLOW_RUNNER:
        return _run_elsewhere(options)
    interruption.begin(options.output, options.working, options.published)
    try:
        with display:
            published = _run_job(options)
    finally:
        lock.release_all()
        process.stop_idle()
    _show_result(options, published)
    return 0


def _cost(options: ConvertOptions, plan: dict[str, Any]) -> Estimate | None:
    """What the planned job will cost; None where nobody sends a bill."""
    if options.runner != DATAFLOW_RUNNER:
        return None
    policy, writer = options.dataset.policy, options.dataset.writer
    return estimate(plan, policy.image_format, policy.validate, writer, workers_of(options.beam_args))


def _run_elsewhere(options: ConvertOptions) -> int:
    """Submits the job to Dataflow, and follows it unless it is to be left; the exit status."""
    from recordmill.transforms.beam_credentials import spare_search

    spare_search()
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        if options.setup_file is not None:
            archive = f"--extra_package={pack(options.setup_file, folder)}"
            options = dataclasses.replace(options, beam_args=(*options.beam_args, archive))
        pipeline, token, published = _assembled(options)
        interruption.leave(_HALF_SUBMITTED)
        job = dataflow_job.submit(pipeline)
    say, count = job_lines("quiet" if options.quiet else options.progress)
    shards = fewest_shards(options.dataset)
    if shards is not None and (warning := slots_warning(options.dataset, shards)) is not None:
        say(warning)
    if job is None:
        # A template's launcher reads the description, and makes the job of it.
        if not options.quiet:
            print("the job is described, and not submitted, as the flags say", file=sys.stderr)
        return 0
    left = job.left(published)
    if options.dataset.dataset_version is not None:
        left += f"{'':19}(neither, if nothing has changed since the previous version)\n"
    interruption.leave(f"the job continues: {left}")
    if options.leave:
        if not options.quiet:
            print(left, end="")
        return 0
    say(job.described().rstrip("\n"))
    try:
        dataflow_job.follow(job, say, count)
    except dataflow_job.JobFailed:
        lock.release(options.output, token)
        raise
    _show_result(options, published)
    return 0


def _show_result(options: ConvertOptions, published: str) -> None:
    """Prints the table of the dataset in a folder; or, of versions, that none is published."""
    if options.quiet:
        return
    manifest = os.path.join(published, MANIFEST)
    # Nobody may be reading any more, or the manifest may be gone; it was published all the same.
    with contextlib.suppress(OSError, JobError, SystemExit):  # rich makes a SystemExit of a broken pipe
        if options.dataset.dataset_version is not None and not exists(manifest):
            summary.print_unchanged(latest_version(options.output))
        else:
            summary.print_result(manifest)


def _run_job(options: ConvertOptions) -> str:
    """Runs the whole job; returns the folder that readers see."""
    if options.dataset.workers > 1:
        process.prestart(options.dataset.workers, "recordmill.transforms.shards.part")
    pipeline, token, published = _assembled(options)
    if options.on_a_cluster:
        interruption.leave("the job may go on where it runs: cancel it there, or see what it publishes\n")
    try:
        is_quiet = options.runner != DIRECT_RUNNER and not options.verbose
        with quiet_threads() if is_quiet else contextlib.nullcontext():
            run_to_end(pipeline, "nothing is published")
    except Exception as error:
        if job_error(error) is not None:  # it has ended; a worker that holds the lock may not have
            lock.release(options.output, token)
        raise
    return published


def _assembled(options: ConvertOptions) -> tuple[beam.Pipeline, str, str]:
    """The whole job, the token that it holds the output's lock by, and the folder that readers will see."""
    import_beam(options.runner != DIRECT_RUNNER or is_remote(options.output))
    from recordmill.transforms.read import ReadSource
    from recordmill.transforms.write import WriteDataset

    pipeline = new_pipeline(options.runner, options.beam_args)
    write = WriteDataset(
        options.output,
        options.dataset,
        options.source.as_json(),
        _job_name(pipeline),
        options.source_reason,
    )
    source = ReadSource(options.source, write.scratch, listing_parts(options.runner), is_located=True)
    (pipeline | "ReadSource" >> source | "WriteDataset" >> write)
    published = options.output
    if options.dataset.dataset_version is not None:
        # Found again, later than with the call: another job may have published meanwhile.
        published = os.path.join(published, os.path.basename(write.published))
    return pipeline, write.token, published


def _run_plan(options: ConvertOptions, folder: str) -> dict[str, Any]:
    """Runs the job as far as its plan, in `folder` of this machine; returns the plan in words."""
    import_beam(options.runner not in (DIRECT_RUNNER, DATAFLOW_RUNNER))
    from recordmill.transforms.plan import WritePlan
    from recordmill.transforms.read import ReadSource

    path = os.path.join(folder, "plan.json")
    if options.runner == DATAFLOW_RUNNER:
        # Listing takes this machine less time than starting others, and costs nothing.
        options = dataclasses.replace(options, runner=DIRECT_RUNNER, beam_args=())
    pipeline = new_pipeline(options.runner, options.beam_args)
    (
        pipeline
        | "ReadSource"
        >> ReadSource(
            options.source, os.path.join(folder, "scratch"), listing_parts(options.runner), is_located=True
        )
        | "WritePlan" >> WritePlan(options.dataset, options.output, path, options.source.as_json())
    )
    run_to_end(pipeline, "nothing is published")
    with open(path, encoding="utf-8") as file:
        described: dict[str, Any] = json.load(file)
    return described


def _job_name(pipeline: beam.Pipeline) -> str:
    from apache_beam.options.pipeline_options import GoogleCloudOptions

    return pipeline.options.view_as(GoogleCloudOptions).job_name or ""
