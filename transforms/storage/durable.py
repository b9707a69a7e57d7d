"""Files that are whole wherever they are: on disk before they get their name, and the name on disk after.

An object of a bucket is there when it is whole, and not before.
"""

from __future__ import annotations

import errno
import itertools
import os
import tempfile
from collections.abc import Iterable

from transforms.storage import objects
from transforms.storage.paths import is_remote
from transforms.storage.scratch import scratch_folder
from transforms.storage.write_faults import naming_faults

_UNFINISHED = ".part"
# Of an object that is written in one request.
_HELD_BYTES = 16 << 20
# A file system that cannot sync folders has no need to, or no way.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP)


def write_text(path: str, text: str) -> None:
    """Writes a whole file, or leaves the old one."""
    write_lines(path, [text])


def write_lines(path: str, lines: Iterable[str], unfinished: str = "") -> None:
    """Writes a whole file from pieces that carry their line ends, or leaves the old one.

    Args:
        path: of the file; its folder is there.
        lines: the pieces.
        unfinished: path on the same file system of the file until it is whole; beside `path` if not given.
            An object needs none.
    """
    if is_remote(path):
        with naming_faults(path):
            _write_object(path, lines)
        return
    unfinished = unfinished or path + _UNFINISHED
    write_unfinished(unfinished, lines)
    os.replace(unfinished, path)
    sync_folder(os.path.dirname(path))


def _write_object(uri: str, lines: Iterable[str]) -> None:
    """Writes an object: a large one from a file of this machine."""
    pieces = (line.encode() for line in lines)
    held, size = [], 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > _HELD_BYTES:
            break
    else:
        objects.write(uri, b"".join(held))
        return
    with tempfile.NamedTemporaryFile(dir=scratch_folder()) as file:
        file.writelines(itertools.chain(held, pieces))
        file.flush()
        objects.upload(file.name, uri)


def write_unfinished(path: str, lines: Iterable[str]) -> None:
    """Writes a file that is on disk afterwards, under a name that is not its last.

    Raises:
        JobError: names the file, where an OSError of a write does not.
    """
    with naming_faults(path), open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: str) -> None:
    """Puts the names in a folder on disk; nothing is to be done for one of a bucket."""
    if is_remote(path):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)
