"""The identity of an image: a hash of its bytes, from the listing, from an earlier job, or read.

A hash has 63 bits, and the number of bytes has to be equal too. Of 100 million different images of one size,
two count as identical with a chance of 1 in 2,000; of photographs, whose sizes differ, 1 in 100 million.
The hash is made of an MD5, since buckets list it: of two files that were
forged to have the same MD5, one counts as a copy of the other.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import BadInput, ImageRecord, ImageRef
from recordmill.transforms.shards import progress
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import file_system, version_of_bytes
from recordmill.transforms.storage.hash_cache import HashCache
from recordmill.transforms.storage.reader import ListedReader, read_ahead

# Of an image whose size the listing does not have.
_UNKNOWN_BYTES = 1 << 20


class Identity(NamedTuple):
    """The identity of an image: equal for equal bytes. All 0 if it has none."""

    hashed: int = 0
    size: int = 0


NO_IDENTITY = Identity()


class HashWork(NamedTuple):
    """The work of identifying images.

    Attributes:
        listed: images whose listing has a hash of their bytes.
        cached: images that an earlier job has read.
        read: images that were read, or that have to be.
        read_bytes: of those, as far as the listing has their size.
    """

    listed: int = 0
    cached: int = 0
    read: int = 0
    read_bytes: int = 0

    def __add__(self, other: HashWork) -> HashWork:  # type: ignore[override]
        return HashWork(*map(sum, zip(self, other, strict=True)))


class ImageHasher:
    """Identifies images; reads several at a time.

    Args:
        threads: that read local files; objects of a bucket are requested as always.
        cache: of hashes; None for none.
        reads: whether images are read. Otherwise those that need it have no identity.

    Attributes:
        work: since the start.
    """

    def __init__(self, threads: int, cache: HashCache | None, reads: bool = True) -> None:
        self.work = HashWork()
        self._cache = cache
        self._reads = reads
        self._pool = ThreadPoolExecutor(threads, "recordmill-hash")
        self._readers: list[ListedReader] = []
        self._local = threading.local()

    def identities(self, records: Sequence[ImageRecord]) -> list[Identity]:
        """The identity of each record's image. Sequences, raw pixels and unreadable images have none.

        Raises:
            JobError: a fault of the file system that may pass, and has not; naming the image.
        """
        found = [self._without_reading(record) for record in records]
        missing = [number for number, identity in enumerate(found) if identity is None]
        self.work += HashWork(
            read=len(missing), read_bytes=sum(_listed_bytes(records[number]) for number in missing)
        )
        if self._reads:
            self._read_missing(records, missing, found)
        return [identity or NO_IDENTITY for identity in found]

    def close(self) -> None:
        """Stops the threads, closes files, and stores the hashes."""
        self._pool.shutdown()
        while self._readers:
            self._readers.pop().close()
        if self._cache is not None:
            self._cache.flush()

    def _without_reading(self, record: ImageRecord) -> Identity | None:
        """The identity, if it needs no reading; None if it does."""
        ref = record.image
        if ref is None or ref.pixels is not None:
            return NO_IDENTITY
        if (listed := _listed_identity(record, ref)) is not None:
            self.work += HashWork(listed=1)
            return listed
        cached = self._cache.find(ref) if self._cache is not None else None
        if self._cache is None or cached is None:
            return None
        self.work += HashWork(cached=1)
        self._cache.add(ref, *cached)
        return Identity(*cached)

    def _read_missing(
        self, records: Sequence[ImageRecord], missing: Sequence[int], found: list[Identity | None]
    ) -> None:
        def begin(number: int) -> Future[tuple[Identity, bool]]:
            ref = _image(records[number])
            return file_system(ref.uri).submit(self._read, ref) or self._pool.submit(self._read, ref)

        def listed_bytes(number: int) -> int:
            return _listed_bytes(records[number]) or _UNKNOWN_BYTES

        for number, loading in read_ahead(missing, begin, listed_bytes):
            ref = _image(records[number])
            with naming_faults(ref.uri):
                identity, is_as_listed = loading.result()
            if identity.hashed and is_as_listed and self._cache is not None:
                self._cache.add(ref, *identity)
            found[number] = identity
            progress.add_hashed(1, identity.size)

    def _read(self, ref: ImageRef) -> tuple[Identity, bool]:
        """The identity of an image, and whether its file is as listed; in a thread."""
        if not hasattr(self._local, "reader"):
            self._local.reader = ListedReader()
            self._readers.append(self._local.reader)
        reader: ListedReader = self._local.reader
        try:
            with internal_errors("load"):
                data = reader.read(ref)
        except BadInput:  # the record fails where it is written
            return NO_IDENTITY, False
        return Identity(version_of_bytes(data), len(data)), reader.is_as_listed(ref)


def _listed_identity(record: ImageRecord, ref: ImageRef) -> Identity | None:
    """The identity of an image whose version is a hash of its bytes."""
    size = ref.length or record.size
    if ref.version < 0:
        return Identity(-ref.version, size)
    is_complete = ref.length is None and not ref.offset
    if size and is_complete and file_system(ref.uri).is_content_version(ref.version):
        return Identity(ref.version, size)
    return None


def _image(record: ImageRecord) -> ImageRef:
    assert record.image is not None
    return record.image


def _listed_bytes(record: ImageRecord) -> int:
    return record.size or _image(record).length or 0
