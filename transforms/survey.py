"""SurveyRecords: one pass over the list of records: references to shuffle, totals, and hashes of the keys."""

from __future__ import annotations

import re
import uuid
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.failures import FailureLog
from recordmill.transforms.metrics import count, count_left_out
from recordmill.transforms.records import BadInput, ClassNames, Failure, ImageRecord
from recordmill.transforms.shards.hashing import key_digest, with_split
from recordmill.transforms.shards.references import Batches, listed_content, pack_reference, plain_record
from recordmill.transforms.shards.totals import Totals
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.owner import make_marked_folder
from recordmill.transforms.storage.spool import Spool

_FAILURES, _TOTALS, _HASHES = "failures", "totals", "hashes"
_COUNTED_AT_ONCE = 1000
_BUCKET_SHIFT = 55  # of 63 bits: 256 buckets
_MOST_HASHES = 1 << 20


class Surveyed(NamedTuple):
    """What a survey yields.

    Attributes:
        references: (split, batch of references).
        totals: a few elements, to be merged.
        repeated: hashes of keys that may not be unique.
        failures: listed inputs that are not records.
    """

    references: beam.PCollection[tuple[str, bytes]]
    totals: beam.PCollection[Totals]
    repeated: beam.PCollection[int]
    failures: beam.PCollection[Failure]


class SurveyRecords(beam.PTransform):
    """PCollection[ImageRecord | Failure | ClassNames] -> Surveyed.

    Args:
        scratch: folder for large annotations, which would else be shuffled; it lives as long as references
            do. It is used only where it is a folder of this machine: what runs elsewhere shuffles on disks.
    """

    def __init__(self, config: DatasetConfig, scratch: str | None = None) -> None:
        super().__init__()
        self._config = config
        self._scratch = file_system(scratch).working_folder(scratch) if scratch else None

    def expand(self, entries: beam.PCollection[ImageRecord | Failure | ClassNames]) -> Surveyed:
        """Records to references, totals and hashes, in one go; failures apart."""
        survey = SurveyFn(self._config, self._scratch)
        parted = entries | "Survey" >> beam.ParDo(survey).with_outputs(
            _FAILURES, _TOTALS, _HASHES, main="references"
        ).with_output_types(tuple[str, bytes])
        repeated = (
            parted[_HASHES]
            | "TypeHashes" >> beam.Map(lambda pair: pair).with_output_types(tuple[int, bytes])
            | "GroupHashes" >> beam.GroupByKey()
            | "FindRepeated"
            >> beam.FlatMapTuple(lambda _, packed: repeated_hashes(packed)).with_output_types(int)
        )
        failures = parted[_FAILURES] | "TypeFailures" >> beam.Map(lambda one: one).with_output_types(Failure)
        return Surveyed(parted["references"], parted[_TOTALS], repeated, failures)


class SurveyFn(beam.DoFn):
    """One entry after the other; totals, and batches that are not full, when the bundle ends."""

    def __init__(self, config: DatasetConfig, scratch: str | None = None) -> None:
        self._config = config
        self._scratch = scratch
        self._pattern = re.compile(config.group_pattern) if config.group_pattern else None

    def start_bundle(self) -> None:
        self._spool: Spool | None = None
        if self._scratch is not None:
            make_marked_folder(self._scratch)
            self._spool = Spool(self._scratch, uuid.uuid4().hex, 0)
        self.totals = Totals(self._config.untyped_features)
        self._hashes = KeyHashes()
        self._references: Batches[str] = Batches()
        self._read = 0
        self._log = FailureLog()

    def process(self, element: ImageRecord | Failure | ClassNames) -> Iterator[Any]:
        if isinstance(element, ClassNames):
            self.totals.classes.add(element)
            return
        self._read += 1
        if self._read == _COUNTED_AT_ONCE:
            # A complete source may be one bundle, and people follow the count.
            count("read", self._read)
            self._read = 0
        if isinstance(element, ImageRecord):
            try:
                batch = self._add(with_split(element, self._config, self._pattern))
            except BadInput as error:
                element = error.failure(element.key)
            else:
                if batch is not None:
                    yield batch
                if self._hashes.full:
                    yield from (TaggedOutput(_HASHES, pair) for pair in self._hashes.take())
                return
        count_left_out(element)
        self._log.add(element)
        yield TaggedOutput(_FAILURES, element)

    def finish_bundle(self) -> Iterator[Any]:
        if self._spool is not None:
            self._spool.close()
        count("read", self._read)
        self._log.finish()
        yield from map(in_global_window, self._references.rest())
        yield from (TaggedOutput(_HASHES, in_global_window(pair)) for pair in self._hashes.take())
        yield TaggedOutput(_TOTALS, in_global_window(self.totals))

    def _add(self, record: ImageRecord) -> tuple[str, bytes] | None:
        """Counts a record and adds its reference to the batch of its split: the split and the batch if full.

        Raises:
            BadInput: an integer of more than 64 bits.
        """
        record = plain_record(record)
        content = listed_content(record)
        reference = pack_reference(record, self._config.seed, content, self._spool)
        hashed = key_digest(record.key)
        self.totals.add(record, hashed, content)
        self._hashes.add(hashed)
        split = str(record.split)
        batch = self._references.add(split, reference)
        return None if batch is None else (split, batch)


class KeyHashes:
    """Hashes of keys, in buckets: eight bytes a record, thousands in one element."""

    def __init__(self) -> None:
        self._buckets: defaultdict[int, array[int]] = defaultdict(lambda: array("Q"))
        self._count = 0

    @property
    def full(self) -> bool:
        """Whether so many hashes are held that `take` should be called."""
        return self._count >= _MOST_HASHES

    def add(self, hashed: int) -> None:
        """Adds the hash of a key."""
        self._buckets[hashed >> _BUCKET_SHIFT].append(hashed)
        self._count += 1

    def take(self) -> Iterator[tuple[int, bytes]]:
        """Yields and removes each bucket, as its number and its packed hashes."""
        buckets, self._count = list(self._buckets.items()), 0
        self._buckets.clear()
        for bucket, hashes in buckets:
            yield bucket, hashes.tobytes()


def repeated_hashes(packed: Iterable[bytes]) -> list[int]:
    """The hashes that occur more than once in a bucket."""
    hashes = np.sort(np.frombuffer(b"".join(packed), dtype=np.uint64))
    repeated = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    return [int(hashed) for hashed in repeated]


def in_global_window(value: Any) -> WindowedValue:
    """A value as `finish_bundle` has to yield it."""
    window = GlobalWindow()
    return WindowedValue(value, window.max_timestamp(), [window])
