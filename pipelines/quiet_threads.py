"""Keeps off the terminal what the threads of a runner print: tracebacks of what we tell in one line."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

OURS = "recordmill"
"""What names of our own threads begin with."""


class _OwnThreads:
    """A stream that takes what our own threads write, and drops the rest."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        thread = threading.current_thread()
        is_ours = (
            thread is threading.main_thread()
            or thread.name.startswith(OURS)
            or type(thread).__module__.startswith("rich")  # which draws the bar
        )
        return self._stream.write(text) if is_ours else len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet_threads() -> Iterator[None]:
    """In the block, only our own threads write to stderr, and nothing is logged."""
    former = sys.stderr
    sys.stderr = _OwnThreads(former)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        sys.stderr = former
        logging.disable(logging.NOTSET)
