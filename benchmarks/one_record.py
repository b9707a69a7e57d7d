"""Converts a kept JPEG to a serialised Example, for the contenders other than recordmill."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from recordmill.transforms.examples.features import Feature, build_example
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image

_KEEP = ImagePolicy(validate="header")


class Photo(NamedTuple):
    """A file to convert: path, path below the input, id and name of its class."""

    path: str
    key: str
    label: int
    class_name: str


def list_photos(folder: Path) -> list[Photo]:
    """The files of <folder>/<class>/, classes numbered in the order of their names."""
    return [
        Photo(str(path), f"{names.name}/{path.name}", label, names.name)
        for label, names in enumerate(sorted(folder.iterdir()))
        for path in sorted(names.iterdir())
    ]


def photo_example(photo: Photo) -> bytes:
    """The Example that recordmill writes for a JPEG with --validate=header, by the same functions."""
    with open(photo.path, "rb", buffering=0) as file:
        image = store_image(file.read(), _KEEP)
    return build_example(
        {
            "image/encoded": Feature("bytes_list", (image.data,)),
            "image/format": Feature("bytes_list", (image.image_format.encode(),)),
            "image/height": Feature("int64_list", (image.height,)),
            "image/width": Feature("int64_list", (image.width,)),
            "image/class/label": Feature("int64_list", (photo.label,)),
            "image/class/text": Feature("bytes_list", (photo.class_name.encode(),)),
            "image/filename": Feature("bytes_list", (photo.key.encode(),)),
            "image/key/sha256": Feature("bytes_list", (hashlib.sha256(image.data).hexdigest().encode(),)),
        }
    )
