"""Boxes of objects as the shares of width and height that schemas store."""

from __future__ import annotations

from collections.abc import Iterable

from recordmill.transforms.examples.features import Feature
from recordmill.transforms.examples.schema import FeatureSpec
from recordmill.transforms.records import AnnotatedObject, Box, StoredImage

_SIDES = ("xmin", "xmax", "ymin", "ymax")


def object_boxes(objects: Iterable[AnnotatedObject]) -> list[Box]:
    """The box of each object that was mapped."""
    boxes = []
    for one in objects:
        if one.box is None:
            raise ValueError(f"an object of class {one.label!r} has no box; objects are mapped with theirs")
        boxes.append(one.box)
    return boxes


def box_features(prefix: str, boxes: Iterable[Box], image: StoredImage) -> dict[str, Feature]:
    """The sides of boxes, a list each.

    Args:
        prefix: of the keys.
        boxes: in pixels of the stored image.
        image: the stored image.
    """
    width, height = image.width, image.height
    sides: tuple[list[float], ...] = ([], [], [], [])
    for xmin, ymin, xmax, ymax in boxes:
        sides[0].append(xmin / width)
        sides[1].append(xmax / width)
        sides[2].append(ymin / height)
        sides[3].append(ymax / height)
    return {
        f"{prefix}/{side}": Feature("float_list", values) for side, values in zip(_SIDES, sides, strict=True)
    }


def box_specs(prefix: str) -> dict[str, FeatureSpec]:
    """The specs of the same."""
    return {f"{prefix}/{side}": FeatureSpec("float32", (None,)) for side in _SIDES}
