"""Measurements as Markdown."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks.contenders import BEAM, CODEC, KEPT_DECODE, KEPT_HEADER, LOOP, Q90, MemoryCase
from benchmarks.goals import Goal
from benchmarks.inputs import Inputs
from benchmarks.measure import Peaks, Speeds, megabytes
from recordmill.pipelines.options.runner import available_cores

_PACKAGES = ("apache-beam", "simplejpeg", "pillow", "protobuf", "google-crc32c", "numpy")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text, and the others are figures."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def speed_table(inputs: Inputs, speeds: Speeds) -> str:
    """A row for each contender, with its speed over that of the contender it is compared with."""
    against = {KEPT_HEADER: LOOP, KEPT_DECODE: LOOP, BEAM: LOOP, LOOP: LOOP, Q90: CODEC, CODEC: CODEC}
    rows = []
    for contender, other in against.items():
        times = speeds[contender.name]
        other_times = speeds[other.name]
        beyond, other_beyond = times.beyond_startup, other_times.beyond_startup
        rows.append(
            (
                contender.name,
                f"{inputs.images / times.whole:,.0f}",
                f"{other_times.whole / times.whole:.2f}",
                ", ".join(f"{seconds:.2f}" for seconds in times.everything),
                f"{times.startup:.2f}",
                f"{inputs.images / beyond:,.0f}" if beyond > 0 else "–",
                f"{other_beyond / beyond:.2f}" if beyond > 0 else "–",
            )
        )
    header = (
        f"{inputs.images:,} JPEGs",
        "images/s",
        "of its loop",
        "s, each round",
        "s with ten images",
        "images/s beyond that",
        "of its loop",
    )
    return markdown_table(header, rows)


def memory_table(cases: Sequence[MemoryCase], peaks: Peaks) -> str:
    """A row for each case."""
    rows = []
    for case in cases:
        peak = peaks[case.name]
        rows.append((case.name, megabytes(peak.rss), megabytes(peak.pss), str(peak.processes)))
    return markdown_table(("process tree", "peak RSS", "peak PSS", "processes"), rows)


def goals_table(goals: Sequence[Goal]) -> str:
    """A row for each goal."""
    rows = [(goal.name, goal.limit, goal.measured, "yes" if goal.met else "**no**") for goal in goals]
    return markdown_table(("goal", "limit", "measured", "met"), rows)


def machine() -> str:
    """One line: processor, cores, memory, load, versions."""
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    return (
        f"{_processor()}, {available_cores()} cores usable, "
        f"{psutil.virtual_memory().total / 1e9:.0f} GB of memory, load {os.getloadavg()[0]:.1f} before the "
        f"start; {platform.system()} {platform.release()}; Python {platform.python_version()}; {packages}"
    )


def _processor() -> str:
    """The name of the processor from /proc/cpuinfo, or else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
