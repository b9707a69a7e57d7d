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
_UNLOCKED = ".new-recordmill-"


@functools.cache
def scratch_folder() -> str:
    """The folder, under the system's temporary one."""
    parent = tempfile.gettempdir()
    _sweep(parent)
    unlocked = tempfile.mkdtemp(prefix=_UNLOCKED, dir=parent)
    # Held as long as the process lives, and by its forks: by it the folder of one that died is known. It gets
    # the name that others look for only once it is held.
    fcntl.flock(os.open(unlocked, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)
    folder = os.path.join(parent, _PREFIX + os.path.basename(unlocked).removeprefix(_UNLOCKED))
    os.rename(unlocked, folder)
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
