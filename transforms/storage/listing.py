"""Listings of the input: cached while code only looks at it, and requested ahead where a service answers."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from recordmill.transforms.records import BadInput
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.faults import retried
from recordmill.transforms.storage.file_system import Entry, file_system
from recordmill.transforms.storage.local import not_regular, version_of
from recordmill.transforms.storage.name_parts import EVERYTHING, KeyRange

# Folders whose listing begins before they are visited, and entries of each that are held.
_AHEAD = 8
_HELD_AHEAD = 10_000
# Entries of a folder that a look at the input lists, where calls wait for a service; and cached entries of
# other folders.
_LISTED = 20_000
_HELD = 100_000
_cache: _Cache | None = None


class _Cache:
    """Listings of folders: the last one, and of local folders the first that fit."""

    def __init__(self) -> None:
        self.folders: dict[str, list[Entry]] = {}
        self._held = 0
        self._last = ""

    def hold(self, folder: str, found: list[Entry]) -> list[Entry]:
        self.folders.pop(self._last, None)
        is_bounded = file_system(folder).has_latency
        fits = is_bounded or self._held + len(found) <= _HELD
        self._held += len(found) if fits and not is_bounded else 0
        self._last = "" if fits else folder
        self.folders[folder] = found
        return found


@contextlib.contextmanager
def cached_listings() -> Iterator[None]:
    """In the block, each folder is listed once, and a large folder of a service is not listed completely.

    For code that only looks at an input. Blocks may be nested.
    """
    global _cache
    around = _cache
    _cache = around or _Cache()
    try:
        yield
    finally:
        _cache = around


def entries(folder: str, most: int | None = None) -> list[Entry]:
    """Entries of a folder, in the order of names; at most `most`. Raises OSError."""
    if _cache is not None and folder in _cache.folders:
        return _cache.folders[folder][:most]
    system = file_system(folder)
    if _cache is None:
        return list(system.list(folder, most=most))
    limit = most or (_LISTED if system.has_latency else None)
    found = list(system.list(folder, most=limit))
    return found if most is not None and len(found) >= most else _cache.hold(folder, found)


def located(entry: Entry, confinement: Confinement) -> tuple[str, int, int]:
    """Path, size and version of a file, links resolved; they have to lead inside the confinement.

    Raises:
        BadInput: stage `list`; `outside the input root` where a link leads there, or `not a file`.
        OSError: it may not be looked at, or not now.
    """
    if entry.status is not None:
        return entry.path, entry.status.size, entry.status.version
    path = confinement.resolve(entry.path, "list") if entry.is_link else entry.path
    found = retried(os.stat, path, follow_symlinks=entry.is_link)
    if (fault := not_regular(found.st_mode)) is not None:
        raise BadInput("list", "not a file", fault)
    return path, found.st_size, version_of(found)


class ListingsAhead:
    """The listings of folders that are visited in this order, begun before where a service answers."""

    def __init__(self, folders: Sequence[str] = ()) -> None:
        self._folders = folders
        self._begun: dict[str, Future[tuple[list[Entry], Iterator[Entry]]]] = {}
        self._visited = 0
        self._next = 1

    def visit(self) -> None:
        """Begins the listings of the folders after the next one, which is visited now.

        Their number grows with the visits: a walk that ends in the first folder has requested no other.
        """
        stop = min(self._visited + 1 + min(self._visited, _AHEAD), len(self._folders))
        for folder in self._folders[self._next : stop]:
            if (begun := file_system(folder).submit(_begun, folder)) is not None:
                self._begun[folder] = begun
        self._visited += 1
        self._next = max(self._next, self._visited, stop)

    def entries(
        self, folder: str, names: KeyRange = EVERYTHING, is_whole: bool = False
    ) -> Iterator[list[Entry]]:
        """As `entries`, of files with `names` and folders that can hold some.

        Where a service answers, some thousands come at a time, unless all are to come at a time.
        """
        begun = self._begun.pop(folder, None)
        system = file_system(folder)
        if is_whole or _cache is not None or not system.has_latency:
            yield _between(entries(folder), names)
            return
        if begun is not None:
            found, rest = begun.result()
            yield found
        else:
            # A folder is listed by its own name: a service may leave it out where names inside it come first.
            above = names.first[: names.first.find("/") + 1] or names.first
            rest = system.list(folder, above, names.end)
        while found := list(itertools.islice(rest, _HELD_AHEAD)):
            yield _between(found, names)

    def close(self) -> None:
        for begun in self._begun.values():
            begun.cancel()
        self._begun.clear()


def _begun(folder: str) -> tuple[list[Entry], Iterator[Entry]]:
    """The first of a folder's entries, and an iterator that requests the others."""
    listing = file_system(folder).list(folder)
    return list(itertools.islice(listing, _HELD_AHEAD)), listing


def _between(found: list[Entry], names: KeyRange) -> list[Entry]:
    if names == EVERYTHING:
        return found
    return [one for one in found if (names.meets if one.name.endswith("/") else names.has)(one.name)]
