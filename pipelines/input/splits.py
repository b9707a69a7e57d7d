"""Split expressions such as `train[:90%]`: the shards that they select, and the records of each."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from recordmill.transforms.examples.framing import DamagedRecordError
from recordmill.transforms.reading.dataset import Dataset, ShardEntry
from recordmill.transforms.reading.shard import read_index, record_count

ALL = -1
_PART = re.compile(r"(?P<name>[^\[\]+]+?)(?:\[(?P<start>-?\d+%?)?:(?P<stop>-?\d+%?)?\])?")


@dataclasses.dataclass(frozen=True)
class Piece:
    """`take` consecutive records of one shard, after the first `skip`; `ALL` takes all that follow."""

    shard: ShardEntry
    skip: int = 0
    take: int = ALL

    @property
    def records(self) -> int | None:
        """The number of records; None if unknown."""
        if self.take != ALL:
            return self.take
        return None if self.shard.records is None else self.shard.records - self.skip


def known_records(pieces: Sequence[Piece]) -> int | None:
    """The number of records in pieces; None if unknown."""
    found = [piece.records for piece in pieces if piece.records is not None]
    return sum(found) if len(found) == len(pieces) else None


def counted(splits: Mapping[str, Sequence[ShardEntry]]) -> dict[str, tuple[ShardEntry, ...]]:
    """The shards with the number of their records, if a manifest or an index has it."""
    return {name: tuple(map(_by_index, shards)) for name, shards in splits.items()}


def pieces_of(dataset: Dataset, split: str) -> list[Piece]:
    """The pieces of a split expression, without shards of which it needs nothing.

    Raises:
        ValueError: it is no such expression, names no split of the dataset, or has no record.
    """
    splits = dataset.splits
    pieces: list[Piece] = []
    for text in split.split("+"):
        part = _PART.fullmatch(text.strip())
        if part is None:
            raise ValueError(
                f"split is {split!r}; it is a name, or a part of one, such as train, train[:90%], "
                "train[100:200], train[-10%:] or train+val"
            )
        name = part["name"].strip()
        names = list(splits) if name == "all" and "all" not in splits else [name]
        for one in names:
            if one not in splits:
                known = ", ".join(map(repr, splits))
                raise ValueError(f"split is {split!r}; {dataset.path!r} has no {one!r}, it has {known}")
            pieces += _part(splits[one], part["start"], part["stop"], split)
    if not pieces or known_records(pieces) == 0:
        raise ValueError(f"split is {split!r}, which has no records")
    return pieces


def cut(pieces: Sequence[Piece], start: int, stop: int) -> list[Piece]:
    """The records from `start` to `stop` of pieces with known numbers of records."""
    found = []
    at = 0
    for piece in pieces:
        records = piece.records or 0
        first, last = max(start - at, 0), min(stop - at, records)
        if first < last:
            is_all = (first, last) == (0, records)
            found.append(piece if is_all else Piece(piece.shard, piece.skip + first, last - first))
        at += records
    return found


def _part(shards: Sequence[ShardEntry], start: str | None, stop: str | None, split: str) -> list[Piece]:
    shards = [_by_index(shard) for shard in shards]
    if start is None and stop is None:
        return [Piece(shard) for shard in shards if shard.records != 0]
    pieces = [Piece(_counted(shard)) for shard in shards]
    total = known_records(pieces) or 0
    return cut(pieces, _bound(start, 0, total, split), _bound(stop, total, total, split))


def _bound(text: str | None, default: int, total: int, split: str) -> int:
    """A bound as a number of records from the start."""
    if text is None:
        return default
    if text.endswith("%"):
        share = int(text[:-1])
        if abs(share) > 100:
            raise ValueError(f"split is {split!r}; {text} is more than there is, it may be -100% to 100%")
        number = round(share * total / 100)
    else:
        number = int(text)
    if number < 0 or (text.startswith("-") and number == 0):
        number += total
    return min(max(number, 0), total)


def _by_index(shard: ShardEntry) -> ShardEntry:
    if shard.records is not None or shard.index is None:
        return shard
    try:
        return dataclasses.replace(shard, records=len(read_index(shard.index)))
    except (ValueError, OSError):
        return shard  # another program's file of that name


def _counted(shard: ShardEntry) -> ShardEntry:
    if shard.records is not None:
        return shard
    try:
        return dataclasses.replace(shard, records=record_count(shard.path))
    except DamagedRecordError as error:
        raise ValueError(f"{shard.path!r} cannot be read: {error}") from error
