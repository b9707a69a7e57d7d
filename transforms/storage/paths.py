"""Where paths that the input itself names may lead: inside the roots that the caller named, nowhere else."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from typing import NamedTuple

from transforms.records import BadInput
from transforms.storage.local import os_fault

_UNTIDY = re.compile(r"//|/\.{1,2}(?:/|$)|/$")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")
_CACHED_DIRECTORIES = 10_000


class LocatedFile(NamedTuple):  # a third of the time of a frozen dataclass, a million times
    """A regular file inside a root.

    Attributes:
        path: its real path, links resolved.
        key: its path below the root, with `/` between parts.
        size: bytes.
    """

    path: str
    key: str
    size: int


def scheme_of(path: str) -> str:
    """The scheme of a URI (`gs` of `gs://bucket/a.jpg`), or an empty string for a plain path."""
    match = _SCHEME.match(path)
    return match[1].lower() if match else ""


class Confinement:
    """Finds files that must lie inside one of the roots.

    No file is opened: a path is resolved with `realpath`, so `..` and symbolic links count by where
    they really lead. `~` and variables are not expanded.

    Args:
        roots: directories, in the order in which keys are taken from them.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = tuple(dict.fromkeys(os.path.realpath(root) for root in roots))
        self._prefixes = tuple(root if root.endswith("/") else f"{root}/" for root in self.roots)
        self._directories: dict[str, str | None] = {}

    def contains(self, real_path: str) -> bool:
        """Whether a path without links is a root or lies below one."""
        return real_path in self.roots or real_path.startswith(self._prefixes)

    def resolve(self, path: str, stage: str = "manifest") -> str:
        """The real path of `path`, whether or not there is such a file.

        Raises:
            BadInput: `outside the input root`, `not a local path` or `not a file name`.
        """
        if scheme_of(path):
            raise not_local(path, stage)
        try:
            real_path = os.path.realpath(path)
        except ValueError as error:
            raise BadInput(stage, "not a file name", repr(path)) from error
        if "\0" in path:
            raise BadInput(stage, "not a file name", repr(path))
        if not self.contains(real_path):
            raise _outside(path, stage)
        return real_path

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
        """
        if "://" in path and scheme_of(path):
            raise not_local(path, "manifest")
        outside = False
        candidates = (path,) if path.startswith("/") else tuple(f"{base}/{path}" for base in bases)
        try:
            for candidate in candidates:
                located = self._look(candidate)
                if isinstance(located, LocatedFile):
                    return located
                outside = outside or not located
        except OSError as error:
            raise os_fault(error, "manifest") from error
        except ValueError as error:
            raise BadInput("manifest", "not a file name", repr(path)) from error
        if outside:
            raise _outside(path, "manifest")
        raise _not_found(path, bases)

    def _look(self, path: str) -> LocatedFile | bool:
        """The file at an absolute path; True where there is none, False where that is outside the roots."""
        if _UNTIDY.search(path):
            # `a/../b` is not `b` where `a` is a link: only the file system knows what `..` means
            path = os.path.realpath(path) if ".." in path.split("/") else os.path.normpath(path)
        directory, _, name = path.rpartition("/")
        real_directory = self._real_directory(directory or "/")
        if real_directory is None:
            return False
        real_path = f"{real_directory}/{name}"
        try:
            status = os.lstat(real_path)
            if stat.S_ISLNK(status.st_mode):
                real_path = os.path.realpath(real_path)
                if not self.contains(real_path):
                    return False
                status = os.stat(real_path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        if not stat.S_ISREG(status.st_mode):
            raise BadInput("manifest", "not a file", path)
        return LocatedFile(real_path, self._key(path, real_path), status.st_size)

    def _real_directory(self, directory: str) -> str | None:
        """Real path of a directory, or None where it lies outside; remembered, as rows share them."""
        try:
            return self._directories[directory]
        except KeyError:
            pass
        real_path: str | None = os.path.realpath(directory)
        if real_path is not None and not self.contains(real_path):
            real_path = None
        if len(self._directories) >= _CACHED_DIRECTORIES:
            self._directories.clear()
        self._directories[directory] = real_path
        return real_path

    def _key(self, path: str, real_path: str) -> str:
        for prefix in self._prefixes:
            if path.startswith(prefix):
                return path[len(prefix) :]
        return next(real_path[len(prefix) :] for prefix in self._prefixes if real_path.startswith(prefix))


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
