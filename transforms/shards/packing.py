"""ImageRecord as compact bytes: what is held in memory, and shuffled, for each image."""

from __future__ import annotations

import base64
import json
from typing import Any

from transforms.records import Annotations, ImageRecord, ImageRef
from transforms.shards.hashing import order_hash, shard_of

# In place of the key's own characters at the end of a URI. No path holds a NUL.
_KEY = "\0"
_HASH_BYTES = 8


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"b": base64.b64encode(value).decode("ascii")}
    raise TypeError(
        f"a feature of type {type(value).__name__}; it may be str, int, float, bool, bytes or a tuple"
    )


def _feature(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_feature(item) for item in value)
    if isinstance(value, dict):
        return base64.b64decode(value["b"])
    return value


def pack_record(record: ImageRecord) -> bytes:
    """`record` as JSON: about 100 bytes and the length of its key, the same bytes for equal records.

    Raises:
        UnicodeEncodeError: a text with lone surrogates.
    """
    image = record.image
    place: list[Any] = []
    if image is not None:
        uri = image.uri
        if uri.endswith(record.key):
            uri = uri[: -len(record.key)] + _KEY
        place = [uri]
        if image.offset or image.length is not None or image.pixels is not None:
            place += [image.offset, image.length, image.pixels]
    annotations = record.annotations
    fields = (
        record.key,
        record.split,
        record.size,
        record.origin,
        place,
        annotations.labels,
        list(annotations.features.items()),
    )
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=_plain).encode("utf-8")


def pack_reference(record: ImageRecord, seed: int) -> bytes:
    """What is shuffled: the hash that decides shard and place, and the packed record; sorts by the hash."""
    return order_hash(record.key, seed) + pack_record(record)


def reference_shard(reference: bytes, num_shards: int) -> int:
    """The shard of a reference within its split."""
    return shard_of(reference[:_HASH_BYTES], num_shards)


def reference_record(reference: bytes) -> ImageRecord:
    """The record of a reference."""
    return unpack_record(reference[_HASH_BYTES:])


def unpack_record(packed: bytes) -> ImageRecord:
    """The record that `pack_record` packed."""
    key, split, size, origin, place, labels, features = json.loads(packed)
    image = None
    if place:
        uri = place[0]
        if uri.endswith(_KEY):
            uri = uri[:-1] + key
        offset, length, pixels = place[1:] or (0, None, None)
        image = ImageRef(uri, offset, length, tuple(pixels) if pixels else None)
    annotations = Annotations(tuple(labels), {name: _feature(value) for name, value in features})
    return ImageRecord(key, image, split, annotations, origin, size)
