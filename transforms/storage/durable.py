"""Files that are whole wherever they are: on disk before they get their name, and the name on disk after.

An object of a bucket is there when it is whole, and not before.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import tempfile
import uuid
from collections.abc import Iterable, Iterator

from recordmill.transforms.storage import objects
from recordmill.transforms.storage.paths import is_remote
from recordmill.transforms.storage.write_faults import naming_faults

UNFINISHED = re.compile(r"\.[0-9a-f]{12}\.part$")
"""The end of the name of an unfinished file."""

# Of an object that is written in one request.
_HELD_BYTES = 16 << 20
# A file system that cannot sync folders has no need to, or no way.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP)


def write_text(path: str, text: str) -> None:
    """Writes a whole file, or leaves the old one."""
    write_lines(path, [text])


def write_lines(path: str, lines: Iterable[str], unfinished_in: str = "") -> None:
    """Writes a whole file from pieces that carry their line ends, or leaves the old one.

    Args:
        path: of the file; its folder is there.
        lines: the pieces.
        unfinished_in: folder on the same file system that holds the file until it is complete; by default,
            the folder of `path`. Not used for an object.
    """
    if is_remote(path):
        with naming_faults(path):
            _write_object(path, lines)
        return
    with unfinished_file(path, (line.encode() for line in lines), unfinished_in) as unfinished:
        os.replace(unfinished, path)
    sync_folder(os.path.dirname(path))


def write_bytes(path: str, data: bytes) -> None:
    """Writes a complete file or object, or leaves the old one as it is."""
    if is_remote(path):
        with naming_faults(path):
            objects.write(path, data)
        return
    with unfinished_file(path, [data]) as unfinished:
        os.replace(unfinished, path)
    sync_folder(os.path.dirname(path))


@contextlib.contextmanager
def unfinished_file(path: str, pieces: Iterable[bytes], folder: str = "") -> Iterator[str]:
    """Writes contents to a temporary file and yields its path. Removes the file unless it is renamed.

    Args:
        path: path for which the contents are.
        pieces: the contents.
        folder: folder of the temporary file; by default, that of `path`.

    Raises:
        JobError: the file cannot be written; the message names it.
    """
    folder = folder or os.path.dirname(path)
    unfinished = os.path.join(folder, f"{os.path.basename(path)}.{uuid.uuid4().hex[:12]}.part")
    try:
        with naming_faults(path), open(unfinished, "xb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        yield unfinished
    finally:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.remove(unfinished)


def is_unfinished(path: str, name: str, start: str) -> bool:
    """Whether a local file is the rest of an interrupted `unfinished_file`.

    Args:
        path: of the file.
        name: of the file for which it was written.
        start: first bytes of such contents; the file may be shorter.
    """
    if UNFINISHED.sub("", os.path.basename(path)) != name or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        begun = file.read(len(start.encode()))
    return bool(UNFINISHED.search(path)) and start.encode().startswith(begun)


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
    from recordmill.transforms.storage.scratch import scratch_folder  # scratch imports this module

    with tempfile.NamedTemporaryFile(dir=scratch_folder()) as file:
        file.writelines(itertools.chain(held, pieces))
        file.flush()
        objects.upload(file.name, uri)


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
