"""Lists of images, a path a line: of data.yaml, of darknet's obj.data, or beside a YOLO tree."""

from __future__ import annotations

import io
import os
import posixpath
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from transforms.records import Failure
from transforms.sources.formats.masks_pairs import root_of
from transforms.sources.formats.yolo_dataset import ImageSet, YoloDataset
from transforms.sources.names import is_unicode, printable
from transforms.sources.source import SourceConfig
from transforms.sources.tree import TreeFile
from transforms.storage.paths import OUTSIDE, absolute, below, is_remote, real_path
from transforms.storage.places import is_file, open_file

_LONGEST = 1 << 16


class ListedImage(NamedTuple):
    """An image that a list has, and where."""

    key: str
    image: TreeFile
    origin: str


def listed_images(
    config: SourceConfig, dataset: YoloDataset, listed: ImageSet, images: Mapping[str, TreeFile]
) -> Iterator[ListedImage | Failure]:
    """The images of a list, in its order."""
    roots = [root_of(config), *map(real_path, config.image_roots)]
    path = next(place for root in roots if is_file(place := f"{root}/{listed.where}"))
    bases = (posixpath.dirname(listed.where), dataset.base, "")
    written = (*roots, absolute(config.input))
    seen: set[str] = set()
    with io.TextIOWrapper(open_file(path), encoding="utf-8-sig", errors="surrogateescape") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(_LONGEST), ""), 1):
            if not (text := line.strip()):
                continue
            origin = f"{os.path.basename(listed.where)}, line {number}"
            key = _key(text, bases, written, images)
            if key is None or not is_unicode(text):
                reason = OUTSIDE if key is None else "not found"
                yield Failure(printable(text), "annotations", reason, printable(origin))
            elif key not in images:
                yield Failure(text, "annotations", "not found", origin)
            elif key in seen:
                yield Failure(key, "list", "image listed twice", origin, skipped=True)
            else:
                seen.add(key)
                yield ListedImage(key, images[key], origin)


def _key(
    text: str, bases: tuple[str, ...], roots: tuple[str, ...], images: Mapping[str, TreeFile]
) -> str | None:
    """The key of a listed image, an empty one where it is not there; None where the path leads outside.

    A relative path begins at a folder that is not known: its first folders may be missing on disk.
    """
    path = text if "/" in text else text.replace("\\", "/")
    if path.startswith("/") or is_remote(path):
        tidy = path if is_remote(path) else posixpath.normpath(path)
        return next((key for root in roots if (key := below(root, tidy)) is not None), None)
    tidied = [posixpath.normpath(posixpath.join(base, path)) for base in dict.fromkeys(bases)]
    inside = [key for key in tidied if key != ".." and not key.startswith("../")]
    if not inside:
        return None
    parts = posixpath.normpath(path).lstrip("./").split("/")
    tails = ("/".join(parts[at:]) for at in range(1, len(parts)))
    return next((key for key in (*inside, *tails) if key in images), "")
