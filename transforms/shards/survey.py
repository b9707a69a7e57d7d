"""One pass over a list of records: their totals, hashes of their keys, and the references to shuffle."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from recordmill.transforms.records import ImageRecord
from recordmill.transforms.shards.batching import Batches
from recordmill.transforms.shards.fingerprint import listed_content
from recordmill.transforms.shards.hashing import key_digest
from recordmill.transforms.shards.plain_values import plain_record
from recordmill.transforms.shards.references import pack_reference
from recordmill.transforms.shards.totals import Totals
from recordmill.transforms.storage.spool import Spool

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


class Survey:
    """What a part of the list comes to.

    Args:
        seed: of the order.
        untyped: free features are text cells.
        spool: takes annotations that are large; None to hold them.

    Attributes:
        totals: of the records so far.
        hashes: of their keys.
        references: packed, by split.
    """

    def __init__(self, seed: int, untyped: bool, spool: Spool | None = None) -> None:
        self._seed = seed
        self._spool = spool
        self.totals = Totals(untyped)
        self.hashes = KeyHashes()
        self.references: Batches[str] = Batches()

    def add(self, record: ImageRecord) -> bytes | None:
        """Takes a record that has its split; the batch of its split's references if that filled it.

        Raises:
            BadInput: an integer of more than 64 bits.
        """
        record = plain_record(record)
        content = listed_content(record)
        reference = pack_reference(record, self._seed, content, self._spool)
        hashed = key_digest(record.key)
        self.totals.add(record, hashed, content)
        self.hashes.add(hashed)
        return self.references.add(str(record.split), reference)
