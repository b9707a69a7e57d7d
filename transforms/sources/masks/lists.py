"""Lists of the images of a split: a name a line, or as CamVid the paths of image and mask."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from recordmill.transforms.records import Failure
from recordmill.transforms.sources.names import extension_of, is_split_name, normal_split, printable, stem_of
from recordmill.transforms.storage.confinement import OUTSIDE, Confinement
from recordmill.transforms.storage.files import names_in, open_file

_ROOT_NAMES = 10_000
_LONGEST = 1 << 16


class ListedPair(NamedTuple):
    """A listed image, the mask that the list gives it, if any, and where."""

    key: str
    mask: str | None
    origin: str


def is_split_list(key: str) -> bool:
    """Whether a file at the root is called like a list of a split's images."""
    return "/" not in key and extension_of(key) == "txt" and is_split_name(key[:-4])


def split_lists(root: str) -> dict[str, str]:
    """The split of each list at a root, by path."""
    names = sorted(filter(is_split_list, names_in(root, _ROOT_NAMES)))
    return {f"{root}/{name}": normal_split(name[:-4]) for name in names}


def listed_pairs(
    path: str, within: Confinement, images: Iterable[str], files: Collection[str]
) -> Iterator[ListedPair | Failure]:
    """What a list has, in its order.

    Args:
        path: of the list.
        within: where it has to lie, links followed.
        images: keys of the images.
        files: keys of images and masks.
    """
    tails = _tails(images)
    every = _tails(files)
    name = os.path.basename(path)
    seen: set[str] = set()
    with io.TextIOWrapper(
        open_file(within.leads_to(path)), encoding="utf-8-sig", errors="surrogateescape"
    ) as lines:
        for number, line in enumerate(iter(lambda: lines.readline(_LONGEST), ""), 1):
            if not (text := line.strip()):
                continue
            origin = f"{name}, line {number}"
            found = _pair(text, tails, every)
            if isinstance(found, str):
                yield Failure(printable(text), "annotations", found, origin)
            elif found[0] in seen:
                yield Failure(found[0], "list", "image listed twice", origin, skipped=True)
            else:
                seen.add(found[0])
                yield ListedPair(*found, origin)


def _tails(keys: Iterable[str]) -> dict[str, str | None]:
    """Keys by what lists call them: the path, its last two parts, the name; with extension or without.

    None where several files are called so.
    """
    found: dict[str, str | None] = {}
    for key in keys:
        parts = key.split("/")
        names = {key, "/".join(parts[-2:]), parts[-1]}
        for one in names | set(map(stem_of, names)):
            found[one] = key if found.get(one, key) == key else None
        found[key] = key
    return found


def _pair(
    text: str, images: dict[str, str | None], files: dict[str, str | None]
) -> tuple[str, str | None] | str:
    """The image and the mask of a line; or why there is none."""
    if ".." in re.split(r"[/\s]", text):
        return OUTSIDE
    if key := _look(text, images):
        return key, None
    first, *others = re.split(r"[\s,]+", text, maxsplit=1)
    key = _look(first, images)
    if key is None:
        return "not found"
    mask = _look(others[0], files) if others and "/" in others[0] else None
    if others and "/" in others[0] and mask is None:
        return "mask not found"
    return key, mask


def _look(path: str, keys: dict[str, str | None]) -> str | None:
    path = path.strip().lstrip("/").removeprefix("./")
    return keys.get(path) or keys.get("/".join(path.split("/")[-2:]))
