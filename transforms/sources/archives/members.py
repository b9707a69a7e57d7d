"""Finds the bytes of members in tar and ZIP archives; members of gzip archives are unpacked once.

The formats are POSIX.1-2001's tar with GNU's extensions, and PKWARE's APPNOTE.TXT, as `tarfile` and `zipfile`
of the standard library read them. Members of a ZIP are unpacked when they are read.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import lzma
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from recordmill.transforms.records import BadInput, Failure, ImageRef
from recordmill.transforms.sources.names import (
    HIDDEN,
    failed,
    is_hidden,
    is_unicode,
    one_line,
    printable,
    skipped,
)
from recordmill.transforms.storage.files import open_file, status_of
from recordmill.transforms.storage.spool import Spool
from recordmill.transforms.storage.zip_member import DEFLATED, LARGEST, LOCAL_HEADER, STORED, wrapping_of

DAMAGED = "damaged archive"
_OUTWARD = re.compile(r"^/|^[A-Za-z]:|[\\\0]")
_BLOCK = 512
_CHUNK = 1 << 20
_LARGEST_HEADER = 16 << 20  # of pax records and of a long name; a damaged header may state any size
_LONGEST_END = 64 << 20  # of zeros after the last member; compressed, there may be very many
# `tarfile` and `zipfile` parse numbers, text and paths without checks
_DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, struct.error, zlib.error, lzma.LZMAError),
    *(EOFError, MemoryError, OverflowError, RuntimeError, ValueError),
)
_LONGEST_EXTRA = 0xFFFF
_ENCRYPTED, _UTF8 = 0x1, 0x800
_FAT = 0  # the system that Windows' own tools record

_Stream = gzip.GzipFile | io.BufferedReader


class Member(NamedTuple):
    """A file in an archive; of a tar, `ref` and `data` are called before the next member is listed."""

    name: str  # path in the archive, with `/` between parts
    size: int  # bytes, unpacked
    ref: Callable[[], ImageRef]
    data: Callable[[], bytes] = bytes  # of a tar only


def is_gzip(path: str) -> bool:
    """Whether an archive is gzip, by name."""
    return path.lower().endswith((".gz", ".tgz"))


def _member_name(name: str) -> str:
    """The path of a member without empty parts and `.`. Raises BadInput, stage `list`."""
    parts = name.split("/")
    if not name or _OUTWARD.search(name) or ".." in parts:
        raise BadInput("list", "outside the archive", f"a member is called {printable(name)!r}")
    if not is_unicode(name):
        raise BadInput("list", "name is not UTF-8", "rename the member")
    return "/".join(part for part in parts if part not in ("", "."))


def tar_members(path: str, prefix: str, spool: Spool | None) -> Iterator[Member | Failure]:
    """The files in a tar, in its order, and failures for other members and for damage.

    Keys of failures start with `prefix`; `spool` stores the members of a gzip archive whose `ref` is called.
    """
    with open_file(path) as stored:
        walk = _TarWalk(path, prefix, gzip.GzipFile(fileobj=stored) if is_gzip(path) else stored, spool)
        try:
            yield from walk.members()
        except _DAMAGE as error:
            yield failed(prefix.rstrip("/") or path.rpartition("/")[2], walk.damage(error))


class _TarWalk:
    """One walk over an open tar."""

    def __init__(self, path: str, prefix: str, stream: _Stream, spool: Spool | None) -> None:
        self._path, self._prefix, self._spool = path, prefix, spool
        self._stream, self.seek, self.tell = stream, stream.seek, stream.tell
        self._status = status_of(path)
        self._extents: dict[str, tuple[int, int]] = {}  # offset and size by name, for hard links
        self._spooled: dict[int, ImageRef] = {}  # by offset
        self._at = 0  # the offset of the last header

    def damage(self, error: Exception) -> BadInput:
        """The fault of a damaged archive."""
        return BadInput("list", DAMAGED, f"{self._path} at byte {self._at}: {error}; what is before is read")

    def read(self, size: int, /) -> bytes:
        """Reads headers for `tarfile`, which holds each in memory."""
        if size > _LARGEST_HEADER:
            raise tarfile.ReadError(f"a header has {size} bytes; up to {_LARGEST_HEADER} are read")
        return self._stream.read(size)

    def members(self) -> Iterator[Member | Failure]:
        """Walks the archive. Raises one of `_DAMAGE`."""
        headers: Any = self  # `read`, `seek` and `tell`
        archive = tarfile.TarFile(fileobj=headers, encoding="utf-8", errors="surrogateescape")
        while (info := archive.next()) is not None:
            self._at = info.offset
            vars(archive)["members"].clear()  # `tarfile` keeps all
            if not info.isdir():
                yield self._item(info)
        self._at = archive.offset
        self._stream.seek(self._at)  # `tarfile` does not check that the archive ends here
        if self._stream.read(_BLOCK).strip(b"\0"):
            raise tarfile.ReadError("there is no header of a member")
        rest = (self._stream.read(_CHUNK) for _ in range(_LONGEST_END // _CHUNK))
        if is_gzip(self._path) and all(rest):  # at its end, gzip verifies the checksum
            raise tarfile.ReadError(f"more than {_LONGEST_END} bytes follow its last member")

    def _item(self, info: tarfile.TarInfo) -> Member | Failure:
        try:
            name = _member_name(info.name)
            if any(map(is_hidden, name.split("/"))):
                return skipped(self._prefix + name, HIDDEN)
            offset, size = self._extent(info)
        except BadInput as fault:
            return failed(self._prefix + info.name, fault)
        if size < 0 or (not is_gzip(self._path) and offset + size > self._status.size):
            raise tarfile.ReadError(f"{name!r} is cut off")
        self._extents[info.name] = offset, size
        return Member(name, size, lambda: self._ref(offset, size), lambda: self._data(offset, size))

    def _extent(self, info: tarfile.TarInfo) -> tuple[int, int]:
        """The offset of a member's bytes in the unpacked archive, and their number."""
        if info.issparse():
            raise BadInput("list", "sparse member", "pack it again without --sparse")
        if info.isreg():
            return info.offset_data, info.size
        if info.islnk() and info.linkname in self._extents:
            return self._extents[info.linkname]
        kind = f"a link to {info.linkname!r}" if info.linkname else f"of type {info.type!r}"
        raise BadInput("list", "not a file", f"the member is {kind}")

    def _ref(self, offset: int, size: int) -> ImageRef:
        if not is_gzip(self._path) or not size:
            return ImageRef(self._path, offset, size, version=self._status.generation)
        if self._spool is None:
            raise ValueError("a member of a gzip archive has a reference only with a spool")
        # a hard link points back, and seeking back in gzip unpacks it from the start
        if offset not in self._spooled:
            self._spooled[offset] = self._spool.add(self._data(offset, size))
        return self._spooled[offset]

    def _data(self, offset: int, size: int) -> bytes:
        if size > LARGEST:
            raise BadInput("list", "member too large", f"{size} bytes; up to {LARGEST} are read")
        try:
            self._stream.seek(offset)
            data = self._stream.read(size)
            if len(data) < size:
                raise EOFError(f"{len(data)} of {size} bytes are there")
        except _DAMAGE as error:
            raise self.damage(error) from error
        return data


@contextlib.contextmanager
def naming_damage(fault: Callable[[str], Exception]) -> Iterator[None]:
    """Replaces the exceptions of `zipfile` and `gzip` for damaged bytes; `fault` gets their text."""
    try:
        yield
    except (*_DAMAGE, OSError) as error:
        # no errno: from bz2 or gzip; EINVAL: from seeking to an offset in a damaged directory
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise fault(one_line(error)) from error


def zip_members(path: str, prefix: str) -> Iterator[Member | Failure]:
    """As `tar_members`. Raises BadInput, stage `list`, if it is not a ZIP file."""
    generation = status_of(path).generation
    with (
        open_file(path) as stream,
        naming_damage(lambda what: BadInput("list", "not a ZIP file", f"{path}: {what}")),
        zipfile.ZipFile(stream) as archive,
    ):
        members, end = archive.infolist(), archive.start_dir
    starts = sorted({info.header_offset for info in members})
    ends = dict(zip(starts, [*starts, end][1:], strict=True))  # at the next member, or at the directory
    taken: set[int] = set()
    for info in members:
        stored = _stored_name(info)
        if stored.endswith("/"):
            continue
        try:
            name = _member_name(stored)
            if any(map(is_hidden, name.split("/"))):
                yield skipped(prefix + name, HIDDEN)
                continue
            ref = _zip_ref(path, generation, info, ends[info.header_offset])
            if ref.offset in taken:
                raise BadInput("list", "members overlap", f"another one starts at byte {ref.offset}, too")
            taken.add(ref.offset)
        except BadInput as fault:
            yield failed(prefix + stored, fault)
            continue
        yield Member(name, info.file_size, lambda ref=ref: ref)  # type: ignore[misc]


def _stored_name(info: zipfile.ZipInfo) -> str:
    """The name of a member; corrects UTF-8 without its flag (Info-ZIP, macOS) and `\\` (.NET)."""
    name = info.orig_filename
    if not info.flag_bits & _UTF8:
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode()
    return name.replace("\\", "/") if info.create_system == _FAT and "/" not in name else name


def _zip_ref(path: str, generation: int, info: zipfile.ZipInfo, end: int) -> ImageRef:
    """The range of a member. Raises BadInput, stage `list`, if it is not supported."""
    if stat.S_ISLNK(info.external_attr >> 16):
        raise BadInput("list", "not a file", "the member is a symbolic link")
    if info.flag_bits & _ENCRYPTED:
        raise BadInput("list", "encrypted member", "unpack it with its password")
    if info.compress_type not in (STORED, DEFLATED):
        method = f"its method is {info.compress_type}"
        raise BadInput("list", "compression is not read", f"{method}; stored (0) and deflated (8) ones are")
    if (size := max(info.file_size, info.compress_size)) > LARGEST:
        raise BadInput("list", "member too large", f"{size} bytes; up to {LARGEST} are read")
    start = info.header_offset
    least = LOCAL_HEADER.size + len(info.orig_filename) + info.compress_size
    if start < 0 or end - start < least:
        raise BadInput("list", "members overlap", f"{end - start} bytes are there for {least} or more")
    longest = LOCAL_HEADER.size + 2 * _LONGEST_EXTRA + info.compress_size
    wrapping = wrapping_of(info.compress_size, info.file_size, info.CRC)
    return ImageRef(path, start, min(end - start, longest), version=generation, wrapping=wrapping)
