"""Images of the next records, asked for while this one is encoded: an answer of a bucket takes its time."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import NamedTuple

from recordmill.transforms.records import ImageRecord
from recordmill.transforms.shards.record_state import EncodedRecord
from recordmill.transforms.storage.reader import ImageReader

# What a writer holds, or has asked for: bytes by the listing, of which one image may be more.
_BYTES = 32 << 20
_IMAGES = 32
# Of an image whose size the listing does not tell.
_UNKNOWN_BYTES = 1 << 20

Loading = Future[bytes] | None


class Ahead(NamedTuple):
    """A record, and what its image will come from.

    Attributes:
        record: the record.
        loading: of its image; None where there is none to wait for.
        taken: what the version before has stored of it; None where its image has to be loaded.
    """

    record: ImageRecord
    loading: Loading
    taken: EncodedRecord | None


def read_ahead(
    records: Iterable[tuple[ImageRecord, EncodedRecord | None]], reader: ImageReader
) -> Iterator[Ahead]:
    """Each record, in order, its image asked for unless it is taken over."""
    waiting: collections.deque[Ahead] = collections.deque()
    held = 0
    try:
        for record, taken in records:
            size = _bytes(record)
            while waiting and (held + size > _BYTES or len(waiting) >= _IMAGES):
                held -= _bytes(waiting[0].record)
                yield waiting.popleft()
            loading = None if record.image is None or taken is not None else reader.begin(record.image)
            ahead = Ahead(record, loading, taken)
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
