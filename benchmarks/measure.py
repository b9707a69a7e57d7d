"""Runs a command in its own process, and measures wall time, memory or imports."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
_SAMPLE_SECONDS = 0.02
_SAMPLES_PER_PSS = 10  # PSS makes the kernel walk through all pages
_WATCH = Path(__file__).parent / "watch"


@dataclasses.dataclass(frozen=True)
class Memory:
    """The peaks of a process and all its descendants."""

    rss: int = 0  # bytes, the sum over processes; shared pages count for each
    pss: int = 0  # bytes, with shared pages counted once; sampled less often than `rss`
    processes: int = 0  # the largest number at a time

    def peak(self, other: Memory) -> Memory:
        """The maximum of each figure."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Memory(*(max(pair) for pair in pairs))


@dataclasses.dataclass
class Times:
    """Seconds of a contender in each round: for ten images, and for all images."""

    ten: list[float] = dataclasses.field(default_factory=list)
    everything: list[float] = dataclasses.field(default_factory=list)

    @property
    def startup(self) -> float:
        """Median with ten images: imports, pipeline, processes."""
        return statistics.median(self.ten)

    @property
    def beyond_startup(self) -> float:
        """The time for all images minus the start-up."""
        return self.total - self.startup

    @property
    def total(self) -> float:
        """Median with all images."""
        return statistics.median(self.everything)


Speeds = dict[str, Times]
Peaks = dict[str, Memory]


def megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


def wall_seconds(arguments: Sequence[str]) -> float:
    """Seconds from the start of `python <arguments>` to its end; raises RuntimeError with its output."""
    os.sync()  # pending writes of the previous command are not measured
    start = time.perf_counter()
    with _running(arguments) as process:
        process.wait()
        return time.perf_counter() - start


def peak_memory(arguments: Sequence[str]) -> Memory:
    """The memory of `python <arguments>`, sampled from its start to its end; raises as `wall_seconds`."""
    peak, samples = Memory(), 0
    with _running(arguments) as process:
        while process.poll() is None:
            peak = peak.peak(_memory_now(process.pid, with_pss=samples % _SAMPLES_PER_PSS == 0))
            samples += 1
            time.sleep(_SAMPLE_SECONDS)
    return peak


def processes_importing(arguments: Sequence[str]) -> tuple[int, int]:
    """The number of Python processes of `python <arguments>`, and of those that import TensorFlow."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(_WATCH), *filter(None, [os.environ.get("PYTHONPATH")])]
        with _running(arguments, PYTHONPATH=os.pathsep.join(paths), WATCH_FOLDER=folder):
            pass
        reports = [path.read_text(encoding="utf-8") for path in Path(folder).iterdir()]
    return len(reports), sum(1 for report in reports if report)


@contextlib.contextmanager
def _running(arguments: Sequence[str], **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Starts `python <arguments>`; after the block, waits for its end; raises RuntimeError if it failed."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | variables,
        )
        yield process
        if status := process.wait():
            text = os.pread(output.fileno(), 1 << 20, 0).decode("utf-8", "replace")
            raise RuntimeError(f"python {' '.join(arguments)} ended with status {status}:\n{text}")


def _memory_now(pid: int, with_pss: bool) -> Memory:
    rss = pss = processes = 0
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error:  # it has just ended
        return Memory()
    for process in family:
        try:
            rss += process.memory_info().rss
            pss += getattr(process.memory_full_info(), "pss", 0) if with_pss else 0
            processes += 1
        except psutil.Error:
            continue
    return Memory(rss, pss, processes)
