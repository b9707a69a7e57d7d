"""Boxes: clipped to their image, and moved into the stored image."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from recordmill.transforms.annotations.frame import Frame
from recordmill.transforms.images.geometry import moved_boxes
from recordmill.transforms.records import BadInput, Box

NO_AREA = "box without an area"
CLIPPED = "box clipped"
DROPPED = "box outside the image dropped"
CROPPED = "box cut off by the crop"
NOT_A_NUMBER = "box is not a number"
OUTSIDE = "box outside the image"

# A fraction of a side, from rounding to six digits: clipped without a note. A box of this size has no area.
_TOLERANCE = 1e-6

Name = Callable[[], str]
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class BoxRule:
    """How boxes of one image are treated.

    Attributes:
        policy: one of `BOXES`.
        frame: of their coordinates.
        notes: (reason, detail) of each that is clipped or dropped; grows.
    """

    policy: str
    frame: Frame
    notes: list[tuple[str, str]]

    def fitted(self, box: Box, name: Name) -> Box | None:
        """A box clipped to its image; None if it is dropped.

        Args:
            box: in pixels of the frame.
            name: of its object or part, for messages.

        Raises:
            BadInput: a side is not a number; or, with the policy `fail`, the box does not fit.
        """
        width, height = self.frame.width, self.frame.height
        xmin, ymin, xmax, ymax = box
        if 0 <= xmin < xmax <= width and 0 <= ymin < ymax <= height:
            return box
        if not all(map(math.isfinite, box)):
            raise BadInput("annotations", NOT_A_NUMBER, _described(name, box))
        if xmax <= xmin or ymax <= ymin:
            self.without_area(_described(name, box))
            return None
        cut = cut_box(box, width, height)
        dx, dy = _TOLERANCE * width, _TOLERANCE * height
        if cut is not None and xmin >= -dx and ymin >= -dy and xmax <= width + dx and ymax <= height + dy:
            return cut
        detail = f"{_described(name, box)} in {width}x{height}"
        if self.policy == "fail":
            remedy = "--boxes=clip cuts it, --boxes=drop leaves it out"
            raise BadInput("annotations", OUTSIDE, f"{detail}; {remedy}")
        if cut is None or self.policy == "drop":
            self.notes.append((DROPPED, detail))
            return None
        self.notes.append((CLIPPED, detail))
        return cut

    def without_area(self, detail: str) -> None:
        """Drops a box without area.

        Raises:
            BadInput: the policy is `fail`.
        """
        if self.policy == "fail":
            raise BadInput("annotations", NO_AREA, f"{detail}; --boxes=drop leaves it out")
        self.notes.append((NO_AREA, detail))

    def moved(self, fitted: Iterable[tuple[_T, Box | None, Name]]) -> list[tuple[_T, Box, Name]]:
        """Objects or parts with their boxes in pixels of the stored image, but for those outside the crop.

        Args:
            fitted: each, its box as `fitted` has it, and its name. Those without a box are left out.
        """
        within = [(one, box, name) for one, box, name in fitted if box is not None]
        if self.frame.is_stored or not within:
            return within
        geometry = self.frame.geometry
        found = []
        moved = moved_boxes(geometry, np.array([box for _, box, _ in within])).tolist()
        for (one, _, name), sides in zip(within, moved, strict=True):
            cut = cut_box(Box(*sides), geometry.width, geometry.height)
            if cut is None:
                self.notes.append((CROPPED, name()))
            else:
                found.append((one, cut, name))
        return found


def cut_box(box: Box, width: int, height: int) -> Box | None:
    """The part of a box that is in an image; None if it has no area."""
    xmin, ymin = max(box.xmin, 0.0), max(box.ymin, 0.0)
    xmax, ymax = min(box.xmax, float(width)), min(box.ymax, float(height))
    cut = Box(xmin, ymin, xmax, ymax)
    least = (0.0, 0.0) if cut == box else (_TOLERANCE * width, _TOLERANCE * height)
    return cut if xmax - xmin > least[0] and ymax - ymin > least[1] else None


def _described(name: Name, box: Box) -> str:
    return f"{name()}: {','.join(f'{side:.10g}' for side in box)}"
