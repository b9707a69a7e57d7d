"""The folder of a sweep: whether it can take one, and how its files get there."""

from __future__ import annotations

import os
from collections.abc import Mapping

from transforms.records import JobError
from transforms.storage import files, objects
from transforms.storage.durable import sync_folder
from transforms.storage.output import check_output, check_path
from transforms.storage.paths import absolute, is_remote
from transforms.storage.write_faults import naming_faults

SWEEP_JSON = "sweep.json"
"""Written last: where it is, the others are whole."""

NAMES = ("sweep.csv", "sweep.png", "sweep.svg", "sweep.html", SWEEP_JSON)
_UNFINISHED = ".part"
_SCRATCH = ".sweep-"


def check_sweep_output(output: str, overwrite: bool) -> None:
    """Raises ValueError unless `output` can take a sweep.

    It may not exist, or be empty; with `overwrite`, it may hold a sweep, and other files beside it, or what
    one left that was cut off.
    """
    check_path(output)
    folder = absolute(output)
    try:
        found = {entry.name for entry in files.entries(folder)}
    except (OSError, JobError) as error:
        said = getattr(error, "strerror", None) or error
        raise ValueError(f"--output is {output!r}: {said}") from error
    if not found:
        check_output(output)
        return
    names = {name for name in found if not name.startswith(_SCRATCH)}
    others = sorted(name for name in names if name.removesuffix(_UNFINISHED) not in NAMES)
    # Of a sweep whose writing was cut off, the page at least is there, or about to be.
    cut_off = any(name in names for name in ("sweep.html", "sweep.html" + _UNFINISHED))
    if others and SWEEP_JSON not in names and not (overwrite and cut_off):
        shown = ", ".join(repr(name) for name in others[:3]) + (", …" if len(others) > 3 else "")
        raise ValueError(f"--output is {output!r}, which is not empty ({shown}); give an empty or new folder")
    if names and not overwrite:
        held = "a sweep already" if SWEEP_JSON in names else "what is left of a sweep that was cut off"
        raise ValueError(
            f"--output is {output!r}, which holds {held}; --overwrite replaces it, or give another folder"
        )
    if not is_remote(folder) and not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"--output is {output!r}, where you may not write; give another folder")


def prepare_output(output: str, overwrite: bool) -> None:
    """Makes the folder, for a job that is at work.

    Raises:
        JobError: it cannot take a sweep.
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
    """A folder for what has to be decompressed once, that all workers see.

    Args:
        output: of the sweep.
        token: of the job, unique.
    """
    return os.path.join(absolute(output), f"{_SCRATCH}{token}")


def write_sweep(output: str, contents: Mapping[str, bytes], scratch: str | None) -> str:
    """Writes the files of a sweep, in place of those of another; the path of sweep.json.

    Args:
        output: folder of the sweep.
        contents: of NAMES.
        scratch: of this job, to be removed.

    Raises:
        JobError: names the file that cannot be written.
    """
    folder = absolute(output)
    path = os.path.join(folder, SWEEP_JSON)
    with naming_faults(folder):
        files.make_folder(folder)
    write = _write_objects if is_remote(folder) else _write_files
    write(folder, contents)
    if scratch is not None:
        with naming_faults(folder):
            files.remove_all([entry for entry in files.entries(folder) if entry.path == scratch])
    return path


def _write_objects(folder: str, contents: Mapping[str, bytes]) -> None:
    """Each object whole; sweep.json is away meanwhile."""
    files.remove_if_there(os.path.join(folder, SWEEP_JSON))
    for name in NAMES:
        path = os.path.join(folder, name)
        with naming_faults(path):
            objects.write(path, contents[name])


def _write_files(folder: str, contents: Mapping[str, bytes]) -> None:
    """All files whole before the first of them takes the place of an older one."""
    unfinished = {name: os.path.join(folder, name + _UNFINISHED) for name in NAMES}
    try:
        for name, path in unfinished.items():
            with naming_faults(path), open(path, "wb") as file:
                file.write(contents[name])
                file.flush()
                os.fsync(file.fileno())
    except BaseException:
        files.remove_if_there(*unfinished.values())
        raise
    with naming_faults(folder):
        files.remove_if_there(os.path.join(folder, SWEEP_JSON))
        for name, path in unfinished.items():
            os.replace(path, os.path.join(folder, name))
        sync_folder(folder)
