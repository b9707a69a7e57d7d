"""Confines paths that the input itself names to the roots that the caller named."""

from __future__ import annotations

import bisect
import collections
import errno
import os
import stat
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import BadInput
from recordmill.transforms.storage import local
from recordmill.transforms.storage.faults import OUTSIDE as OUTSIDE
from recordmill.transforms.storage.faults import os_fault, retried
from recordmill.transforms.storage.file_system import Entry, file_system, scheme_of
from recordmill.transforms.storage.local import not_regular, version_of
from recordmill.transforms.storage.paths import UNTIDY, is_absolute, real_path, tidy_uri

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
        at = bisect.bisect_left(self.uris, uri)
        if at == len(self.uris) or self.uris[at] != uri:
            return None
        return self.sizes[at], self.versions[at]


class CachedPages:
    """Finds files; each request lists up to 1000 that follow each other in the order of names.

    A lookup lists the folder of the file, from the first name that is not cached; a file that comes after
    those thousand is looked up by itself. After some lookups, each one also continues a listing of the
    complete root: then all files of a root cost few requests a thousand, in any order and in any folders.
    """

    def __init__(self) -> None:
        self._starts: list[str] = []
        self._pages: collections.OrderedDict[str, _Page] = collections.OrderedDict()
        self._weight = 0
        self._listed = 0
        self._swept: dict[str, str] = {}
        self._refused: dict[str, PermissionError] = {}

    def find(self, uri: str, root: str) -> tuple[int, int] | None:
        """Size and version of a file below `root`, which ends in `/`; None if there is none.

        Raises:
            PermissionError: the root may not be listed; requested only once.
            OSError: a fault that may pass, and has not.
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
        """The cached page that `uri` would be in."""
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
    """The first text after all URIs below a root: `0` is next to `/`."""
    return f"{root[:-1]}0"


def _page(stop: str, found: list[Entry]) -> _Page:
    statuses = [one.status for one in found if one.status is not None]
    sizes = array("q", (one.size for one in statuses))
    versions = array("q", (one.version for one in statuses))
    return _Page(stop, [one.path for one in found], sizes, versions)


def _weight(page: _Page) -> int:
    return len(page.uris) + _PAGE_WEIGHT


GIVE_ROOT = "give --image_root the folder it leads to, if that is meant to be read"
"""The remedy for `OUTSIDE`."""

_CACHED_DIRECTORIES = 10_000
_LONGEST_OBJECT_NAME = 1024  # bytes of UTF-8


class LocatedFile(NamedTuple):  # a third of the time of a frozen dataclass, a million times
    """A regular file, or an object of a bucket, inside a root: `key` is its path below the root."""

    path: str
    key: str
    size: int
    version: int


class Confinement:
    """Finds files that must lie inside one of the roots.

    No file is opened: a path is resolved with `realpath`, so `..` and symbolic links count by where
    they really lead. `~` and variables are not expanded. Where a file system has no links, `..` counts by
    the parts of the path.

    Args:
        roots: directories, and URIs, in the order in which keys are taken from them.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = tuple(dict.fromkeys(map(real_path, roots)))
        self._prefixes = tuple(root if root.endswith("/") else f"{root}/" for root in self.roots)
        self._directories: dict[str, str | None] = {}
        self._objects = CachedPages()

    def contains(self, path: str) -> bool:
        """Whether a path without links is a root or lies below one."""
        return path in self.roots or path.startswith(self._prefixes)

    def holds(self, path: str) -> bool:
        """Whether a path, with its links resolved, lies in a root."""
        return self.contains(real_path(path))

    def leads_to(self, path: str) -> str:
        """The real path of `path`, for `open_file`.

        Raises:
            OSError: `EXDEV` if that is outside the roots, `ENOENT` if a link leads to nothing; or a fault
                that may pass, and has not.
        """
        found = real_path(path)
        if not self.contains(found):
            raise OSError(errno.EXDEV, f"it leads to {found!r}, {OUTSIDE}; {GIVE_ROOT}", path)
        system = file_system(found)
        if system.has_links and found != path and not system.exists(found):
            raise FileNotFoundError(errno.ENOENT, f"it leads to {found!r}, where nothing is", path)
        return found

    def inner(self, path: str) -> str:
        """As `leads_to`; but a path that leads outside is returned, and `open_file` refuses its link."""
        found = real_path(path)
        return found if self.contains(found) else path

    def resolve(self, path: str, stage: str = "manifest") -> str:
        """The real path of `path`, whether or not there is such a file.

        Raises:
            BadInput: `outside the input root`, `not a local path` or `not a file name`.
            OSError: one that may pass, and has not.
        """
        if scheme_of(path):
            raise not_local(path, stage)
        try:
            found = real_path(path)
        except ValueError as error:
            raise BadInput(stage, "not a file name", repr(path)) from error
        if "\0" in path:
            raise BadInput(stage, "not a file name", repr(path))
        if not self.contains(found):
            raise _outside(path, stage)
        return found

    def followed(self, path: str) -> str | None:
        """The path of an entry of a folder; of a link, where it leads, or None if outside the roots."""
        try:
            return self.resolve(path, "list") if file_system(path).is_link(path) else path
        except BadInput:
            return None

    def find(self, path: str, bases: Sequence[str]) -> LocatedFile:
        """The file that a manifest's path means; its key is taken from the first root it lies in.

        Args:
            path: absolute, a URI, or relative to one of `bases`; the first at which there is a file wins.
            bases: real paths of directories, and URIs.

        Raises:
            BadInput: stage `manifest`; `not found`, `outside the input root`, `not a local path`,
                `not a file`, `not a file name`, `name too long` or `permission denied`.
            OSError: one that may pass, and has not.
        """
        if "://" in path and scheme_of(path) and not is_absolute(path):
            raise not_local(path, "manifest")
        candidates = (path,) if is_absolute(path) else tuple(f"{base}/{path}" for base in bases)
        try:
            located = self._first(candidates)
        except OSError as error:
            raise os_fault(error, "manifest") from error
        except ValueError as error:
            raise BadInput("manifest", "not a file name", repr(path)) from error
        if isinstance(located, LocatedFile):
            return located
        raise _not_found(path, bases) if located else _outside(path, "manifest")

    def _first(self, paths: Sequence[str]) -> LocatedFile | bool:
        """The first file; where there is none, whether all the paths are inside the roots."""
        inside = True
        for path in paths:
            has_links = file_system(path).has_links
            located = retried(self._look, path) if has_links else self._look_in_pages(path)
            if isinstance(located, LocatedFile):
                return located
            inside = inside and located
        return inside

    def _look(self, path: str) -> LocatedFile | bool:
        """The file at an absolute path; True if there is none, False if that is outside the roots."""
        if UNTIDY.search(path):
            # `a/../b` is not `b` where `a` is a link: only the file system knows what `..` means
            path = local.real_path(path) if ".." in path.split("/") else os.path.normpath(path)
        directory, _, name = path.rpartition("/")
        real_directory = self._real_directory(directory or "/")
        if real_directory is None:
            return False
        found = f"{real_directory}/{name}"
        try:
            status = os.lstat(found)
            if stat.S_ISLNK(status.st_mode):
                found = local.real_path(found)
                if not self.contains(found):
                    return False
                status = os.stat(found)
        except (FileNotFoundError, NotADirectoryError):
            return True
        if (fault := not_regular(status.st_mode)) is not None:
            raise BadInput("manifest", "not a file", f"{path}: {fault}")
        return LocatedFile(found, self._key(path, found), status.st_size, version_of(status))

    def _look_in_pages(self, uri: str) -> LocatedFile | bool:
        """The object at a URI; True if there is none, False if that is outside the roots."""
        if "\0" in uri:
            raise ValueError(f"{uri!r} has a NUL byte")
        if len(uri.partition("://")[2].encode()) > _LONGEST_OBJECT_NAME:
            raise OSError(errno.ENAMETOOLONG, "an object's name has up to 1024 bytes", uri)
        try:
            uri = tidy_uri(uri)
        except ValueError:
            return False
        prefix = next((prefix for prefix in self._prefixes if uri.startswith(prefix)), None)
        if prefix is None:
            if uri in self.roots:
                raise BadInput("manifest", "not a file", uri)
            return False
        found = self._objects.find(uri, prefix)
        return True if found is None else LocatedFile(uri, uri[len(prefix) :], *found)

    def _real_directory(self, directory: str) -> str | None:
        """Real path of a directory, or None where it lies outside; remembered, as rows share them."""
        if directory not in self._directories:
            found = local.real_path(directory)
            if len(self._directories) >= _CACHED_DIRECTORIES:
                self._directories.clear()
            self._directories[directory] = found if self.contains(found) else None
        return self._directories[directory]

    def _key(self, path: str, found: str) -> str:
        return next(
            one[len(prefix) :] for one in (path, found) for prefix in self._prefixes if one.startswith(prefix)
        )


def not_local(path: str, stage: str) -> BadInput:
    """The failure of an image whose URI this version cannot read."""
    remedy = "copy the images, and give --image_root the folder that then holds BUCKET/PATH or PATH"
    return BadInput(stage, "not a local path", f"{path}; {remedy}")


def _outside(path: str, stage: str) -> BadInput:
    remedy = GIVE_ROOT
    if scheme := file_system(path).scheme:
        bucket = path[len(scheme) + 3 :].partition("/")[0]
        remedy = (
            f"give {flag_with('--image_root', f'{scheme}://{bucket}')}, or the folder in it, "
            "if that is meant to be read; or the local folder that holds copies, as BUCKET/PATH or PATH"
        )
    return BadInput(stage, OUTSIDE, f"{path!r}; {remedy}")


def _not_found(path: str, bases: Sequence[str]) -> BadInput:
    where = "" if is_absolute(path) else f", looked for in {', '.join(bases)}"
    hint = "; it has backslashes, and parts of a path are separated by /" if "\\" in path else ""
    return BadInput("manifest", "not found", f"{path!r}{where}{hint}")
