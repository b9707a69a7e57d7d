"""Runs commands, and measures their time and the memory of all their processes."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
_SAMPLE_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class Run:
    """Seconds from the start of a command to its end, and the peak memory of it and all its descendants.

    Memory is in bytes, sampled; it is the sum of the resident sets, each with the pages that are shared.
    """

    seconds: float
    rss: int


def megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


def run_python(arguments: Sequence[str]) -> Run:
    """`run` of `python <arguments>`."""
    return run([sys.executable, *arguments])


def run(command: Sequence[str]) -> Run:
    """Runs a command to its end; raises RuntimeError with its output if it fails."""
    os.sync()  # pending writes of the previous command are not measured
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        peaks = [0]
        watcher = threading.Thread(target=_watch, args=(process, peaks))
        watcher.start()
        status = process.wait()
        seconds = time.perf_counter() - start
        watcher.join()
        if status:
            text = os.pread(output.fileno(), 1 << 20, 0).decode("utf-8", "replace")
            raise RuntimeError(f"{' '.join(command)} ended with status {status}:\n{text}")
    return Run(seconds, max(peaks))


def _watch(process: subprocess.Popen[bytes], peaks: list[int]) -> None:
    """Adds the memory of the process and its descendants to `peaks` until it ends."""
    while process.poll() is None:
        peaks.append(max(peaks.pop(), _memory_now(process.pid)))
        time.sleep(_SAMPLE_SECONDS)


def _memory_now(pid: int) -> int:
    total = 0
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error:  # it has just ended
        return 0
    for process in family:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total
