"""Reading images from the local file system: whole files, and ranges of containers."""

from __future__ import annotations

import collections
import contextlib
import io
import os
import stat
from typing import TYPE_CHECKING

from transforms.records import BadInput, ImageRef
from transforms.storage.faults import may_pass, os_fault, retried, tried_again
from transforms.storage.stored import hash63
from transforms.storage.zip_member import LARGEST, check_size, unwrapped

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class LocalFile(io.FileIO):
    """A file that is read; each read is tried again while its fault may pass."""

    def __init__(self, path: str) -> None:
        super().__init__(path, opener=os.open)

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
        OSError: one that does not pass; its `filename` is `path`.
    """
    return io.BufferedReader(retried(LocalFile, path))


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
            container = io.FileIO(_open_regular(path)[0])
            self._open[path] = container
            if len(self._open) > self._max_open:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(path)
        return container


def _open_regular(path: str) -> tuple[int, int]:
    """Opens a regular file. Returns its descriptor, and its size before it was opened.

    A FIFO would hang and a device may act when opened, so it is looked at first; O_NONBLOCK covers
    a file that becomes one in between.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise BadInput("load", "not a file", f"{path} is {_kind(status.st_mode)}")
    return os.open(path, _OPEN_FLAGS), status.st_size


def _read_whole(path: str) -> bytes:
    descriptor, size = _open_regular(path)
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


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "not a regular file")
