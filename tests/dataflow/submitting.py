"""Submits conversions by the real command line."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from apache_beam.portability.api import beam_runner_api_pb2

from recordmill.pipelines.running import dataflow_job
from tests.buckets.server import BucketServer
from tests.dataflow.endpoint import DataflowServer
from tests.patched import patched_site
from tests.pipelines.conversion import command

ROOT = Path(__file__).parents[2]
IMAGE = "europe-docker.pkg.dev/project/images/recordmill:1"
# So often as a test can wait for.
_OFTEN = {"POLL_SECONDS": 0.05, "LINE_SECONDS": 0.0}
_OFTEN_ELSEWHERE = f"def patch(module):\n    vars(module).update({_OFTEN})\n"


@dataclass
class Done:
    """What a call came to."""

    status: int
    out: str
    err: str


class Submitter:
    """Calls `recordmill convert --runner=DataflowRunner` against servers on loopback.

    Args:
        buckets: with a bucket `pictures`.
        dataflow: that takes the jobs.
        folder: for what it needs.
    """

    def __init__(self, buckets: BucketServer, dataflow: DataflowServer, folder: Path) -> None:
        self.buckets = buckets
        self.dataflow = dataflow
        site = patched_site(folder, "recordmill.pipelines.running.dataflow_job", _OFTEN_ELSEWHERE)
        self.environment = {
            **os.environ,
            "PYTHONPATH": f"{site}:{ROOT}",
            "STORAGE_EMULATOR_HOST": buckets.host,
        }

    def call(self, *flags: str) -> list[str]:
        """The arguments; `flags` come after what every call has."""
        return [
            sys.executable,
            *(
                "-m",
                "recordmill.pipelines.cli",
                "convert",
                "--input=gs://pictures/photos",
                "--output=gs://pictures/out",
            ),
            *("--runner=DataflowRunner", "--project=my-project", "--region=europe-west4"),
            *("--temp_location=gs://pictures/tmp", f"--dataflow_endpoint={self.dataflow.url}", "--no_auth"),
            *flags,
        ]

    def start(self, *flags: str) -> subprocess.Popen[str]:
        """A call that is under way."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.call(*flags), cwd=ROOT, env=self.environment, stdout=pipe, stderr=pipe, text=True
        )

    def run(self, *flags: str) -> Done:
        """A call, done in this process."""
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, STORAGE_EMULATOR_HOST=self.buckets.host),
            mock.patch.multiple(dataflow_job, **_OFTEN),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            status = command(*self.call(*flags)[3:])
        return Done(status, out.getvalue(), err.getvalue())

    def pipeline(self) -> beam_runner_api_pb2.Pipeline:
        """The staged pipeline of the last job."""
        return beam_runner_api_pb2.Pipeline.FromString(self.buckets.get(self.pipeline_url()))

    def pipeline_url(self) -> str:
        """Where it is."""
        url = options(self.dataflow.jobs[-1])["pipelineUrl"]
        assert isinstance(url, str)
        return url

    def archives(self) -> list[str]:
        """The archives of code that were staged with the last job."""
        return self.buckets.names(f"{self.pipeline_url().rpartition('/')[0]}/recordmill-")

    def unpack_code(self, folder: Path) -> Path:
        """Unpacks the source distribution that workers install; its folder."""
        (url,) = self.archives()
        with tarfile.open(fileobj=io.BytesIO(self.buckets.get(url))) as archive:
            archive.extractall(folder, filter="data")
        (code,) = folder.iterdir()
        return code


def options(job: dict[str, Any]) -> dict[str, Any]:
    """What a job's workers get of its flags."""
    found: dict[str, Any] = job["environment"]["sdkPipelineOptions"]["options"]
    return found
