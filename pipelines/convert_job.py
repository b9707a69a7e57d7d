"""Runs the job of a checked call of `convert`, or its plan."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from recordmill.pipelines import summary
from recordmill.pipelines.estimate import Estimate, estimate, workers_of
from recordmill.pipelines.options.convert import ConvertOptions
from recordmill.pipelines.options.dataflow import DATAFLOW_RUNNER
from recordmill.pipelines.options.runner import DIRECT_RUNNER
from recordmill.pipelines.running import interruption
from recordmill.pipelines.running.display import job_lines
from recordmill.pipelines.running.job import Job, run_job
from recordmill.transforms.records import JobError
from recordmill.transforms.shards import progress
from recordmill.transforms.shards.dataset_plan import fewest_shards, slots_warning
from recordmill.transforms.shards.overview import source_facts
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import exists
from recordmill.transforms.storage.layout import MANIFEST
from recordmill.transforms.storage.versions import latest_version

if TYPE_CHECKING:
    import apache_beam as beam

_UNFINISHED = "nothing is published"


def run(options: ConvertOptions) -> int:
    """Runs the checked call; returns the exit status."""
    if not options.quiet:
        schema = options.dataset.schema
        shown = "chosen from the records" if schema == "auto" else schema
        print(f"source: {options.source.kind} ({options.source_reason}); schema: {shown}", file=sys.stderr)
    progress.reset()
    if options.plan:
        return _plan(options)
    if (owner := lock.holder(options.output)) is not None:
        raise JobError(owner)
    if options.runner == DATAFLOW_RUNNER:
        _warn_of_idle_workers(options)
    job = _Conversion(options)
    if run_job(options, job):
        _show_result(options, job.published)
    return 0


class _Conversion(Job):
    """The job that publishes a dataset."""

    preload = "recordmill.transforms.shards.tasks"
    preload_last = "recordmill.transforms.reporting.ready"

    def __init__(self, options: ConvertOptions) -> None:
        super().__init__(options.dataset.workers, _UNFINISHED, file_system(options.output).has_latency)
        self._options = options
        self._token = ""  # of the lock that the job holds on the output
        self.published = options.output  # the folder that readers will see

    def begin(self) -> None:
        options = self._options
        interruption.begin(options.output, options.working, options.published)

    def assemble(self, pipeline: beam.Pipeline) -> None:
        from apache_beam.options.pipeline_options import GoogleCloudOptions

        from recordmill.transforms.read import ReadSource
        from recordmill.transforms.write import WriteDataset

        options = self._options
        name = pipeline.options.view_as(GoogleCloudOptions).job_name or ""
        source = options.source.as_json()
        write = WriteDataset(options.output, options.dataset, source, name, options.source_reason)
        read = ReadSource(options.source, write.run.scratch, options.listing_parts, is_located=True)
        (pipeline | "ReadSource" >> read | "WriteDataset" >> write)
        self._token = write.run.token
        if options.dataset.dataset_version is not None:
            # Another job may have published a version since this call was checked.
            self.published = os.path.join(options.output, os.path.basename(write.run.published))

    def failed(self) -> None:
        lock.release(self._options.output, self._token)

    def result(self) -> str:
        manifest = f"{self.published.rstrip('/')}/manifest.json"
        text = f"  its result will be {manifest}, and failures.jsonl next to it\n"
        if self._options.dataset.dataset_version is not None:
            text += f"{'':21}(neither, if nothing has changed since the previous version)\n"
        return text


def _warn_of_idle_workers(options: ConvertOptions) -> None:
    shards = fewest_shards(options.dataset)
    if shards is not None and (warning := slots_warning(options.dataset, shards)) is not None:
        say, _ = job_lines(options.shown)
        say(warning)


class _Plan(Job):
    """The first steps of the job, up to its plan, which it writes to a file in `folder`."""

    def __init__(self, options: ConvertOptions, folder: str) -> None:
        super().__init__(0, _UNFINISHED)
        self._options = options
        self._scratch = os.path.join(folder, "scratch")
        self.path = os.path.join(folder, "plan.json")

    def begin(self) -> None:
        """An interruption has nothing to report: the job writes nothing to the output."""

    def assemble(self, pipeline: beam.Pipeline) -> None:
        from recordmill.transforms.plan import WritePlan
        from recordmill.transforms.read import ReadSource

        options = self._options
        read = ReadSource(options.source, self._scratch, options.listing_parts, is_located=True)
        plan = WritePlan(options.dataset, options.output, self.path, options.source.as_json())
        (pipeline | "ReadSource" >> read | "WritePlan" >> plan)


def _plan(options: ConvertOptions) -> int:
    """Prints the plan; returns the exit status."""
    here = options
    if options.runner == DATAFLOW_RUNNER:
        # It takes less time to list on this machine than to start others, and costs nothing.
        here = dataclasses.replace(options, runner=DIRECT_RUNNER, beam_args=())
    with tempfile.TemporaryDirectory() as folder:
        job = _Plan(here, folder)
        run_job(here, job)
        with open(job.path, encoding="utf-8") as file:
            described: dict[str, Any] = json.load(file)
    version = os.path.basename(options.published) if options.dataset.dataset_version else ""
    source = source_facts(options.source.as_json(), options.source_reason)
    summary.print_plan(described, source, options.output, _cost(options, described), version)
    return 1 if options.dataset.strict and described["warnings"] else 0


def _cost(options: ConvertOptions, plan: dict[str, Any]) -> Estimate | None:
    """The cost of the planned job; None if it is not billed."""
    if options.runner != DATAFLOW_RUNNER:
        return None
    policy, writer = options.dataset.policy, options.dataset.writer
    return estimate(plan, policy.image_format, policy.validate, writer, workers_of(options.beam_args))


def _show_result(options: ConvertOptions, published: str) -> None:
    """Prints the table of the published dataset, or that no new version is published."""
    if options.quiet:
        return
    manifest = os.path.join(published, MANIFEST)
    # The program that reads the output may have ended, or the manifest may be gone. The dataset is published.
    with contextlib.suppress(OSError, JobError, SystemExit):  # rich makes a SystemExit of a broken pipe
        if options.dataset.dataset_version is not None and not exists(manifest):
            summary.print_unchanged(latest_version(options.output))
        else:
            summary.print_result(manifest)
