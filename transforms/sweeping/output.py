"""The output folder of a sweep: checks it, and writes the files."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping

from recordmill.transforms.records import JobError
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import check_folder, read_bytes, write_file
from recordmill.transforms.storage.output import check_path
from recordmill.transforms.storage.owner import Owner, remove_marked_folder
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.storage.scratch import scratch_folder

SWEEP_JSON = "sweep.json"
"""Written last: if it exists, the other files are complete."""

NAMES = ("sweep.csv", "sweep.png", "sweep.svg", "sweep.html", SWEEP_JSON)
_SCRATCH = ".sweep-"
_UNFINISHED = ".sweep-unfinished.json"


def check_sweep_output(output: str, overwrite: bool) -> None:
    """Raises ValueError unless a sweep can be written to `output`.

    It may be missing or empty. With `overwrite`, it may contain a complete or interrupted sweep, and other
    files next to it.
    """
    check_path(output)
    folder = absolute(output)
    check_folder(folder, f"--output is {output!r}")
    try:
        found = {entry.basename for entry in file_system(folder).contents(folder)}
    except (OSError, JobError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"--output is {output!r}: {reason}") from error
    if not found:
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


def prepare_output(output: str, overwrite: bool) -> None:
    """Makes the folder, in a running job. Raises JobError if a sweep cannot be written to it."""
    try:
        check_sweep_output(output, overwrite)
    except ValueError as error:
        raise JobError(str(error)) from error
    folder = absolute(output)
    try:
        file_system(folder).make_folder(folder)
    except OSError as error:
        raise JobError(f"--output is {output!r}: {error.filename}: {error.strerror}") from error


def scratch_of(output: str, token: str) -> str:
    """A folder for decompressed files, which all workers can read; `token` is unique to the job."""
    return os.path.join(absolute(output), f"{_SCRATCH}{token}")


def write_sweep(output: str, contents: Mapping[str, bytes], scratch: str | None) -> str:
    """Writes the files of a sweep in place of those of an older one; returns the path of sweep.json.

    Args:
        output: folder of the sweep.
        contents: of all NAMES.
        scratch: folder of this job to remove.

    Raises:
        JobError: a file cannot be written, or has the name of an existing file that no sweep wrote.
    """
    folder = absolute(output)
    path, marker = os.path.join(folder, SWEEP_JSON), os.path.join(folder, _UNFINISHED)
    system = file_system(folder)
    with naming_faults(folder):
        system.make_folder(folder)
        _check_names(folder)
        working = system.working_folder(folder) or scratch_folder()
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=working) as unfinished:
            # All files are complete before the first replaces an older file.
            finished = {}
            for number, name in enumerate(NAMES):
                target = os.path.join(folder, name)
                finished[target] = os.path.join(unfinished, str(number))
                with naming_faults(target):
                    file_system(unfinished).write(finished[target], [contents[name]])
            write_file(marker, Owner.here("", "").to_json())
            system.remove_existing(path)
            for target, file in finished.items():
                system.put(file, target)
        system.remove_existing(marker)
        system.sync_folder(folder)
        if scratch is not None:
            remove_marked_folder(scratch)
    return path


def _check_names(folder: str) -> None:
    """Raises JobError if a file with one of our names exists, and no sweep wrote it."""
    if _is_unfinished(folder) or _is_sweep(os.path.join(folder, SWEEP_JSON)):
        return
    existing = sorted(file_system(folder).existing(folder, NAMES))
    if existing:
        raise JobError(f"{os.path.join(folder, existing[0])} exists, and no sweep wrote it; move it away")


def _is_sweep(path: str) -> bool:
    try:
        document = json.loads(read_bytes(path))
        return bool({"format_version", "rows", "images", "packages"} <= document.keys())
    except (FileNotFoundError, ValueError, AttributeError, RecursionError):
        return False


def _is_unfinished(folder: str) -> bool:
    try:
        return Owner.of_json(read_bytes(os.path.join(folder, _UNFINISHED))) is not None
    except FileNotFoundError:
        return False
