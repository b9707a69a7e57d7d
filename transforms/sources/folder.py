"""Source `folder`: image files in folders that tell split and label.

`<label>/…`, `<split>/<label>/…`, `<split>/…` or no folders at all; the folders are splits when every
one at the first level that holds images is named like a split. Below the label's folder any depth goes.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from recordmill.transforms.records import Annotations, BadInput, Failure, ImageRecord, ImageRef
from recordmill.transforms.sources.config import (
    SourceConfig,
    check_input_exists,
    check_unused,
    readable,
)
from recordmill.transforms.sources.names import (
    HIDDEN,
    IMAGE_EXTENSIONS,
    NOT_AN_IMAGE,
    extension_of,
    failed,
    is_image_name,
    is_split_name,
    next_in_split_name,
    normal_split,
)
from recordmill.transforms.sources.outline import check_roots_used, links_outside
from recordmill.transforms.sources.selection import (
    EXCLUDED,
    NO_LABEL,
    Selection,
    check_selection,
    label_pattern,
    why_nothing,
)
from recordmill.transforms.sources.source import (
    Description,
    Items,
    Source,
    listing_faults,
)
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.file_system import Entry, file_system
from recordmill.transforms.storage.files import is_file, is_folder
from recordmill.transforms.storage.listing import entries
from recordmill.transforms.storage.name_parts import EVERYTHING, KeyRange, name_parts
from recordmill.transforms.storage.paths import real_path

_SNIFFED_REMOTE = 10_000  # files without an image, where calls wait for a service; else there is no limit
_SEARCHED = 10  # folders beside splits that are searched for an image; where there are more, all are labels


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

    def check(self, config: SourceConfig) -> None:
        check_input_exists(config)
        check_unused(config, self.name, "annotations", "image_column", "label_column")
        check_roots_used(config, self.name)
        check_selection(config)
        reasons: collections.Counter[str] = collections.Counter()
        examples: dict[str, str] = {}
        with readable("--input", config.input):
            if is_file(config.input) and not is_image_name(config.input):
                raise ValueError(f"--input is {config.input!r}, a file that is not an image by its name")
            for item in _items(config):
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
            return _Listing(config).split_names()

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ()

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _items(config)

    def parts(self, config: SourceConfig, most: int) -> Iterator[FolderPart]:
        with listing_faults():
            yield from _Listing(config).parts(most)

    def part_items(self, config: SourceConfig, scratch: str, part: FolderPart) -> Items:
        yield from _Listing(config).items(part)


class FolderPart(NamedTuple):
    """Some of the files below a folder.

    Attributes:
        keys: of them.
        has_splits: whether the first-level folders of the input are splits; None where it has to be found.
    """

    keys: KeyRange = EVERYTHING
    has_splits: bool | None = None


_ALL = FolderPart()


def _items(config: SourceConfig) -> Iterator[ImageRecord | Failure]:
    yield from _Listing(config).items(_ALL)


class _Listing:
    """One walk over the input, in code-point order of the keys. Holds one folder's names a level.

    Attributes:
        splits: named by the first-level folders; known once `items` has listed them.
    """

    def __init__(self, config: SourceConfig) -> None:
        self._selection = Selection(config)
        self._label_pattern = label_pattern(config)
        self._path = real_path(config.input)
        self._is_file = is_file(self._path)
        folder = os.path.dirname(self._path) if self._is_file else self._path
        self._takes_all = not (config.include or config.exclude)
        self._tree = Tree(folder, config.image_roots, config.skip_dirs, self._passed_over)
        self._has_splits = False
        self.splits: tuple[str, ...] = ()
        self._told: tuple[str, str | None, Annotations] = ("", None, Annotations())

    def items(self, part: FolderPart) -> Iterator[ImageRecord | Failure]:
        """Walks the input, or a part of it."""
        if self._is_file:
            yield self._item(self._tree.file(os.path.basename(self._path)))
            return
        learn = self._learn_splits if part.has_splits is None else None
        self._has_splits = bool(part.has_splits)
        yield from map(self._item, self._tree.files(on_listed=learn, keys=part.keys))

    def parts(self, most: int) -> Iterator[FolderPart]:
        """Parts of about as many files each, where listing takes its time; else one."""
        if self._is_file or not file_system(self._path).has_latency:
            yield _ALL
            return
        ranges = name_parts(self._path, most, self._tree.enters)
        if len(ranges) == 1:
            yield _ALL
            return
        has_splits = _names_split(self._path) and bool(self._splits(_folders_in(self._path)))
        yield from (FolderPart(keys, has_splits) for keys in ranges)

    def split_names(self) -> tuple[str, ...]:
        """The splits that the first-level folders name."""
        if not is_folder(self._path):
            return ()
        return _normal(self._splits(entries(self._path)))

    def _learn_splits(self, found: list[Entry]) -> None:
        self.splits = _normal(self._splits(found))
        self._has_splits = bool(self.splits)

    def _splits(self, found: Iterable[Entry]) -> tuple[str, ...]:
        """The first-level folders that are splits: all that are named so, if no other one holds an image."""
        folders = [entry.basename for entry in found if entry.name.endswith("/")]
        folders = [name for name in folders if not self._tree.leaves_out(name)]
        splits = tuple(filter(is_split_name, folders))
        others = [name for name in folders if not is_split_name(name)]
        if not splits or len(others) > _SEARCHED or any(map(self._holds_image, others)):
            return ()
        return splits

    def _holds_image(self, name: str) -> bool:
        """Whether an image by name is listed anywhere below a first-level folder; stops at the first."""
        return any(
            isinstance(item, TreeFile) or (is_image_name(item.key) and item.reason != HIDDEN)
            for item in self._tree.files(f"{name}/")
        )

    def _passed_over(self, key: str) -> str | None:
        if extension_of(key) not in IMAGE_EXTENSIONS:
            return NOT_AN_IMAGE
        return None if self._takes_all or self._selection.takes(key) else EXCLUDED

    def _item(self, file: TreeFile | Failure) -> ImageRecord | Failure:
        if isinstance(file, Failure):
            return file
        key, path, size, version = file
        folders, split, annotations = self._told
        if key.rpartition("/")[0] != folders:
            folders, split, annotations = self._told = self._told_by_folders(key)
        if self._label_pattern is not None:
            try:
                annotations = Annotations((self._label_pattern.label(key),))
            except BadInput as fault:
                return failed(key, fault)
        return ImageRecord(key, ImageRef(path, version=version), split, annotations, size=size)

    def _told_by_folders(self, key: str) -> tuple[str, str | None, Annotations]:
        """The folders in a key, and the split and the label that they are named as."""
        *folders, _ = key.split("/")
        split = normal_split(folders[0]) if self._has_splits and folders else None
        labels = folders[split is not None :][:1]
        return key.rpartition("/")[0], split, Annotations(tuple(labels))


def _normal(splits: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(map(normal_split, splits))))


def _folders_in(folder: str) -> Iterator[Entry]:
    """The folders in a folder; nothing else in it is held."""
    return (entry for entry in file_system(folder).list(folder) if entry.name.endswith("/"))


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
