"""The files of a version: moved to where readers look for them, and removed by its manifest.

Each step may be interrupted, and repeated.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import files, objects
from recordmill.transforms.storage.durable import sync_folder
from recordmill.transforms.storage.file_system import is_remote
from recordmill.transforms.storage.layout import DATASET_INFO, MANIFEST, check_name
from recordmill.transforms.storage.publication import published_dataset


def move_folder(source: str, target: str) -> None:
    """Moves a dataset in one step; in a bucket object by object, what readers look for last."""
    if not is_remote(target):
        os.rename(source, target)
        sync_folder(os.path.dirname(source))
        sync_folder(os.path.dirname(target))
        return
    pairs = [(found.uri, target + found.uri.removeprefix(source)) for found in objects.list_tree(source)]
    last = [f"{source}/{DATASET_INFO}", f"{source}/{MANIFEST}"]
    objects.in_parallel(_move_object, [pair for pair in pairs if pair[0] not in last])
    for pair in sorted(pair for pair in pairs if pair[0] in last):
        _move_object(pair)


def remove_dataset(folder: str, note: str) -> None:
    """Removes the files of a dataset that its manifest lists.

    Args:
        folder: of the dataset.
        note: path that the manifest has until all are removed, so that readers see no dataset.

    Raises:
        JobError: the manifest does not list the dataset's files.
    """
    published_dataset(folder)  # reported while it is still published
    files.replace(os.path.join(folder, MANIFEST), note)
    sync_folder(folder)
    sync_folder(os.path.dirname(note))
    remove_listed(folder, note)


def remove_listed(folder: str, note: str) -> None:
    """Removes the files that a manifest lists which has become a note; then the note.

    Raises:
        JobError: the note is damaged.
    """
    try:
        names = [check_name(folder, name) for name in json.loads(files.read_bytes(note))["files"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise JobError(f"{note} is damaged ({error}); remove it, and {folder}") from error
    for name in (MANIFEST, DATASET_INFO):  # a move of the manifest in a bucket may have got to the copy
        files.remove_if_there(os.path.join(folder, name))
    files.remove_if_there(*(os.path.join(folder, name) for name in names))
    _remove_empty_folders(folder, names)
    sync_folder(os.path.dirname(folder))
    files.remove_if_there(note)


def remove_staged_dataset(folder: str) -> None:
    """Removes the files that the manifest of an unpublished dataset lists, the manifest last.

    Raises:
        JobError: the manifest does not list the dataset's files.
    """
    dataset = published_dataset(folder)
    names = dataset.files if dataset is not None else ()
    files.remove_if_there(*(os.path.join(folder, name) for name in names if name != MANIFEST))
    files.remove_if_there(os.path.join(folder, MANIFEST))
    _remove_empty_folders(folder, names)


def _remove_empty_folders(folder: str, names: Iterable[str]) -> None:
    """Removes a dataset's folder and the folders of its files, those that are empty."""
    below = {os.path.join(folder, os.path.dirname(name)) for name in names if "/" in name}
    for emptied in [*sorted(below, reverse=True), folder]:
        with contextlib.suppress(OSError):  # not there, or not empty
            files.remove_folder(emptied)


def _move_object(pair: tuple[str, str]) -> None:
    source, target = pair
    try:
        objects.move(source, target)
    except FileNotFoundError:
        if objects.stat(target) is None:  # else by a try whose answer was lost
            raise
