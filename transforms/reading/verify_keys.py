"""Finds keys that several records of a dataset have, from their hashes: a fixed number of bytes a record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

BUCKETS = 256
"""Into which hashes are parted: each is looked at by itself, wherever there is room for it."""

# Equal hashes of 128 bits are equal keys: of 10^12 records, two others have one with a chance of 10^-15.
_ENTRY = np.dtype([("high", ">u8"), ("low", ">u8"), ("shard", ">u4"), ("record", ">u8")])
ENTRY_BYTES = _ENTRY.itemsize

Place = tuple[int, int]
"""Number of a shard, and of a record in it."""


class StoredPlace(NamedTuple):
    """Where a record is stored.

    Attributes:
        path: of its shard.
        name: of the shard, in its folder.
        split: of the shard.
        record: its number.
        offset: of its frame.
        length: of its frame.
    """

    path: str
    name: str
    split: str
    record: int
    offset: int
    length: int

    def pack(self) -> bytes:
        """As it is shuffled."""
        return json.dumps(self, ensure_ascii=False).encode("utf-8", "surrogatepass")

    @staticmethod
    def unpack(packed: bytes) -> StoredPlace:
        """What `pack` has packed."""
        return StoredPlace(*json.loads(packed.decode("utf-8", "surrogatepass")))


def key_entry(key: str, shard: int, record: int) -> bytes:
    """What is kept of a record: the hash of its key, and where it is."""
    hashed = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return hashed + shard.to_bytes(4, "big") + record.to_bytes(8, "big")


def bucketed(entries: bytes) -> Iterator[tuple[int, bytes]]:
    """Entries by bucket."""
    table = np.frombuffer(entries, _ENTRY)
    numbers = (table["high"] >> np.uint64(56)).astype(np.uint8)
    for number in np.unique(numbers):
        yield int(number), table[numbers == number].tobytes()


def repeated(packed: Iterable[bytes]) -> list[tuple[Place, Place]]:
    """The records of a bucket whose key an earlier one has: the earlier one, then the record."""
    table = np.frombuffer(b"".join(packed), _ENTRY)
    table = table[np.lexsort((table["record"], table["shard"], table["low"], table["high"]))]
    same = (table["high"][1:] == table["high"][:-1]) & (table["low"][1:] == table["low"][:-1])
    found = []
    for at in np.flatnonzero(same):
        one, other = table[at], table[at + 1]
        found.append(((int(one["shard"]), int(one["record"])), (int(other["shard"]), int(other["record"]))))
    return found
