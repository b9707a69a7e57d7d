"""Source `folder`: image files in folders that are splits and labels.

`<label>/…`, `<split>/<label>/…`, `<split>/…` or no folders at all; the folders are splits when every
one at the first level that holds images is named like a split. Below the label's folder any depth goes.
"""

from __future__ import annotations

import collections
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from recordmill.transforms.records import Annotations, BadInput, Failure, ImageRecord, ImageRef
from recordmill.transforms.sources.config import SourceConfig, readable
from recordmill.transforms.sources.names import (
    HIDDEN,
    NOT_AN_IMAGE,
    failed,
    is_image_name,
    next_in_split_name,
    split_named,
)
from recordmill.transforms.sources.outline import links_outside
from recordmill.transforms.sources.selection import (
    EXCLUDED,
    NO_LABEL,
    Selection,
    why_nothing,
)
from recordmill.transforms.sources.source import Description, Items, Source
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.file_system import Entry, file_system
from recordmill.transforms.storage.files import is_file, is_folder
from recordmill.transforms.storage.listing import entries
from recordmill.transforms.storage.name_parts import EVERYTHING, KeyRange, name_parts
from recordmill.transforms.storage.paths import real_path

_SNIFFED_REMOTE = 10_000  # files without an image, where calls wait for a service; else there is no limit
_SEARCHED = 10  # folders next to splits that are searched for an image; where there are more, all are labels


class FolderPart(NamedTuple):
    """Some of the files below a folder.

    Attributes:
        keys: of them.
        has_splits: whether the first-level folders of the input are splits; None where it has to be found.
    """

    keys: KeyRange = EVERYTHING
    has_splits: bool | None = None


_ALL = FolderPart()


class FolderSource(Source):
    """Lists image files below a folder."""

    name = "folder"
    description = Description(
        reads="image files at any depth, or one image file",
        label="the folder below the input, or below the split",
        split="the first-level folders, when all of them that hold images are named like a split",
        key="path below the input",
        example="photos/\n  train/\n    cat/\n      1.jpg\n    dog/\n      2.png\n  "
        "test/\n    cat/\n      3.jpg",
    )

    def check_input(self, config: SourceConfig) -> None:
        if is_file(config.input) and not is_image_name(config.input):
            raise ValueError(f"--input is {config.input!r}, a file that is not an image by its name")
        reasons: collections.Counter[str] = collections.Counter()
        examples: dict[str, str] = {}
        for item in _Listing(config).items(_ALL):
            if isinstance(item, ImageRecord):
                return
            reasons[item.reason] += 1
            examples.setdefault(item.reason, item.key)
            if file_system(config.input).has_latency and reasons.total() >= _SNIFFED_REMOTE:
                return  # the job will see
        example = examples.get(NO_LABEL) or examples.get(EXCLUDED, "")
        if (why := why_nothing(config, reasons, example)) is not None:
            raise ValueError(why)
        found = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common()) or "it is empty"
        links = links_outside(config)
        raise ValueError(f"--input is {config.input!r}: there is no image to convert ({found}){links}")

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            return first_level_splits(config)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _Listing(config).items(_ALL)

    def parts(self, config: SourceConfig, most: int) -> Iterator[FolderPart]:
        path = real_path(config.input)
        system = file_system(path)
        tree = Tree(path, config.image_roots, config.skip_dirs)
        ranges = (
            name_parts(path, most, tree.enters) if system.has_latency and not is_file(path) else [EVERYTHING]
        )
        if len(ranges) == 1:
            yield _ALL
            return
        has_splits = _names_split(path) and bool(first_level_splits(config, system.list(path)))
        yield from (FolderPart(keys, has_splits) for keys in ranges)

    def part_items(self, config: SourceConfig, scratch: str, part: FolderPart) -> Items:
        yield from _Listing(config).items(part)


class _Listing:
    """One walk over the input, in code-point order of the keys. Holds one folder's names a level.

    Attributes:
        splits: named by the first-level folders; found when `items` lists them.
    """

    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._selection = Selection(config)
        self._takes_all = not (config.include or config.exclude)
        self._path = real_path(config.input)
        self._is_file = is_file(self._path)
        folder = os.path.dirname(self._path) if self._is_file else self._path
        self._tree = Tree(folder, config.image_roots, config.skip_dirs, self._passes_over)
        self._has_splits = False
        self.splits: tuple[str, ...] = ()
        self._last: tuple[str, str | None, Annotations] = ("", None, Annotations())

    def items(self, part: FolderPart) -> Iterator[ImageRecord | Failure]:
        """Walks the input, or a part of it."""
        if self._is_file:
            yield self._item(self._tree.file(os.path.basename(self._path)))
            return
        find = self._find_splits if part.has_splits is None else None
        self._has_splits = bool(part.has_splits)
        yield from map(self._item, self._tree.files(on_listed=find, keys=part.keys))

    def _find_splits(self, found: list[Entry]) -> None:
        self.splits = first_level_splits(self._config, found)
        self._has_splits = bool(self.splits)

    def _passes_over(self, key: str) -> str | None:
        return _not_an_image(key) or (None if self._takes_all or self._selection.takes(key) else EXCLUDED)

    def _item(self, file: TreeFile | Failure) -> ImageRecord | Failure:
        if isinstance(file, Failure):
            return file
        key, path, size, version = file
        folder, split, annotations = self._last
        if key.rpartition("/")[0] != folder:
            *folders, _ = key.split("/")
            split = split_named(folders[0]) if self._has_splits and folders else None
            annotations = Annotations(tuple(folders[split is not None :][:1]))
            self._last = "/".join(folders), split, annotations
        if self._config.label_pattern is not None:
            try:
                annotations = Annotations(self._selection.labels(key, ()))
            except BadInput as fault:
                return failed(key, fault)
        return ImageRecord(key, ImageRef(path, version=version), split, annotations, size=size)


def first_level_splits(config: SourceConfig, found: Iterable[Entry] | None = None) -> tuple[str, ...]:
    """The splits that the first-level folders of an input are: all named so, if no other one holds an image.

    Args:
        config: of the source.
        found: what is in the folder, if that is listed already.

    Raises:
        OSError: the input cannot be listed.
    """
    if found is None:
        found = entries(real_path(config.input)) if is_folder(config.input) else ()
    tree = Tree(config.input, config.image_roots, config.skip_dirs, _not_an_image)
    names = [entry.basename for entry in found if entry.name.endswith("/")]
    splits = {name: split_named(name) for name in names if not tree.leaves_out(name)}
    others = [name for name, split in splits.items() if split is None]
    if len(others) == len(splits) or len(others) > _SEARCHED:
        return ()
    for item in itertools.chain.from_iterable(tree.files(f"{name}/") for name in others):
        if isinstance(item, TreeFile) or (is_image_name(item.key) and item.reason != HIDDEN):
            return ()
    return tuple(sorted({split for split in splits.values() if split is not None}))


def _not_an_image(key: str) -> str | None:
    return None if is_image_name(key) else NOT_AN_IMAGE


def _names_split(folder: str) -> bool:
    """Whether a folder in a folder is named like a split, without listing them all."""
    system = file_system(folder)
    spelled = [""]
    while spelled:
        asked = sorted(f"{one}{char}" for one in spelled for char in next_in_split_name(one))
        found = system.each(lambda prefix: bool(system.list_page(folder, prefix, most=1)[0]), asked)
        spelled = [prefix for prefix, is_there in zip(asked, found, strict=True) if is_there]
        if any(prefix.endswith("/") for prefix in spelled):
            return True
    return False
