"""The size of the stored image, and the transformation of points and boxes into it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.transforms.images.exif import is_transposed
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.records import Geometry

Points = npt.NDArray[np.float64]


def plan_geometry(height: int, width: int, orientation: int, policy: ImagePolicy) -> Geometry:
    """Plans how an image is turned, scaled, and padded or cropped.

    A side that follows from the other is the exact ratio rounded half up, and at least 1. Padding and
    cropping are centred; an odd pixel is at the bottom or right.

    Args:
        height: of the file's pixels, before they are turned.
        width: likewise.
        orientation: EXIF, 1 to 8.
        policy: how images are stored.
    """
    if policy.exif == "ignore":
        orientation = 1
    if is_transposed(orientation):
        height, width = width, height
    if policy.size is None:
        scaled = _limited(height, width, policy)
        return Geometry(orientation, height, width, *scaled, 0, 0, *scaled)
    scaled = _fitted(height, width, policy.size, policy.fit)
    top, left = ((target - side) // 2 for target, side in zip(policy.size, scaled, strict=True))
    if policy.fit == "crop":
        top, left = (-((side - target) // 2) for target, side in zip(policy.size, scaled, strict=True))
    return Geometry(orientation, height, width, *scaled, top, left, *policy.size)


def _limited(height: int, width: int, policy: ImagePolicy) -> tuple[int, int]:
    """The size under --max_side or --short_side, which never enlarge."""
    if policy.max_side is not None:
        side, limit = max(height, width), policy.max_side
    elif policy.short_side is not None:
        side, limit = min(height, width), policy.short_side
    else:
        return height, width
    if side <= limit:
        return height, width
    return _portion(height, limit, side), _portion(width, limit, side)


def _fitted(height: int, width: int, size: tuple[int, int], fit: str) -> tuple[int, int]:
    """The size to which a picture is scaled so that it fills, fits in, or covers `size`."""
    if fit == "stretch":
        return size
    rows, columns = size
    heights_meet_first = rows * width <= columns * height  # while the picture is scaled to fit
    if heights_meet_first == (fit == "pad"):
        return rows, _portion(width, rows, height)
    return _portion(height, columns, width), columns


def _portion(side: int, numerator: int, denominator: int) -> int:
    """`side` * `numerator` / `denominator`, rounded half up, at least 1."""
    return max(1, (2 * side * numerator + denominator) // (2 * denominator))


def is_identity(geometry: Geometry) -> bool:
    """Whether no pixel moves."""
    return geometry.orientation == 1 and not is_scaled(geometry) and not _is_reframed(geometry)


def file_size(geometry: Geometry) -> tuple[int, int]:
    """Height and width of the file's pixels, before they are turned."""
    upright = (geometry.upright_height, geometry.upright_width)
    return upright[::-1] if is_transposed(geometry.orientation) else upright


def is_scaled(geometry: Geometry) -> bool:
    """Whether the picture has another number of pixels, before it is padded or cropped."""
    upright = (geometry.upright_height, geometry.upright_width)
    return (geometry.scaled_height, geometry.scaled_width) != upright


def _is_reframed(geometry: Geometry) -> bool:
    frame = (geometry.top, geometry.left, geometry.height, geometry.width)
    return frame != (0, 0, geometry.scaled_height, geometry.scaled_width)


def moved_points(geometry: Geometry, points: npt.NDArray[Any]) -> Points:
    """Transforms points of the file into the stored image; they may be outside it.

    Args:
        geometry: of the stored image.
        points: (n, 2), x and y in pixels of the file: pixel i covers i to i + 1.
    """
    moved: Points = np.asarray(points, np.float64).reshape(-1, 2)
    if is_transposed(geometry.orientation):
        moved = moved[:, ::-1]
    x, y = moved[:, 0], moved[:, 1]
    if geometry.orientation in (2, 3, 6, 7):
        x = geometry.upright_width - x
    if geometry.orientation in (3, 4, 7, 8):
        y = geometry.upright_height - y
    x = x * geometry.scaled_width / geometry.upright_width + geometry.left
    y = y * geometry.scaled_height / geometry.upright_height + geometry.top
    return np.stack([x, y], axis=1)


def moved_boxes(geometry: Geometry, boxes: npt.NDArray[Any]) -> Points:
    """Transforms boxes of the file, (n, 4) of xmin, ymin, xmax, ymax, as `moved_points`, without clipping."""
    corners = moved_points(geometry, boxes).reshape(-1, 2, 2)
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
