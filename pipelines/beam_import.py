"""Imports Beam; for a job on this machine, without the parts that such a job does not use."""

from __future__ import annotations

import contextlib
import importlib.abc
import logging
import sys
from collections.abc import Iterator, Sequence

# `import apache_beam` works without them. They can still be imported later.
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


class _Missing(importlib.abc.MetaPathFinder):
    """Reports modules as not installed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> None:
        if name in _UNUSED:
            raise ModuleNotFoundError(f"{name} is not used", name=name)


def import_beam(needs_cloud: bool) -> None:
    """Imports Beam, if that has not been done.

    Args:
        needs_cloud: the job runs elsewhere, or Beam itself reads or writes `gs://`.
    """
    if "apache_beam" not in sys.modules:
        with contextlib.nullcontext() if needs_cloud else _without_unused():
            import apache_beam  # noqa: F401


@contextlib.contextmanager
def _without_unused() -> Iterator[None]:
    finder, disabled = _Missing(), logging.root.manager.disable
    sys.meta_path.insert(0, finder)
    logging.disable(logging.WARNING)  # Beam warns of what is missing
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        logging.disable(disabled)
