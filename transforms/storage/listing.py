"""What folders hold, in the order of keys: folders of this machine, and of buckets, listed ahead."""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from recordmill.transforms.records import BadInput
from recordmill.transforms.storage import cloud, objects
from recordmill.transforms.storage.faults import may_pass, retried
from recordmill.transforms.storage.local import not_regular, version_of
from recordmill.transforms.storage.name_parts import EVERYTHING, KeyRange
from recordmill.transforms.storage.paths import Confinement, is_remote
from recordmill.transforms.storage.places import Status

# Folders of a bucket whose listing is under way before it is asked for, and how much of one is held.
_AHEAD = 8
_HELD_AHEAD = 10_000


Entry = os.DirEntry[str] | Status | None
"""A file or folder of this machine; or, in a bucket, an object's status, None for a folder."""

Entries = list[tuple[str, Entry]]
"""Names, those of folders with a `/` at the end, in the order of the keys that they make."""


# What a glance at a folder of a bucket sees of it.
_GLANCED = 20_000
_HELD = 100_000  # cached entries of local folders
_glanced: _Glanced | None = None


class _Glanced:
    """The listings of a glance: of folders of this machine the first that fit, and the last one."""

    def __init__(self) -> None:
        self.folders: dict[str, Entries] = {}
        self._held = 0
        self._last = ""

    def hold(self, folder: str, found: Entries) -> Entries:
        """Keeps a listing."""
        self.folders.pop(self._last, None)
        fits = is_remote(folder) or self._held + len(found) <= _HELD
        self._held += len(found) if fits and not is_remote(folder) else 0
        self._last = "" if fits else folder
        self.folders[folder] = found
        return found


@contextlib.contextmanager
def glance() -> Iterator[None]:
    """In the block, each folder is listed once, and a large folder of a bucket is not listed completely.

    For code that only looks at an input. Blocks may be nested.
    """
    global _glanced
    around = _glanced
    _glanced = around or _Glanced()
    try:
        yield
    finally:
        _glanced = around


def entries(folder: str) -> Entries:
    """What is in a folder.

    Raises:
        OSError: it may not be listed, or not now.
    """
    if _glanced is not None and folder in _glanced.folders:
        return _glanced.folders[folder]
    if is_remote(folder):
        most = None if _glanced is None else _GLANCED
        found = _in_order(_collected(itertools.islice(objects.list_folder(folder), most)))
    else:
        found = retried(_local_entries, folder)
    return found if _glanced is None else _glanced.hold(folder, found)


def first_names(folder: str, most: int) -> list[tuple[str, bool]]:
    """Names in a folder, those of folders with a `/` at the end, each with whether it is a link; in order.

    Args:
        folder: path.
        most: the number of names after which a larger folder is not listed further.

    Raises:
        OSError: it may not be listed, or not now.
    """
    if _glanced is not None and folder in _glanced.folders:
        found = _glanced.folders[folder][:most]
        return [(name, isinstance(entry, os.DirEntry) and entry.is_symlink()) for name, entry in found]
    if is_remote(folder):
        return sorted((name, False) for name, _ in itertools.islice(objects.list_folder(folder), most))
    return retried(_first_local_names, folder, most)


def _first_local_names(folder: str, most: int) -> list[tuple[str, bool]]:
    found = []
    with os.scandir(folder) as scanned:
        for entry in itertools.islice(scanned, most):
            try:
                leads_to_folder = entry.is_dir()
            except OSError as error:
                if may_pass(error):
                    raise
                leads_to_folder = False
            found.append((f"{entry.name}/" if leads_to_folder else entry.name, entry.is_symlink()))
    return sorted(found)


def entry_of(path: str) -> Entry | None:
    """The entry of one file in its folder; None where there is no such file."""
    if is_remote(path):
        found = objects.stat(path)
        return None if found is None else Status.of(found)
    folder, name = os.path.split(path)
    return dict(retried(_local_entries, folder)).get(name)


def located(folder: str, name: str, entry: Entry, confinement: Confinement) -> tuple[str, int, int] | None:
    """Path, size and version of a file, links resolved; None for a folder of a bucket.

    Args:
        folder: path.
        name: in the folder.
        entry: of that name.
        confinement: inside which a link has to lead.

    Raises:
        BadInput: stage `list`; `outside the input root` where a link leads there, or `not a file`.
        OSError: it may not be looked at, or not now.
    """
    if entry is None:
        return None
    if isinstance(entry, Status):
        return f"{folder}/{name}", entry.size, entry.version
    path = entry.path
    if entry.is_symlink():
        path = confinement.resolve(path, "list")
        found = retried(os.stat, path)
    else:
        found = retried(entry.stat, follow_symlinks=False)
    if (fault := not_regular(found.st_mode)) is not None:
        raise BadInput("list", "not a file", fault)
    return path, found.st_size, version_of(found)


def is_link(path: str) -> bool:
    """Whether there is a symbolic link at a path. Raises OSError where that may not be known, or not now."""
    return not is_remote(path) and stat.S_ISLNK(retried(os.lstat, path).st_mode)


class ListingsAhead:
    """The listings of folders that are visited one after the other, those of a bucket begun before.

    Args:
        folders: paths of folders of a bucket, in the order in which they are visited.
    """

    def __init__(self, folders: Sequence[str] = ()) -> None:
        self._folders = folders
        self._begun: dict[str, Future[tuple[Entries, Iterator[objects.Entry]]]] = {}
        self._visited = 0
        self._next = 1

    def visit(self) -> None:
        """Tells that the next folder is visited, which begins listings of those after it.

        The more, the further the visit has come: one that ends with the first folder has asked in vain
        for none.
        """
        stop = min(self._visited + 1 + min(self._visited, _AHEAD), len(self._folders))
        for folder in self._folders[self._next : stop]:
            self._begun[folder] = cloud.pool().submit(_begun, folder)
        self._visited += 1
        self._next = max(self._next, self._visited, stop)

    def entries(self, folder: str, names: KeyRange = EVERYTHING, is_whole: bool = False) -> Iterator[Entries]:
        """What is in a folder, as `entries`: of a bucket some thousands at a time, in order as they come.

        Args:
            folder: path.
            names: those of it that are asked for; of a folder in it, names below it may be alone among them.
            is_whole: whether all come at a time.

        Raises:
            OSError: it may not be listed, or not now.
        """
        begun = self._begun.pop(folder, None)
        if is_whole or _glanced is not None or not is_remote(folder):
            yield _between(entries(folder), names)
            return
        if begun is not None:
            found, rest = begun.result()
            yield _in_order(found)
        else:
            # The folder that the first one lies in is told of as a whole: a service may tell of it or not.
            above = names.first[: names.first.find("/") + 1] or names.first
            rest = objects.list_folder(folder, above, names.end)
        while found := _collected(itertools.islice(rest, _HELD_AHEAD)):
            yield _between(_in_order(found), names)

    def close(self) -> None:
        """Gives up what nobody has asked for."""
        for begun in self._begun.values():
            begun.cancel()
        self._begun.clear()


def _begun(folder: str) -> tuple[Entries, Iterator[objects.Entry]]:
    """The first of a folder's entries, and the others, which are not asked for yet."""
    listing = objects.list_folder(folder)
    return _collected(itertools.islice(listing, _HELD_AHEAD)), listing


def _collected(listing: Iterator[objects.Entry]) -> Entries:
    return [(name, None if stored is None else Status.of(stored)) for name, stored in listing]


def _in_order(found: Entries) -> Entries:
    found.sort(key=operator.itemgetter(0))
    return found


def _between(found: Entries, names: KeyRange) -> Entries:
    if names == EVERYTHING:
        return found
    return [one for one in found if (names.meets if one[0].endswith("/") else names.has)(one[0])]


def _local_entries(path: str) -> Entries:
    found: Entries = []
    with os.scandir(path) as scanned:
        for entry in scanned:
            try:
                leads_to_folder = entry.is_dir()
            except OSError as error:
                if may_pass(error):
                    raise
                leads_to_folder = False  # a link to itself, or through a folder that may not be searched
            found.append((f"{entry.name}/" if leads_to_folder else entry.name, entry))
    return _in_order(found)
