"""How many records a file has, and where each of them lies, with as little reading as may be."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from recordmill.transforms.reading.shard import Location, locations

By = Literal["manifest", "index", "reading", "heads", "estimate"]


class Count(NamedTuple):
    """A number of records.

    Attributes:
        records: the number.
        by: what told it: the manifest, the index, reading all, hopping from head to head, or what was read
            and how large the file is.
    """

    records: int
    by: By

    @property
    def exact(self) -> bool:
        """Whether it is no estimate."""
        return self.by != "estimate"


def head_count(path: str, size: int, most: int | None) -> Count:
    """The number of records of an uncompressed file, by their heads; an estimate behind the first `most`.

    Raises:
        DamagedRecordError: a head is damaged.
        OSError: it cannot be read.
    """
    number, offset = 0, 0
    for offset, length in itertools.islice(locations(path, size), most):
        number += 1
        offset += length
    return Count(number, "heads") if offset >= size else estimated(number, offset, size)


def estimated(records: int, used: int, size: int) -> Count:
    """The number of records of a file of which some are known to take `used` bytes."""
    return Count(max(round(records * size / used), records) if used else records, "estimate")


def locate(found: Iterable[Location], numbers: Sequence[int]) -> Iterator[Location]:
    """Those of some numbers, from 0 and in order, as far as there are so many."""
    wanted = iter(numbers)
    number = next(wanted, None)
    for at, location in enumerate(found):
        if at == number:
            yield location
            number = next(wanted, None)
            if number is None:
                return
