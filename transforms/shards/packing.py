"""ImageRecord as compact bytes: what is held in memory, and shuffled, for each image."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from enum import Enum
from json.encoder import encode_basestring
from typing import Any

import numpy as np

from transforms.records import Annotations, FeatureValue, ImageRecord, ImageRef
from transforms.shards.hashing import order_hash, shard_of

# In place of the key's own characters at the end of a URI. No path holds a NUL.
_KEY = "\0"
_HASH_BYTES = 8
_PLAIN = (str, int, float, bool, bytes)


def _other(value: Any) -> Any:
    """What JSON does not know: bytes, and what `plain_value` turns into plain types."""
    if isinstance(value, bytes):
        return {"b": base64.b64encode(value).decode("ascii")}
    return plain_value(value)


# Spares the search of `json.loads` for the encoding of bytes: a quarter of the time of unpacking.
_decode = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_other).encode


def plain_value(value: Any) -> FeatureValue:
    """A free feature as the plain types that `FeatureValue` names: numpy's, enums and lists too.

    Raises:
        TypeError: what no feature can hold.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return tuple(plain_value(item) for item in value)  # type: ignore[misc]
    if isinstance(value, _PLAIN):
        return value
    raise TypeError(f"a feature of type {type(value).__name__}; it may be text, bytes, a number or a list")


def plain_record(record: ImageRecord) -> ImageRecord:
    """`record` with free features of plain types: itself, where they all are.

    Raises:
        TypeError: names the record and the feature.
    """
    features = record.annotations.features
    if all(type(value) in _PLAIN for value in features.values()):
        return record
    plain = {}
    for name, value in features.items():
        try:
            plain[name] = plain_value(value)
        except TypeError as error:
            raise TypeError(f"record {record.key!r}, feature {name!r}: {error}") from error
    annotations = Annotations(record.annotations.labels, plain)
    return ImageRecord(record.key, record.image, record.split, annotations, record.origin, record.size)


def _feature(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_feature(item) for item in value)
    if isinstance(value, dict):
        return base64.b64decode(value["b"])
    return value


def content_text(record: ImageRecord) -> str:
    """What the listing says of a record, wherever it lies: equal for equal records."""
    annotations = record.annotations
    features = _encode(list(annotations.features.items())) if annotations.features else "[]"
    split = "null" if record.split is None else encode_basestring(record.split)
    key = encode_basestring(record.key)
    return f"[{key},{split},{record.size},{_labels(annotations.labels)},{features}]"


def pack_record(record: ImageRecord, content: str = "") -> bytes:
    """`record` as JSON: about 100 bytes and the length of its key, the same bytes for equal records.

    Args:
        record: to pack.
        content: its `content_text`, where that is known.

    Raises:
        UnicodeEncodeError: a text with lone surrogates.
    """
    return f"[{content or content_text(record)},{_place(record)},{encode_basestring(record.origin)}]".encode()


def unpack_record(packed: bytes) -> ImageRecord:
    """The record that `pack_record` packed."""
    (key, split, size, labels, features), place, origin = _decode(packed.decode())[0]
    image = None
    if place:
        uri, version, *extent = place
        if uri.endswith(_KEY):
            uri = uri[:-1] + key
        offset, length, pixels = extent or (0, None, None)
        image = ImageRef(uri, offset, length, tuple(pixels) if pixels else None, version)
    annotations = Annotations(tuple(labels), {name: _feature(value) for name, value in features})
    return ImageRecord(key, image, split, annotations, origin, size)


def pack_reference(record: ImageRecord, seed: int, content: str = "") -> bytes:
    """What is shuffled: the hash that decides shard and place, and the packed record; sorts by the hash."""
    return order_hash(record.key, seed) + pack_record(record, content)


def reference_shard(reference: bytes, num_shards: int) -> int:
    """The shard of a reference within its split."""
    return shard_of(reference[:_HASH_BYTES], num_shards)


def reference_record(reference: bytes) -> ImageRecord:
    """The record of a reference."""
    return unpack_record(reference[_HASH_BYTES:])


def without_origin(reference: bytes) -> bytes:
    """What of a reference decides about its record: all but where the source lists it, which comes last."""
    return reference[: reference.rfind(b',"')]


def _labels(labels: Sequence[str | int]) -> str:
    # Nearly all records: one label, a name.
    if len(labels) == 1 and isinstance(labels[0], str):
        return f"[{encode_basestring(labels[0])}]"
    return _encode(labels) if labels else "[]"


def _place(record: ImageRecord) -> str:
    """Where the image lies, and which state of it."""
    image = record.image
    if image is None:
        return "[]"
    uri = image.uri
    if uri.endswith(record.key):
        uri = uri[: -len(record.key)] + _KEY
    version = image.version
    if image.offset or image.length is not None or image.pixels is not None:
        length = "null" if image.length is None else image.length
        pixels = "null" if image.pixels is None else _encode(image.pixels)
        return f"[{encode_basestring(uri)},{version},{image.offset},{length},{pixels}]"
    return f"[{encode_basestring(uri)},{version}]"
