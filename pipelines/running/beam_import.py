"""Imports Beam; for a job on this machine, without unused parts."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib.abc
import logging
import sys
from collections.abc import Iterator, Sequence

# `import apache_beam` works without them. Their features are then missing until the process ends.
_UNUSED = frozenset(
    {
        "apache_beam.io.aws.s3filesystem",
        "apache_beam.io.azure.blobstoragefilesystem",
        "apache_beam.io.gcp.bigquery",
        "apache_beam.io.gcp.gcsfilesystem",
        "apache_beam.io.hadoopfilesystem",
        "apitools",
        "bson",
        "google.cloud.dataflow",
        "pandas",
        "pyarrow",
    }
)

# Beam samples which step takes the time, by default every 200 ms. A bundle only ends at the next sample.
_SAMPLING_MILLISECONDS = 10


class _Missing(importlib.abc.MetaPathFinder):
    """Reports modules as not installed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> None:
        if name in _UNUSED:
            raise ModuleNotFoundError(f"{name} is not used", name=name)


_has_one_job = False


def run_one_job() -> None:
    """This process belongs to the command: it runs one job, and nothing else in it uses Beam."""
    global _has_one_job
    _has_one_job = True
    atexit.register(gc.freeze)  # otherwise Python collects the garbage of all modules before it ends


def import_beam(needs_cloud: bool) -> None:
    """Imports Beam; `needs_cloud` if the job runs elsewhere, or Beam itself reads or writes `gs://`."""
    if "apache_beam" not in sys.modules:
        with _without_unused() if _has_one_job and not needs_cloud else contextlib.nullcontext():
            import apache_beam  # noqa: F401
    if _has_one_job:
        from apache_beam.runners.worker.statesampler import StateSampler

        initialize = functools.partialmethod(StateSampler.__init__, sampling_period_ms=_SAMPLING_MILLISECONDS)
        StateSampler.__init__ = initialize


@contextlib.contextmanager
def _without_unused() -> Iterator[None]:
    finder, disabled = _Missing(), logging.root.manager.disable
    sys.meta_path.insert(0, finder)
    logging.disable(logging.WARNING)  # Beam warns of missing parts
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        logging.disable(disabled)
