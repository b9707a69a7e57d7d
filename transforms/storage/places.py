"""What is at a path that the input names, on this machine or in a bucket: asked by the sources."""

from __future__ import annotations

import errno
import io
import itertools
import os
from collections.abc import Iterator
from typing import NamedTuple

from recordmill.transforms.storage import local, objects
from recordmill.transforms.storage.cloud import split_uri
from recordmill.transforms.storage.faults import may_pass, retried
from recordmill.transforms.storage.paths import is_remote, scheme_of


class Status(NamedTuple):
    """What is known of a file without reading it.

    Attributes:
        size: bytes.
        version: tells one state of the whole file from another: `local.version_of`, or of an object
            `StoredObject.version`.
        generation: the state that ranges of it are read of: an object's generation; of a file of this
            machine its version.
    """

    size: int
    version: int
    generation: int

    @classmethod
    def of(cls, stored: objects.StoredObject) -> Status:
        """What is known of an object."""
        return cls(stored.size, stored.version, stored.generation)


def check_place(path: str) -> None:
    """Raises ValueError, saying what is wrong with it, unless a path is one that can be read from."""
    if not is_remote(path):
        if scheme_of(path):
            raise ValueError("local paths and gs:// URIs are read")
        return
    bucket, name = split_uri(path)
    if not bucket:
        raise ValueError("it names no bucket, as gs://BUCKET/FOLDER does")
    parts = name.rstrip("/").split("/") if name.strip("/") else ()
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError("names in a bucket are read to the letter, and may have no part //, . or .. here")


def has_bucket(uri: str) -> bool:
    """Whether there is a bucket that a `gs://` URI names."""
    return objects.is_folder(f"gs://{split_uri(uri)[0]}")


def is_folder(path: str) -> bool:
    """Whether it is a folder, or an object's name starts with the path and a `/`.

    Raises:
        OSError: it may not be known, or not now.
    """
    return objects.is_folder(path) if is_remote(path) else local.is_folder(path)


def is_file(path: str) -> bool:
    """Whether it is a regular file, or an object whose path is no folder too.

    Raises:
        OSError: it may not be known, or not now.
    """
    if is_remote(path):
        return not path.endswith("/") and not objects.is_folder(path) and objects.stat(path) is not None
    return local.is_file(path)


def is_there(path: str) -> bool:
    """Whether there is something at a path. Raises OSError where that may not be known, or not now."""
    if is_remote(path):
        return objects.is_folder(path) or objects.stat(path) is not None
    try:
        retried(os.stat, path)
    except (OSError, ValueError) as error:
        if isinstance(error, PermissionError) or may_pass(error):
            raise
        return False  # a path that cannot be: too long, through a file, a loop, a NUL byte
    return True


def may_be_there(path: str) -> bool:
    """Whether there is something at a path, as far as may be seen.

    Raises:
        OSError: one that may pass, and has not.
    """
    return is_there(path) if is_remote(path) else local.mode_of(path) != 0


def status_of(path: str) -> Status:
    """What is known of a file.

    Raises:
        OSError: there is none, or it may not be known.
    """
    if is_remote(path):
        stored = objects.stat(path)
        if stored is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", path)
        return Status.of(stored)
    found = retried(os.stat, path)
    version = local.version_of(found)
    return Status(found.st_size, version, version)


def open_file(path: str) -> io.BufferedReader:
    """Opens a file of the input to be read in order; a fault that may pass is tried again.

    Args:
        path: without links, as listings and `Confinement` have it; of what the caller named `real_path`.

    Raises:
        OSError: as `local.open_regular`, or one that does not pass; its `filename` is `path`.
    """
    return objects.open_object(path) if is_remote(path) else local.open_file(path)


def open_named(path: str) -> io.BufferedReader:
    """As `open_file`, of a path that the caller named: it may have links, which lead anywhere."""
    return objects.open_object(path) if is_remote(path) else local.open_named(path)


def check_readable(path: str) -> None:
    """Raises OSError where what is there is neither a file nor a folder, or may not be read."""
    if is_remote(path):
        return  # that it is there was told by the service, to one who may read it
    if local.is_folder(path):
        retried(os.scandir, path).close()
    else:
        local.open_named(path).close()


def names_in(folder: str, most: int | None = None) -> list[str]:
    """Names of the files and folders in a folder, in no order.

    Args:
        folder: that is there.
        most: the number after which a bucket is not listed further.
    """
    if is_remote(folder):
        names = (entry.name.rstrip("/") for entry in objects.list_folder(folder))
        return list(itertools.islice((name for name in names if name), most))
    return retried(os.listdir, folder)


def files_below(folder: str, most: int) -> Iterator[str]:
    """Names, or paths, of the files below a folder; `most` of them, or some more."""
    if is_remote(folder):
        found = (stored.uri for stored in itertools.islice(objects.list_tree(folder), most))
        yield from (uri for uri in found if not uri.endswith("/"))
        return
    listed = 0
    for _, _, names in os.walk(folder):
        yield from names
        listed += len(names)
        if listed > most:
            return
