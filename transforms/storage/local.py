"""The file system of this machine."""

from __future__ import annotations

import collections
import contextlib
import errno
import fcntl
import io
import itertools
import operator
import os
import shutil
import stat
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, ParamSpec

from recordmill.transforms.storage.faults import may_pass, retried, tried_again
from recordmill.transforms.storage.file_system import (
    FILE_SYSTEMS,
    ChangedError,
    Entry,
    FileSystem,
    Reader,
    Status,
    hash63,
    scheme_of,
)
from recordmill.transforms.storage.zip_member import LARGEST, check_size

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_URIS = ", ".join(f"{scheme}://" for scheme in FILE_SYSTEMS if scheme)
_MOST_OPEN = 16  # containers; the one used longest ago is closed first
_READ_BYTES = 1 << 20
# A file system that cannot sync folders has no need to, or no way.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP)
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)

_P = ParamSpec("_P")


class LocalFileSystem(FileSystem):
    """Files of this machine and of mounted file systems."""

    scheme = ""
    has_folders = True
    has_links = True
    has_latency = False
    has_conditions = False

    def check_path(self, path: str) -> None:
        if scheme_of(path):
            raise ValueError(f"local paths and {_URIS} URIs are read")

    def check_output_path(self, folder: str) -> None:
        if scheme_of(folder):
            raise ValueError(f"local folders and {_URIS} are written")

    def check_output(self, folder: str) -> None:
        if not os.path.lexists(folder):
            parent = os.path.dirname(folder)
            while not os.path.lexists(parent):
                parent = os.path.dirname(parent)
            if not os.path.isdir(parent):
                raise ValueError(f"and {parent!r} is no folder; give another path")
            if not os.access(parent, os.W_OK | os.X_OK):
                raise ValueError(f"and you may not write in {parent!r}; give another folder")
        elif not os.path.isdir(folder):
            raise ValueError("which is a file; give a folder, or a path where none is yet")
        elif not os.access(folder, os.W_OK | os.X_OK | os.R_OK):
            raise ValueError("where you may not write; give another folder")

    def absolute(self, path: str) -> str:
        return os.path.abspath(path)

    def real_path(self, path: str) -> str:
        """As `os.path.realpath`; raises the faults that may pass, since any part may be a link."""
        return retried(real_path, path)

    def find(self, path: str) -> Status | None:
        found = stat_of(path)
        return _status(found) if found is not None and stat.S_ISREG(found.st_mode) else None

    def stat(self, path: str) -> Status:
        return _status(retried(os.stat, path))

    def is_folder(self, path: str) -> bool:
        found = stat_of(path)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_file(self, path: str) -> bool:
        found = stat_of(path)
        return found is not None and stat.S_ISREG(found.st_mode)

    def is_there(self, path: str) -> bool:
        try:
            retried(os.stat, path)
        except (OSError, ValueError) as error:
            if isinstance(error, PermissionError) or may_pass(error):
                raise
            return False  # a path that cannot be: too long, through a file, a loop, a NUL byte
        return True

    def is_link(self, path: str) -> bool:
        return stat.S_ISLNK(retried(os.lstat, path).st_mode)

    def check_readable(self, path: str) -> None:
        if self.is_folder(path):
            retried(os.scandir, path).close()
        else:
            self.open(os.path.realpath(path)).close()

    def is_unchanged(self, path: str, version: int, data: bytes) -> bool:
        try:
            return version_of(os.stat(path)) == version
        except OSError:
            return False

    def list(self, folder: str, first: str = "", end: str = "", most: int | None = None) -> Iterator[Entry]:
        return iter(retried(_entries, folder, most))

    def open(self, path: str) -> io.BufferedReader:
        """Opening and reads are retried while their fault may pass.

        Raises:
            OSError: `ENXIO` where it is no regular file, `EXDEV` where a link leads from the path to another.
        """
        return io.BufferedReader(retried(_LocalFile, path))

    def reader(self) -> Reader:
        return _LocalReader()

    def write(
        self, path: str, pieces: Iterable[bytes], if_generation: int | None = None, unfinished_in: str = ""
    ) -> Status:
        """The contents are on disk before the file gets its name, and the name is on disk after it.

        A condition is checked before the file gets its name: the lock of the output keeps other jobs away.
        """
        folder = unfinished_in or os.path.dirname(path)
        unfinished = os.path.join(folder, f"{os.path.basename(path)}.{uuid.uuid4().hex[:12]}.part")
        try:
            with open(unfinished, "xb") as file:
                file.writelines(pieces)
                file.flush()
                os.fsync(file.fileno())
                written = _status(os.fstat(file.fileno()))
            self._check_generation(path, if_generation)
            os.replace(unfinished, path)
        finally:
            self.remove_existing(unfinished)
        self.sync_folder(os.path.dirname(path))
        return written

    def put(self, local_path: str, path: str, if_generation: int | None = None) -> Status:
        with open(local_path, "rb") as finished:
            os.fsync(finished.fileno())
            written = _status(os.fstat(finished.fileno()))
        if local_path != path:
            self._check_generation(path, if_generation)
            os.replace(local_path, path)
        return written

    def move(self, source: str, target: str) -> None:
        os.replace(source, target)

    def link(self, source: str, target: str, if_generation: int | None = None) -> None:
        self._check_generation(target, if_generation)
        self.remove_existing(target)
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            shutil.copy2(source, target)

    def remove(self, path: str, if_generation: int | None = None, within: float | None = None) -> None:
        self._check_generation(path, if_generation)
        os.remove(path)

    def working_folder(self, folder: str) -> str | None:
        return folder

    def make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove_folder(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(path)

    def rename_folder(self, source: str, target: str) -> None:
        os.rename(source, target)
        self.sync_folder(os.path.dirname(source))
        self.sync_folder(os.path.dirname(target))

    def sync_folder(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int | None:
        path = os.path.abspath(path)
        while not os.path.exists(path):
            path = os.path.dirname(path)
        return shutil.disk_usage(path).free

    def remove_entries(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            (shutil.rmtree if entry.is_folder else os.remove)(entry.path)

    def _check_generation(self, path: str, generation: int | None) -> None:
        if generation is not None:
            found = self.find(path)
            if generation != (found.generation if found is not None else 0):
                raise ChangedError(errno.EEXIST, "it has changed", path)


def version_of(found: os.stat_result) -> int:
    """Identifies a state of a file, by its size and time of modification; 0 without a time."""
    return hash63(f"{found.st_mtime_ns} {found.st_size}".encode()) if found.st_mtime_ns else 0


def stat_of(path: str) -> os.stat_result | None:
    """The status at a path, links followed; None if nothing is there, or it is not visible."""
    try:
        return retried(os.stat, path)
    except (OSError, ValueError) as error:
        if may_pass(error):
            raise
        return None


def real_path(path: str) -> str:
    """As `os.path.realpath`; raises the faults that may pass."""
    try:
        return os.path.realpath(path, strict=True)
    except OSError as error:
        if may_pass(error):
            raise
        return os.path.realpath(path)


def not_regular(mode: int) -> str | None:
    """Describes a file that is not regular, for messages; None for a regular file."""
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


def open_regular(path: str) -> tuple[int, int]:
    """Opens a regular file at a path without links; its descriptor and size. All input is opened here.

    Links are resolved and checked when a file is listed. The path of the opened file is compared with the
    listed path, so that a link or a folder that is swapped in later is not followed. Raises as
    `LocalFileSystem.open`.
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


class _LocalFile(io.FileIO):
    """A file that is read; each read is tried again while its fault may pass."""

    def __init__(self, path: str) -> None:
        super().__init__(path, opener=lambda path, _: open_regular(path)[0])

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        try:
            return retried(os.readv, self.fileno(), [buffer])
        except OSError as error:
            error.filename = self.name
            raise


class _LocalReader(Reader):
    """Keeps the descriptors of some containers open; closes them before anything is tried again."""

    def __init__(self) -> None:
        self._open: collections.OrderedDict[str, io.FileIO] = collections.OrderedDict()

    def read(self, path: str) -> bytes:
        try:
            return _read_image(path)
        except OSError as error:
            return self._tried_again(error, _read_image, path)

    def read_range(self, path: str, start: int, length: int | None, generation: int | None) -> bytes:
        try:
            return self._read_range(path, start, length)
        except OSError as error:
            return self._tried_again(error, self._read_range, path, start, length)

    def close(self) -> None:
        while self._open:
            # a descriptor that went stale may fail once more as it is closed, and is closed all the same
            with contextlib.suppress(OSError):
                self._open.popitem()[1].close()

    def _tried_again(
        self, error: OSError, function: Callable[_P, bytes], *args: _P.args, **options: _P.kwargs
    ) -> bytes:
        def reopened() -> bytes:  # an open file may be stale, or one too many
            self.close()
            return function(*args, **options)

        return tried_again(error, reopened)

    def _read_range(self, path: str, start: int, length: int | None) -> bytes:
        descriptor = self._container(path).fileno()
        if length is None:
            length = max(os.fstat(descriptor).st_size - start, 0)
            check_size(length, f"{path} at byte {start}")
        data = os.pread(descriptor, length, start)
        while len(data) < length:
            more = os.pread(descriptor, length - len(data), start + len(data))
            if not more:
                break
            data += more
        return data

    def _container(self, path: str) -> io.FileIO:
        container = self._open.get(path)
        if container is None:
            container = io.FileIO(open_regular(path)[0])
            self._open[path] = container
            if len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(path)
        return container


def _status(found: os.stat_result) -> Status:
    version = version_of(found)
    return Status(found.st_size, version, version, found.st_mtime_ns)


def _check_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.ENXIO, not_regular(status.st_mode), path)


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


def _read_image(path: str) -> bytes:
    descriptor, size = open_regular(path)
    try:
        check_size(size, path)
        data = os.read(descriptor, size + 1)
        if len(data) != size:  # it changed meanwhile, or is longer than one read gives: go on to its end
            parts, size = [data], len(data)
            while parts[-1] and size <= LARGEST:
                parts.append(os.read(descriptor, _READ_BYTES))
                size += len(parts[-1])
            check_size(size, path)
            data = b"".join(parts)
    finally:
        os.close(descriptor)
    return data


def _entries(folder: str, most: int | None) -> list[Entry]:
    found = []
    with os.scandir(folder) as scanned:
        for entry in itertools.islice(scanned, most):
            try:
                leads_to_folder = entry.is_dir()
            except OSError as error:
                if may_pass(error):
                    raise
                leads_to_folder = False  # a link to itself, or through a folder that may not be searched
            name = f"{entry.name}/" if leads_to_folder else entry.name
            found.append(Entry(name, entry.path, entry.is_symlink()))
    found.sort(key=operator.itemgetter(0))  # in half the time that complete entries take
    return found
