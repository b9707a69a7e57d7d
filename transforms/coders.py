"""Beam coders for records and failures: compact, and the same bytes for equal values."""

from __future__ import annotations

from typing import Any

import msgspec
from apache_beam import coders

from recordmill.transforms.records import Failure, ImageRecord
from recordmill.transforms.shards.references import encode


class StructCoder(coders.Coder):
    """A struct as msgpack; Beam's default coder takes several times as long."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def encode(self, value: object) -> bytes:
        return encode(value)

    def decode(self, encoded: bytes) -> Any:
        return msgspec.msgpack.decode(encoded, type=self._kind)

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> type:
        return self._kind

    @classmethod
    def from_type_hint(cls, typehint: type, registry: object) -> StructCoder:
        return cls(typehint)


coders.registry.register_coder(ImageRecord, StructCoder)
coders.registry.register_coder(Failure, StructCoder)
