"""FindRepeated: the hashes that occur more than once, of keys or of images.

Eight bytes of each are shuffled.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
import numpy as np
import numpy.typing as npt

_BUCKET_SHIFT = 55  # of 63 bits: 256 buckets
# Marks a hash that no record may have; hashes have 63 bits.
_FORBIDDEN = 1 << 63
_MOST_HASHES = 1 << 20


class HashBuckets:
    """Hashes of 63 bits; `take` puts them in buckets: thousands in one element."""

    def __init__(self) -> None:
        self._hashes = array("Q")

    @property
    def full(self) -> bool:
        """Whether so many hashes are held that `take` should be called."""
        return len(self._hashes) >= _MOST_HASHES

    def add(self, hashes: Iterable[int]) -> None:
        """Adds some hashes."""
        self._hashes.extend(hashes)

    def forbid(self, hashes: Iterable[int]) -> None:
        """Adds hashes that count as repeated if any record has them."""
        self._hashes.extend([hashed | _FORBIDDEN for hashed in hashes])

    def take(self) -> Iterator[tuple[int, bytes]]:
        """Yields and removes each bucket, as its number and its packed hashes."""
        every, self._hashes = np.array(self._hashes, np.uint64), array("Q")
        buckets = (every & np.uint64(_FORBIDDEN - 1)) >> np.uint64(_BUCKET_SHIFT)
        order = np.argsort(buckets)
        numbers, starts = np.unique(buckets[order], return_index=True)
        parts = np.split(every[order], starts[1:])
        for number, hashes in zip(numbers, parts, strict=False):  # one empty part without hashes
            yield int(number), hashes.tobytes()


class FindRepeated(beam.PTransform):
    """PCollection[(bucket, packed hashes)] -> PCollection[bytes]: those of `RepeatedHashes`, packed."""

    def expand(self, buckets: beam.PCollection[tuple[int, bytes]]) -> beam.PCollection[bytes]:
        """One element a bucket that has any."""
        return (
            buckets
            | "Group" >> beam.GroupByKey()
            | "Find" >> beam.FlatMapTuple(lambda _, packed: packed_repeated(packed)).with_output_types(bytes)
        )


class RepeatedHashes:
    """Hashes that occur more than once, from the elements of `FindRepeated` as a side input."""

    def __init__(self, packed: Iterable[bytes]) -> None:
        self._hashes = np.sort(_unpacked(packed))

    def __len__(self) -> int:
        return len(self._hashes)

    def has(self, hashes: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Whether each of some hashes is repeated."""
        every = np.array(hashes, np.uint64)
        if not len(self):
            return np.zeros(len(every), bool)
        nearest = self._hashes.take(np.searchsorted(self._hashes, every), mode="clip")
        return np.equal(nearest, every)


def packed_repeated(packed: Iterable[bytes]) -> Iterator[bytes]:
    """The repeated hashes of a bucket, packed; nothing if there are none."""
    every = np.sort(_unpacked(packed))
    hashes, forbidden = np.split(every, [np.searchsorted(every, np.uint64(_FORBIDDEN))])
    repeated = hashes[1:][hashes[1:] == hashes[:-1]]
    if len(forbidden):
        repeated = np.append(repeated, hashes[np.isin(hashes, forbidden - np.uint64(_FORBIDDEN))])
    if len(repeated):
        yield np.unique(repeated).tobytes()


def _unpacked(packed: Iterable[bytes]) -> npt.NDArray[np.uint64]:
    return np.frombuffer(b"".join(packed), np.uint64)
