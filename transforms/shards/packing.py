"""ImageRecord as compact bytes: what is held in memory, and shuffled, for each image."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from json.encoder import encode_basestring
from typing import Any, NamedTuple

import numpy as np

from recordmill.transforms.records import Annotations, FeatureValue, ImageRecord, ImageRef
from recordmill.transforms.shards.annotation_json import (
    details,
    has_details,
    read_ref,
    ref_identity,
    ref_json,
    with_details,
)
from recordmill.transforms.shards.hashing import order_hash, shard_of
from recordmill.transforms.storage.spool import Spool

# In place of the key's own characters at the end of a URI. No path holds a NUL.
_KEY = "\0"
_HASH_BYTES = 8
# Before what decides nothing about a record. JSON escapes the line ends that are in texts.
_UNDECIDING = "\n,"
# Bytes of annotations that a reference holds: more are spooled.
_HELD = 192
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
    """`record` with free features and attributes of plain types: itself, where they all are.

    Raises:
        TypeError: names the record and the feature.
    """
    annotations = record.annotations
    features = annotations.features
    if all(type(value) in _PLAIN for value in features.values()) and not annotations.objects:
        return record
    objects = tuple(
        one
        if all(type(value) in _PLAIN for value in one.attributes.values())
        else dataclasses.replace(one, attributes=_plain_values(record, one.attributes))
        for one in annotations.objects
    )
    annotations = dataclasses.replace(annotations, features=_plain_values(record, features), objects=objects)
    return dataclasses.replace(record, annotations=annotations)


def _plain_values(record: ImageRecord, values: Mapping[str, Any]) -> dict[str, Any]:
    plain = {}
    for name, value in values.items():
        try:
            plain[name] = plain_value(value)
        except TypeError as error:
            raise TypeError(f"record {record.key!r}, feature {name!r}: {error}") from error
    return plain


def _feature(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_feature(item) for item in value)
    if isinstance(value, dict):
        return base64.b64decode(value["b"])
    return value


class Content(NamedTuple):
    """What the listing says of a record.

    Attributes:
        text: all of it, wherever it lies: equal for equal records. JSON.
        refs: the files that its annotations speak of, as JSON; empty where there are none.
        spooled: where the annotations are that `text` holds a digest of, as JSON; empty where it has them.
        is_detailed: there is more than labels and free features.
    """

    text: str
    refs: str = ""
    spooled: str = ""
    is_detailed: bool = False


def content_of(record: ImageRecord, spool: Spool | None = None) -> tuple[Content, Content]:
    """What the listing says of a record; in full, and as it is held.

    Args:
        record: to describe.
        spool: takes annotations that are large; None to hold them.
    """
    annotations = record.annotations
    features = _encode(list(annotations.features.items())) if annotations.features else "[]"
    split = "null" if record.split is None else encode_basestring(record.split)
    key = encode_basestring(record.key)
    start = f"[{key},{split},{record.size},{_labels(annotations.labels)},{features}"
    if not has_details(annotations):
        plain = Content(f"{start}]")
        return plain, plain
    found, files = details(annotations)
    told = _encode(found)
    refs = _encode([ref_json(ref) for ref in files]) if files else ""
    full = Content(f"{start},{told}]", refs, is_detailed=True)
    if spool is None or len(told) + len(refs) <= _HELD:
        return full, full
    packed = f"[{told},{refs or '[]'}]".encode()
    # What sources unpack lies elsewhere in every run.
    lasting = f"[{told},{_encode([ref_identity(ref) for ref in files])}]".encode()
    digest = hashlib.blake2b(lasting, digest_size=16).hexdigest()
    return full, Content(f'{start},"{digest}"]', "", _encode(ref_json(spool.add(packed))), True)


def pack_record(record: ImageRecord, content: Content | None = None) -> bytes:
    """`record` as JSON: about 100 bytes and the length of its key, the same bytes for equal records.

    Args:
        record: to pack.
        content: its `content_of`, where that is known.

    Raises:
        UnicodeEncodeError: a text with lone surrogates.
    """
    text, refs, spooled, is_detailed = content or content_of(record)[0]
    origin = encode_basestring(record.origin)
    if is_detailed:
        refs = f",{refs}" if refs else ""
        spooled = f",{spooled}" if spooled else ""
        return f"[{text},{_place(record)}{refs}{_UNDECIDING}{origin}{spooled}]".encode()
    return f"[{text},{_place(record)}{_UNDECIDING}{origin}]".encode()


def unpack_record(packed: bytes, read: Callable[[ImageRef], bytes] | None = None) -> ImageRecord:
    """The record that `pack_record` packed.

    Args:
        packed: the record.
        read: reads annotations that were spooled; None to leave them out.
    """
    text = packed.decode()
    (content, place, *refs), _ = _decode(f"{text[: text.rfind(_UNDECIDING)]}]")
    key, split, size, labels, features, *found = content
    origin, *spooled = _decode(f"[{text[text.rfind(_UNDECIDING) + len(_UNDECIDING) :]}")[0]
    image = None
    if place:
        uri, version, *extent = place
        if uri.endswith(_KEY):
            uri = uri[:-1] + key
        offset, length, pixels, *wrapping = extent or (0, None, None)
        image = ImageRef(uri, offset, length, tuple(pixels) if pixels else None, version, *wrapping)
    annotations = Annotations(tuple(labels), {name: _feature(value) for name, value in features})
    if found and spooled:
        found = _decode(read(read_ref(spooled[0])).decode())[0] if read is not None else []
        refs = found[1:]
    if found:
        files = [read_ref(ref) for ref in (refs[0] if refs else ())]
        annotations = with_details(annotations, found[0], files, _feature)
    return ImageRecord(key, image, split, annotations, origin, size)


def pack_reference(record: ImageRecord, seed: int, content: Content | None = None) -> bytes:
    """What is shuffled: the hash that decides shard and place, and the packed record; sorts by the hash."""
    return order_hash(record.key, seed) + pack_record(record, content)


def reference_shard(reference: bytes, num_shards: int) -> int:
    """The shard of a reference within its split."""
    return shard_of(reference[:_HASH_BYTES], num_shards)


def reference_record(reference: bytes, read: Callable[[ImageRef], bytes] | None = None) -> ImageRecord:
    """The record of a reference; `read` as in `unpack_record`."""
    return unpack_record(reference[_HASH_BYTES:], read)


def without_origin(reference: bytes) -> bytes:
    """What of a reference decides about its record: all but where the source lists it, and what it spools."""
    return reference[: reference.rfind(_UNDECIDING.encode())]


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
    if image.offset or image.length is not None or image.pixels is not None or image.wrapping:
        length = "null" if image.length is None else image.length
        pixels = "null" if image.pixels is None else _encode(image.pixels)
        wrapping = f",{encode_basestring(image.wrapping)}" if image.wrapping else ""
        return f"[{encode_basestring(uri)},{version},{image.offset},{length},{pixels}{wrapping}]"
    return f"[{encode_basestring(uri)},{version}]"
