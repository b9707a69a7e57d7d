"""Confines paths that the input itself names to the roots that the caller named."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import BadInput
from recordmill.transforms.storage import local
from recordmill.transforms.storage.cached_pages import CachedPages
from recordmill.transforms.storage.faults import OUTSIDE as OUTSIDE
from recordmill.transforms.storage.faults import os_fault, retried
from recordmill.transforms.storage.file_system import file_system, scheme_of
from recordmill.transforms.storage.local import not_regular, version_of
from recordmill.transforms.storage.paths import UNTIDY, is_absolute, real_path, tidy_uri

GIVE_ROOT = "give --image_root the folder it leads to, if that is meant to be read"
"""The remedy for `OUTSIDE`."""

_CACHED_DIRECTORIES = 10_000
_LONGEST_OBJECT_NAME = 1024  # bytes of UTF-8


class LocatedFile(NamedTuple):  # a third of the time of a frozen dataclass, a million times
    """A regular file, or an object of a bucket, inside a root.

    Attributes:
        path: its real path; or its URI.
        key: its path below the root.
        size: bytes.
        version: as of `Status`.
    """

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
        """The real path of `path`: what `open_file` is given.

        Raises:
            OSError: `EXDEV` where that is outside the roots, `ENOENT` where a link leads to nothing; or one
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
        """As `leads_to`; a path that leads outside as it is, which `open_file` refuses for its link."""
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
        """The file at an absolute path; True where there is none, False where that is outside the roots."""
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
        """The object at a URI; True where there is none, False where that is outside the roots."""
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
