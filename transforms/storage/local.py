"""Reading files of this machine: the one function that opens them, and images by it."""

from __future__ import annotations

import collections
import contextlib
import errno
import fcntl
import io
import os
import stat
import sys
from typing import TYPE_CHECKING

from recordmill.transforms.records import BadInput, ImageRef
from recordmill.transforms.storage.faults import may_pass, os_fault, retried, tried_again
from recordmill.transforms.storage.stored import hash63
from recordmill.transforms.storage.zip_member import LARGEST, check_size, unwrapped

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class LocalFile(io.FileIO):
    """A file that is read; each read is tried again while its fault may pass."""

    def __init__(self, path: str) -> None:
        super().__init__(path, opener=lambda path, _: open_regular(path)[0])

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Reads into a buffer; the number of bytes, 0 at the end."""
        try:
            return retried(os.readv, self.fileno(), [buffer])
        except OSError as error:
            error.filename = self.name
            raise


def open_file(path: str) -> io.BufferedReader:
    """Opens a file to be read in order: opening and reads are tried again while their fault may pass.

    Raises:
        OSError: as `open_regular`, or one that does not pass; its `filename` is `path`.
    """
    return io.BufferedReader(retried(LocalFile, path))


def open_named(path: str) -> io.BufferedReader:
    """As `open_file`, of a path that the caller named: it may have links, which lead anywhere."""
    return io.BufferedReader(retried(lambda: LocalFile(os.path.realpath(path))))


def version_of(found: os.stat_result) -> int:
    """Tells one state of a file from another, by its size and time of modification; 0 without a time."""
    return hash63(f"{found.st_mtime_ns} {found.st_size}".encode()) if found.st_mtime_ns else 0


def mode_of(path: str) -> int:
    """`st_mode` of what is at a path, links followed; 0 where nothing is there, or may be seen.

    Raises:
        OSError: one that may pass, and has not.
    """
    try:
        return retried(os.stat, path).st_mode
    except (OSError, ValueError) as error:
        if may_pass(error):
            raise
        return 0


def is_file(path: str) -> bool:
    """`os.path.isfile`, but raises the faults that may pass: they do not tell."""
    return stat.S_ISREG(mode_of(path))


def is_folder(path: str) -> bool:
    """`os.path.isdir`, but raises the faults that may pass: they do not tell."""
    return stat.S_ISDIR(mode_of(path))


class LocalReader:
    """Reads images from local files. Keeps descriptors open for ranges, so one reader serves one thread.

    Args:
        max_open: number of containers kept open; the one used longest ago is closed first.
    """

    def __init__(self, max_open: int = 16) -> None:
        self._max_open = max_open
        self._open: collections.OrderedDict[str, io.FileIO] = collections.OrderedDict()

    def read(self, ref: ImageRef) -> bytes:
        """The stored bytes of one image.

        Raises:
            BadInput: stage `load`; `not found`, `not a file`, `permission denied`, `name too long`,
                `not a file name`, `out of range`, `empty file`, `too large`, or as `unwrapped`.
            OSError: what may pass (EIO), and has not in four tries.
        """
        try:
            try:
                return self._read(ref)
            except OSError as error:
                return tried_again(error, self._read_anew, ref)
        except OSError as error:
            error.filename = error.filename or ref.uri
            raise os_fault(error, "load") from error
        except ValueError as error:  # a NUL byte or a lone surrogate: no file can be called that
            raise BadInput("load", "not a file name", repr(ref.uri)) from error

    def close(self) -> None:
        """Closes the containers that are open; the reader may be used again."""
        while self._open:
            # a descriptor that went stale may fail once more as it is closed, and is closed all the same
            with contextlib.suppress(OSError):
                self._open.popitem()[1].close()

    def _read(self, ref: ImageRef) -> bytes:
        if ref.length is None and ref.offset == 0:
            return _read_whole(ref.uri)
        data = self._read_range(ref)
        return unwrapped(data, ref.wrapping) if ref.wrapping else data

    def _read_anew(self, ref: ImageRef) -> bytes:
        """Reads with nothing that is open from before: it may have gone stale, or be one too many."""
        self.close()
        return self._read(ref)

    def _read_range(self, ref: ImageRef) -> bytes:
        descriptor = self._container(ref.uri).fileno()
        length = os.fstat(descriptor).st_size - ref.offset if ref.length is None else ref.length
        if ref.offset < 0 or length < 0:
            raise _out_of_range(ref, os.fstat(descriptor).st_size)
        if length == 0:
            raise BadInput("load", "empty file", f"{ref.uri} at byte {ref.offset}")
        if not ref.wrapping:  # that of a member may be somewhat longer than what is in it
            check_size(length, f"{ref.uri} at byte {ref.offset}")
        data = os.pread(descriptor, length, ref.offset)
        while len(data) < length:
            more = os.pread(descriptor, length - len(data), ref.offset + len(data))
            if not more:
                raise _out_of_range(ref, os.fstat(descriptor).st_size)
            data += more
        return data

    def _container(self, path: str) -> io.FileIO:
        container = self._open.get(path)
        if container is None:
            container = io.FileIO(open_regular(path)[0])
            self._open[path] = container
            if len(self._open) > self._max_open:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(path)
        return container


def open_regular(path: str) -> tuple[int, int]:
    """Opens a regular file at a path without links. Every file of the input is opened here.

    Links are resolved and checked when a file is listed. The path of the opened file is compared with the
    listed path, so that a link or a folder that is swapped in later is not followed.

    Returns:
        Its descriptor, and its size.

    Raises:
        OSError: `ENXIO` where it is no regular file, `EXDEV` where a link leads from the path to another.
    """
    # A FIFO would hang and a device may act when opened, so it is looked at first; O_NONBLOCK covers
    # a file that becomes one in between.
    _check_regular(os.stat(path), path)
    descriptor = os.open(path, _OPEN_FLAGS)
    try:
        status = os.fstat(descriptor)
        _check_regular(status, path)
        if _path_of(descriptor) != path:
            _check_at(path, status)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status.st_size


def _check_regular(status: os.stat_result, path: str) -> None:
    if (fault := not_regular(status.st_mode)) is not None:
        raise OSError(errno.ENXIO, fault, path)


def _path_of(descriptor: int) -> str:
    """Where an open file lies, links resolved; an empty string where the system does not say."""
    try:
        if sys.platform == "darwin":
            return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def _check_at(path: str, status: os.stat_result) -> None:
    """Raises OSError unless the open file with this status is at `path`, and `path` has no links."""
    leads_to = os.path.realpath(path, strict=True)
    if not os.path.samestat(os.stat(leads_to), status):
        raise OSError(errno.ESTALE, "it was replaced while it was opened", path)
    if leads_to != os.path.abspath(path):
        raise OSError(errno.EXDEV, f"it leads to {leads_to!r}; a path without links is expected", path)


def _read_whole(path: str) -> bytes:
    descriptor, size = open_regular(path)
    try:
        check_size(size, path)
        data = os.read(descriptor, size + 1)
        if len(data) != size:  # it changed meanwhile, or is longer than one read gives: go on to its end
            parts, size = [data], len(data)
            while parts[-1] and size <= LARGEST:
                parts.append(os.read(descriptor, 1 << 20))
                size += len(parts[-1])
            check_size(size, path)
            data = b"".join(parts)
    finally:
        os.close(descriptor)
    if not data:
        raise BadInput("load", "empty file", path)
    return data


def _out_of_range(ref: ImageRef, size: int) -> BadInput:
    wanted = "the rest" if ref.length is None else f"{ref.length} bytes"
    detail = f"{wanted} from byte {ref.offset} of {ref.uri}, which has {size} bytes"
    return BadInput("load", "out of range", detail)


def not_regular(mode: int) -> str | None:
    """Describes what is not a regular file, for messages; None for a regular file.

    Args:
        mode: its `st_mode`.
    """
    if stat.S_ISREG(mode):
        return None
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return f"it is {kinds.get(stat.S_IFMT(mode), 'something else')}; a regular file is expected"
