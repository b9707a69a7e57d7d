"""Images and masks of the version before, for the records of a shard that were made from the same."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO, NamedTuple

from recordmill.transforms.framing import masked_crc32c, read_frames
from recordmill.transforms.records import ImageRecord, StoredImage
from recordmill.transforms.shards.fingerprint import source_fingerprint
from recordmill.transforms.shards.previous import ShardPaths
from recordmill.transforms.shards.record_state import DamagedStateError, Row, read_state, stored_image
from recordmill.transforms.storage import files


class TakenOver(NamedTuple):
    """What the version before has stored of a record.

    Attributes:
        images: as they were stored.
        source_bytes: of them in the source.
        annotations: fingerprint of what the masks were made from; empty where there are none.
        masks: by name, as in `Mapped`.
        object_masks: likewise.
    """

    images: tuple[StoredImage, ...]
    source_bytes: int
    annotations: str
    masks: Mapping[str, bytes]
    object_masks: tuple[bytes, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class TakeOver:
    """Where the records of a shard, or of a part of one, may be found.

    Attributes:
        shards: of the version before, in order; none where there is nothing to take over.
        by_key: records are ordered by their keys, not by their hashes.
        mask_map: name of the `MaskMap`.
    """

    shards: tuple[ShardPaths, ...] = ()
    by_key: bool = False
    mask_map: str = ""

    def place(self, reference: bytes, record: ImageRecord) -> str:
        """By which a record is ordered in its shard."""
        return record.key if self.by_key else reference[:8].hex()

    def found(
        self, records: Iterable[tuple[bytes, ImageRecord]]
    ) -> Iterator[tuple[ImageRecord, TakenOver | None]]:
        """Each record, given with its reference and in the order of the shard, and what was stored of it.

        One pass over both. What cannot be read of the version before is made anew.
        """
        with contextlib.ExitStack() as stack:
            rows = self._rows(stack)
            row = next(rows, None)
            for reference, record in records:
                place = self.place(reference, record)
                while row is not None and row[0].place < place:
                    row = next(rows, None)
                taken = None
                if row is not None and row[0].place == place and row[0].source == source_fingerprint(record):
                    taken = _taken(*row)
                yield record, taken

    def _rows(self, stack: contextlib.ExitStack) -> Iterator[tuple[Row, BinaryIO]]:
        """The rows of all shards that have images, each with the file of its record."""
        for shard in self.shards:
            with contextlib.suppress(FileNotFoundError, DamagedStateError):
                rows = read_state(shard.state_path).rows
                file = stack.enter_context(files.open_stream(shard.records_path))
                yield from ((row, file) for row in rows if row.source)


def _taken(row: Row, file: BinaryIO) -> TakenOver | None:
    """What the record of a row holds; None where it is damaged."""
    try:
        file.seek(row.offset)
        payload = next(read_frames(file)).payload
        images = tuple(stored_image(image, payload) for image in row.images)
        masks = {name: _part(payload, span) for name, span in row.masks.items()}
        object_masks = tuple(_part(payload, span) for span in row.object_masks)
        if masked_crc32c(payload) != row.checksum:
            return None  # of another shard, by that name
    except (StopIteration, ValueError, TypeError, AttributeError):  # a DamagedRecordError among them
        return None
    return TakenOver(images, row.source_bytes, row.annotations, masks, object_masks)


def _part(payload: bytes, span: tuple[int, int]) -> bytes:
    start, length = span
    return payload[start : start + length]
