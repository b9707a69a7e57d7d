"""IdentifyImages: finds identical images before any is written, to leave out copies or to keep them together.

Only the hashes of the bytes are shuffled, in buckets, eight bytes an image; then the references of repeated
images. All other references wait in batches for the hashes that are repeated.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from recordmill.transforms.config import CONTENT, DatasetConfig
from recordmill.transforms.metrics import count
from recordmill.transforms.records import BadInput, ClassNames, Failure, ImageRecord, JobError
from recordmill.transforms.repeated_hashes import FindRepeated, HashBuckets, RepeatedHashes
from recordmill.transforms.shards.identity import HashWork, Identity, ImageHasher
from recordmill.transforms.shards.record_spool import RecordSpool
from recordmill.transforms.shards.references import (
    BATCH_BYTES,
    batch_of,
    items,
    pack_record,
    plain_record,
    split_of,
    spool_annotations,
    unpack_record,
    with_packed_split,
    with_split,
)
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.hash_cache import HashCache
from recordmill.transforms.storage.reader import ImageReader
from recordmill.transforms.task_fn import in_window

_OTHERS, _HASHES, _WORK, _MEMBERS = "others", "hashes", "work", "members"
# A batch is read by one worker: fewer records than fit, so that large images are spread over many.
_RECORDS_A_BATCH = 256
# Before each record of a batch: its `Identity`.
_IDENTITY = struct.Struct("<QQ")
_TRAINING_SPLITS = frozenset({"train", "training"})


class Identified(NamedTuple):
    """The result of `IdentifyImages`.

    Attributes:
        entries: with --duplicates=drop, a skipped Failure instead of each copy; with --group_by=content,
            records with their split.
        work: HashWork of each bundle.
    """

    entries: beam.PCollection[ImageRecord | Failure | ClassNames]
    work: beam.PCollection[HashWork]


class IdentifyImages(beam.PTransform):
    """PCollection[ImageRecord | Failure | ClassNames] -> Identified.

    Args:
        config: of a dataset for which `identifies_images`.
        scratch: as of `SurveyRecords`.
        hashes: folder of hashes that earlier jobs have stored; None for none. It is used on one machine only:
            elsewhere, each of many workers would read all of it.
        token: of the job; empty to store no hashes. It names a folder in `scratch`, too.
        reads: whether images are read. Otherwise those without a hash count as images without a copy.
    """

    def __init__(
        self,
        config: DatasetConfig,
        scratch: str | None = None,
        hashes: str | None = None,
        token: str = "",
        reads: bool = True,
    ) -> None:
        super().__init__()
        self._config = config
        self._pack = PackFn(config, scratch, token or "records")
        hashes = hashes if config.shuffles_in_memory else None
        self._identify = IdentifyFn(config, hashes, token, reads)

    def expand(self, entries: beam.PCollection[ImageRecord | Failure | ClassNames]) -> Identified:
        packed = entries | "Pack" >> beam.ParDo(self._pack).with_output_types(
            Any, **{_OTHERS: Any}
        ).with_outputs(_OTHERS, main="batches")
        batches = packed["batches"]
        if not self._config.shuffles_in_memory:
            batches = batches | "Spread" >> beam.Reshuffle()
        identified = batches | "Identify" >> beam.ParDo(self._identify).with_output_types(
            Any, **{_HASHES: tuple[int, bytes], _WORK: Any}
        ).with_outputs(_HASHES, _WORK, main="batches")
        parts = [packed[_OTHERS]]
        if self._config.drops_duplicates:
            parts += self._without_copies(identified["batches"], identified[_HASHES])
        else:
            parts.append(identified["batches"])
        found = parts | "Gather" >> beam.Flatten() | "Unpack" >> beam.ParDo(UnpackFn())
        return Identified(found, identified[_WORK])

    def _without_copies(self, batches: Any, hashes: Any) -> tuple[Any, Any]:
        """Batches of the images that have no copy; batches and failures of the others."""
        repeated = hashes | "FindRepeated" >> FindRepeated()
        parted = batches | "PartCopies" >> beam.ParDo(
            PartCopies(), beam.pvalue.AsList(repeated)
        ).with_output_types(Any, **{_MEMBERS: tuple[tuple[int, int], bytes]}).with_outputs(
            _MEMBERS, main="batches"
        )
        decided = (
            parted[_MEMBERS]
            | "GroupCopies" >> beam.GroupByKey()
            | "DropCopies" >> beam.ParDo(DropCopies()).with_output_types(Any)
        )
        return parted["batches"], decided


class PackFn(beam.DoFn):
    """Records in their splits -> batches of packed records; to `others` everything else.

    Images that records bring, and large annotations, are spooled, as by `SurveyRecords`.
    """

    def __init__(self, config: DatasetConfig, scratch: str | None, job: str) -> None:
        self._config = config
        self._scratch = scratch
        self._job = job
        self._spool: RecordSpool | None = None
        self._pattern = re.compile(config.group_pattern) if config.group_pattern else None

    def start_bundle(self) -> None:
        self.teardown()
        self._spool = RecordSpool(self._scratch, self._job)
        self._held: list[bytes] = []
        self._bytes = 0

    def process(self, element: ImageRecord | Failure | ClassNames) -> Iterator[Any]:
        if not isinstance(element, ImageRecord):
            yield TaggedOutput(_OTHERS, element)
            return
        try:
            packed = self._packed(element)
        except (BadInput, UnicodeEncodeError):  # the survey fails the record, or the job
            yield TaggedOutput(_OTHERS, element)
            return
        self._held.append(packed)
        self._bytes += len(packed)
        if self._bytes >= BATCH_BYTES or len(self._held) == _RECORDS_A_BATCH:
            yield self._batch()

    def finish_bundle(self) -> Iterator[Any]:
        if self._held:
            yield in_window(self._batch())

    def teardown(self) -> None:
        """Removes the unfinished file of a bundle that has failed."""
        if self._spool is not None:
            self._spool.discard()
        self._spool = None

    def _batch(self) -> bytes:
        """The records that are held; their files can be read, also in a step that is fused to this."""
        held, self._held, self._bytes = self._held, [], 0
        assert self._spool is not None
        self._spool.close()
        return batch_of(held)

    def _packed(self, record: ImageRecord) -> bytes:
        """Raises BadInput where the survey does, and JobError for a feature called `content`."""
        if self._config.groups_by_content and CONTENT in record.annotations.features:
            raise JobError(
                f"--group_by={CONTENT} keeps images with the same bytes together, but record {record.key!r} "
                f"has a feature {CONTENT!r}; give that feature another name in the input"
            )
        assert self._spool is not None
        record = self._spool.with_reference(with_split(plain_record(record), self._config, self._pattern))
        return spool_annotations(record, pack_record(record), self._spool.annotations)


class IdentifyFn(beam.DoFn):
    """Batches of packed records -> the same, with their identities; to `hashes` those hashes, by bucket."""

    def __init__(self, config: DatasetConfig, hashes: str | None, token: str, reads: bool) -> None:
        self._config = config
        self._folder = hashes
        self._token = token
        self._reads = reads
        self._hasher: ImageHasher | None = None

    def start_bundle(self) -> None:
        self._close()
        cache = None if self._folder is None else HashCache(self._folder, self._token)
        self._hasher = ImageHasher(max(self._config.workers, 1), cache, self._reads)
        self._hashes = HashBuckets()

    def process(self, batch: bytes) -> Iterator[Any]:
        assert self._hasher is not None
        packed = list(items([batch]))
        records = [unpack_record(one) for one in packed]
        identities = self._hasher.identities(records)
        self._hashes.add(identity.hashed for identity in identities if identity.hashed)
        yield batch_of(
            _IDENTITY.pack(*identity) + self._in_split(one, record, identity)
            for one, record, identity in zip(packed, records, identities, strict=True)
        )
        if self._hashes.full:
            yield from (TaggedOutput(_HASHES, pair) for pair in self._hashes.take())

    def finish_bundle(self) -> Iterator[Any]:
        assert self._hasher is not None
        work = self._hasher.work
        self._close()
        for name in ("listed", "cached", "read"):
            count(f"identified/{name}", getattr(work, name))
        yield in_window(TaggedOutput(_WORK, work))
        yield from (in_window(TaggedOutput(_HASHES, pair)) for pair in self._hashes.take())

    def teardown(self) -> None:
        """Stops the threads of a bundle that has failed."""
        self._close()

    def _close(self) -> None:
        hasher, self._hasher = self._hasher, None
        if hasher is not None:
            hasher.close()

    def _in_split(self, packed: bytes, record: ImageRecord, identity: Identity) -> bytes:
        """The record in the split of its image; in that of its key, if the image has no identity."""
        if not self._config.groups_by_content:
            return packed
        group = f"{identity.hashed:x}" if identity.hashed else record.key
        return with_packed_split(packed, split_of(group, self._config.splits))


class PartCopies(beam.DoFn):
    """Batches -> the same without images whose hashes are repeated; those to `members`, by identity."""

    def start_bundle(self) -> None:
        self._repeated: RepeatedHashes | None = None

    def process(self, batch: bytes, repeated: Sequence[bytes]) -> Iterator[Any]:
        if self._repeated is None:
            self._repeated = RepeatedHashes(repeated)
        every = list(items([batch]))
        are_members = self._repeated.has([_IDENTITY.unpack_from(item)[0] for item in every])
        if not are_members.any():
            yield batch
            return
        yield batch_of(item for item, is_member in zip(every, are_members, strict=True) if not is_member)
        for item in itertools.compress(every, are_members):
            yield TaggedOutput(_MEMBERS, (_IDENTITY.unpack_from(item), item))


class DropCopies(beam.DoFn):
    """Identity and all items that have it -> a batch of the one that is kept; Failures for the others."""

    def process(self, group: tuple[tuple[int, int], Iterable[bytes]]) -> Iterator[Any]:
        members = sorted(map(_order, group[1]))
        kept = members[0]
        yield batch_of(item for is_train, key, item in members if key == kept[1])  # keys must be unique
        for _, key, _ in members:
            if key != kept[1]:
                detail = f"the same bytes as {kept[1]!r}, which is kept"
                yield Failure(key, "list", "duplicate image", detail, skipped=True)


class UnpackFn(beam.DoFn):
    """Batches -> their records; everything else as it is."""

    def start_bundle(self) -> None:
        self._reader = ImageReader()

    def process(self, element: bytes | ImageRecord | Failure | ClassNames) -> Iterator[Any]:
        if not isinstance(element, bytes):
            yield element
            return
        for item in items([element]):
            with naming_faults(""):
                yield unpack_record(item[_IDENTITY.size :], self._reader.read)

    def finish_bundle(self) -> None:
        self._reader.close()


def _order(item: bytes) -> tuple[bool, str, bytes]:
    """Copies to train on come last, since they are the ones to drop; then the order of keys."""
    record = unpack_record(item[_IDENTITY.size :])
    return record.split in _TRAINING_SPLITS, record.key, item
