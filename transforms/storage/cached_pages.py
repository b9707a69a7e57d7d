"""Sizes and versions of files that are looked up one by one, from listings of many at a time."""

from __future__ import annotations

import bisect
import collections
from array import array
from typing import NamedTuple

from recordmill.transforms.storage.file_system import Entry, file_system

PAGE = 1000
"""Files of one request, as many as a service gives."""

_REMEMBERED = 2_000_000  # files, at about 150 bytes; the pages that were used longest ago are dropped
_FEW = 20  # lookups, after which the complete root is listed, too
_PAGE_WEIGHT = 10  # memory of a page itself, in files
_JUST_AFTER = "\0"  # of the URI it is added to


class _Page(NamedTuple):
    """The files from one URI up to another, which is not cached, in the order of the URIs."""

    stop: str
    uris: list[str]
    sizes: array[int]
    versions: array[int]

    def find(self, uri: str) -> tuple[int, int] | None:
        """Size and version of a file; None where there is none."""
        at = bisect.bisect_left(self.uris, uri)
        if at == len(self.uris) or self.uris[at] != uri:
            return None
        return self.sizes[at], self.versions[at]


class CachedPages:
    """Finds files; each request lists up to 1000 that follow each other in the order of names.

    A lookup lists the folder of the file, from the first name that is not cached; a file that comes after
    those thousand is looked up by itself. So a few names in a large folder cost two requests each. After some
    lookups, each one also continues a listing of the complete root: then all files of a root cost few
    requests a thousand, in any order and in any folders.
    """

    def __init__(self) -> None:
        self._starts: list[str] = []
        self._pages: collections.OrderedDict[str, _Page] = collections.OrderedDict()
        self._weight = 0
        self._listed = 0
        self._swept: dict[str, str] = {}
        self._refused: dict[str, PermissionError] = {}

    def find(self, uri: str, root: str) -> tuple[int, int] | None:
        """Size and version of a file below `root`, which ends in `/`; None where there is none.

        Raises:
            PermissionError: the root may not be listed; asked for only once.
            OSError: one that may pass, and has not.
        """
        if (page := self._page_with(uri)) is not None:
            return page.find(uri)
        if root in self._refused:
            raise self._refused[root]
        try:
            page = self._list_folder(uri, root)
        except PermissionError as error:
            self._refused[root] = error
            raise
        if uri < page.stop:
            return page.find(uri)
        found = file_system(uri).find(uri)
        return None if found is None else (found.size, found.version)

    def _page_with(self, uri: str) -> _Page | None:
        """What was listed where `uri` would be."""
        at = bisect.bisect_right(self._starts, uri)
        if not at or uri >= self._pages[self._starts[at - 1]].stop:
            return None
        self._pages.move_to_end(self._starts[at - 1])
        return self._pages[self._starts[at - 1]]

    def _list_folder(self, uri: str, root: str) -> _Page:
        """Lists the folder of `uri` from the first name that is not cached."""
        self._listed += 1
        if self._listed > _FEW:
            self._sweep(root)
            if (page := self._page_with(uri)) is not None:
                return page
        at = bisect.bisect_right(self._starts, uri)
        known = self._pages[self._starts[at - 1]].stop if at else ""
        return self._list(max(uri[: uri.rindex("/") + 1], known), root)

    def _sweep(self, root: str) -> None:
        """Continues the listing of a complete root."""
        start, end = self._swept.get(root, root), _end(root)
        while start < end and (page := self._page_with(start)) is not None:
            start = page.stop
        if start < end:
            start = self._list(start, root).stop
        self._swept[root] = start

    def _list(self, start: str, root: str) -> _Page:
        """Lists files of a root, up to the next cached page."""
        sent = start.removesuffix(_JUST_AFTER)
        found, more = file_system(root).list_page(root, first=sent[len(root) :], most=PAGE)
        uris = [one.path for one in found]
        if uris != sorted(uris) or (uris and uris[0] < sent):
            return _page(start, [])  # a server without order and offsets: nothing follows from it
        at = bisect.bisect_right(self._starts, start)
        stops = [_end(root), *self._starts[at : at + 1]]
        if more:
            stops.append(uris[-1] + _JUST_AFTER)
        stop = min(stops)
        page = _page(stop, [one for one in found if start <= one.path < stop])
        self._keep(start, page)
        return page

    def _keep(self, start: str, page: _Page) -> None:
        bisect.insort(self._starts, start)
        self._pages[start] = page
        self._weight += _weight(page)
        while self._weight > _REMEMBERED and len(self._pages) > 1:
            first, forgotten = self._pages.popitem(last=False)
            del self._starts[bisect.bisect_left(self._starts, first)]
            self._weight -= _weight(forgotten)


def _end(root: str) -> str:
    """What comes right after all URIs below a root: `0` is next to `/`."""
    return f"{root[:-1]}0"


def _page(stop: str, found: list[Entry]) -> _Page:
    statuses = [one.status for one in found if one.status is not None]
    sizes = array("q", (one.size for one in statuses))
    versions = array("q", (one.version for one in statuses))
    return _Page(stop, [one.path for one in found], sizes, versions)


def _weight(page: _Page) -> int:
    return len(page.uris) + _PAGE_WEIGHT
