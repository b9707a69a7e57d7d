"""Makes the codec of worker processes crash or hang on images that end in a word that says so."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.transforms.workers import process
from tests.patched import patched_site

_PATCH = """
import errno, os, pathlib, signal, time

def patch(module):
    from recordmill.transforms.workers import task as position
    position.ITEM_CPU_SECONDS = 2.0
    store, read = module.store_opened, module.ListedReader.read
    def failing_store(image, policy):
        data = image.data
        if data.endswith(b"BURN"):
            while True:
                pass
        if data.endswith(b"RAISE"):
            raise IndexError("no such row \\udcff" + 1000 * "!")
        if data.endswith(b"CRASH"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if data.endswith(b"HANG"):
            time.sleep(1000)
        if data.endswith(b"MEMORY"):
            raise MemoryError
        if data.endswith(b"ONCE"):
            mark = pathlib.Path({folder!r}) / f"once-{{hash(data)}}"
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGSEGV)
        return store(image, policy)
    def failing_read(self, ref):
        if ref.uri.startswith("HANG"):
            time.sleep(1000)
        if ref.uri.startswith("EIO"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), ref.uri)
        return read(self, ref)
    module.store_opened, module.ListedReader.read = failing_store, failing_read
"""


@contextlib.contextmanager
def failing_codec(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers that are started within the block fail on CRASH, HANG, BURN, RAISE, MEMORY; once on ONCE.

    So does reading a path that starts with HANG or EIO.
    """
    site = patched_site(
        folder, "recordmill.transforms.shards.record_encoder", _PATCH.format(folder=str(folder))
    )
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    process.stop_idle()
    yield
    process.stop_idle()
