"""Entries of a source without what differs between a disk and a bucket."""

from __future__ import annotations

import msgspec

from recordmill.transforms.records import Failure, ImageRecord


def without_place(item: ImageRecord | Failure) -> ImageRecord | Failure:
    """An entry without URI and version, and without what a message tells of places."""
    if isinstance(item, Failure):
        return msgspec.structs.replace(item, detail="")
    assert item.image is not None
    return msgspec.structs.replace(item, image=msgspec.structs.replace(item.image, uri="", version=0))
