"""Surveys records in batches: their references, totals, and the hashes of their keys."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterable, Iterator

import msgspec

from recordmill.transforms.records import BadInput, JobError
from recordmill.transforms.shards.references import (
    Batches,
    ListedRecord,
    encode,
    key_digest,
    unpack_record,
)
from recordmill.transforms.shards.totals import Totals
from recordmill.transforms.workers.task import Task, Worker

_decode = msgspec.msgpack.Decoder(list[ListedRecord]).decode


@dataclasses.dataclass(frozen=True, slots=True)
class SurveySettings:
    """The settings of a survey.

    Attributes:
        seed: shuffles the order of references.
        untyped: free features are the text of CSV cells.
        makes_several: several records may be made of each, whose keys begin with its key.
    """

    seed: int
    untyped: bool
    makes_several: bool


@dataclasses.dataclass(frozen=True, slots=True)
class SurveyedBatch:
    """The result for some records.

    Attributes:
        references: (split, batch of references).
        hashes: `key_digest` of each key.
        forbidden: of the keys that no other record may have.
    """

    references: list[tuple[str, bytes]]
    totals: Totals
    hashes: array[int]
    forbidden: array[int]


def survey(records: Iterable[ListedRecord], settings: SurveySettings) -> SurveyedBatch:
    """Surveys some records, which are in their splits.

    Raises:
        JobError: a value is not of the type that it is declared to have, or no feature can hold it.
    """
    batch = SurveyedBatch([], Totals(settings.untyped), array("Q"), array("Q"))
    references: Batches[str] = Batches()
    for listed in records:
        try:
            record = unpack_record(listed.packed)
        except TypeError as error:
            raise JobError(str(error)) from error
        hashed = key_digest(record.key)
        try:
            batch.totals.add(record, hashed, listed)
        except TypeError as error:
            raise JobError(f"record {record.key!r}: {error}") from error
        batch.hashes.append(hashed)
        if settings.makes_several:
            batch.forbidden.extend(map(key_digest, keys_before(record.key)))
        split = str(record.split)
        full = references.add(split, listed.reference(record.key, settings.seed))
        if full is not None:
            batch.references.append((split, full))
    batch.references.extend(references.rest())
    return batch


def keys_before(key: str) -> Iterator[str]:
    """The keys of which this one could be an added record, if a function makes several of an image."""
    for at, character in enumerate(key):
        if character == "#" and at:
            yield key[:at]


@dataclasses.dataclass(frozen=True, slots=True)
class SurveyTask(Task[Worker, SurveyedBatch]):
    """Surveys some records in a worker process. It reads no image, so no record can be lost."""

    records: bytes
    settings: SurveySettings

    @classmethod
    def of(cls, records: list[ListedRecord], settings: SurveySettings) -> SurveyTask:
        """The task of some records."""
        return cls(encode(records), settings)

    def run(self, _: Worker) -> SurveyedBatch:
        return survey(_decode(self.records), self.settings)

    def lost(self, error: BadInput) -> SurveyedBatch:
        raise error
