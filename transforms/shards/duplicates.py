"""Duplicates: records whose images are equal, from hashes that are made while the images are stored.

Two images are equal if their decoded pixels are, where a conversion decodes them, or else their bytes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

import msgspec

from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.records import ImageRecord, JobError
from recordmill.transforms.storage.files import open_named, short_lines
from recordmill.transforms.storage.output import in_order

FIRST = 12
"""Groups that the report and messages take from the start of duplicates.jsonl."""

_SHOWN = 4  # keys of a group in a message


class HashedImage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The image of a record.

    Attributes:
        labels: names of its classes and of those of its objects, sorted.
        content: hash of its bytes in the source.
        decoded: hash of its pixels; empty if they were not decoded.
    """

    key: str
    labels: tuple[str, ...]
    content: bytes
    decoded: bytes = b""

    @property
    def identity(self) -> bytes:
        """Equal for equal images. Equal bytes have equal identities: their pixels are decoded alike."""
        return self.decoded or self.content


class Copy(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record of a group.

    Attributes:
        labels: names of its classes and of those of its objects, sorted.
        shard: number of its shard; None if the runner chose the order of the records.
        record: number of the record in its shard; None likewise.
    """

    key: str
    split: str
    labels: tuple[str, ...]
    shard: int | None = None
    record: int | None = None


class DuplicateGroup(msgspec.Struct, frozen=True):
    """Records with equal images, as a line of duplicates.jsonl.

    Attributes:
        across_splits: whether they are in more than one split.
        different_labels: whether they have different labels.
        bytes_equal: whether their images have the same bytes in the source; else only the same pixels.
        records: by key.
    """

    across_splits: bool
    different_labels: bool
    bytes_equal: bool
    records: tuple[Copy, ...]

    @staticmethod
    def of(found: Iterable[tuple[Copy, bytes]]) -> DuplicateGroup | None:
        """The group of equal images, each with the hash of its bytes; None if there is only one."""
        every = sorted(found, key=lambda one: one[0].key)
        records = tuple(one for one, _ in every)
        if len(records) < 2:
            return None
        return DuplicateGroup(
            across_splits=len({one.split for one in records}) > 1,
            different_labels=len({one.labels for one in records}) > 1,
            bytes_equal=len({content for _, content in every}) == 1,
            records=records,
        )

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def text(self) -> str:
        """Its first records, in words."""
        shown = self.records[:_SHOWN]
        if self.across_splits and len({one.split for one in shown}) == 1:
            other = next(one for one in self.records if one.split != shown[0].split)
            shown = (*shown[:-1], other)
        named = ", ".join(f"{one.key!r} ({_where(one, self)})" for one in shown)
        more = len(self.records) - len(shown)
        return f"{named} and {more:,} more" if more else named


def _where(one: Copy, group: DuplicateGroup) -> str:
    """The split of a record; and its labels, if those of its group differ."""
    if not group.different_labels:
        return one.split
    return f"{one.split}: {', '.join(one.labels) or 'no label'}"


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """The duplicates of a dataset.

    Attributes:
        groups: of records with equal images.
        records: in all groups.
        across_splits: groups with records in more than one split.
        different_labels: groups whose records have different labels.
        first: a few groups, those across splits before those with different labels, then by key.
    """

    groups: int = 0
    records: int = 0
    across_splits: int = 0
    different_labels: int = 0
    first: tuple[DuplicateGroup, ...] = ()

    def counts(self) -> dict[str, int]:
        """The counts, as in manifest.json."""
        fields = dataclasses.fields(self)
        return {field.name: getattr(self, field.name) for field in fields if field.name != "first"}

    @property
    def text(self) -> str:
        """The counts in words."""
        groups = "1 group" if self.groups == 1 else f"{self.groups:,} groups"
        return (
            f"{groups} of equal images, {self.records:,} records; {self.across_splits:,} across splits, "
            f"{self.different_labels:,} with different labels"
        )


NO_DUPLICATES = Duplicates()

_group = msgspec.json.Decoder(DuplicateGroup).decode


class CountedLines:
    """Lines of duplicates.jsonl in their order, counted while they are read."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = in_order(lines, _order)
        self.found = Duplicates()

    def __iter__(self) -> Iterator[str]:
        groups = records = across = different = 0
        first: list[DuplicateGroup] = []
        for line in self._lines:
            group = _group(line)
            groups, records = groups + 1, records + len(group.records)
            across, different = across + group.across_splits, different + group.different_labels
            if len(first) < FIRST:
                first.append(group)
            yield f"{line}\n"
        self.found = Duplicates(groups, records, across, different, tuple(first))


def _order(line: str) -> tuple[bool, bool, str]:
    group = _group(line)
    return not group.across_splits, not group.different_labels, group.records[0].key


def first_groups(path: str, most: int = FIRST) -> tuple[DuplicateGroup, ...]:
    """The first groups of duplicates.jsonl, except those of very many records.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: it is damaged; one line.
    """
    try:
        with open_named(path) as file:
            return tuple(map(_group, itertools.islice(short_lines(file), most)))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path!r} is damaged: {error}") from error


def label_texts(record: ImageRecord, labels: LabelMap) -> tuple[str, ...]:
    """Names of the classes of a record and of its objects, sorted, each once."""
    every = record.annotations.labels
    if record.annotations.objects:
        every += tuple(one.label for one in record.annotations.objects)
    texts = {labels.labels.get(labels.ids.get(one, -1)) or str(one) for one in every}
    return tuple(texts) if len(texts) < 2 else tuple(sorted(texts))


def check_splits(found: Duplicates, path: str) -> None:
    """Raises JobError if splits share images; the file `path` has each group."""
    if found.across_splits:
        raise JobError(
            f"{shared_images(found)}, and --duplicates is 'fail'; nothing is published, {path} names each. "
            "Remove the copies, or give --duplicates=keep, which reuses the finished shards"
        )


def shared_images(found: Duplicates) -> str:
    """How many images splits share, and the first of them."""
    verb = "image is" if found.across_splits == 1 else "images are"
    first = f", such as {found.first[0].text}" if found.first else ""
    return f"{found.across_splits:,} {verb} in more than one split{first}"
