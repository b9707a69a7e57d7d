"""Source `folder`: image files in folders that tell split and label.

`<label>/…`, `<split>/<label>/…`, `<split>/…` or no folders at all; the folders are splits when every
one at the first level that holds images is named like a split. Below the label's folder any depth goes.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import os
from collections.abc import Iterator

from transforms.records import Annotations, BadInput, Failure, ImageRecord, ImageRef
from transforms.sources.names import (
    extension_of,
    is_hidden,
    is_image_name,
    is_split_name,
    is_unicode,
    printable,
)
from transforms.sources.selection import EXCLUDED, Selection, check_selection, label_pattern, limited
from transforms.sources.source import (
    Description,
    Item,
    SourceConfig,
    check_input_exists,
    check_unused,
    readable,
)
from transforms.sources.unread import check_unread
from transforms.storage.faults import os_fault
from transforms.storage.listing import Entry, ListingsAhead, entries, entry_of, is_link, located
from transforms.storage.paths import Confinement, is_remote, real_path
from transforms.storage.places import is_file, is_folder

NOT_AN_IMAGE = "not an image by name"
_MAX_LINKED_FOLDERS = 4  # on one path: folders that link to each other have no end of paths otherwise
_SNIFFED = 1_000
_SNIFFED_REMOTE = 10_000  # of a bucket without images; a folder of this machine is searched to its end
_HIDDEN = "hidden"
_NAMELESS = "names of objects have // in them; rename them"
_SEARCHED = 10  # folders beside splits that are searched for an image; where there are more, all are labels


class FolderSource:
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
    untyped = False

    def sniff(self, config: SourceConfig) -> str | None:
        if config.annotations:
            return None
        with readable("--input", config.input):
            if is_file(config.input):
                return "it is an image file by name" if is_image_name(config.input) else None
            items = _items(dataclasses.replace(config, label_pattern=None, include=(), exclude=()))
            described = _describe(items, _SNIFFED_REMOTE if is_remote(config.input) else math.inf)
            if described is not None:
                check_unread(config)
            return described

    def check(self, config: SourceConfig) -> None:
        check_input_exists(config)
        check_unused(config, self.name, "annotations", "image_column", "label_column")
        check_selection(config)
        reasons: collections.Counter[str] = collections.Counter()
        with readable("--input", config.input):
            if is_file(config.input) and not is_image_name(config.input):
                raise ValueError(f"--input is {config.input!r}, a file that is not an image by its name")
            for item in _items(config):
                if isinstance(item, ImageRecord):
                    return
                reasons[item.reason] += 1
                if is_remote(config.input) and reasons.total() >= _SNIFFED_REMOTE:
                    return  # the job will see
        found = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common()) or "it is empty"
        raise ValueError(f"--input is {config.input!r}: there is no image to convert ({found})")

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            return _Listing(config).split_names()

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ()

    def read(self, config: SourceConfig, scratch: str) -> Iterator[Item]:
        return limited(_items(config), config.limit)


def _items(config: SourceConfig) -> Iterator[ImageRecord | Failure]:
    yield from _Listing(config).items()


@dataclasses.dataclass(frozen=True, slots=True)
class _Folder:
    """A folder on the way.

    Attributes:
        path: its real path.
        prefix: what keys of its files start with; empty, or ends in `/`.
        split: of its files.
        annotations: of its files, where the label comes from a folder.
        lineage: real paths of itself and of the folders that led here.
        links: how many of those were reached by a link.
    """

    path: str
    prefix: str
    split: str | None
    annotations: Annotations
    lineage: frozenset[str]
    links: int


class _Listing:
    """One walk over the input, in code-point order of the keys. Holds one folder's names a level."""

    def __init__(self, config: SourceConfig) -> None:
        self._selection = Selection(config)
        self._label_pattern = label_pattern(config)
        self._skip_dirs = frozenset(map(real_path, config.skip_dirs))
        self._path = real_path(config.input)
        folder = os.path.dirname(self._path) if is_file(self._path) else self._path
        self._root = _Folder(folder, "", None, Annotations(), frozenset((folder,)), 0)
        self._confinement = Confinement((folder, *config.image_roots))

    def items(self) -> Iterator[ImageRecord | Failure]:
        """Walks the input."""
        if self._path == self._root.path:
            yield from self._below(self._root)
            return
        name = os.path.basename(self._path)
        entry = entry_of(self._path)
        if entry is None:
            yield _failure(name, BadInput("list", "not found", self._path))
        else:
            yield self._file(self._root, name, entry)

    def _below(self, folder: _Folder) -> Iterator[ImageRecord | Failure]:
        levels = [self._visit(folder, ListingsAhead())]
        while levels:
            item = next(levels[-1], None)
            if item is None:
                levels.pop()
            elif isinstance(item, tuple):
                levels.append(self._visit(*item))
            else:
                yield item

    def _visit(
        self, folder: _Folder, listings: ListingsAhead
    ) -> Iterator[ImageRecord | Failure | tuple[_Folder, ListingsAhead]]:
        """What is in a folder; a folder in it comes with the listings that its own is taken from."""
        try:
            found = listings.entries(folder.path)
        except OSError as error:
            yield _failure(folder.prefix or "./", os_fault(error, "list"))
            return
        has_splits = folder is self._root and bool(self._splits([name for name, _ in found]))
        ahead = ListingsAhead(self._to_visit(folder, [name for name, _ in found]))
        try:
            for name, entry in found:
                if not name.endswith("/"):
                    yield self._file(folder, name, entry)
                elif isinstance(item := self._subfolder(folder, name[:-1], has_splits), _Folder):
                    ahead.visit()
                    yield item, ahead
                elif item is not None:
                    yield item
        finally:
            ahead.close()

    def _to_visit(self, folder: _Folder, names: list[str]) -> list[str]:
        """Of the names in a folder of a bucket, paths of the folders that are visited."""
        if not is_remote(folder.path):
            return []
        folders = (name[:-1] for name in names if name.endswith("/"))
        paths = [f"{folder.path}/{name}" for name in folders if name and not is_hidden(name)]
        return [path for path in paths if path not in self._skip_dirs]

    def split_names(self) -> tuple[str, ...]:
        """The splits that the first-level folders name."""
        if not is_folder(self._path):
            return ()
        return self._splits([name for name, _ in entries(self._path)])

    def _splits(self, names: list[str]) -> tuple[str, ...]:
        """The first-level folders that are splits: all that are named so, if no other one holds an image."""
        folders = [name[:-1] for name in names if self._is_content(name)]
        splits = tuple(filter(is_split_name, folders))
        others = [name for name in folders if not is_split_name(name)]
        if not splits or len(others) > _SEARCHED or any(map(self._holds_image, others)):
            return ()
        return splits

    def _is_content(self, name: str) -> bool:
        """Whether a first-level name is a folder that may hold images: only those decide about splits."""
        if not name.endswith("/") or is_hidden(name[:-1]):
            return False
        return real_path(os.path.join(self._root.path, name[:-1])) not in self._skip_dirs

    def _holds_image(self, name: str) -> bool:
        """Whether an image by name is listed anywhere below a first-level folder; stops at the first."""
        folder = self._subfolder(self._root, name, has_splits=False)
        if not isinstance(folder, _Folder):
            return False
        return any(
            isinstance(item, ImageRecord) or (is_image_name(item.key) and item.reason != _HIDDEN)
            for item in self._below(folder)
        )

    def _subfolder(self, folder: _Folder, name: str, has_splits: bool) -> _Folder | Failure | None:
        """The folder `name`, what is wrong with it, or None where it is to be left out without a word."""
        prefix = f"{folder.prefix}{name}/"
        if not name:  # in a bucket alone
            return _failure(prefix, BadInput("list", "folder without a name", _NAMELESS))
        if is_hidden(name):
            return _skipped(prefix, _HIDDEN)
        path, links = os.path.join(folder.path, name), folder.links
        try:
            if is_link(path):
                path, links = self._confinement.resolve(path, "list"), links + 1
        except BadInput as fault:
            return _failure(prefix, fault)
        except OSError as error:
            return _failure(prefix, os_fault(error, "list"))
        if path in self._skip_dirs:
            return None
        if path in folder.lineage or links > _MAX_LINKED_FOLDERS:
            return _skipped(prefix, "loop of symbolic links", f"it leads to {printable(path)}")
        split, annotations = folder.split, folder.annotations
        if has_splits:
            split = name
        elif not annotations.labels:
            annotations = Annotations((name,))
        return _Folder(path, prefix, split, annotations, folder.lineage | {path}, links)

    def _file(self, folder: _Folder, name: str, entry: Entry) -> ImageRecord | Failure:
        key = folder.prefix + name
        if is_hidden(name):
            return _skipped(key, _HIDDEN)
        if not is_image_name(name):
            return _skipped(key, NOT_AN_IMAGE)
        if not self._selection.takes(key):
            return _skipped(key, EXCLUDED)
        try:
            if not is_unicode(key):
                raise BadInput("list", "name is not UTF-8", "rename the file")
            found = located(folder.path, name, entry, self._confinement)
            if found is None:
                return _skipped(key, "not a file")
            path, size, version = found
            annotations = folder.annotations
            if self._label_pattern is not None:
                annotations = Annotations((self._label_pattern.label(key),))
        except BadInput as fault:
            return _failure(key, fault)
        except OSError as error:
            return _failure(key, os_fault(error, "list"))
        image = ImageRef(path, version=version)
        return ImageRecord(key, image, folder.split, annotations, size=size)


def _failure(key: str, fault: BadInput) -> Failure:
    return Failure(printable(key), fault.stage, fault.reason, printable(fault.detail))


def _skipped(key: str, reason: str, detail: str = "") -> Failure:
    return Failure(printable(key), "list", reason, detail, skipped=True)


def _describe(items: Iterator[ImageRecord | Failure], most: float) -> str | None:
    """What a folder's first files show, or None where none of `most` files is an image by name."""
    splits: dict[str, None] = {}
    labels: dict[str, None] = {}
    example = ""
    unread: collections.Counter[str] = collections.Counter()
    for number in itertools.count():
        item = next(items, None)
        if item is None or number >= (_SNIFFED if example else most):
            break
        if isinstance(item, ImageRecord):
            example = example or item.key
            splits.update(dict.fromkeys([item.split] if item.split else []))
            labels.update(dict.fromkeys(map(str, item.annotations.labels)))
        elif item.reason == NOT_AN_IMAGE:
            unread[extension_of(item.key)] += 1
    if not example:
        return None
    text = f"it holds image files such as {example!r}; splits: {_names(splits)}; labels: {_names(labels)}"
    if unread:
        others = (
            f"{count} {f'.{ext}' if ext else 'without extension'}" for ext, count in unread.most_common(5)
        )
        text += f"; other files, not read: {', '.join(others)}"
    return text


def _names(found: dict[str, None]) -> str:
    shown = ", ".join(itertools.islice(found, 5))
    return f"{shown}, …" if len(found) > 5 else shown or "none"
