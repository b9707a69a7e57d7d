"""Images with a separate annotation file each: `images/train/1.jpg` and `labels/train/1.txt`."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from recordmill.transforms.records import BadInput, Failure
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import extension_of, failed, skipped, split_named
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.files import is_folder, names_in, open_file
from recordmill.transforms.storage.paths import absolute, below, real_path

IMAGE_FOLDERS = frozenset(("images", "image", "imgs", "img", "jpegimages", "leftimg8bit"))
"""Names, in lower case, of folders of images that lie next to a folder of annotations."""

ORPHAN = "annotation without its image"
ROOT_NAMES = 10_000
"""Names that are listed in the input folder, or in a folder that may contain splits, of a bucket."""

_LONGEST_LINE = 1 << 16


class ImageSet(NamedTuple):
    """The images of one split: in a folder, or in a list."""

    split: str  # as in the description of the dataset
    text: str  # path in the description
    key: str | None  # path below a root; empty for the root itself, None if it does not exist
    list_path: str = ""  # real path of the list; empty for a folder


_Find = Callable[[str, ImageSet], tuple[str, str | None]]


class Listed(NamedTuple):
    """An image of a split."""

    key: str
    split: str | None = None
    origin: str = ""  # the line of a list that names it
    annotation: str | None = None  # in that line


def root_of(config: SourceConfig) -> str:
    """The input folder, or the folder of an input file."""
    path = real_path(config.input)
    return path if is_folder(path) else real_path(os.path.dirname(absolute(config.input)))


def input_files(config: SourceConfig, unique: bool = True) -> Iterator[tuple[str, TreeFile | Failure]]:
    """The files in the input, then those in image roots that the input does not contain or link to.

    Each comes with its root; its key is the path below that. If keys are to be `unique`, a file with the key
    of another one is a failure.
    """
    roots = tuple(dict.fromkeys((root_of(config), *map(real_path, config.image_roots))))
    visited: list[str] = []
    taken: set[str] = set()
    linked: set[str] = set()
    for root in roots:
        if root in linked or any(below(one, root) for one in visited):
            continue
        for item in Tree(root, roots, (*config.skip_dirs, *visited)).files():
            if len(roots) > 1 and isinstance(item, TreeFile):
                if unique and item.key in taken:
                    yield root, repeated_key(item)
                    continue
                taken.add(item.key)
                if item.path != f"{root}/{item.key}":
                    linked.update(one for one in roots[1:] if below(one, item.path) is not None)
            yield root, item
        visited.append(root)


def repeated_key(file: TreeFile) -> Failure:
    """The failure of a file that has the path of another one, below another root."""
    return Failure(file.key, "list", "same path below two roots", f"{file.path} is left out")


def without_folder(path: str, names: Collection[str]) -> str:
    """A path without the last folder whose name, in lower case, is one of `names`."""
    parts = path.split("/")
    for at in range(len(parts) - 2, -1, -1):
        if parts[at].lower() in names:
            del parts[at]
            break
    return "/".join(parts)


def folder_split(key: str) -> str | None:
    """The split in the name of an image's first folder, or of the one inside `images`."""
    folders = key.split("/")[:-1]
    if folders and folders[0].lower() in IMAGE_FOLDERS:
        del folders[0]
    return split_named(folders[0]) if folders else None


def folder_splits(config: SourceConfig) -> tuple[str, ...]:
    """The splits in the names of folders, where `folder_split` looks for them."""
    roots = (root_of(config), *map(real_path, config.image_roots))
    paths = [f"{root}/{name}" for root in roots for name in names_in(root, ROOT_NAMES)]
    around = [path for path in paths if path.rpartition("/")[2].lower() in IMAGE_FOLDERS and is_folder(path)]
    paths += [f"{folder}/{name}" for folder in around for name in names_in(folder, ROOT_NAMES)]
    named = ((split_named(path.rpartition("/")[2]), path) for path in paths)
    return tuple(sorted({split for split, path in named if split and is_folder(path)}))


def is_split_list(key: str) -> bool:
    """Whether a file is at the root and named like a list of the images of a split: `train.txt`."""
    return "/" not in key and extension_of(key) == "txt" and split_named(key[:-4]) is not None


def images_of_splits(
    images: Collection[str],
    sets: Sequence[ImageSet],
    find: _Find,
    split_of: Callable[[str], str | None] = folder_split,
) -> Iterator[Listed | Failure]:
    """The images of each set, then those in none; without sets all images, with the splits of their keys.

    `find` returns the key of the image in a line of a list, and the key of its annotation if the line has
    one. It raises BadInput if there is no such image.
    """
    if all(one.key is None for one in sets):
        yield from (Listed(key, split_of(key)) for key in images)
        return
    seen: set[str] = set()
    for one in sets:
        if one.key is None:
            yield skipped(one.text, "named images are not there", f"of {one.split}")
            continue
        folder = f"{one.key}/".lstrip("/")
        inner = (Listed(key, one.split) for key in images if key.startswith(folder) and key not in seen)
        for item in _read_list(one, find) if one.list_path else inner:
            if isinstance(item, Listed):
                seen.add(item.key)
            yield item
    yield from (skipped(key, "image in no split") for key in images if key not in seen)


def _read_list(one: ImageSet, find: _Find) -> Iterator[Listed | Failure]:
    seen: set[str] = set()
    name = (one.key or "").rpartition("/")[2]
    file = open_file(one.list_path)
    with io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(_LONGEST_LINE), ""), 1):
            if not (text := line.strip()):
                continue
            origin = f"{name}, line {number}"
            try:
                key, annotation = find(text, one)
            except BadInput as fault:
                fault.detail = origin
                yield failed(text, fault)
                continue
            if key in seen:
                yield skipped(key, "image listed twice", origin)
            else:
                seen.add(key)
                yield Listed(key, one.split, origin, annotation)
