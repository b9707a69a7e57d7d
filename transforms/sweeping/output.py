"""The output folder of a sweep: checks it, and writes the files."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import files
from recordmill.transforms.storage.durable import sync_folder, unfinished_file
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import is_remote
from recordmill.transforms.storage.files import write_file
from recordmill.transforms.storage.output import check_output, check_path
from recordmill.transforms.storage.owner import Owner, remove_marked_folder
from recordmill.transforms.storage.paths import absolute

SWEEP_JSON = "sweep.json"
"""Written last: if it is there, the other files are complete."""

NAMES = ("sweep.csv", "sweep.png", "sweep.svg", "sweep.html", SWEEP_JSON)
_SCRATCH = ".sweep-"
_UNFINISHED = ".sweep-unfinished.json"


def check_sweep_output(output: str, overwrite: bool) -> None:
    """Raises ValueError unless a sweep can be written to `output`.

    It may be missing or empty. With `overwrite`, it may hold a complete or interrupted sweep, and other
    files next to it.
    """
    check_path(output)
    folder = absolute(output)
    try:
        found = {entry.name for entry in files.entries(folder)}
    except (OSError, JobError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"--output is {output!r}: {reason}") from error
    if not found:
        check_output(output)
        return
    names = {name for name in found if not name.startswith(_SCRATCH)}
    is_unfinished = _is_unfinished(folder)
    has_sweep = is_unfinished or (SWEEP_JSON in names and _is_sweep(os.path.join(folder, SWEEP_JSON)))
    # Other files next to a sweep stay.
    others = [] if has_sweep else sorted(names)
    if others:
        shown = ", ".join(repr(name) for name in others[:3]) + (", …" if len(others) > 3 else "")
        raise ValueError(f"--output is {output!r}, which is not empty ({shown}); give an empty or new folder")
    if names and not overwrite:
        held = "the files of an interrupted sweep" if is_unfinished else "a sweep already"
        raise ValueError(
            f"--output is {output!r}, which holds {held}; --overwrite replaces it, or give another folder"
        )
    if not is_remote(folder) and not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"--output is {output!r}, where you may not write; give another folder")


def prepare_output(output: str, overwrite: bool) -> None:
    """Makes the folder, in a running job.

    Raises:
        JobError: a sweep cannot be written to it.
    """
    try:
        check_sweep_output(output, overwrite)
    except ValueError as error:
        raise JobError(str(error)) from error
    folder = absolute(output)
    try:
        files.make_folder(folder)
    except OSError as error:
        raise JobError(f"--output is {output!r}: {error.filename}: {error.strerror}") from error


def scratch_of(output: str, token: str) -> str:
    """A folder for decompressed files, which all workers can read.

    Args:
        output: of the sweep.
        token: of the job, unique.
    """
    return os.path.join(absolute(output), f"{_SCRATCH}{token}")


def write_sweep(output: str, contents: Mapping[str, bytes], scratch: str | None) -> str:
    """Writes the files of a sweep over those of an older one; returns the path of sweep.json.

    Args:
        output: folder of the sweep.
        contents: of NAMES.
        scratch: folder of this job to remove.

    Raises:
        JobError: a file cannot be written, or a file of that name exists that no sweep wrote.
    """
    folder = absolute(output)
    path = os.path.join(folder, SWEEP_JSON)
    with naming_faults(folder):
        files.make_folder(folder)
        _check_names(folder)
        marker = os.path.join(folder, _UNFINISHED)
        with contextlib.ExitStack() as stack:
            # On a disk, all files are complete before one replaces an older file.
            unfinished = {
                name: stack.enter_context(unfinished_file(os.path.join(folder, name), [contents[name]]))
                for name in (() if is_remote(folder) else NAMES)
            }
            write_file(marker, Owner.here("", "").to_json())
            files.remove_if_there(path)
            for name in NAMES:
                target = os.path.join(folder, name)
                if name in unfinished:
                    os.replace(unfinished[name], target)
                else:
                    write_file(target, contents[name])
        files.remove_if_there(marker)
        sync_folder(folder)
        if scratch is not None:
            remove_marked_folder(scratch)
    return path


def _check_names(folder: str) -> None:
    """Raises JobError if a file has the name of a sweep's file, and no sweep wrote it."""
    if _is_unfinished(folder) or _is_sweep(os.path.join(folder, SWEEP_JSON)):
        return
    taken = sorted(files.taken(folder, NAMES))
    if taken:
        raise JobError(f"{os.path.join(folder, taken[0])} exists, and no sweep wrote it; move it away")


def _is_sweep(path: str) -> bool:
    """Whether a file is the sweep.json of a sweep."""
    try:
        document = json.loads(files.read_bytes(path))
        return bool({"format_version", "rows", "images", "packages"} <= document.keys())
    except (FileNotFoundError, ValueError, AttributeError, RecursionError):
        return False


def _is_unfinished(folder: str) -> bool:
    """Whether a folder has the files of an interrupted sweep."""
    try:
        return Owner.of_json(files.read_bytes(os.path.join(folder, _UNFINISHED))) is not None
    except FileNotFoundError:
        return False
