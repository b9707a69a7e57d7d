"""Images and what lies beside them in a folder of its own: `images/train/1.jpg` and `labels/train/1.txt`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from typing import TypeVar

from recordmill.transforms.records import BadInput, Failure
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import is_split_name, name_stem, split_named
from recordmill.transforms.sources.small_files import read_files
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.files import is_folder, names_in
from recordmill.transforms.storage.paths import absolute, below, real_path

IMAGE_FOLDERS = frozenset(("images", "image", "imgs", "img", "jpegimages", "leftimg8bit"))
"""Names, in lower case, of folders that hold the images where another one holds their annotations."""

ORPHAN = "annotation without its image"
_LONGEST_TEXT = 1 << 26
_FIRST_NAMES = 10_000  # of a folder that may be one of splits, where calls wait for a service

_T = TypeVar("_T")


def root_of(config: SourceConfig) -> str:
    """The folder of the input; of a file, the one it lies in."""
    path = real_path(config.input)
    return path if is_folder(path) else real_path(os.path.dirname(absolute(config.input)))


def input_files(config: SourceConfig) -> Iterator[TreeFile | Failure]:
    """The files below the input, then those below image roots that are not in it or linked from it.

    A key is the path below the root that the file was found in.
    """
    root = root_of(config)
    roots = tuple(dict.fromkeys(map(real_path, config.image_roots)))
    visited = [root]
    several = bool(roots)
    taken: set[str] = set()
    linked: set[str] = set()
    for place in dict.fromkeys((root, *roots)):
        if place != root and (place in linked or any(place == one or below(one, place) for one in visited)):
            continue
        for item in Tree(place, (root, *roots), (*config.skip_dirs, *visited[place == root :])).files():
            if several and isinstance(item, TreeFile):
                if item.key in taken:
                    yield Failure(item.key, "list", "same path below two roots", f"{item.path} is left out")
                    continue
                taken.add(item.key)
                if item.path != f"{place}/{item.key}":
                    linked.update(one for one in roots if below(one, item.path) is not None)
            yield item
        visited.append(place)


def without_folder(path: str, names: Collection[str]) -> str:
    """A path without the last folder that is called, in any case, one of `names`."""
    *folders, name = path.split("/")
    for at in range(len(folders) - 1, -1, -1):
        if folders[at].lower() in names:
            del folders[at]
            break
    return "/".join((*folders, name))


def folder_split(key: str) -> str | None:
    """The split of an image by its first folder, or by the one in or around the folder `images`."""
    folders = key.split("/")[:-1]
    if folders and folders[0].lower() in IMAGE_FOLDERS:
        del folders[0]
    return split_named(folders[0]) if folders else None


def folder_splits(config: SourceConfig) -> tuple[str, ...]:
    """The splits that folders are named like, where `folder_split` finds them."""
    found: set[str | None] = set()
    for root in (root_of(config), *map(real_path, config.image_roots)):
        names = names_in(root, _FIRST_NAMES)
        inner = [name for name in names if name.lower() in IMAGE_FOLDERS and is_folder(f"{root}/{name}")]
        splits = filter(is_split_name, names)
        found.update(split_named(name) for name in splits if is_folder(f"{root}/{name}"))
        for folder in inner:
            place = f"{root}/{folder}"
            splits = filter(is_split_name, names_in(place, _FIRST_NAMES))
            found.update(split_named(name) for name in splits if is_folder(f"{place}/{name}"))
    return tuple(sorted(filter(None, found)))


def by_stem(keys: Iterable[str]) -> dict[str, list[str]]:
    """Keys by the file name without its extension."""
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(name_stem(key), []).append(key)
    return found


def with_texts(items: Iterable[tuple[_T, TreeFile | None]]) -> Iterator[tuple[_T, str | BadInput]]:
    """Each item with the text of its file, or why that cannot be read; empty where it has none."""
    wanted = (((item, file), None if file is None or not file.size else file) for item, file in items)
    for (item, file), data in read_files(wanted, _LONGEST_TEXT):
        yield item, _text(file, data)


def text_of(file: TreeFile) -> str | BadInput:
    """The text of a file, or why it cannot be read."""
    return next(with_texts([(file, file)]))[1]


def _text(file: TreeFile | None, data: bytes | BadInput) -> str | BadInput:
    if file is not None and file.size > _LONGEST_TEXT:
        return BadInput("annotations", "annotation file too large", f"{file.key} has {file.size} bytes")
    try:
        return data if isinstance(data, BadInput) else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return BadInput("annotations", "annotation file is not UTF-8", file.key if file is not None else "")
