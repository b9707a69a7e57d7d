"""Keys that are not unique: found by their hashes, and named, before a record is written."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
import numpy as np

from recordmill.transforms.records import ImageRecord
from recordmill.transforms.shards.hashing import key_digest
from recordmill.transforms.shards.references import reference_record

REPEATED = "repeated"
"""Tag of (key, location) of the records whose keys may not be unique."""

_BUCKET_SHIFT = 55  # of 63 bits: 256 buckets
_MOST_HASHES = 1 << 20


class KeyHashes:
    """Hashes of keys, in buckets: eight bytes a record, thousands in one element."""

    def __init__(self) -> None:
        self._buckets: defaultdict[int, array[int]] = defaultdict(lambda: array("Q"))
        self._count = 0

    @property
    def full(self) -> bool:
        """Whether there are enough to hand on."""
        return self._count >= _MOST_HASHES

    def add(self, hashed: int) -> None:
        """Takes the hash of a key."""
        self._buckets[hashed >> _BUCKET_SHIFT].append(hashed)
        self._count += 1

    def take(self) -> Iterator[tuple[int, bytes]]:
        """(bucket, its hashes), and forgets them."""
        buckets, self._count = list(self._buckets.items()), 0
        self._buckets.clear()
        for bucket, hashes in buckets:
            yield bucket, hashes.tobytes()


def repeated_hashes(packed: Iterable[bytes]) -> list[int]:
    """The hashes that occur more than once in a bucket."""
    hashes = np.sort(np.frombuffer(b"".join(packed), dtype=np.uint64))
    repeated = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    return [int(hashed) for hashed in repeated]


def if_repeated(reference: bytes, repeated: frozenset[int]) -> Iterator[beam.pvalue.TaggedOutput]:
    """To `REPEATED`, key and location of a reference's record if the hash of its key is in `repeated`."""
    record = reference_record(reference)
    if key_digest(record.key) in repeated:
        yield beam.pvalue.TaggedOutput(REPEATED, (record.key, described_location(record)))


def described_location(record: ImageRecord) -> str:
    """Where a record comes from, for a message."""
    path = record.image.uri if record.image is not None else ""
    return " at ".join(part for part in (path, record.origin) if part) or "(no origin)"


def repeated_keys(named: Sequence[tuple[str, str]]) -> str:
    """What is wrong with keys, given (key, location) of those whose hashes are not unique; or nothing."""
    locations: dict[str, list[str]] = {}
    for key, location in sorted(named):
        locations.setdefault(key, []).append(location)
    repeated = {key: found for key, found in locations.items() if len(found) > 1}
    if not repeated:
        return ""
    key, found = next(iter(repeated.items()))
    more = f" (and {len(repeated) - 1} more keys)" if len(repeated) > 1 else ""
    return f"key {key!r} is not unique: {'; '.join(found[:4])}{more}. Keys must be unique in a dataset"
