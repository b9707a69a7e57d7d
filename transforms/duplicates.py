"""FindDuplicates: groups of records with equal images, from hashes that are made while they are written.

Two passes over the hashes: the first finds those that may occur twice, from eight bytes of each; the second
groups the records that have them. Only these are shuffled with their keys and labels.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec

from recordmill.transforms.records import JobError
from recordmill.transforms.repeated_hashes import FindRepeated, HashBuckets, RepeatedHashes
from recordmill.transforms.shards.duplicates import Copy, DuplicateGroup, HashedImage
from recordmill.transforms.shards.references import encode
from recordmill.transforms.shards.report import ShardReport
from recordmill.transforms.shards.reuse import DamagedLineageError, read_lineage
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.task_fn import in_window

_AT_ONCE = 4096  # images that are compared with the repeated hashes


class LocatedImage(NamedTuple):
    """The image of a record, and the record's location: its split, shard and number in the shard.

    `shard` and `record` are None if the runner chooses the order of the records.
    """

    image: HashedImage
    split: str
    shard: int | None = None
    record: int | None = None


Images = Callable[[Any], Iterator[LocatedImage]]
"""Reads the images of an element; they are read twice."""


@dataclasses.dataclass(eq=False, repr=False)
class FindDuplicates(beam.PTransform):
    """PCollection of elements with images -> PCollection[str]: lines of duplicates.jsonl, in no order."""

    images: Images

    def expand(self, elements: beam.PCollection[Any]) -> beam.PCollection[str]:
        """The hashes that occur twice, the records that have them, their groups."""
        repeated = (
            elements
            | "Hash" >> beam.ParDo(HashImages(self.images)).with_output_types(tuple[int, bytes])
            | "FindRepeated" >> FindRepeated()
        )
        return (
            elements
            | "Select"
            >> beam.ParDo(SelectImages(self.images), beam.pvalue.AsList(repeated)).with_output_types(
                tuple[bytes, bytes]
            )
            | "GroupImages" >> beam.GroupByKey()
            | "Describe" >> beam.FlatMapTuple(group_lines).with_output_types(str)
        )


class HashImages(beam.DoFn):
    """Element -> (bucket, hashes of its images); eight bytes each."""

    def __init__(self, images: Images) -> None:
        self._images = images

    def start_bundle(self) -> None:
        self._hashes = HashBuckets()

    def process(self, element: Any) -> Iterator[tuple[int, bytes]]:
        self._hashes.add(_hash_of(one.image) for one in self._images(element))
        if self._hashes.full:
            yield from self._hashes.take()

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(in_window, self._hashes.take())


class SelectImages(beam.DoFn):
    """Element -> (identity, record) of each of its images whose hash is repeated."""

    def __init__(self, images: Images) -> None:
        self._images = images

    def start_bundle(self) -> None:
        self._repeated: RepeatedHashes | None = None

    def process(self, element: Any, repeated: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        if self._repeated is None:
            self._repeated = RepeatedHashes(repeated)
        every = self._images(element) if self._repeated else iter(())
        while some := list(itertools.islice(every, _AT_ONCE)):
            for one in itertools.compress(some, self._repeated.has([_hash_of(one.image) for one in some])):
                yield one.image.identity, encode((_copy(one), one.image.content))


def _hash_of(image: HashedImage) -> int:
    """Bits of the identity that fit Beam's coder of signed integers."""
    return int.from_bytes(image.identity[:8], "big") >> 1


def _copy(one: LocatedImage) -> Copy:
    return Copy(one.image.key, one.split, one.image.labels, one.shard, one.record)


_decode = msgspec.msgpack.Decoder(tuple[Copy, bytes]).decode


def group_lines(_: bytes, records: Iterable[bytes]) -> Iterator[str]:
    """The line of a group; none for a record whose hash another one has only in part."""
    group = DuplicateGroup.of(map(_decode, records))
    if group is not None:
        yield group.to_json()


def images_of_shard(report: ShardReport) -> Iterator[LocatedImage]:
    """The images of the records of a finished shard, from its lineage."""
    path = report.file.lineage_path
    if path is None or not report.file.stats.formats:
        return
    try:
        with naming_faults(path):
            for number, image in enumerate(read_lineage(path).images()):
                if image is not None:
                    yield LocatedImage(image, report.split, report.shard, number)
    except DamagedLineageError as error:
        raise JobError(f"{error}; remove it, and give the same command again") from error


_decode_images = msgspec.msgpack.Decoder(tuple[HashedImage, ...]).decode


def images_of_batch(batch: tuple[str, bytes]) -> Iterator[LocatedImage]:
    """The images of encoded records, which the runner puts in shards: (split, images as msgpack)."""
    split, packed = batch
    for image in _decode_images(packed):
        yield LocatedImage(image, split)
