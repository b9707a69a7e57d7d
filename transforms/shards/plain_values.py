"""Values of users' own pipelines as the plain types that records hold, and records as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec
import numpy as np

from recordmill.transforms.records import BadInput, FeatureValue, ImageRecord

_PLAIN = (bool, int, float, str, bytes)
_PLAIN_TYPES = frozenset(_PLAIN)


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
    for plain in _PLAIN:
        if isinstance(value, plain):
            return plain(value)  # type: ignore[arg-type]
    raise TypeError(f"a feature of type {type(value).__name__}; it may be text, bytes, a number or a list")


_encode = msgspec.msgpack.Encoder(enc_hook=plain_value).encode


def encode(value: object) -> bytes:
    """A record, or a part of one, as msgpack: equal bytes for equal values.

    Raises:
        BadInput: an integer of more than 64 bits.
        UnicodeEncodeError: a text with lone surrogates.
    """
    try:
        return _encode(value)
    except OverflowError as error:
        raise BadInput("build", "number out of range", "an integer does not fit int64") from error


def plain_record(record: ImageRecord) -> ImageRecord:
    """`record` with free features and attributes of plain types: itself if they all are.

    Raises:
        TypeError: names the record and the feature.
    """
    annotations = record.annotations
    if all(map(_are_plain, [annotations.features, *[one.attributes for one in annotations.objects]])):
        return record
    objects = tuple(
        msgspec.structs.replace(one, attributes=_plain_values(record, one.attributes))
        for one in annotations.objects
    )
    features = _plain_values(record, annotations.features)
    annotations = msgspec.structs.replace(annotations, features=features, objects=objects)
    return msgspec.structs.replace(record, annotations=annotations)


def _are_plain(values: Mapping[str, Any]) -> bool:
    return not values or _PLAIN_TYPES.issuperset(map(type, values.values()))


def _plain_values(record: ImageRecord, values: Mapping[str, Any]) -> dict[str, Any]:
    plain = {}
    for name, value in values.items():
        try:
            plain[name] = plain_value(value)
        except TypeError as error:
            raise TypeError(f"record {record.key!r}, feature {name!r}: {error}") from error
    return plain
