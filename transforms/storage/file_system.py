# ruff: noqa: B027  (what an object store has no need of does nothing)
"""The interface of a file system, and the one place that chooses the file system of a path.

The defaults are those of an object store: folders exist as long as something is below them, a file is there
when it is complete, and nothing has to be synced.
"""

from __future__ import annotations

import abc
import base64
import contextlib
import errno
import functools
import hashlib
import importlib
import io
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import ClassVar, NamedTuple, ParamSpec, TypeVar

NEW = 0
"""The condition of a write that there is no such file."""

FILE_SYSTEMS = {
    "": "recordmill.transforms.storage.local:LocalFileSystem",
    "gs": "recordmill.transforms.storage.gcs:GcsFileSystem",
}
"""The class of each file system, by the scheme of its paths; a plain path has none."""

List = list
"""The type, in a class that has a method of that name."""

LEAST_CONTENT_VERSION = 1 << 52
"""Versions that hash the contents are at least this; other versions in the same file system are lower."""

_READ_BYTES = 1 << 20
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")

_P = ParamSpec("_P")
_T = TypeVar("_T")
_R = TypeVar("_R")


class ChangedError(OSError):
    """A file is not, or no longer, in the state that a call names as its condition."""


class Status(NamedTuple):
    """The properties of a file that are available without reading it.

    Attributes:
        version: identifies the contents, 1 to 2**63 - 1; 0 if unknown.
        generation: identifies this state of the file; the condition of writes, removals and ranges.
        modified: nanoseconds since 1970, by the clock of the file system.
        crc32c: of an object's bytes, in base64; empty if the file system stores none.
    """

    size: int
    version: int
    generation: int
    modified: int
    crc32c: str = ""

    @property
    def stamp(self) -> str:
        """The CRC-32C, or else the time of modification: neither changes by a move, link or copy."""
        return self.crc32c or str(self.modified)


class Entry(NamedTuple):
    """A file or folder in a listing.

    Attributes:
        name: from the listed folder on; ends in `/` for a folder, or a link to one.
        is_link: whether it is a symbolic link.
        status: of a file; None for a folder, and with `has_links`.
    """

    name: str
    path: str
    is_link: bool = False
    status: Status | None = None

    @property
    def basename(self) -> str:
        return self.name.rstrip("/")

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, and not a link to one."""
        return self.name.endswith("/") and not self.is_link


class Reader(abc.ABC):
    """Reads images: complete files, and ranges of containers. One reader serves one thread."""

    @abc.abstractmethod
    def read(self, path: str) -> bytes:
        """The bytes of a file at a path without links. Raises BadInput (`load`, `too large`)."""

    @abc.abstractmethod
    def read_range(self, path: str, start: int, length: int | None, generation: int | None) -> bytes:
        """Bytes `start` to `start + length`, or to the end; fewer where the file ends before.

        Args:
            generation: that the file must have, 0 where it never changes; None for any.

        Raises:
            BadInput: as `read`; of the rest of a file.
        """

    def close(self) -> None:
        """Releases what it holds; it may be used again."""


class FileSystem(abc.ABC):
    """Files and folders by their full path. Methods raise OSError; its `errno` says what is wrong.

    An error that may pass has been retried before it is raised.
    """

    scheme: ClassVar[str]
    has_folders: ClassVar[bool] = False
    """Whether folders exist on their own: they are made and removed, and may be renamed in one step."""
    has_links: ClassVar[bool] = False
    """Whether a path may lead elsewhere, by symbolic links."""
    has_latency: ClassVar[bool] = True
    """Whether each call waits for a service: callers look at less, and make several calls at a time."""
    has_conditions: ClassVar[bool] = True
    """Whether a write or removal with a condition is atomic; if not, files can be locked with flock."""

    # Paths

    def check_path(self, path: str) -> None:
        """Raises ValueError, with what is wrong, unless a path can be read from."""

    def check_output_path(self, folder: str) -> None:
        """Raises ValueError unless a path can name a folder to write in; looks at the path alone."""

    def check_output(self, folder: str) -> None:
        """Raises ValueError or OSError unless files can be written in a folder, which need not exist.

        The message continues a sentence that names the folder.
        """

    def absolute(self, path: str) -> str:
        """The full path, without a `/` at its end."""
        scheme, separator, rest = path.partition("://")
        return scheme + separator + rest.rstrip("/")

    def real_path(self, path: str) -> str:
        """The full path with its links resolved, as far as something exists."""
        return self.absolute(path)

    def is_anonymous(self) -> bool:
        """Whether calls carry no credentials, and other libraries that look for some would find none."""
        return False

    # Looking

    @abc.abstractmethod
    def find(self, path: str) -> Status | None:
        """The status of the file at a path, links followed; None where there is no file."""

    def is_folder(self, path: str) -> bool:
        """Whether a path is a folder, or a link to one."""
        return bool(self.list_page(path, most=1)[0])

    @abc.abstractmethod
    def list(self, folder: str, first: str = "", end: str = "", most: int | None = None) -> Iterator[Entry]:
        """What is in a folder, in the order of names.

        Args:
            first: names before this one may be left out.
            end: names from this one on may be left out; empty for none.
            most: the number of entries after which a larger folder is not listed further; None for all.

        Raises:
            FileNotFoundError, NotADirectoryError: there is no folder; an object store has nothing in it then.
        """

    def list_below(self, folder: str) -> Iterator[Entry]:
        """All files below a folder, in the order of names; links to folders are not followed."""
        for entry in self.list(folder):
            if entry.is_folder:
                yield from (one._replace(name=entry.name + one.name) for one in self.list_below(entry.path))
            elif not entry.name.endswith("/"):
                yield entry

    def list_page(
        self, folder: str, prefix: str = "", first: str = "", most: int = 1000
    ) -> tuple[List[Entry], bool]:
        """Files at any depth below a folder, in the order of names: as many as one call gives.

        Args:
            prefix: of the names, from the folder on.
            first: names before this one are left out.
            most: number of files, at most.

        Returns:
            The files, and whether there are more.
        """
        listed = (one for one in self.list_below(folder) if one.name.startswith(prefix) and one.name >= first)
        found = list(itertools.islice(listed, most + 1))
        return found[:most], len(found) > most

    def stat(self, path: str) -> Status:
        """The status of a file. Raises FileNotFoundError if there is none."""
        found = self.find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return found

    def exists(self, path: str) -> bool:
        """Whether a file has this name; with `has_folders`, also a folder, or a link that leads nowhere."""
        return self.find(path) is not None

    def is_file(self, path: str) -> bool:
        """Whether a path is a regular file, or a link to one, and not the prefix of others."""
        return not path.endswith("/") and not self.is_folder(path) and self.find(path) is not None

    def is_there(self, path: str) -> bool:
        """Whether there is a file, a folder or something else at a path, links followed."""
        return self.is_folder(path) or self.find(path) is not None

    def missing(self, path: str) -> str:
        """What to call the missing file or folder at a path where nothing is, in a message."""
        return "file or folder"

    def is_link(self, path: str) -> bool:
        return False

    def check_readable(self, path: str) -> None:
        """Raises OSError if a path is neither a file nor a folder, or may not be read."""

    def is_content_version(self, version: int) -> bool:
        """Whether the version of a complete file is its `content_version`: equal for equal contents."""
        return False

    def is_unchanged(self, path: str, version: int, data: bytes) -> bool:
        """Whether a file that was just read, completely, still has the version that was listed."""
        found = self.find(path)
        return found is not None and found.version == version

    # Reading

    @abc.abstractmethod
    def open(self, path: str) -> io.BufferedReader:
        """Opens a file to be read in order. Links in the path are refused; `real_path` resolves them."""

    def read(self, path: str) -> bytes:
        """The bytes of a file; links are followed."""
        with self.open(self.real_path(path)) as file:
            return file.read()

    @abc.abstractmethod
    def reader(self) -> Reader:
        """A reader of images."""

    # Writing

    @abc.abstractmethod
    def write(
        self, path: str, pieces: Iterable[bytes], if_generation: int | None = None, unfinished_in: str = ""
    ) -> Status:
        """Writes a complete, durable file, or leaves the old one as it is.

        Args:
            if_generation: that the file must have now, `NEW` where there may be none; None for any.
            unfinished_in: folder that holds the file until it is complete; by default, its own.

        Raises:
            ChangedError: the file is in another state.
        """

    def put(self, local_path: str, path: str, if_generation: int | None = None) -> Status:
        """Moves a finished file of this machine to `path`, durably. Raises ChangedError as `write`."""
        with open(local_path, "rb") as file:
            written = self.write(path, iter(lambda: file.read(_READ_BYTES), b""), if_generation)
        os.remove(local_path)
        return written

    def move(self, source: str, target: str) -> None:
        """Renames a file; a file at `target` is replaced. Raises FileNotFoundError where there is none."""
        self.link(source, target)
        self.remove_existing(source)  # or a try whose answer was lost has removed it

    @abc.abstractmethod
    def link(self, source: str, target: str, if_generation: int | None = None) -> None:
        """Gives a file, which nobody changes any more, a second name: by a link, or else by a copy.

        Args:
            if_generation: that the file at `target` must have, `NEW` where there may be none; None for any.

        Raises:
            ChangedError: as `write`; perhaps by a try whose answer was lost.
        """

    @abc.abstractmethod
    def remove(self, path: str, if_generation: int | None = None, within: float | None = None) -> None:
        """Removes a file.

        Args:
            within: seconds to wait for the answer, without retries; None for the usual ones.

        Raises:
            FileNotFoundError: there is none.
            ChangedError: it is in another state.
        """

    def working_folder(self, folder: str) -> str | None:
        """The folder of this machine in which files of `folder` can be written before `put`, or None."""
        return None

    def make_folder(self, path: str) -> None:
        """Makes a folder and those above it, where they do not exist."""

    def remove_folder(self, path: str) -> None:
        """Removes a folder if it exists and is empty."""

    def rename_folder(self, source: str, target: str) -> None:
        """Renames a folder in one step; with `has_folders` alone."""
        raise NotImplementedError

    def sync_folder(self, path: str) -> None:
        """Makes the names in a folder durable."""

    def free_bytes(self, path: str) -> int | None:
        """Free bytes where `path` is or would be; None where there is no limit."""
        return None

    # Several calls at a time

    def each(self, function: Callable[[_T], _R], items: Iterable[_T]) -> List[_R]:
        """The result for each item; several calls at a time where calls wait for a service."""
        return [function(item) for item in items]

    def submit(self, function: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> Future[_T] | None:
        """Begins a call whose result is needed later; None where there is nothing to wait for."""
        # Local files are not read ahead: from the page cache, a thread that does so saves nothing. With and
        # without it, 2,000 kept JPEGs took 2.4 CPU seconds, re-encoded ones 5.6 and 5.3.
        return None

    # Derived

    def remove_existing(self, *paths: str) -> None:
        self.each(self._remove_existing, paths)

    def remove_entries(self, entries: Iterable[Entry]) -> None:
        """Removes files, and folders with everything below them; not a folder without a name."""
        paths: List[str] = []
        for entry in entries:
            if not entry.basename:
                continue
            if entry.is_folder:
                paths += [below.path for below in self.list_below(entry.path)]
            else:
                paths.append(entry.path)
        self.remove_existing(*paths)

    def existing(self, folder: str, names: Iterable[str]) -> set[str]:
        """Those of `names`, with `/` between parts, that exist below a folder."""
        wanted = set(names)
        found = {
            os.path.join(parent, entry.basename)
            for parent in sorted({os.path.dirname(name) for name in wanted})
            for entry in self.contents(os.path.join(folder, parent) if parent else folder)
        }
        return wanted & found

    def contents(self, folder: str) -> List[Entry]:
        """What is in a folder of our own, in the order of names; nothing where there is no folder."""
        try:
            return [entry for entry in self.list(folder) if entry.basename]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def sizes(self, folder: str) -> dict[str, int]:
        files = [entry for entry in self.contents(folder) if not entry.name.endswith("/")]
        found = [entry.status or self.find(entry.path) for entry in files]
        return {entry.name: status.size for entry, status in zip(files, found, strict=True) if status}

    def sha256(self, path: str) -> str:
        """The SHA-256 of a file, in hex; links are followed."""
        hashed = hashlib.sha256()
        with self.open(self.real_path(path)) as file:
            while block := file.read(_READ_BYTES):
                hashed.update(block)
        return hashed.hexdigest()

    def _remove_existing(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self.remove(path)


def scheme_of(path: str) -> str:
    """The scheme of a URI (`gs` of `gs://bucket/a.jpg`); empty for a plain path."""
    match = _SCHEME.match(path)
    return match[1].lower() if match else ""


def file_system(path: str) -> FileSystem:
    """The file system of a path, chosen by its scheme; a path of an unknown scheme is a local one."""
    scheme, separator, _ = path.partition("://")
    return _of_scheme(scheme if separator and scheme in FILE_SYSTEMS else "")


@functools.cache
def _of_scheme(scheme: str) -> FileSystem:
    module, _, name = FILE_SYSTEMS[scheme].partition(":")
    made: FileSystem = getattr(importlib.import_module(module), name)()
    return made


def hash63(data: bytes) -> int:
    """A number from 1 to 2**63 - 1 that identifies some bytes."""
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") >> 1 or 1


def content_version(md5: str, size: int) -> int:
    """The version of contents with this MD5, in base64, and size: `LEAST_CONTENT_VERSION` to 2**63 - 1.

    Services list the MD5 of an object, so that the version is available without reading it. Of 100 million
    different contents, two have the same version with a chance of 1 in 2,000.
    """
    found = hash63(f"{md5} {size}".encode())
    return found if found >= LEAST_CONTENT_VERSION else found | 1 << 62


def version_of_bytes(data: bytes) -> int:
    """The `content_version` of some bytes. The hash is computed without Python's lock."""
    md5 = hashlib.md5(data, usedforsecurity=False).digest()
    return content_version(base64.b64encode(md5).decode(), len(data))
