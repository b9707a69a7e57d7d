"""A folder of this process alone, for what goes on to a bucket: removed at its end, or by the next one."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import shutil
import tempfile

_PREFIX = "recordmill-"


@functools.cache
def scratch_folder() -> str:
    """The folder, under the system's temporary one."""
    parent = tempfile.gettempdir()
    _sweep(parent)
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
    # Held as long as the process lives, and by its forks: by it the folder of one that died is known.
    fcntl.flock(os.open(folder, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _sweep(parent: str) -> None:
    """Removes what processes have left that were killed."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                _remove_if_dead(entry.path)


def _remove_if_dead(folder: str) -> None:
    with contextlib.suppress(OSError):
        if os.stat(folder).st_uid != os.getuid():
            return
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


def _forget() -> None:
    """In a forked child: the folder is the parent's."""
    scratch_folder.cache_clear()
    atexit.unregister(shutil.rmtree)


os.register_at_fork(after_in_child=_forget)
