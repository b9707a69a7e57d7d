"""Images of the next records, asked for while this one is encoded: an answer of a bucket takes its time."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from concurrent.futures import Future

from transforms.records import ImageRecord
from transforms.shards.packing import reference_record
from transforms.storage.reader import ImageReader

# What a writer holds, or has asked for: bytes by the listing, of which one image may be more.
_BYTES = 32 << 20
_IMAGES = 32
# Of an image whose size the listing does not tell.
_UNKNOWN_BYTES = 1 << 20

Loading = Future[bytes] | None


def read_ahead(references: Iterable[bytes], reader: ImageReader) -> Iterator[tuple[ImageRecord, Loading]]:
    """Each record, in order, with what its image will come from; None where reading it is no waiting."""
    waiting: collections.deque[tuple[ImageRecord, Loading]] = collections.deque()
    held = 0
    try:
        for reference in references:
            record = reference_record(reference, reader.read)
            size = _bytes(record)
            while waiting and (held + size > _BYTES or len(waiting) >= _IMAGES):
                held -= _bytes(waiting[0][0])
                yield waiting.popleft()
            loading = None if record.image is None else reader.begin(record.image)
            if loading is None and not waiting:
                yield record, None
            else:
                waiting.append((record, loading))
                held += size
        while waiting:
            yield waiting.popleft()
    finally:
        for _, loading in waiting:
            if loading is not None:
                loading.cancel()


def _bytes(record: ImageRecord) -> int:
    return record.size or _UNKNOWN_BYTES
