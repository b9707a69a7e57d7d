"""Entries of a source without what differs between a disk and a bucket."""

from __future__ import annotations

import dataclasses

from recordmill.transforms.records import Failure, ImageRecord


def without_place(item: ImageRecord | Failure) -> ImageRecord | Failure:
    """An entry without URI and version, and without what a message tells of places."""
    if isinstance(item, Failure):
        return dataclasses.replace(item, detail="")
    assert item.image is not None
    return dataclasses.replace(item, image=dataclasses.replace(item.image, uri="", version=0))
