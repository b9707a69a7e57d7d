"""Files by their path, on whichever file system: short forms of calls, and files of our own."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import BinaryIO, TypeVar

import msgspec

from recordmill.transforms.records import JobError
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import Entry, Status, file_system

_T = TypeVar("_T")
_LONGEST_LINE = 1 << 20

UNFINISHED = re.compile(r"\.[0-9a-f]{12}\.part$")
"""The end of the name of an unfinished file."""


def is_file(path: str) -> bool:
    return file_system(path).is_file(path)


def is_folder(path: str) -> bool:
    return file_system(path).is_folder(path)


def exists(path: str) -> bool:
    return file_system(path).exists(path)


def may_be_there(path: str) -> bool:
    """As `FileSystem.is_there`; False where the permissions of this machine do not let it be seen."""
    system = file_system(path)
    try:
        return system.is_there(path)
    except PermissionError:
        if system.has_latency:
            raise
        return False


def status_of(path: str) -> Status:
    return file_system(path).stat(path)


def names_in(folder: str, most: int | None = None) -> list[str]:
    """Names of the files and folders in a folder; `most` where calls wait for a service, and it has more."""
    system = file_system(folder)
    found = system.list(folder, most=most if system.has_latency else None)
    return [entry.basename for entry in found if entry.basename]


def open_file(path: str) -> io.BufferedReader:
    """As `FileSystem.open`: listings and `Confinement` have paths without links."""
    return file_system(path).open(path)


def open_named(path: str) -> io.BufferedReader:
    """Opens a file that the caller named: its path may have links, which lead anywhere."""
    system = file_system(path)
    return system.open(system.real_path(path))


def read_bytes(path: str) -> bytes:
    return file_system(path).read(path)


def read_text(path: str) -> str:
    """The text of a file of UTF-8, line ends as they are."""
    return read_bytes(path).decode("utf-8")


def read_json(path: str, kind: type[_T]) -> _T | None:
    """The contents of a JSON file; None where there is none. Raises ValueError if it is damaged."""
    try:
        return msgspec.convert(json.loads(read_bytes(path)), kind)
    except FileNotFoundError:
        return None
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def write_file(path: str, data: str | bytes | Iterable[str], unfinished_in: str = "") -> None:
    """As `FileSystem.write`. Raises JobError, which names the file, if it cannot be written."""
    pieces = [data] if isinstance(data, str | bytes) else data
    encoded = (piece.encode() if isinstance(piece, str) else piece for piece in pieces)
    with naming_faults(path):
        file_system(path).write(path, encoded, unfinished_in=unfinished_in)


def check_folder(folder: str, given: str = "") -> None:
    """Raises ValueError unless files can be written in a folder, which need not exist.

    The message starts with `given`; by default, that the folder is --output.
    """
    given = given or f"--output is {folder!r}"
    try:
        file_system(folder).check_output(folder)
    except ValueError as error:
        raise ValueError(f"{given}, {error}") from error
    except (OSError, JobError) as error:
        raise ValueError(f"{given}: {getattr(error, 'strerror', None) or error}") from error


def named_entries(folder: str, entered: Collection[str]) -> Iterator[tuple[str, Entry]]:
    """What is in a folder, by name; instead of the folders in `entered`, what is in them, as `folder/x`."""
    system = file_system(folder)
    for found in system.contents(folder):
        if found.is_folder and found.basename in entered:
            yield from ((found.name + inner.basename, inner) for inner in system.contents(found.path))
        else:
            yield found.basename, found


def remove_files(folder: str, names: Iterable[str]) -> None:
    """Removes files below a folder, as far as they exist, and the folders in it that are then empty."""
    removed = sorted(set(names))
    file_system(folder).remove_existing(*(os.path.join(folder, name) for name in removed))
    remove_empty_folders(folder, removed)


def remove_empty_folders(folder: str, names: Iterable[str]) -> None:
    """Removes the folders, below a folder, of files that have been removed, as far as they are empty."""
    for inner in sorted({os.path.dirname(name) for name in names} - {""}, reverse=True):
        file_system(folder).remove_folder(os.path.join(folder, inner))


def may_replace(path: str, is_ours: Callable[[bytes], bool]) -> bool:
    """Whether a path may be written: it does not exist, or is a file for whose contents `is_ours` is true.

    A link, a pipe or a device is never replaced.
    """
    system = file_system(path)
    if not system.exists(path):
        return True
    if system.has_links and (system.is_link(path) or not system.is_file(path)):
        return False
    return is_ours(system.read(path))


def replace_own(path: str, data: str | bytes, is_ours: Callable[[bytes], bool]) -> None:
    """As `write_file`. Raises JobError also where it may not, as `may_replace` has it."""
    with naming_faults(path):
        if not may_replace(path, is_ours):
            raise JobError(
                f"{path} exists, and recordmill did not write it; move it away, or give another path"
            )
        write_file(path, data)


def is_unfinished(path: str, name: str, start: str) -> bool:
    """Whether a file is the rest of an interrupted `FileSystem.write` of `name`, whose contents start so."""
    ending = UNFINISHED.search(path)
    if ending is None or os.path.basename(path)[: -len(ending[0])] != name or not is_file(path):
        return False
    with open_named(path) as file:
        begun = file.read(len(start.encode()))
    return start.encode().startswith(begun)


def short_lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines of a file, without those of more than 1 MiB, which are too long to be shown."""
    is_complete = True
    while line := file.readline(_LONGEST_LINE):
        was_complete, is_complete = is_complete, len(line) < _LONGEST_LINE or line.endswith(b"\n")
        if was_complete and is_complete:
            yield line
