"""Histograms: the counts of `Statistics` and of chosen JPEG qualities as titled bars, empty bins included."""

from __future__ import annotations

import math
from collections.abc import Mapping

Bars = list[tuple[str, int]]
"""Title and count of each bar."""

_BOX_COUNTS = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 9), (10, 19), (20, 49), (50, 99), (100, 100))
_NARROWEST, _WIDEST, _SMALLEST = -12, 12, -16


def side_bars(bins: Mapping[int, int]) -> Bars:
    """Images by the length of a side: `Statistics.widths` or `heights`."""
    bars = []
    for number, count in _filled(bins):
        least, most = math.ceil(2 ** ((number - 0.5) / 2)), math.ceil(2 ** ((number + 0.5) / 2)) - 1
        if least <= most:
            bars.append((f"{least:,}–{most:,}" if least < most else f"{least:,}", count))
    return bars


def aspect_bars(bins: Mapping[int, int]) -> Bars:
    """Images or boxes by width over height: `Statistics.aspects` or `box_aspects`."""
    bars = []
    for number, count in _filled(bins):
        least, most = (2 ** ((number + half) / 4) for half in (-0.5, 0.5))
        title = f"{least:.2f}–{most:.2f}"
        if number in (_NARROWEST, _WIDEST):
            title = f"under {most:.2f}" if number == _NARROWEST else f"over {least:.2f}"
        bars.append((title, count))
    return bars


def box_size_bars(bins: Mapping[int, int]) -> Bars:
    """Boxes by the square root of their share of the image: `Statistics.box_sides`."""
    bars = []
    for number, count in _filled(bins):
        least, most = (100 * 2 ** ((number + half) / 2) for half in (-0.5, 0.5))
        title = f"{_percent(least)}–{_percent(min(most, 100))} %"
        bars.append((f"under {_percent(most)} %" if number == _SMALLEST else title, count))
    return bars


def box_count_bars(counts: Mapping[int, int]) -> Bars:
    """Images by their number of boxes: `Statistics.boxes_per_image`."""
    bars: Bars = []
    for least, most in _BOX_COUNTS:
        title = "100 and more" if least == 100 else f"{least}–{most}" if least < most else f"{least}"
        bars.append((title, sum(count for number, count in counts.items() if least <= number <= most)))
    while bars and not bars[-1][1]:
        bars.pop()
    return bars


def quality_bars(qualities: Mapping[int, int]) -> Bars:
    """Images by the JPEG quality that was chosen, in fives. Quality 0 means that the source was kept."""
    bins: dict[int, int] = {}
    for quality, count in qualities.items():
        if quality:
            bins[(quality - 1) // 5] = bins.get((quality - 1) // 5, 0) + count
    kept = qualities.get(0, 0)
    bars: Bars = [("source kept", kept)] if kept else []
    return bars + [(f"q{5 * number + 1}–{5 * number + 5}", count) for number, count in _filled(bins)]


def _filled(bins: Mapping[int, int]) -> list[tuple[int, int]]:
    """All bins from the first to the last."""
    numbers = range(min(bins), max(bins) + 1) if bins else ()
    return [(number, bins.get(number, 0)) for number in numbers]


def _percent(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
