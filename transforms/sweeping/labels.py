"""Where the labels of points go, so that none lies on another."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Box = tuple[float, float, float, float]
"""left, bottom, right, top"""

_GAPS = (7, 14, 24, 36, 50, 66, 84, 104)
_DIRECTIONS = ((0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))
_MARKER = 6.0
_FAR = 12.0
_STEP = 5.0
_SPACE = 7.0
_COSTS = {"label": 1000.0, "outside": 1000.0, "marker": 120.0, "curve": 4.0}


@dataclasses.dataclass(frozen=True, slots=True)
class Label:
    """A text and the point that it is of; all in pixels, y upwards."""

    text: str
    x: float
    y: float
    width: float
    height: float
    color: str

    def is_far(self, left: float, bottom: float) -> bool:
        """Whether a label there wants a line to its point."""
        across = max(left - self.x, self.x - left - self.width, 0)
        along = max(bottom - self.y, self.y - bottom - self.height, 0)
        return max(across, along) > _FAR


def place_labels(
    labels: Sequence[Label], curves: Sequence[npt.NDArray[Any]], area: Box
) -> list[tuple[float, float]]:
    """Puts each label near its point, off the other labels, and off markers and curves where there is room.

    Args:
        labels: the earlier, the nearer.
        curves: corners of each line, (n, 2).
        area: in which labels have to be.

    Returns:
        Left and bottom of each label.
    """
    markers = np.array([(label.x, label.y) for label in labels]).reshape(-1, 2)
    along = np.concatenate([_steps(curve) for curve in curves]) if curves else np.empty((0, 2))
    taken: list[Box] = []
    places = []
    for label in labels:
        candidates = [_candidate(label, gap, way) for gap in _GAPS for way in _DIRECTIONS]
        costs = [
            _cost(box, taken, markers, along, area) + gap
            for box, gap in zip(candidates, np.repeat(_GAPS, len(_DIRECTIONS)), strict=True)
        ]
        best = candidates[int(np.argmin(costs))]
        taken.append(best)
        places.append(best[:2])
    return places


def _steps(curve: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Points along a line, a few pixels from each other."""
    found = []
    for start, end in zip(curve[:-1], curve[1:], strict=True):
        count = max(int(np.hypot(*(end - start)) / _STEP), 1)
        found.append(start + (end - start) * np.linspace(0, 1, count)[:, None])
    return np.concatenate(found) if found else np.empty((0, 2))


def _candidate(label: Label, gap: float, way: tuple[int, int]) -> Box:
    across, along = way
    middle_x = label.x + across * (gap + label.width / 2)
    middle_y = label.y + along * (gap + label.height / 2)
    left, bottom = middle_x - label.width / 2, middle_y - label.height / 2
    return left, bottom, left + label.width, bottom + label.height


def _cost(
    box: Box, taken: Sequence[Box], markers: npt.NDArray[Any], along: npt.NDArray[Any], area: Box
) -> float:
    left, bottom, right, top = box
    inside = left >= area[0] and bottom >= area[1] and right <= area[2] and top <= area[3]
    cost = 0.0 if inside else _COSTS["outside"]
    for other in taken:
        if left < other[2] + _SPACE and other[0] - _SPACE < right and bottom < other[3] and other[1] < top:
            cost += _COSTS["label"]
    cost += _COSTS["marker"] * _count(markers, box, _MARKER)
    return cost + _COSTS["curve"] * _count(along, box, 1.0)


def _count(points: npt.NDArray[Any], box: Box, margin: float) -> int:
    """How many points are in a box, or within a margin of it."""
    x, y = points[:, 0], points[:, 1]
    across = (x > box[0] - margin) & (x < box[2] + margin)
    along = (y > box[1] - margin) & (y < box[3] + margin)
    return int(np.count_nonzero(across & along))
