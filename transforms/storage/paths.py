"""Where paths that the input itself names may lead: inside the roots that the caller named, nowhere else."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from typing import NamedTuple

from transforms.records import BadInput
from transforms.storage.faults import may_pass, os_fault, retried

_UNTIDY = re.compile(r"//|/\.{1,2}(?:/|$)|/$")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")
_CACHED_DIRECTORIES = 10_000


class LocatedFile(NamedTuple):  # a third of the time of a frozen dataclass, a million times
    """A regular file inside a root.

    Attributes:
        path: its real path, links resolved.
        key: its path below the root, with `/` between parts.
        size: bytes.
        version: when it was last modified, in nanoseconds.
    """

    path: str
    key: str
    size: int
    version: int


def scheme_of(path: str) -> str:
    """The scheme of a URI (`gs` of `gs://bucket/a.jpg`), or an empty string for a plain path."""
    match = _SCHEME.match(path)
    return match[1].lower() if match else ""


def real_path(path: str) -> str:
    """The path with its links resolved, as far as there is something at it.

    Raises:
        OSError: a part could not be looked at, and may be a link for all that is known.
        ValueError: no file can be called that.
    """
    return retried(_real_path, path)


def _real_path(path: str) -> str:
    try:
        return os.path.realpath(path, strict=True)
    except OSError as error:
        if may_pass(error):
            raise
        return os.path.realpath(path)


class Confinement:
    """Finds files that must lie inside one of the roots.

    No file is opened: a path is resolved with `realpath`, so `..` and symbolic links count by where
    they really lead. `~` and variables are not expanded.

    Args:
        roots: directories, in the order in which keys are taken from them.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = tuple(dict.fromkeys(map(real_path, roots)))
        self._prefixes = tuple(root if root.endswith("/") else f"{root}/" for root in self.roots)
        self._directories: dict[str, str | None] = {}

    def contains(self, path: str) -> bool:
        """Whether a path without links is a root or lies below one."""
        return path in self.roots or path.startswith(self._prefixes)

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

    def find(self, path: str, bases: Sequence[str]) -> LocatedFile:
        """The file that a manifest's path means.

        Args:
            path: absolute, or relative to one of `bases`; the first at which there is a file wins.
            bases: real paths of directories.

        Returns:
            The file; its key is taken from the first root it lies in.

        Raises:
            BadInput: stage `manifest`; `not found`, `outside the input root`, `not a local path`,
                `not a file`, `not a file name`, `name too long` or `permission denied`.
            OSError: one that may pass, and has not.
        """
        if "://" in path and scheme_of(path):
            raise not_local(path, "manifest")
        candidates = (path,) if path.startswith("/") else tuple(f"{base}/{path}" for base in bases)
        try:
            located = retried(self._first, candidates)
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
            located = self._look(path)
            if isinstance(located, LocatedFile):
                return located
            inside = inside and located
        return inside

    def _look(self, path: str) -> LocatedFile | bool:
        """The file at an absolute path; True where there is none, False where that is outside the roots."""
        if _UNTIDY.search(path):
            # `a/../b` is not `b` where `a` is a link: only the file system knows what `..` means
            path = _real_path(path) if ".." in path.split("/") else os.path.normpath(path)
        directory, _, name = path.rpartition("/")
        real_directory = self._real_directory(directory or "/")
        if real_directory is None:
            return False
        found = f"{real_directory}/{name}"
        try:
            status = os.lstat(found)
            if stat.S_ISLNK(status.st_mode):
                found = _real_path(found)
                if not self.contains(found):
                    return False
                status = os.stat(found)
        except (FileNotFoundError, NotADirectoryError):
            return True
        if not stat.S_ISREG(status.st_mode):
            raise BadInput("manifest", "not a file", path)
        return LocatedFile(found, self._key(path, found), status.st_size, status.st_mtime_ns)

    def _real_directory(self, directory: str) -> str | None:
        """Real path of a directory, or None where it lies outside; remembered, as rows share them."""
        try:
            return self._directories[directory]
        except KeyError:
            pass
        found: str | None = _real_path(directory)
        if found is not None and not self.contains(found):
            found = None
        if len(self._directories) >= _CACHED_DIRECTORIES:
            self._directories.clear()
        self._directories[directory] = found
        return found

    def _key(self, path: str, found: str) -> str:
        for prefix in self._prefixes:
            if path.startswith(prefix):
                return path[len(prefix) :]
        return next(found[len(prefix) :] for prefix in self._prefixes if found.startswith(prefix))


def not_local(path: str, stage: str) -> BadInput:
    """The failure of an image whose URI this version cannot read."""
    remedy = "copy the images, and give --image_root the folder that then holds BUCKET/PATH or PATH"
    return BadInput(stage, "not a local path", f"{path}; {remedy}")


def _outside(path: str, stage: str) -> BadInput:
    remedy = "give --image_root the folder it leads to, if that is meant to be read"
    return BadInput(stage, "outside the input root", f"{path!r}; {remedy}")


def _not_found(path: str, bases: Sequence[str]) -> BadInput:
    where = "" if path.startswith("/") else f", looked for in {', '.join(bases)}"
    hint = "; it has backslashes, and parts of a path are separated by /" if "\\" in path else ""
    return BadInput("manifest", "not found", f"{path!r}{where}{hint}")
