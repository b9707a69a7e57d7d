"""Folders for intermediate files. Each has a marker; a folder without a marker is never removed.

The marker is a file that only this program writes. It says which process made the folder.
"""

from __future__ import annotations

import contextlib
import os

from recordmill.transforms.storage import files
from recordmill.transforms.storage.durable import is_unfinished, write_bytes
from recordmill.transforms.storage.owner import OWNER_START, Owner
from recordmill.transforms.storage.paths import is_remote

MARKER = "made-by-recordmill.json"
"""Name of the marker: JSON of an `Owner`."""


def make_marked_folder(path: str) -> None:
    """Makes a folder with a marker. An existing folder that is not empty is left as it is."""
    files.make_folder(path)
    if all(is_unfinished(found.path, MARKER, OWNER_START) for found in files.entries(path)):
        write_bytes(os.path.join(path, MARKER), Owner.here("", "").to_json())


def owner_of(path: str) -> Owner | None:
    """The owner named by a folder's marker; None without a marker, and for a link to a folder."""
    marker = os.path.join(path, MARKER)
    try:
        is_plain = is_remote(path) or (files.is_own_folder(path) and not os.path.islink(marker))
        return Owner.of_json(files.read_bytes(marker)) if is_plain else None
    except (FileNotFoundError, IsADirectoryError):
        return None


def remove_marked_folder(path: str) -> None:
    """Removes a folder with all its contents, the marker last. A folder without a marker is left as it is."""
    if owner_of(path) is not None:
        marker = os.path.join(path, MARKER)
        files.remove_all(found for found in files.entries(path) if found.path != marker)
        files.remove_if_there(marker)
        with contextlib.suppress(OSError):  # something was added in the meantime
            files.remove_folder(path)
