"""The files below a folder, in the order of their keys."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from recordmill.transforms.records import BadInput, Failure, ImageRef
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import HIDDEN, failed, is_hidden, is_unicode, skipped
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.faults import os_fault
from recordmill.transforms.storage.file_system import Entry, file_system
from recordmill.transforms.storage.files import is_file, status_of
from recordmill.transforms.storage.listing import ListingsAhead, located
from recordmill.transforms.storage.name_parts import EVERYTHING, KeyRange
from recordmill.transforms.storage.paths import real_path

_MAX_LINKED_FOLDERS = 4  # on one path: folders that link to each other would have endless paths
_NAMELESS = "names of objects have // in them; rename them"


class TreeFile(NamedTuple):
    """A file below a folder."""

    key: str  # path below the folder, with `/` between parts
    path: str  # real path, or URI
    size: int
    version: int  # as of `Status`

    @property
    def ref(self) -> ImageRef:
        """The reference to an image that is this file."""
        return ImageRef(self.path, version=self.version)


class _Folder(NamedTuple):
    path: str  # real path
    prefix: str  # of the keys in it
    lineage: frozenset[str]  # real paths of the folders above it
    links: int  # the number of links on its path
    listings: ListingsAhead  # lists it


class Tree:
    """Walks a folder; holds one folder's names per level. Symbolic links must lead into one of the roots.

    Args:
        image_roots: further folders that links may lead into.
        skip_dirs: absolute folders that are left out silently.
        passes_over: returns the reason to skip a file by its key, or None; hidden files are skipped before.
    """

    def __init__(
        self,
        root: str,
        image_roots: Collection[str] = (),
        skip_dirs: Collection[str] = (),
        passes_over: Callable[[str], str | None] | None = None,
    ) -> None:
        path = real_path(root)
        self._root = _Folder(path, "", frozenset((path,)), 0, ListingsAhead())
        self._skip_dirs = frozenset(map(real_path, skip_dirs))
        self._confinement = Confinement((path, *image_roots))
        self._passes_over = passes_over

    @classmethod
    def of(cls, config: SourceConfig, passes_over: Callable[[str], str | None] | None = None) -> Tree:
        """The tree of an input that is a folder."""
        return cls(config.input, config.image_roots, config.skip_dirs, passes_over)

    def files(
        self,
        prefix: str = "",
        on_listed: Callable[[list[Entry]], None] | None = None,
        keys: KeyRange = EVERYTHING,
    ) -> Iterator[TreeFile | Failure]:
        """All files, and failures: files that cannot be read, or are skipped (hidden, a loop of links).

        Args:
            prefix: key of the folder to begin in, ending in `/`; empty for the root.
            on_listed: called with the entries of that folder before any of them is yielded.
            keys: the range of keys to yield; folders outside are not listed.
        """
        folder = self._root
        for name in prefix.rstrip("/").split("/") if prefix else ():
            inner = self._subfolder(folder, name, ListingsAhead())
            if not isinstance(inner, _Folder):
                if inner is not None:
                    yield inner
                return
            folder = inner
        levels = [self._visit(folder, keys, on_listed)]
        while levels:
            for item in levels[-1]:
                if isinstance(item, _Folder):
                    levels.append(self._visit(item, keys))
                    break
                yield item
            else:
                levels.pop()

    def file(self, name: str) -> TreeFile | Failure:
        """One file of the root, as `files` yields it. Raises OSError."""
        path = os.path.join(self._root.path, name)
        system = file_system(path)
        found = system.find(path)
        if found is None:
            return failed(name, BadInput("list", "not found", path))
        entry = Entry(name, path, system.is_link(path), None if system.has_links else found)
        return self._file(self._root, entry)

    def leaves_out(self, name: str) -> bool:
        """Whether a folder of the root is hidden, or one of the skipped folders."""
        return is_hidden(name) or real_path(os.path.join(self._root.path, name)) in self._skip_dirs

    def enters(self, key: str) -> bool:
        """Whether a folder that is not a link is listed; its key ends in `/`."""
        path = key[:-1]
        name = path.rpartition("/")[2]
        return bool(name) and not is_hidden(name) and f"{self._root.path}/{path}" not in self._skip_dirs

    def _visit(
        self, folder: _Folder, keys: KeyRange, on_listed: Callable[[list[Entry]], None] | None = None
    ) -> Iterator[TreeFile | Failure | _Folder]:
        # `files` visits a folder that is yielded before it takes the next item
        names = keys.within(folder.prefix)
        listed = folder.listings.entries(folder.path, names, is_whole=on_listed is not None)
        while True:
            try:
                found = next(listed, None)
            except OSError as error:
                yield _failed(folder.prefix or "./", error)
                return
            if found is None:
                return
            if on_listed is not None:
                on_listed(found)
            with contextlib.closing(ListingsAhead(self._to_visit(folder, found, names))) as ahead:
                for entry in found:
                    name = entry.name
                    if not name.endswith("/"):
                        yield self._file(folder, entry)
                    elif isinstance(item := self._subfolder(folder, name[:-1], ahead), _Folder):
                        if names.within(name) == EVERYTHING:
                            ahead.visit()
                        yield item
                    elif item is not None and names.has(name):
                        yield item

    def _to_visit(self, folder: _Folder, found: list[Entry], names: KeyRange) -> list[str]:
        if not file_system(folder.path).has_latency:
            return []
        folders = (one for one in found if one.name.endswith("/") and names.within(one.name) == EVERYTHING)
        return [one.path for one in folders if self.enters(folder.prefix + one.name)]

    def _subfolder(self, folder: _Folder, name: str, listings: ListingsAhead) -> _Folder | Failure | None:
        """The folder `name`, a failure if it cannot be read, or None if it is one of the skipped folders."""
        prefix = f"{folder.prefix}{name}/"
        if not name:  # in an object store alone
            return failed(prefix, BadInput("list", "folder without a name", _NAMELESS))
        if is_hidden(name):
            return skipped(prefix, HIDDEN)
        path, links = os.path.join(folder.path, name), folder.links
        try:
            if file_system(path).is_link(path):
                path, links = self._confinement.resolve(path, "list"), links + 1
        except (BadInput, OSError) as error:
            return _failed(prefix, error)
        if path in self._skip_dirs:
            return None
        if path in folder.lineage or links > _MAX_LINKED_FOLDERS:
            return skipped(prefix, "loop of symbolic links", f"it leads to {path}")
        return _Folder(path, prefix, folder.lineage | {path}, links, listings)

    def _file(self, folder: _Folder, entry: Entry) -> TreeFile | Failure:
        key = folder.prefix + entry.name
        if is_hidden(entry.name):
            return skipped(key, HIDDEN)
        if self._passes_over is not None and (reason := self._passes_over(key)) is not None:
            return skipped(key, reason)
        try:
            if not (key.isascii() or is_unicode(key)):
                raise BadInput("list", "name is not UTF-8", "rename the file")
            return TreeFile(key, *located(entry, self._confinement))
        except (BadInput, OSError) as error:
            return _failed(key, error)


def input_files(config: SourceConfig) -> Iterator[TreeFile | Failure]:
    """The input if it is a file, else the files below it, as `Tree.files`."""
    if not is_file(config.input):
        return Tree.of(config).files()
    path = real_path(config.input)
    status = status_of(path)
    return iter((TreeFile(path.rpartition("/")[2], path, status.size, status.version),))


def _failed(key: str, error: BadInput | OSError) -> Failure:
    return failed(key, os_fault(error, "list") if isinstance(error, OSError) else error)
