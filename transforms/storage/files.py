"""Files and folders by their path, on this machine or in a bucket: what runs and datasets are kept in.

A bucket has no folders: they are there as long as something is below them, and making one does nothing.
A name of a bucket's object is given to whole objects only, so that nothing has to be synced.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import BinaryIO, NamedTuple, TypeVar

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import cloud, local, objects
from recordmill.transforms.storage.paths import is_remote

_BUFFER = 1 << 18
_READ_BYTES = 1 << 20
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)

_T = TypeVar("_T")
_R = TypeVar("_R")


class Found(NamedTuple):
    """What a folder holds.

    Attributes:
        path: of the file or folder.
        is_folder: of its own, no link to one.
        size: bytes; 0 for a folder.
    """

    path: str
    is_folder: bool
    size: int

    @property
    def name(self) -> str:
        """In the folder."""
        return os.path.basename(self.path)


def exists(path: str) -> bool:
    """Whether something has this name: a link that leads nowhere too, but no folder of a bucket."""
    if is_remote(path):
        return objects.stat(path) is not None
    return os.path.lexists(path)


def is_file(path: str) -> bool:
    """Whether it is a file, or leads to one."""
    if is_remote(path):
        return objects.stat(path) is not None
    return os.path.isfile(path)


def is_own_folder(path: str) -> bool:
    """Whether it is a folder, and no link to one."""
    if is_remote(path):
        return objects.is_folder(path)
    return os.path.isdir(path) and not os.path.islink(path)


def may_replace(path: str, is_ours: Callable[[bytes], bool]) -> bool:
    """Whether a path may be written: it does not exist, or is a file for whose contents `is_ours` is true.

    A link, a pipe or a device is never replaced.
    """
    if is_remote(path):
        return objects.stat(path) is None or is_ours(objects.read(path))
    if not os.path.lexists(path):
        return True
    return os.path.isfile(path) and not os.path.islink(path) and is_ours(read_bytes(path))


def check_replaceable(path: str, is_ours: Callable[[bytes], bool]) -> None:
    """Raises JobError unless `may_replace`. Call it directly before the file is written."""
    if not may_replace(path, is_ours):
        raise JobError(f"{path} exists, and recordmill did not write it; move it away, or give another path")


def read_bytes(path: str) -> bytes:
    """A whole file.

    Raises:
        FileNotFoundError: there is none.
    """
    if is_remote(path):
        return objects.read(path)
    with local.open_named(path) as file:
        return file.read()


def read_text(path: str) -> str:
    """A whole file of UTF-8, line ends as they are.

    Raises:
        FileNotFoundError: there is none.
        UnicodeDecodeError: it is no UTF-8.
    """
    return read_bytes(path).decode("utf-8")


def open_stream(path: str) -> BinaryIO:
    """Opens a file to be read once, in order."""
    if is_remote(path):
        return objects.open_object(path)
    return open(path, "rb", buffering=_BUFFER)


def entries(folder: str) -> list[Found]:
    """What is in a folder, by name; nothing where there is no folder."""
    if is_remote(folder):
        return list(_remote_entries(folder))
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as found:
        listed = [Found(entry.path, entry.is_dir(follow_symlinks=False), _size(entry)) for entry in found]
        return sorted(listed)
    return []


def taken(folder: str, names: Iterable[str]) -> set[str]:
    """Which of `names`, with `/` between parts, there are below a folder."""
    names = set(names)
    if not is_remote(folder):
        return {name for name in names if os.path.lexists(os.path.join(folder, name))}
    parents = {os.path.dirname(name) for name in names}
    present = set()
    for parent in sorted(parents):
        found = entries(os.path.join(folder, parent) if parent else folder)
        present |= {os.path.join(parent, entry.name) for entry in found}
    return names & present


def make_folder(path: str) -> None:
    """Makes a folder and those above it, where they are not there yet."""
    if not is_remote(path):
        os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
    """Removes a file.

    Raises:
        FileNotFoundError: there is none.
    """
    if is_remote(path):
        objects.delete(path)
    else:
        os.remove(path)


def remove_if_there(*paths: str) -> None:
    """Removes files, as far as they are there."""
    each(_remove_if_there, paths)


def remove_folder(path: str) -> None:
    """Removes an empty folder.

    Raises:
        OSError: it is not empty, or not there.
    """
    if not is_remote(path):
        os.rmdir(path)


def remove_all(found: Iterable[Found]) -> None:
    """Removes files, and folders with all below them."""
    paths = []
    for entry in found:
        if not is_remote(entry.path):
            (shutil.rmtree if entry.is_folder else os.remove)(entry.path)
        elif entry.is_folder:
            paths += [one.uri for one in objects.list_tree(entry.path)]
        else:
            paths.append(entry.path)
    each(_remove_if_there, paths)


def remove_this(path: str) -> None:
    """Removes a file as it is now: one that somebody puts in its place meanwhile stays."""
    if not is_remote(path):
        _remove_if_there(path)
        return
    found = objects.stat(path)
    if found is not None:
        with contextlib.suppress(FileNotFoundError, cloud.ChangedError):
            objects.delete(path, found.generation)


def replace(source: str, target: str) -> None:
    """Gives a file another name; what has that name is replaced.

    Raises:
        FileNotFoundError: there is no such file, or no such folder.
    """
    if is_remote(target):
        objects.move(source, target)
    else:
        os.replace(source, target)


def share(source: str, target: str) -> None:
    """Gives a file that nobody changes any more a second name: a link, or a copy where that cannot be.

    Raises:
        FileNotFoundError: there is no such file, or no such folder.
    """
    if is_remote(target):
        objects.copy(source, target)
        return
    _remove_if_there(target)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        shutil.copy2(source, target)


def same_contents(path: str, other: str) -> bool:
    """Whether two objects of buckets have the same bytes; False where one is not there."""
    one, two = objects.stat(path), objects.stat(other)
    return one is not None and two is not None and one.crc32c == two.crc32c and one.size == two.size


def each(function: Callable[[_T], _R], paths: Iterable[_T]) -> list[_R]:
    """The result for each path, or tuple that begins with one.

    Side by side where they are in a bucket, whose answers take their time.
    """
    listed = list(paths)
    first = listed[0] if listed else ""
    if len(listed) > 1 and is_remote(str(first[0] if isinstance(first, tuple) else first)):
        return objects.in_parallel(function, listed)
    return [function(path) for path in listed]


def sizes(folder: str) -> Mapping[str, int]:
    """Bytes of each file in a folder, by name."""
    return {found.name: found.size for found in entries(folder) if not found.is_folder}


def _remove_if_there(path: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        remove(path)


def _remote_entries(folder: str) -> Iterator[Found]:
    for entry in objects.list_folder(folder):
        if entry.name != "/":
            path = os.path.join(folder, entry.name.rstrip("/"))
            yield Found(path, entry.stored is None, entry.stored.size if entry.stored else 0)


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0  # gone meanwhile


def stamp_of(path: str) -> tuple[int, str]:
    """Size of a file; and its time of modification in nanoseconds, or the CRC-32C of an object.

    Neither changes when it gets another name, nor by a link or a copy in the bucket.

    Raises:
        FileNotFoundError: there is none.
    """
    if not is_remote(path):
        found = os.stat(path)
        return found.st_size, str(found.st_mtime_ns)
    stored = objects.stat(path)
    if stored is None:
        raise FileNotFoundError(errno.ENOENT, "no such object", path)
    return stored.size, stored.crc32c


def file_sha256(path: str) -> str:
    """The SHA-256 of a file, in hex."""
    hashed = hashlib.sha256()
    with open_stream(path) as file:
        while block := file.read(_READ_BYTES):
            hashed.update(block)
    return hashed.hexdigest()
