"""ReadSource: lists records and failures of a folder or file, local or in a bucket, inside the pipeline.

with beam.Pipeline() as p:
    p | ReadSource(SourceConfig(kind="folder", input="photos/")) | WriteDataset("out/", DatasetConfig())
"""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from recordmill.transforms.records import BadInput, ClassNames, ImageRecord, JobError
from recordmill.transforms.shards import progress
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.registry import source_of
from recordmill.transforms.sources.source import Item, listing_faults
from recordmill.transforms.storage.listing import cached_listings
from recordmill.transforms.storage.owner import make_marked_folder
from recordmill.transforms.storage.scratch import scratch_folder
from recordmill.transforms.storage.zip_member import check_size
from recordmill.transforms.workers import process

# Entries that are read before the first of them goes on: to alternate between reading an entry and all that
# follows takes a quarter longer. An input with as many is worth a second worker process, which is woken then.
_AT_ONCE = 500

_Part = Any
"""A part of an input, as its source has it; None is all of it."""


class ReadSource(beam.PTransform):
    """Lists a source: an ImageRecord for each image, a Failure for each other input, and
    the classes that it defines.

    Workers list the input, never the launcher: the job graph is the same for ten files and for millions.

    Args:
        config: the source, and how to read it.
        scratch: a folder or `gs://` prefix for decompressed files. All workers must be able to read it, until
            the pipeline ends. None: a folder in the system's temporary folder, which is removed when the
            process ends.
        parts: approximate number of parts into which a large input is split, to list them in parallel. Only
            some inputs can be split: a folder of a bucket, many archives or tables. On one machine, more
            than 1 is not faster.
        is_located: whether `input` is the folder that `detect` returned. Otherwise, the job fails if the
            dataset is in a folder below the input.
    """

    def __init__(
        self, config: SourceConfig, scratch: str | None = None, parts: int = 1, is_located: bool = False
    ) -> None:
        super().__init__()
        self._config = config
        self._is_located = is_located
        self._scratch = scratch
        self._parts = parts

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Item]:
        """PBegin -> PCollection[ImageRecord | Failure | ClassNames]."""
        parts = (
            begin
            | "Start" >> beam.Impulse()
            | "FindParts"
            >> beam.FlatMap(find_parts, self._config, self._parts, self._is_located).with_output_types(_Part)
        )
        if self._parts > 1:
            parts = parts | "SpreadParts" >> beam.Reshuffle()
        return parts | "List" >> beam.FlatMap(list_part, self._config, self._scratch).with_output_types(Item)


def find_parts(_: bytes, config: SourceConfig, most: int, is_located: bool = False) -> Iterator[_Part]:
    """The parts of a source: `most`, or one if it has none. Raises JobError for a wrong configuration."""
    try:
        source = source_of(config)
        with cached_listings():
            source.check(config)
            if not is_located:
                _check_location(config)
    except ValueError as error:
        raise JobError(str(error)) from error
    if most == 1 or config.limit is not None:
        yield None
        return
    with listing_faults():
        yield from source.parts(config, most)


def _check_location(config: SourceConfig) -> None:
    """Raises ValueError if the dataset is in a folder below the input: its splits would not be read."""
    found = detect(config).input
    if found != config.input:
        raise ValueError(
            f"SourceConfig.input is {config.input!r}, and the dataset is in {found!r}; give that folder"
        )


def list_part(part: _Part, config: SourceConfig, scratch: str | None) -> Iterator[Item]:
    """The entries of a part of a source, counted. Raises JobError for a wrong configuration."""
    scratch = scratch or _temporary_scratch()
    make_marked_folder(scratch)
    entries = source_of(config).read(config, scratch, part)
    while several := [_bounded(entry) for entry in itertools.islice(entries, _AT_ONCE)]:
        progress.add_listed(sum(not isinstance(entry, ClassNames) for entry in several))
        if len(several) == _AT_ONCE:
            process.wake_idle()
        yield from several


def _bounded(entry: Item) -> Item:
    """The entry, or its failure if its image is larger than the limit, as a sparse file may be.

    Otherwise the plan would reserve disk space for it.
    """
    if isinstance(entry, ImageRecord) and entry.image is not None:
        try:
            check_size(entry.size, entry.image.uri)
        except BadInput as fault:
            return fault.failure(entry.key)
    return entry


@functools.cache
def _temporary_scratch() -> str:
    return tempfile.mkdtemp(prefix="source-", dir=scratch_folder())
