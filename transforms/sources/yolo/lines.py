"""Lines of YOLO label files: boxes, polygons, poses. See https://docs.ultralytics.com/datasets/."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import AnnotatedObject, BadInput, Box

_BOX = 4
_SMALLEST_POLYGON = 6


class LineFormat(NamedTuple):
    """The meaning of the lines of a dataset; unless it takes masks, polygons become boxes around them."""

    labels: Mapping[int, str | int] = {}  # of the classes by id; empty where none have a name
    keypoints: tuple[int, int] | None = None  # (number, 2 or 3 values each) of poses
    takes_masks: bool = False
    takes_keypoints: bool = False

    @internal_errors("annotations")
    def objects(self, text: str, file: str) -> tuple[AnnotatedObject, ...]:
        """The objects in the text of a label file, whose name is for messages.

        Raises:
            BadInput: stage `annotations`; a line is not YOLO's, or its class has no name.
        """
        found = []
        for number, line in enumerate(text.splitlines(), 1):
            if words := line.split():
                try:
                    found.append(self._object(words))
                except BadInput as fault:
                    fault.detail = f"{file}, line {number}: {fault.detail}"
                    raise
        return tuple(found)

    def _object(self, words: Sequence[str]) -> AnnotatedObject:
        label = self._label(words[0])
        values = [_number(word) for word in words[1:]]
        if self.keypoints is not None and len(values) == _BOX + math.prod(self.keypoints):
            points = _points(values[_BOX:], self.keypoints[1]) if self.takes_keypoints else ()
            return AnnotatedObject(label, _box(values), keypoints=points)
        if len(values) in (_BOX, _BOX + 1):
            extra = {"confidence": values[_BOX]} if len(values) > _BOX else {}
            return AnnotatedObject(label, _box(values), attributes=extra)
        if len(values) < _SMALLEST_POLYGON or len(values) % 2:
            raise BadInput("annotations", "not a YOLO line", f"a class and {len(values)} numbers")
        _check_normalised(values)
        if self.takes_masks:
            return AnnotatedObject(label, mask=(tuple(values),))
        xs, ys = values[::2], values[1::2]
        return AnnotatedObject(label, Box(min(xs), min(ys), max(xs), max(ys)))

    def _label(self, word: str) -> str | int:
        value = _number(word)
        if value != int(value) or value < 0:
            raise BadInput("annotations", "not a YOLO line", f"the class is {word!r}, not 0 or more")
        label = int(value)
        if self.labels and label not in self.labels:
            detail = f"class {label}; the names are of {min(self.labels)} to {max(self.labels)}"
            raise BadInput("annotations", "class id is not among the names", detail)
        return self.labels.get(label, label)


def is_label_text(text: str) -> bool:
    """Whether a text is lines of boxes, polygons or poses, by the first that is not blank."""
    words = next((words for line in text.splitlines() if (words := line.split())), [])
    if len(words) <= _BOX or not words[0].isdecimal():
        return False
    try:
        _check_normalised([_number(word) for word in words[1 : _BOX + 1]])
    except BadInput:
        return False
    return True


def _points(values: Sequence[float], step: int) -> tuple[tuple[float, float, int], ...]:
    points = []
    for at in range(0, len(values), step):
        x, y = values[at : at + 2]
        visibility = values[at + 2] if step == 3 else 2
        if visibility not in (0, 1, 2):
            raise BadInput("annotations", "not a YOLO line", f"a keypoint's visibility is {visibility:g}")
        points.append((x, y, int(visibility)) if visibility else (0.0, 0.0, 0))
    return tuple(points)


def _box(values: Sequence[float]) -> Box:
    x, y, width, height = values[:_BOX]
    _check_normalised(values[:_BOX])
    return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _check_normalised(values: Sequence[float]) -> None:
    for value in values:
        if not -1 <= value <= 2:  # far beyond the image: pixels
            detail = f"{value:g}; coordinates are from 0 to 1, not pixels"
            raise BadInput("annotations", "coordinates are not shares of the image", detail)


def _number(word: str) -> float:
    try:
        value = math.nan if "_" in word else float(word)  # Python takes 1_0 for 10
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInput("annotations", "not a YOLO line", f"{word[:40]!r} is not a number")
    return value
