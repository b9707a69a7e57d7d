"""Lists of images, a path a line: of data.yaml, of darknet's obj.data, or beside a YOLO tree."""

from __future__ import annotations

import io
import os
import posixpath
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from recordmill.transforms.records import Failure
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import is_unicode, printable
from recordmill.transforms.sources.pairs import (
    root_of,
)
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.sources.yolo.dataset import ImageSet, YoloDataset
from recordmill.transforms.storage.confinement import OUTSIDE, Confinement
from recordmill.transforms.storage.files import is_file, open_file
from recordmill.transforms.storage.paths import absolute, below, is_absolute, real_path

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
    found = next(place for root in roots if is_file(place := f"{root}/{listed.where}"))
    path = Confinement(roots).leads_to(found)
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

    A relative path may begin at another folder, and an absolute path may be of another computer: the first
    folders may be missing on disk.
    """
    path = text if "/" in text else text.replace("\\", "/")
    if is_absolute(path):
        tidy = absolute(path)
        inside = [key for root in roots if (key := below(root, tidy)) is not None]
    else:
        tidied = [posixpath.normpath(posixpath.join(base, path)) for base in dict.fromkeys(bases)]
        inside = [key for key in tidied if key != ".." and not key.startswith("../")]
    found = next((key for key in inside if key in images), None) or _by_tail(path, bases, images)
    return found or ("" if inside else None)


def _by_tail(path: str, bases: tuple[str, ...], images: Mapping[str, TreeFile]) -> str | None:
    """The image found by as many of the last parts of a path as possible."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    tails = ("/".join(parts[at:]) for at in range(len(parts)))
    keys = (f"{base}/{tail}".lstrip("/") for tail in tails for base in bases)
    return next((key for key in keys if key in images), None)
