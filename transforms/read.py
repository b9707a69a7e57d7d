"""ReadSource: from a place on disk, or in a bucket, to records and failures, listed inside the pipeline.

with beam.Pipeline() as p:
    p | ReadSource(SourceConfig(kind="folder", input="photos/")) | WriteDataset("out/", DatasetConfig())
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator

import apache_beam as beam

from transforms.records import ClassNames, JobError
from transforms.shards import process, progress
from transforms.sources.registry import source_of
from transforms.sources.source import Item, SourceConfig
from transforms.storage import files
from transforms.storage.listing import glance
from transforms.storage.scratch import scratch_folder

_PROGRESS_STEP = 1000


class ReadSource(beam.PTransform):
    """Lists a source: an ImageRecord for each image, a Failure for each input that is none, and
    the classes that it defines.

    The list is made by a worker, never by the launcher: the job graph is the same for ten files and for
    millions.

    Args:
        config: which source, and how it is read.
        scratch: a folder, or a `gs://` prefix, for what has to be decompressed once; it must outlive the
            pipeline's run, and be one that all workers can read. None takes one under the system's
            temporary folder, removed when the process ends.
    """

    def __init__(self, config: SourceConfig, scratch: str | None = None) -> None:
        super().__init__()
        self._config = config
        self._scratch = scratch

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Item]:
        """PBegin -> PCollection[ImageRecord | Failure | ClassNames]."""
        return (
            begin
            | "Start" >> beam.Impulse()
            | "List" >> beam.FlatMap(list_source, self._config, self._scratch).with_output_types(Item)
        )


def list_source(_: bytes, config: SourceConfig, scratch: str | None) -> Iterator[Item]:
    """The entries of a source, counted as they come.

    Raises:
        JobError: the source cannot be read as it is configured.
    """
    scratch = scratch or _temporary_scratch()
    files.make_folder(scratch)
    try:
        source = source_of(config)
        with glance():
            source.check(config)
    except ValueError as error:
        raise JobError(str(error)) from error
    listed = 0
    for entry in source.read(config, scratch):
        listed += not isinstance(entry, ClassNames)
        if listed and listed % _PROGRESS_STEP == 0:
            progress.add_listed(_PROGRESS_STEP)
            process.wake_idle()
        yield entry
    progress.add_listed(listed % _PROGRESS_STEP)


@functools.cache
def _temporary_scratch() -> str:
    return tempfile.mkdtemp(prefix="source-", dir=scratch_folder())
