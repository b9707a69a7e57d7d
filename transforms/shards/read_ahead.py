"""Requests the images of the next records while one is encoded: a bucket answers slowly."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import NamedTuple

from recordmill.transforms.records import ImageRecord
from recordmill.transforms.shards.record_state import EncodedRecord
from recordmill.transforms.storage.reader import ImageReader

# The most that a process holds or has requested, in listed bytes; one image may be larger.
_BYTES = 32 << 20
_IMAGES = 32
# For an image whose size the listing does not have.
_UNKNOWN_BYTES = 1 << 20

Loading = Future[bytes] | None


class Ahead(NamedTuple):
    """A record, and the loading of its image.

    Attributes:
        record: the record.
        loading: of its image; None if there is nothing to wait for.
        reused: images and masks in the previous version; None if its image has to be loaded.
    """

    record: ImageRecord
    loading: Loading
    reused: EncodedRecord | None


def read_ahead(
    records: Iterable[tuple[ImageRecord, EncodedRecord | None]], reader: ImageReader
) -> Iterator[Ahead]:
    """Yields each record, in order; its image is requested ahead unless it is reused."""
    waiting: collections.deque[Ahead] = collections.deque()
    held = 0
    try:
        for record, reused in records:
            size = _bytes(record)
            while waiting and (held + size > _BYTES or len(waiting) >= _IMAGES):
                held -= _bytes(waiting[0].record)
                yield waiting.popleft()
            loading = None if record.image is None or reused is not None else reader.begin(record.image)
            ahead = Ahead(record, loading, reused)
            if loading is None and not waiting:
                yield ahead
            else:
                waiting.append(ahead)
                held += size
        while waiting:
            yield waiting.popleft()
    finally:
        for ahead in waiting:
            if ahead.loading is not None:
                ahead.loading.cancel()


def _bytes(record: ImageRecord) -> int:
    return record.size or _UNKNOWN_BYTES
