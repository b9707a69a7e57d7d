"""References: the records as they are held in memory and shuffled.

A reference is the hash that orders it, the digest of the inputs of its record's bytes, and the record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from recordmill.transforms.records import Annotations, ImageRecord, ImageRef
from recordmill.transforms.shards.fingerprint import DIGEST_BYTES, listed_content, record_digest
from recordmill.transforms.shards.hashing import HASH_BYTES, order_hash, shard_of
from recordmill.transforms.shards.plain_values import encode
from recordmill.transforms.storage.spool import Spool

# Replaces the key at the end of a URI. No path contains a NUL.
_KEY = "\0"
# Annotations of more bytes are spooled.
_HELD = 192
_START = HASH_BYTES + DIGEST_BYTES
_NO_ANNOTATIONS = Annotations()

Read = Callable[[ImageRef], bytes]


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    """A record, and the location of its annotations if they are spooled."""

    record: ImageRecord
    spooled: ImageRef | None = None


_decode = msgspec.msgpack.Decoder(_Packed).decode
_decode_annotations = msgspec.msgpack.Decoder(Annotations).decode


def pack_record(record: ImageRecord, spool: Spool | None = None) -> bytes:
    """`record` as about 80 bytes and its key; the same bytes for equal records.

    Args:
        spool: takes annotations that are large; None to pack them too.

    Raises:
        BadInput, UnicodeEncodeError: as `encode`.
    """
    image = record.image
    if image is not None and image.uri.endswith(record.key):
        record = replace(record, image=replace(image, uri=image.uri[: -len(record.key)] + _KEY))
    packed = encode(_Packed(record))
    if spool is not None and len(packed) > _HELD:
        annotations = encode(record.annotations)
        if len(annotations) > _HELD:
            packed = encode(_Packed(replace(record, annotations=_NO_ANNOTATIONS), spool.add(annotations)))
    return packed


def unpack_record(packed: bytes, read: Read | None = None) -> ImageRecord:
    """The record that `pack_record` packed.

    Args:
        read: reads annotations that were spooled; None to leave them out.

    Raises:
        TypeError: a value of the record is not of the type that it is declared to have.
    """
    try:
        found = _decode(packed)
    except msgspec.ValidationError as error:
        key = msgspec.msgpack.decode(packed)[0][0]
        raise TypeError(f"record {key!r} has a value of the wrong type: {error}") from error
    record, image = found.record, found.record.image
    if image is not None and image.uri.endswith(_KEY):
        record = replace(record, image=replace(image, uri=image.uri[:-1] + record.key))
    if found.spooled is not None and read is not None:
        record = replace(record, annotations=_decode_annotations(read(found.spooled)))
    _restore_tuples(record.annotations)
    return record


def _restore_tuples(annotations: Annotations) -> None:
    """Makes values that are lists, once decoded, tuples again."""
    groups: list[Any] = [annotations.features, *(one.attributes for one in annotations.objects)]
    for values in groups:
        for name, value in values.items():
            if type(value) is list:
                values[name] = tuple(value)
    lists: Any = annotations.steps.lists if annotations.steps is not None else {}
    for name, values in lists.items():
        lists[name] = tuple(tuple(value) if type(value) is list else value for value in values)


def pack_reference(
    record: ImageRecord, seed: int, content: bytes | None = None, spool: Spool | None = None
) -> bytes:
    """The reference of a record; references sort by their hashes.

    Args:
        content: its `listed_content`, if it is at hand.

    Raises:
        BadInput, UnicodeEncodeError: as `encode`.
    """
    packed = pack_record(record, spool)
    digest = record_digest(record, listed_content(record) if content is None else content)
    return order_hash(record.key, seed) + digest + packed


def reference_shard(reference: bytes, num_shards: int) -> int:
    """The shard of a reference within its split."""
    return shard_of(reference[:HASH_BYTES], num_shards)


def reference_digest(reference: bytes) -> bytes:
    """The digest of what determines the bytes of a reference's record."""
    return reference[HASH_BYTES:_START]


def reference_record(reference: bytes, read: Read | None = None) -> ImageRecord:
    """The record of a reference; `read` as in `unpack_record`."""
    return unpack_record(reference[_START:], read)
