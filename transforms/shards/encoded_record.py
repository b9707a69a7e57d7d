"""A record as it is written, and what it was made of."""

from __future__ import annotations

import dataclasses

from recordmill.transforms.records import Mapped, StoredImage
from recordmill.transforms.shards.counted import Counted


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedRecord:
    """A serialised Example, and what it is made of.

    Attributes:
        payload: the bytes.
        images: that it stores: one, none, or a frame a step.
        source_bytes: of them in the source.
        mapped: its annotations in the image.
        counted: what its features say of classes and boxes.
        annotations: fingerprint of what its masks are made from; empty where it has none.
        is_as_listed: whether its files were read as they were listed; false where one has changed since.
    """

    payload: bytes
    images: tuple[StoredImage, ...]
    source_bytes: int
    mapped: Mapped = Mapped()
    counted: Counted = Counted()
    annotations: str = ""
    is_as_listed: bool = True
