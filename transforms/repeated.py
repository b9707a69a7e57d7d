"""Keys that are not unique: named, so that the job fails before a record is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apache_beam as beam

from recordmill.transforms.records import ImageRecord
from recordmill.transforms.shards.hashing import key_digest
from recordmill.transforms.shards.references import reference_record

REPEATED = "repeated"
"""Tag of (key, place) of the records whose keys may not be unique."""


def if_repeated(reference: bytes, repeated: frozenset[int]) -> Iterator[beam.pvalue.TaggedOutput]:
    """Key and place of a reference's record, to `REPEATED`, if the hash of its key is one of `repeated`."""
    record = reference_record(reference)
    if key_digest(record.key) in repeated:
        yield beam.pvalue.TaggedOutput(REPEATED, (record.key, described_place(record)))


def described_place(record: ImageRecord) -> str:
    """Where a record comes from, for a message."""
    path = record.image.uri if record.image is not None else ""
    return " at ".join(part for part in (path, record.origin) if part) or "(no origin)"


def repeated_keys(named: Sequence[tuple[str, str]]) -> str:
    """What is wrong with keys, given (key, place) of those whose hashes are not unique; or nothing."""
    places: dict[str, list[str]] = {}
    for key, place in sorted(named):
        places.setdefault(key, []).append(place)
    repeated = {key: found for key, found in places.items() if len(found) > 1}
    if not repeated:
        return ""
    key, found = next(iter(repeated.items()))
    more = f" (and {len(repeated) - 1} more keys)" if len(repeated) > 1 else ""
    return f"key {key!r} is not unique: {'; '.join(found[:4])}{more}. Keys must be unique in a dataset"
