"""Members of ZIP archives, from the central directory: ranges that are unpacked when they are read.

The format is PKWARE's APPNOTE.TXT, as `zipfile` of the standard library reads it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator

from recordmill.transforms.records import BadInput, Failure, ImageRef
from recordmill.transforms.sources.archives.members import Member, has_hidden_part, hidden, member_name
from recordmill.transforms.sources.names import failed, one_line
from recordmill.transforms.storage.files import open_file, status_of
from recordmill.transforms.storage.zip_member import DEFLATED, LARGEST, LOCAL_HEADER, STORED, wrapping_of

_LONGEST_EXTRA = 0xFFFF
_ENCRYPTED, _UTF8 = 0x1, 0x800
_BROKEN = (
    zipfile.BadZipFile,
    struct.error,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    MemoryError,
    OverflowError,
    RuntimeError,
    ValueError,
)
_FAT = 0  # the system that Windows' own tools say they pack on


@contextlib.contextmanager
def naming_damage(fault: Callable[[str], Exception]) -> Iterator[None]:
    """Makes what `zipfile` raises for the bytes of an archive into another exception.

    Args:
        fault: makes it of what is wrong, in a line.
    """
    try:
        yield
    except _BROKEN as error:
        raise fault(one_line(error)) from error
    except OSError as error:  # of bz2, or of seeking to where a directory says
        if error.errno not in (None, errno.EINVAL):
            raise
        raise fault(one_line(error)) from error


def zip_members(path: str, prefix: str) -> Iterator[Member | Failure]:
    """The files in a ZIP archive, in the order of its directory, and what in it is none.

    Args:
        path: absolute, or a URI.
        prefix: what keys of failures start with.

    Raises:
        BadInput: stage `list`, `not a ZIP file`.
    """
    generation = status_of(path).generation
    with (
        open_file(path) as stream,
        naming_damage(lambda what: BadInput("list", "not a ZIP file", f"{path}: {what}")),
        zipfile.ZipFile(stream) as archive,
    ):
        members, end = archive.infolist(), archive.start_dir
    ends = _ends(members, end)
    taken: set[int] = set()
    for info in members:
        stored = _stored_name(info)
        if stored.endswith("/"):
            continue
        try:
            name = member_name(stored)
            if has_hidden_part(name):
                yield hidden(prefix + name)
                continue
            ref = _ref(path, generation, info, ends[info.header_offset])
            if ref.offset in taken:
                raise BadInput("list", "members overlap", f"another one starts at byte {ref.offset}, too")
            taken.add(ref.offset)
        except BadInput as fault:
            yield failed(prefix + stored, fault)
            continue
        yield Member(name, info.file_size, functools.partial(_same, ref))


def _stored_name(info: zipfile.ZipInfo) -> str:
    """The name of a member as it was meant: Info-ZIP and macOS write UTF-8 without its flag, .NET `\\`."""
    name = info.orig_filename
    if not info.flag_bits & _UTF8:
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode()
    return name.replace("\\", "/") if info.create_system == _FAT and "/" not in name else name


def _same(ref: ImageRef) -> ImageRef:
    return ref


def _ends(members: list[zipfile.ZipInfo], end: int) -> dict[int, int]:
    """Where the range of each member ends: at the next one, or at the directory. By where it starts."""
    starts = sorted({info.header_offset for info in members})
    return dict(zip(starts, [*starts, end][1:], strict=True))


def _ref(path: str, generation: int, info: zipfile.ZipInfo, end: int) -> ImageRef:
    """The range of a member.

    Raises:
        BadInput: stage `list`; it is none that is read.
    """
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
