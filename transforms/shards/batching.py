"""Many small byte strings in one element, because a runner's cost is per element."""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

BATCH_BYTES = 64 << 10
HELD_BYTES = 256 << 20
"""The most bytes of all open batches: with very many keys, they are yielded before they are full."""

_LENGTH = struct.Struct("<I")

K = TypeVar("K", bound=Hashable)


class Batches(Generic[K]):
    """Collects items by key; returns the batch of a key when it is full."""

    def __init__(self) -> None:
        self._open: dict[K, bytearray] = {}
        self._held = 0

    @property
    def full(self) -> bool:
        """Whether so much is held that `rest` should be called."""
        return self._held >= HELD_BYTES

    def add(self, key: K, item: bytes) -> bytes | None:
        """Adds an item; the key's batch if it is full."""
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = bytearray()
        batch += _LENGTH.pack(len(item))
        batch += item
        self._held += _LENGTH.size + len(item)
        if len(batch) < BATCH_BYTES:
            return None
        del self._open[key]
        self._held -= len(batch)
        return bytes(batch)

    def rest(self) -> Iterator[tuple[K, bytes]]:
        """Yields and removes the batches that are not full."""
        opened, self._open, self._held = self._open, {}, 0
        for key, batch in opened.items():
            yield key, bytes(batch)


def items(batches: Iterable[bytes]) -> Iterator[bytes]:
    """The items of batches."""
    for batch in batches:
        end = 0
        while end < len(batch):
            start = end + _LENGTH.size
            end = start + _LENGTH.unpack_from(batch, end)[0]
            yield batch[start:end]
