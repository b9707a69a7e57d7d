"""Measurements and goals as Markdown."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import psutil

from recordmill.pipelines.options.runner import available_cores

_PACKAGES = ("apache-beam", "simplejpeg", "pillow", "protobuf", "google-crc32c", "numpy")


@dataclasses.dataclass(frozen=True)
class Goal:
    """A goal, and whether it is met."""

    name: str
    limit: str
    measured: str
    met: bool


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text, and the others are figures."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


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
        f"start; {platform.system()}; Python {platform.python_version()}; {packages}"
    )


def _processor() -> str:
    """The name of the processor from /proc/cpuinfo, or else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
