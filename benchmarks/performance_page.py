"""Writes what was measured into docs/performance.md: tables, a list and a chart.

Each part of the page between `<!-- measured: NAME -->` and `<!-- end of measured -->` is replaced.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import megabytes
from benchmarks.report import markdown_table
from benchmarks.works import PROGRAMS, WORKS

OURS = "recordmill"
_PART = re.compile(r"(<!-- measured: (\w+) -->\n).*?(<!-- end of measured -->)", re.DOTALL)
_TITLES = {program.name: program.title for program in PROGRAMS}
_UNKNOWN = "–"
_OF_US = ("recordmill", "header", "beam_writer")


def update_page(page: Path, found: Mapping[str, Any]) -> None:
    """Replaces the measured parts of a page, and draws the chart next to it."""
    parts = {
        "machine": found["machine"] + ".",
        "conversions": _conversions(found["works"]),
        "behind": _behind(found["works"]),
        "programs": _programs(),
        "readers": _readers(found["readers"]),
    }
    text = page.read_text("utf-8")
    page.write_text(_PART.sub(lambda part: f"{part[1]}\n{parts[part[2]]}\n\n{part[3]}", text), "utf-8")
    draw_chart(found["works"], page.parent / "images" / "performance.svg")


def seconds_beyond_startup(runs: Mapping[str, Any]) -> list[float]:
    """Of each round, the time for all items minus the median time for ten; none if it is too little.

    Too little is less than a quarter of the start-up: the start-up alone varies as much.
    """
    startup = _startup(runs)
    beyond = [run["seconds"] - startup for run in runs["all"]]
    return beyond if min(beyond) > startup / 4 else []


def _startup(runs: Mapping[str, Any]) -> float:
    seconds: list[float] = [run["seconds"] for run in runs["few"]]
    return statistics.median(seconds)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """How many times as fast we are: of the medians, with the range of rounds if there are several."""
    if not ours or not theirs:
        return _UNKNOWN
    each = [other / one for one, other in zip(ours, theirs, strict=False)]
    spread = f" ({min(each):.2f} to {max(each):.2f})" if len(each) > 1 else ""
    return f"{statistics.median(theirs) / statistics.median(ours):.2f}{spread}"


def _share(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float | None:
    """Our speed as a part of theirs, beyond start-up; None if it is unknown."""
    one, other = seconds_beyond_startup(ours), seconds_beyond_startup(theirs)
    return statistics.median(other) / statistics.median(one) if one and other else None


def _rate(items: int, runs: Mapping[str, Any]) -> float:
    """Items per second beyond start-up; 0 if it is unknown."""
    seconds = seconds_beyond_startup(runs)
    return items / statistics.median(seconds) if seconds else 0.0


def _number(rate: float) -> str:
    return f"{rate:,.0f}" if rate else _UNKNOWN


def _conversions(works: Mapping[str, Any]) -> str:
    """A table for each work."""
    header = ("program", "items/s", "Recordmill's speed ÷ its", "start-up, s", "peak memory", "written")
    tables = []
    for work in WORKS:
        if work.name not in works:
            continue
        found = works[work.name]
        ours, items = found["programs"][OURS], found["items"]
        rows = [
            (
                _TITLES[name],
                _number(_rate(items, runs)),
                "1" if name == OURS else ratio(seconds_beyond_startup(ours), seconds_beyond_startup(runs)),
                f"{_startup(runs):.1f}",
                megabytes(max(run["rss"] for run in runs["all"])),
                megabytes(runs["bytes"]) if runs["bytes"] else "nothing",
            )
            for name, runs in found["programs"].items()
        ]
        rounds = len(ours["all"])
        title = f"### {work.title[0].upper()}{work.title[1:]}"
        facts = (
            f"{items:,} items, {megabytes(found['size'])}; {rounds} {'rounds' if rounds > 1 else 'round'}."
        )
        tables.append(f"{title}\n\n{facts}\n\n{markdown_table(header, rows)}")
    return "\n\n".join(tables)


def _behind(works: Mapping[str, Any]) -> str:
    """A list of what was faster than we are."""
    lines = []
    for work in WORKS:
        programs = works.get(work.name, {}).get("programs", {})
        for name, runs in programs.items():
            share = _share(programs[OURS], runs)
            if name not in _OF_US and share is not None and share < 1:
                best = max((_share(programs[us], runs) or 0, us) for us in _OF_US if us in programs)
                other = "" if best[1] == OURS else f"; {best[0]:.2f} with {_TITLES[best[1]]}"
                lines.append(f"- {work.title}: {_TITLES[name]} ({share:.2f} of its speed{other})")
    return "\n".join(lines) or "Nothing was faster."


def _programs() -> str:
    rows = [(program.title, program.meanwhile) for program in PROGRAMS]
    return markdown_table(("program", "what it does meanwhile"), rows).replace("---:", "---")


def _readers(readers: Mapping[str, Any]) -> str:
    if not readers:
        return "Not measured."
    titles = dict.fromkeys(title for found in readers.values() for title in found["readers"])
    rows = []
    for title in titles:
        cells = [title]
        for found in readers.values():
            ours, seconds = next(iter(found["readers"].values())), found["readers"][title]
            speed = f"{found['items'] / statistics.median(seconds):,.0f}"
            cells += [speed, "1" if seconds is ours else ratio(ours, seconds)]
        rows.append(cells)
    header = [part for name in readers for part in (f"{name}: images/s", "`load_dataset`'s speed ÷ its")]
    return markdown_table(("reader", *header), rows)


def draw_chart(works: Mapping[str, Any], path: Path) -> None:
    """A panel of bars for each work: items per second beyond start-up."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "recordmill"
    import matplotlib.pyplot as plt

    shown = [work for work in WORKS if work.name in works]
    figure, grid = plt.subplots(
        -(-len(shown) // 2), 2, figsize=(12, 2.9 * -(-len(shown) // 2)), squeeze=False
    )
    for work, axes in zip(shown, grid.flat, strict=False):
        found = works[work.name]
        names = list(found["programs"])[::-1]
        rates = [_rate(found["items"], found["programs"][name]) for name in names]
        colors = ["#1565c0" if name in _OF_US else "#9aa5b1" for name in names]
        bars = axes.barh([_TITLES[name].replace("`", "") for name in names], rates, color=colors)
        axes.bar_label(bars, map(_number, rates), padding=3, fontsize=8)
        axes.set_title(f"{work.title}, items/s", fontsize=10)
        axes.tick_params(labelsize=8)
        axes.margins(x=0.15)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in list(grid.flat)[len(shown) :]:
        axes.remove()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
