"""Members of tar archives, in order: where their bytes lie, or unpacked once where the archive is gzip.

The format is POSIX.1-2001's, with GNU's extensions, as `tarfile` of the standard library reads it.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from recordmill.transforms.records import BadInput, Failure, ImageRef
from recordmill.transforms.sources.archives.members import has_hidden_part, hidden, member_name
from recordmill.transforms.sources.names import failed
from recordmill.transforms.storage.files import open_file, status_of
from recordmill.transforms.storage.spool import Spool
from recordmill.transforms.storage.zip_member import LARGEST


class TarMember(NamedTuple):
    """A file in a tar archive.

    Attributes:
        name: path in the archive, with `/` between parts.
        size: bytes.
        ref: where its bytes are; asked before the next member is.
        data: its bytes; likewise.
    """

    name: str
    size: int
    ref: Callable[[], ImageRef]
    data: Callable[[], bytes]


DAMAGED = "damaged archive"
# `tarfile` makes numbers, text and paths of what it reads without looking
_DAMAGE = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError, OverflowError, MemoryError)
_BLOCK = 512
_CHUNK = 1 << 20
_LARGEST_HEADER = 16 << 20  # of pax records and of a long name: a compressed archive may claim any size
_LONGEST_END = 64 << 20  # of zeros after the last member: compressed, there may be any number
_Stream = gzip.GzipFile | io.BufferedReader


def is_gzip(path: str) -> bool:
    """Whether an archive is gzip, by name."""
    return path.lower().endswith((".gz", ".tgz"))


def tar_members(path: str, prefix: str, spool: Spool | None = None) -> Iterator[TarMember | Failure]:
    """The files in a tar archive, and what in it is none.

    Args:
        path: absolute, or a URI.
        prefix: what keys of failures start with.
        spool: takes the members of a gzip archive whose `ref` is asked for.

    Yields:
        Up to where an archive is damaged; then a failure that says so.
    """
    with open_file(path) as stored:
        stream: _Stream = gzip.GzipFile(fileobj=stored) if is_gzip(path) else stored
        walk = _Walk(path, prefix, stream, spool)
        try:
            yield from walk.members()
        except _DAMAGE as error:
            yield failed(prefix.rstrip("/") or path.rpartition("/")[2], walk.damage(error))


class _Headers:
    """What `tarfile` reads headers from, each of which it holds."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, size: int, /) -> bytes:
        """The next bytes. Raises tarfile.ReadError where they are more than a header has."""
        if size > _LARGEST_HEADER:
            raise tarfile.ReadError(f"a header has {size} bytes; up to {_LARGEST_HEADER} are read")
        return self._stream.read(size)


class _Walk:
    """One walk over an open archive."""

    def __init__(self, path: str, prefix: str, stream: _Stream, spool: Spool | None) -> None:
        self._path = path
        self._prefix = prefix
        self._stream = stream
        self._spool = spool
        self._status = status_of(path)
        self._known: dict[str, tuple[int, int]] = {}
        self._placed: dict[int, ImageRef] = {}
        self._at = 0

    def damage(self, error: Exception) -> BadInput:
        """What is wrong with the archive, and where."""
        return BadInput("list", DAMAGED, f"{self._path} at byte {self._at}: {error}; what is before is read")

    def members(self) -> Iterator[TarMember | Failure]:
        """Walks the archive. Raises one of `_DAMAGE`."""
        headers: Any = _Headers(self._stream)
        archive = tarfile.TarFile(fileobj=headers, encoding="utf-8", errors="surrogateescape")
        while (info := archive.next()) is not None:
            self._at = info.offset
            vars(archive)["members"].clear()  # it would keep them all
            if (item := self._item(info)) is not None:
                yield item
        self._at = archive.offset
        self._check_end()

    def _check_end(self) -> None:
        """Raises one of `_DAMAGE` unless the archive ends where its members do: `tarfile` does not mind."""
        self._stream.seek(self._at)
        if self._stream.read(_BLOCK).strip(b"\0"):
            raise tarfile.ReadError("there is no header of a member")
        if is_gzip(self._path):
            for _ in range(_LONGEST_END // _CHUNK):
                if not self._stream.read(_CHUNK):  # it has compared its checksum
                    return
            raise tarfile.ReadError(f"more than {_LONGEST_END} bytes follow its last member")

    def _item(self, info: tarfile.TarInfo) -> TarMember | Failure | None:
        if info.isdir():
            return None
        key = self._prefix + info.name
        try:
            name = member_name(info.name)
            if has_hidden_part(name):
                return hidden(self._prefix + name)
            offset, size = self._extent(info)
        except BadInput as fault:
            return failed(key, fault)
        if size < 0 or (not is_gzip(self._path) and offset + size > self._status.size):
            raise tarfile.ReadError(f"{name!r} is cut off")
        self._known[info.name] = offset, size
        return TarMember(
            name,
            size,
            functools.partial(self._ref, offset, size),
            functools.partial(self._data, offset, size),
        )

    def _extent(self, info: tarfile.TarInfo) -> tuple[int, int]:
        """Where a member's bytes are in the unpacked archive, and how many."""
        if info.issparse():
            raise BadInput("list", "sparse member", "pack it again without --sparse")
        if info.isreg():
            return info.offset_data, info.size
        if info.islnk() and info.linkname in self._known:
            return self._known[info.linkname]
        kind = f"a link to {info.linkname!r}" if info.linkname else f"of type {info.type!r}"
        raise BadInput("list", "not a file", f"the member is {kind}")

    def _ref(self, offset: int, size: int) -> ImageRef:
        if not is_gzip(self._path) or not size:
            return ImageRef(self._path, offset, size, version=self._status.generation)
        if self._spool is None:
            raise ValueError("members of a gzip archive have no place without a spool")
        # a hard link leads back, and gzip is unpacked from its start to go there
        if offset not in self._placed:
            self._placed[offset] = self._spool.add(self._data(offset, size))
        return self._placed[offset]

    def _data(self, offset: int, size: int) -> bytes:
        if size > LARGEST:
            raise BadInput("list", "member too large", f"{size} bytes; up to {LARGEST} are read")
        with self._told():
            self._stream.seek(offset)
            data = self._stream.read(size)
            if len(data) < size:
                raise EOFError(f"{len(data)} of {size} bytes are there")
        return data

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as error:
            raise self.damage(error) from error
