"""The files below a folder, in the order of their keys: what every source that looks at folders walks."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import NamedTuple

from transforms.records import BadInput, Failure, ImageRef
from transforms.sources.names import is_hidden, is_unicode, printable
from transforms.storage.faults import os_fault
from transforms.storage.listing import Entry, ListingsAhead, is_link, located
from transforms.storage.paths import Confinement, is_remote, real_path

HIDDEN = "hidden"
_MAX_LINKED_FOLDERS = 4  # on one path: folders that link to each other have no end of paths otherwise
_NAMELESS = "names of objects have // in them; rename them"


class TreeFile(NamedTuple):
    """A file below a folder.

    Attributes:
        key: path below the folder, with `/` between parts.
        path: real path, or URI.
        size: bytes.
        version: as in `ImageRef`.
    """

    key: str
    path: str
    size: int
    version: int

    @property
    def ref(self) -> ImageRef:
        """The file as that of an image."""
        return ImageRef(self.path, version=self.version)


class _Folder(NamedTuple):
    """A folder on the way: its real path, what keys in it start with, the real paths of those that led here,
    and how many of them were reached by a link.
    """

    path: str
    prefix: str
    lineage: frozenset[str]
    links: int


class Tree:
    """Walks a folder; holds one folder's names a level. A symbolic link has to lead into one of the roots.

    Args:
        root: a folder, of this machine or `gs://`.
        image_roots: further folders that links may lead into.
        skip_dirs: absolute folders that are left out without a word.
    """

    def __init__(self, root: str, image_roots: Collection[str] = (), skip_dirs: Collection[str] = ()) -> None:
        path = real_path(root)
        self._root = _Folder(path, "", frozenset((path,)), 0)
        self._skip_dirs = frozenset(map(real_path, skip_dirs))
        self._confinement = Confinement((path, *image_roots))

    def files(self, prefix: str = "") -> Iterator[TreeFile | Failure]:
        """All files, and what cannot be looked at or is skipped (hidden, a loop of links).

        Args:
            prefix: key of the folder to begin in, ending in `/`; empty for the root.
        """
        folder = self._root
        for name in prefix.rstrip("/").split("/") if prefix else ():
            inner = self._subfolder(folder, name)
            if not isinstance(inner, _Folder):
                if inner is not None:
                    yield inner
                return
            folder = inner
        levels = [self._visit(folder, ListingsAhead())]
        while levels:
            item = next(levels[-1], None)
            if item is None:
                levels.pop()
            elif isinstance(item, _Visit):
                levels.append(self._visit(item.folder, item.listings))
            else:
                yield item

    def _visit(self, folder: _Folder, listings: ListingsAhead) -> Iterator[TreeFile | Failure | _Visit]:
        try:
            found = listings.entries(folder.path)
        except OSError as error:
            yield _failure(folder.prefix or "./", os_fault(error, "list"))
            return
        ahead = ListingsAhead(self._to_visit(folder, [name for name, _ in found]))
        try:
            for name, entry in found:
                if not name.endswith("/"):
                    yield self._file(folder, name, entry)
                elif isinstance(item := self._subfolder(folder, name[:-1]), _Folder):
                    ahead.visit()
                    yield _Visit(item, ahead)
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

    def _subfolder(self, folder: _Folder, name: str) -> _Folder | Failure | None:
        """The folder `name`, what is wrong with it, or None where it is to be left out without a word."""
        prefix = f"{folder.prefix}{name}/"
        if not name:  # in a bucket alone
            return _failure(prefix, BadInput("list", "folder without a name", _NAMELESS))
        if is_hidden(name):
            return _skipped(prefix, HIDDEN)
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
        return _Folder(path, prefix, folder.lineage | {path}, links)

    def _file(self, folder: _Folder, name: str, entry: Entry) -> TreeFile | Failure:
        key = folder.prefix + name
        if is_hidden(name):
            return _skipped(key, HIDDEN)
        try:
            if not is_unicode(key):
                raise BadInput("list", "name is not UTF-8", "rename the file")
            found = located(folder.path, name, entry, self._confinement)
        except BadInput as fault:
            return _failure(key, fault)
        except OSError as error:
            return _failure(key, os_fault(error, "list"))
        return _skipped(key, "not a file") if found is None else TreeFile(key, *found)


class _Visit(NamedTuple):
    """A folder that comes next, and the listings that its own is taken from."""

    folder: _Folder
    listings: ListingsAhead


def _failure(key: str, fault: BadInput) -> Failure:
    return Failure(printable(key), fault.stage, fault.reason, printable(fault.detail))


def _skipped(key: str, reason: str, detail: str = "") -> Failure:
    return Failure(printable(key), "list", reason, detail, skipped=True)
