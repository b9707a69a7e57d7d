"""What a published shard was made from, record by record: by it, the next version takes over.

A gzip file of JSON lines: a header, then a row for each record, in the order of the shard.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from recordmill.transforms.framing import FRAME_BYTES, masked_crc32c
from recordmill.transforms.images.tensor import varint
from recordmill.transforms.records import Geometry, StoredImage
from recordmill.transforms.shards.encoded_record import EncodedRecord
from recordmill.transforms.shards.report import ShardFile, WriteStats
from recordmill.transforms.shards.state import stats_json, stats_of
from recordmill.transforms.shards.statistics import Statistics
from recordmill.transforms.storage import files

FORMAT_VERSION = 2
ENDING = ".jsonl.gz"
_LEVEL = 5
_READ_BYTES = 1 << 20
_HEAD_BYTES = 64
# Of `value` of a `BytesList`: field 1, with a length.
_BYTES_VALUE = b"\x0a"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

Span = tuple[int, int]
"""Start within a payload, and length."""


class DamagedStateError(ValueError):
    """A file that is not, or not to its end, what `write_state` wrote."""


@dataclasses.dataclass(frozen=True, slots=True)
class StateHeader:
    """What is known of a whole shard.

    Attributes:
        digest: of its settings and references, as `shard_digest` has it.
        size: bytes of the shard.
        sha256: of the shard, in hex.
        stamp: of the shard, as `stamp_of` has it.
        index_sha256: of its index, in hex.
        stats: counts, without what only one run has done.
        failures: lines of failures.jsonl.
    """

    digest: str
    size: int
    sha256: str
    stamp: str
    index_sha256: str
    stats: WriteStats
    failures: tuple[str, ...]


class Row(NamedTuple):
    """One record.

    Attributes:
        place: by which records are ordered in the shard: their hash in hex, or with `--order=key` their key.
        source: fingerprint of what its images were made from.
        offset: of its frame in the shard.
        checksum: of its payload, as the frame has it.
        source_bytes: of its images in the source.
        images: where each lies in the payload, and what else is known of it.
        annotations: fingerprint of what its masks were made from; empty where there are none.
        masks: where each lies, by name.
        object_masks: likewise, in order.
    """

    place: str
    source: str
    offset: int
    checksum: int
    source_bytes: int
    images: list[list[Any]]
    annotations: str
    masks: dict[str, Span]
    object_masks: list[Span]


class Spans:
    """Finds parts of a payload: each is looked for behind the one before it first.

    Wherever its bytes stand, they are those that were stored.
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._end = 0

    def of(self, part: bytes) -> Span:
        """Where a part is.

        Raises:
            ValueError: it is not in the payload.
        """
        start = self._found(part, self._end)
        if start < 0 and (start := self._found(part, 0)) < 0:
            raise ValueError("a part of a record is not in it")
        self._end = start + len(part)
        return start, len(part)

    def _found(self, part: bytes, start: int) -> int:
        """Where a part begins, behind `start`; -1 where it does not.

        Its length, which stands before it, and its first bytes are looked for: to look for all of a large one
        takes a hundred times as long.
        """
        before = _BYTES_VALUE + varint(len(part))
        head = before + part[:_HEAD_BYTES]
        while (start := self._payload.find(head, start)) >= 0:
            start += len(before)
            if self._payload.startswith(part, start):
                return start
        return -1


def row_line(place: str, source: str, record: EncodedRecord) -> str:
    """A record as a line, which concatenates with others: its place in the file is not in it.

    Args:
        place: as in `Row`.
        source: as in `Row`; empty where nothing can be taken over.
        record: that has been written.
    """
    payload = record.payload
    fields: list[Any] = [place, source, len(payload), masked_crc32c(payload), record.source_bytes, []]
    if source:
        spans = Spans(payload)
        fields[-1] = [_image_json(image, spans) for image in record.images]
        if record.annotations:
            masks = {name: spans.of(mask) for name, mask in record.mapped.masks.items()}
            fields += [record.annotations, masks, [spans.of(mask) for mask in record.mapped.object_masks]]
    return f"{_encode(fields)}\n"


def stored_image(found: list[Any], payload: bytes) -> StoredImage:
    """An image of a row, from the payload."""
    (start, length), image_format, size, dtype, colorspace, actions, geometry, *chosen = found
    quality, flattened = chosen or (None, None)
    height, width, channels = size
    return StoredImage(
        payload[start : start + length],
        image_format,
        height,
        width,
        channels,
        dtype,
        colorspace,
        tuple(actions),
        None if geometry is None else Geometry(*geometry),
        quality,
        flattened,
    )


def _image_json(image: StoredImage, spans: Spans) -> list[Any]:
    fields: list[Any] = [
        spans.of(image.data),
        image.image_format,
        (image.height, image.width, image.channels),
        image.dtype,
        image.colorspace,
        image.actions,
        None if image.geometry is None else dataclasses.astuple(image.geometry),
    ]
    if image.jpeg_quality is not None or image.flattened_bytes is not None:
        fields += [image.jpeg_quality, image.flattened_bytes]
    return fields


def header_of(
    file: ShardFile, digest: str, stamp: str, index_sha256: str, failures: Sequence[str]
) -> StateHeader:
    """The header of a finished shard: the same, however much of the shard was taken over; but for `stamp`."""
    statistics = dataclasses.replace(file.stats.statistics, reencoded=[])
    stats = dataclasses.replace(file.stats, work=Counter(), taken_over=0, statistics=statistics)
    return StateHeader(digest, file.size, file.sha256, stamp, index_sha256, stats, tuple(failures))


def write_state(path: str, header: StateHeader, rows: str) -> str:
    """Writes a state file of this machine.

    Args:
        path: of it.
        header: of the shard.
        rows: path of a file of lines, as `row_line` makes them.

    Returns:
        Its SHA-256, in hex.
    """
    fields = {
        "format_version": FORMAT_VERSION,
        "digest": header.digest,
        "size": header.size,
        "sha256": header.sha256,
        "stamp": header.stamp,
        "index_sha256": header.index_sha256,
        "stats": stats_json(header.stats),
        "failures": header.failures,
    }
    with (
        open(path, "wb") as file,
        gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed,
        open(rows, "rb") as lines,
    ):
        packed.write(f"{_encode(fields)}\n".encode())
        while block := lines.read(_READ_BYTES):
            packed.write(block)
    hashed = hashlib.sha256()
    with open(path, "rb") as written:
        while block := written.read(_READ_BYTES):
            hashed.update(block)
    return hashed.hexdigest()


class ShardRecords(NamedTuple):
    """A state file that was read to its end.

    Attributes:
        header: of the shard.
        rows: of its records, in order, read as they are asked for. Raises DamagedStateError.
        sha256: of the file, in hex.
    """

    header: StateHeader
    rows: Iterator[Row]
    sha256: str


def read_state(path: str) -> ShardRecords:
    """Reads a state file, local or `gs://`, whole: a bit that was flipped shows at its end only.

    Raises:
        DamagedStateError: it is damaged anywhere.
        FileNotFoundError: there is none.
    """
    data = files.read_bytes(path)
    try:
        lines = gzip.decompress(data).decode().split("\n")
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise DamagedStateError(f"{path} is damaged: {error}") from error
    return ShardRecords(
        _header(lines[0], path), _rows(iter(lines[1:-1]), path), hashlib.sha256(data).hexdigest()
    )


def _header(line: str, path: str) -> StateHeader:
    try:
        found: Mapping[str, Any] = json.loads(line)
        if found["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format_version is {found['format_version']!r}, not {FORMAT_VERSION}")
        stats = stats_of(found["stats"])
        if not isinstance(stats.statistics, Statistics):
            raise TypeError("no statistics")
        return StateHeader(
            str(found["digest"]),
            int(found["size"]),
            str(found["sha256"]),
            str(found["stamp"]),
            str(found["index_sha256"]),
            stats,
            tuple(map(str, found["failures"])),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedStateError(f"{path} is damaged: {error}") from error


def _rows(lines: Iterator[str], path: str) -> Iterator[Row]:
    offset = 0
    for line in lines:
        try:
            place, source, size, checksum, source_bytes, images, *found = json.loads(line)
            annotations, masks, object_masks = found or ("", {}, [])
            length = size + FRAME_BYTES
        except (ValueError, TypeError, RecursionError) as error:
            raise DamagedStateError(f"{path} is damaged: {error}") from error
        yield Row(place, source, offset, checksum, source_bytes, images, annotations, masks, object_masks)
        offset += length
