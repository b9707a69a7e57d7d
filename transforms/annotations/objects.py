"""Maps the objects of an image, with their boxes, key points, parts and outlines, into the stored image."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from recordmill.transforms.annotations.boxes import BoxRule, Name
from recordmill.transforms.annotations.shapes import Shapes
from recordmill.transforms.images.geometry import is_scaled, moved_points
from recordmill.transforms.records import (
    AnnotatedObject,
    BadInput,
    Box,
    ImageRef,
    Part,
    Polygons,
    Rle,
    Scalar,
)

_NO_POINT = "key point is not a number"
_LOST_POINTS = "key points outside the image dropped"
_CROPPED_POINTS = "key points cut off by the crop"

KeyPoints = tuple[tuple[float, float, int], ...]
Kept = tuple[AnnotatedObject, AnnotatedObject]


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectMapper:
    """Maps the objects of one image, given how their boxes are treated and the shapes of their masks."""

    rule: BoxRule
    shapes: Shapes

    def mapped(self, objects: Sequence[AnnotatedObject]) -> list[Kept]:
        """The objects that are not dropped: each as in the source, and as in the stored image.

        Raises:
            BadInput: an annotation is invalid, or a box does not fit.
        """
        named = [(one, functools.partial(_named, index, one)) for index, one in enumerate(objects)]
        fitted = ((one, self._fitted(one, name), name) for one, name in named)
        return [(one, self._finished(one, box, name)) for one, box, name in self.rule.moved(fitted)]

    def _fitted(self, one: AnnotatedObject, name: Name) -> Box | None:
        if one.box is not None:
            return self._box(one.box, name)
        box = self.shapes.bounds(one)
        if box is not None:
            return self.rule.fitted(box, name)
        self.rule.without_area(f"{name()}: no box, and nothing that it covers")
        return None

    def _box(self, box: Box, name: Name) -> Box | None:
        return self.rule.fitted(self.rule.frame.box(box) if self.shapes.relative else box, name)

    def _finished(self, one: AnnotatedObject, box: Box, name: Name) -> AnnotatedObject:
        mask, keypoints, parts = one.mask, one.keypoints, one.parts
        attributes = one.attributes
        if "area" in attributes and is_scaled(self.rule.frame.geometry):
            attributes = self._scaled(attributes)
        elif box is one.box and mask is None and not keypoints and not parts:
            return one
        stored: Polygons | None = None
        if mask is not None and not isinstance(mask, Rle | ImageRef):
            stored = self.shapes.stored_polygons(mask)
        points = self._keypoints(keypoints, name) if keypoints else ()
        return AnnotatedObject(one.label, box, stored, points, self._parts(parts, name), attributes)

    def _scaled(self, attributes: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """Attributes with an area in square pixels of the stored image."""
        area = attributes["area"]
        is_cell = isinstance(area, str)  # of a table, whose column types depend on all its rows
        try:
            number = float(area)
        except ValueError:
            return attributes
        geometry = self.rule.frame.geometry
        scaled = geometry.scaled_height * geometry.scaled_width
        ratio = scaled / (geometry.upright_height * geometry.upright_width)
        return {**attributes, "area": str(number * ratio) if is_cell else number * ratio}

    def _parts(self, parts: tuple[Part, ...], name: Name) -> tuple[Part, ...]:
        named = [(part, functools.partial(_part_named, part, name)) for part in parts]
        fitted = ((part, self._box(part.box, of_part), of_part) for part, of_part in named)
        return tuple(Part(part.name, box) for part, box, _ in self.rule.moved(fitted))

    def _keypoints(self, keypoints: KeyPoints, name: Name) -> KeyPoints:
        """Key points in the stored image; one that is not in it counts as not labelled."""
        frame = self.rule.frame
        width, height = frame.width, frame.height
        across, down = (width, height) if self.shapes.relative else (1, 1)
        found: list[tuple[float, float, int]] = []
        lost = 0
        for x, y, visibility in keypoints:
            if not (math.isfinite(x) and math.isfinite(y)):
                raise BadInput("annotations", _NO_POINT, f"{name()}: {x},{y}")
            if x == y == visibility == 0:
                found.append((0.0, 0.0, 0))
                continue
            x, y = x * across, y * down
            if 0 <= x <= width and 0 <= y <= height:
                found.append((x, y, visibility))
            else:
                lost += 1
                found.append((0.0, 0.0, 0))
        if lost:
            self.rule.notes.append((_LOST_POINTS, f"{name()}: {lost} of {len(keypoints)}"))
        return tuple(found) if frame.is_stored else self._moved(found, name)

    def _moved(self, keypoints: Sequence[tuple[float, float, int]], name: Name) -> KeyPoints:
        geometry = self.rule.frame.geometry
        points = moved_points(geometry, np.array([(x, y) for x, y, _ in keypoints])).tolist()
        found = []
        lost = 0
        for (x, y), source in zip(points, keypoints, strict=True):
            inside = 0 <= x <= geometry.width and 0 <= y <= geometry.height
            labelled = source != (0, 0, 0)
            lost += labelled and not inside
            found.append((x, y, source[2]) if labelled and inside else (0.0, 0.0, 0))
        if lost:
            self.rule.notes.append((_CROPPED_POINTS, f"{name()}: {lost} of {len(keypoints)}"))
        return tuple(found)


def _named(index: int, one: AnnotatedObject) -> str:
    return f"object {index} {one.label!r}"


def _part_named(part: Part, name: Name) -> str:
    return f"part {part.name!r} of {name()}"
