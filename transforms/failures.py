"""Parts what a source yields into records with a split, and failures: nothing falls through."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from transforms.config import DatasetConfig
from transforms.metrics import count
from transforms.records import SPLIT_NAME, BadInput, Failure, ImageRecord
from transforms.shards.hashing import group_of, split_of
from transforms.shards.totals import DEFAULT_SPLIT

_FAILURES = "failures"


def with_split(record: ImageRecord, config: DatasetConfig, pattern: re.Pattern[str] | None) -> ImageRecord:
    """`record` with the split that it goes into.

    Raises:
        BadInput: no group to tell the split by, or a split whose name no shard could carry.
    """
    if config.splits:
        split = split_of(group_of(record, config.group_by, pattern), config.splits)
    else:
        split = record.split or DEFAULT_SPLIT
        if not SPLIT_NAME.fullmatch(split):
            detail = f"{split!r}; letters, digits, _ and - make one (--splits overrides the source's own)"
            raise BadInput("manifest", "not a split name", detail, record.key)
    if split == record.split:
        return record
    return ImageRecord(record.key, record.image, split, record.annotations, record.origin, record.size)


class AssignSplits(beam.DoFn):
    """ImageRecord | Failure -> ImageRecord with its split; failures to the output `failures`."""

    def __init__(self, config: DatasetConfig) -> None:
        self._config = config
        self._pattern = re.compile(config.group_pattern) if config.group_pattern else None

    @classmethod
    def parting(cls, config: DatasetConfig) -> beam.ParDo:
        """The ParDo with its two outputs: records, and failures."""
        return beam.ParDo(cls(config)).with_outputs(_FAILURES, main="records").with_output_types(ImageRecord)

    def process(self, element: ImageRecord | Failure) -> Iterator[Any]:
        """One entry."""
        if isinstance(element, ImageRecord):
            try:
                yield with_split(element, self._config, self._pattern)
                return
            except BadInput as error:
                element = error.failure()
        count("entries_skipped" if element.skipped else "entries_failed")
        yield beam.pvalue.TaggedOutput(_FAILURES, element)
