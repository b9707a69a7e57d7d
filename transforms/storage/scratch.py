"""The scratch folder of this process, in a private folder of the user."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import stat
import tempfile

from recordmill.transforms.records import JobError
from recordmill.transforms.storage.owner import MARKER, make_marked_folder, owner_of, remove_marked_folder


@functools.cache
def scratch_folder() -> str:
    """The folder, made at the first call. It is removed when the process ends, or by a later process.

    Raises:
        JobError: the private folder's name is taken.
    """
    parent = _private_folder(os.path.join(tempfile.gettempdir(), f"recordmill-scratch-{os.getuid()}"))
    with contextlib.suppress(OSError):  # a lock keeps earlier versions from removing it
        fcntl.flock(os.open(parent, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH | fcntl.LOCK_NB)
    for name in os.listdir(parent):
        _remove_if_dead(os.path.join(parent, name))
    folder = tempfile.mkdtemp(dir=parent)
    make_marked_folder(folder)
    with contextlib.suppress(OSError):  # without locks, folders of dead processes stay
        _locked_marker(folder, fcntl.LOCK_SH)  # held while this process or a fork of it lives
    atexit.register(_remove_own, folder, os.getpid())
    return folder


def _private_folder(path: str) -> str:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise JobError(
            f"{path} is needed for intermediate files, but is a link, a file, or another user's folder; "
            "remove it, or set TMPDIR to another folder"
        )
    if stat.S_IMODE(found.st_mode) != 0o700:
        os.chmod(path, 0o700)
    return path


def _remove_if_dead(folder: str) -> None:
    """Removes the folder of a process of this machine that has ended: no process locks its marker."""
    with contextlib.suppress(OSError):
        owner = owner_of(folder)
        if owner is None or not owner.is_dead_here():
            return
        descriptor = _locked_marker(folder, fcntl.LOCK_EX)
        try:
            remove_marked_folder(folder)
        finally:
            os.close(descriptor)


def _locked_marker(folder: str, operation: int) -> int:
    """A descriptor of a folder's marker, locked. Raises OSError if another process has locked it."""
    descriptor = os.open(os.path.join(folder, MARKER), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_own(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # a fork leaves the folder to its parent
        with contextlib.suppress(OSError):
            remove_marked_folder(folder)


os.register_at_fork(after_in_child=scratch_folder.cache_clear)
