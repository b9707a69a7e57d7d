"""Where paths that the input itself names may lead: inside the roots that the caller named, nowhere else."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Sequence
from typing import NamedTuple

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import BadInput
from recordmill.transforms.storage.faults import OUTSIDE as OUTSIDE
from recordmill.transforms.storage.faults import may_pass, os_fault, retried
from recordmill.transforms.storage.known_objects import KnownObjects
from recordmill.transforms.storage.local import not_regular, version_of

GIVE_ROOT = "give --image_root the folder it leads to, if that is meant to be read"
"""The remedy for `OUTSIDE`."""

_UNTIDY = re.compile(r"//|/\.{1,2}(?:/|$)|/$")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")
_BUCKET_SCHEME = "gs://"
_CACHED_DIRECTORIES = 10_000
_LONGEST_OBJECT_NAME = 1024  # bytes of UTF-8


class LocatedFile(NamedTuple):  # a third of the time of a frozen dataclass, a million times
    """A regular file, or an object of a bucket, inside a root.

    Attributes:
        path: its real path, links resolved; or its URI.
        key: its path below the root, with `/` between parts.
        size: bytes.
        version: of the whole file, as of `Status`.
    """

    path: str
    key: str
    size: int
    version: int


def scheme_of(path: str) -> str:
    """The scheme of a URI (`gs` of `gs://bucket/a.jpg`), or an empty string for a plain path."""
    match = _SCHEME.match(path)
    return match[1].lower() if match else ""


def is_remote(path: str) -> bool:
    """Whether a path names a bucket of Google Cloud Storage, or something in one."""
    return path.startswith(_BUCKET_SCHEME)


def expanded(path: str) -> str:
    """A path whose `~` or `~user` at the start is replaced by the home folder.

    Raises:
        ValueError: that user does not exist.
    """
    found = os.path.expanduser(path)
    if found.startswith("~"):
        user = path[1:].partition("/")[0]
        raise ValueError(f"there is no user {user!r}; a file or folder of that name is ./{path}")
    return found


def absolute(path: str) -> str:
    """The path from the root, `~` expanded, or the URI; without a `/` at its end.

    Raises:
        ValueError: it begins with `~user`, and that user does not exist.
    """
    if is_remote(path):
        return path.rstrip("/")
    try:
        return os.path.abspath(expanded(path))
    except ValueError as error:
        raise ValueError(f"{path!r}: {error}") from error


def real_path(path: str) -> str:
    """The path with its links resolved, as far as there is something at it; a URI as `absolute` has it.

    Raises:
        OSError: a part could not be looked at, and may be a link for all that is known.
        ValueError: no file can be called that.
    """
    return absolute(path) if is_remote(path) else retried(_real_path, path)


def tidy_uri(uri: str) -> str:
    """A `gs://` URI whose empty parts, `.` and `..` are resolved as a file system does.

    Raises:
        ValueError: it leads out of its bucket.
    """
    if not _UNTIDY.search(uri, len(_BUCKET_SCHEME)):
        return uri
    bucket, *parts = uri[len(_BUCKET_SCHEME) :].split("/")
    kept = [bucket]
    for part in parts:
        if part == ".." and len(kept) == 1:
            raise ValueError(f"{uri!r} leads out of its bucket")
        if part == "..":
            kept.pop()
        elif part not in ("", "."):
            kept.append(part)
    return _BUCKET_SCHEME + "/".join(kept)


def below(root: str, path: str) -> str | None:
    """What follows `root` in `path`, both real paths of one kind; None where it does not lie below."""
    prefix = root if root.endswith("/") else f"{root}/"
    return path[len(prefix) :] if path.startswith(prefix) else None


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
    they really lead. `~` and variables are not expanded. In a bucket, which has no links, `..` counts by
    the parts of the name.

    Args:
        roots: directories, and `gs://` prefixes, in the order in which keys are taken from them.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = tuple(dict.fromkeys(map(real_path, roots)))
        self._prefixes = tuple(root if root.endswith("/") else f"{root}/" for root in self.roots)
        self._directories: dict[str, str | None] = {}
        self._objects = KnownObjects()

    def contains(self, path: str) -> bool:
        """Whether a path without links is a root or lies below one."""
        return path in self.roots or path.startswith(self._prefixes)

    def holds(self, path: str) -> bool:
        """Whether a path, with its links resolved, lies in a root.

        Raises:
            OSError: a transient fault has lasted.
        """
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
        if found != path and not is_remote(path) and not os.path.lexists(found):
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

    def find(self, path: str, bases: Sequence[str]) -> LocatedFile:
        """The file that a manifest's path means.

        Args:
            path: absolute, a `gs://` URI, or relative to one of `bases`; the first at which there is a
                file wins.
            bases: real paths of directories, and `gs://` prefixes.

        Returns:
            The file; its key is taken from the first root it lies in.

        Raises:
            BadInput: stage `manifest`; `not found`, `outside the input root`, `not a local path`,
                `not a file`, `not a file name`, `name too long` or `permission denied`.
            OSError: one that may pass, and has not.
        """
        has_scheme = "://" in path and bool(scheme_of(path))
        if has_scheme and not is_remote(path):
            raise not_local(path, "manifest")
        is_whole = has_scheme or path.startswith("/")
        candidates = (path,) if is_whole else tuple(f"{base}/{path}" for base in bases)
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
            located = self._look_in_bucket(path) if is_remote(path) else retried(self._look, path)
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
        if (fault := not_regular(status.st_mode)) is not None:
            raise BadInput("manifest", "not a file", f"{path}: {fault}")
        return LocatedFile(found, self._key(path, found), status.st_size, version_of(status))

    def _look_in_bucket(self, uri: str) -> LocatedFile | bool:
        """The object at a URI; True where there is none, False where that is outside the roots."""
        if "\0" in uri:
            raise ValueError(f"{uri!r} has a NUL byte")
        if len(uri.encode()) > _LONGEST_OBJECT_NAME + len(_BUCKET_SCHEME):
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
    remedy = GIVE_ROOT
    if is_remote(path):
        bucket = path[len(_BUCKET_SCHEME) :].partition("/")[0]
        remedy = (
            f"give {flag_with('--image_root', _BUCKET_SCHEME + bucket)}, or the folder in it, "
            "if that is meant to be read; or the local folder that holds copies, as BUCKET/PATH or PATH"
        )
    return BadInput(stage, OUTSIDE, f"{path!r}; {remedy}")


def _not_found(path: str, bases: Sequence[str]) -> BadInput:
    where = "" if path.startswith("/") or is_remote(path) else f", looked for in {', '.join(bases)}"
    hint = "; it has backslashes, and parts of a path are separated by /" if "\\" in path else ""
    return BadInput("manifest", "not found", f"{path!r}{where}{hint}")
