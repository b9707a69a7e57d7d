"""Which columns of a manifest hold boxes, and the boxes, sizes and labels in its cells."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import BadInput, Box, Scalar
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.tables.rows import LABEL_COLUMNS, Columns, is_missing, usual_name, whole

CORNER_COLUMNS = (
    ("xmin", "ymin", "xmax", "ymax"),
    ("x_min", "y_min", "x_max", "y_max"),
    ("bbox_xmin", "bbox_ymin", "bbox_xmax", "bbox_ymax"),
    ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2"),
    ("x0", "y0", "x1", "y1"),
    ("x1", "y1", "x2", "y2"),
    ("left", "top", "right", "bottom"),
)
"""What columns of two corners are called, in lower case."""

SIDE_COLUMNS = ("bbox_x", "bbox_y", "bbox_width", "bbox_height")
"""What columns of a corner and the lengths of the sides are called, in lower case."""

LIST_COLUMN = "bbox"
"""A column, in lower case, of a corner and the lengths of the sides in one list, as COCO's `bbox`."""

UNNAMED = "object"
"""The label of boxes where no column has one."""

_HEIGHTS = ("height", "image_height", "img_height")
_WIDTHS = ("width", "image_width", "img_width")
_IMAGE_IDS = ("image_id", "imageid", "image_name", "img")  # names of images, or numbers of rows
_ATTRIBUTES = {"iscrowd": "is_crowd", "pose": "view"}
_FAR_OFF = 2.0  # more than a box sticks out whose coordinates are shares of the image


@dataclasses.dataclass(frozen=True, slots=True)
class BoxColumns:
    """Which columns hold the box of a row.

    Attributes:
        box: the four columns; or the one of lists.
        sides: the last two are width and height of the box, not its second corner.
        size: height and width of the image, where there are such columns.
        label: of the box.
        relative: coordinates are shares of the image's sides.
    """

    box: tuple[str, ...]
    sides: bool
    size: tuple[str, str] | None
    label: str | None
    relative: bool = False

    def describe(self) -> str:
        """What was found in a manifest, for people."""
        unit = "shares of the image: no size is given and none is above 1" if self.relative else "pixels"
        listed = " of x, y, width, height" if len(self.box) == 1 else ""
        return f"a row a box: {', '.join(self.box)}{listed} ({unit})"

    def values(self, row: Mapping[str, object]) -> Sequence[object]:
        """The four values of the box of a row, by column; none where its cell is empty."""
        if len(self.box) > 1:
            return [row.get(name) for name in self.box]
        return _listed(row.get(self.box[0]))


def find_box_columns(
    names: Iterable[str], first: Iterable[Mapping[str, object]], columns: Columns, config: SourceConfig
) -> BoxColumns | None:
    """The columns of boxes among those of a manifest of images; None where a row is an image.

    Raises:
        ValueError: boxes have a label each, and --label_column names several columns; or boxes are there,
            and what is called like the id of an image is not named as the column of images.
    """
    asked = columns.labels if config.label_column is not None else ()
    free = [name for name in names if name not in (columns.image, columns.split, *asked)]
    box = next((found for usual in CORNER_COLUMNS if (found := _all(usual, free))), None)
    sides = None if box else _all(SIDE_COLUMNS, free) or _list_column(free, first)
    found = box or sides
    if found is None:
        return None
    if columns.image is None:
        if (image := usual_name(_IMAGE_IDS, free)) is None:
            return None
        raise ValueError(
            f"--image_column is not given, and boxes ({', '.join(found)}) want an image; "
            f"give {flag_with('--image_column', image)}, if it names the image's file"
        )
    if len(asked) > 1:
        raise ValueError(f"--label_column is {config.label_column!r}, and a row with a box has one label")
    height, width = usual_name(_HEIGHTS, free), usual_name(_WIDTHS, free)
    size = (height, width) if height is not None and width is not None else None
    label = asked[0] if asked else usual_name(LABEL_COLUMNS, free)
    return BoxColumns(found, sides is not None, size, label)


def _all(usual: Sequence[str], names: Sequence[str]) -> tuple[str, ...] | None:
    by_lower = {name.lower(): name for name in reversed(names)}
    if not all(name in by_lower for name in usual):
        return None
    return tuple(by_lower[name] for name in usual)


def _list_column(names: Sequence[str], first: Iterable[Mapping[str, object]]) -> tuple[str, ...] | None:
    """The column of lists of four numbers, by the first row that has something in it."""
    name = usual_name((LIST_COLUMN,), names)
    if name is None:
        return None
    cell = next((row[name] for row in first if not is_empty(row.get(name))), None)
    values = _listed(cell)
    return (name,) if len(values) == 4 and all(map(is_number, values)) else None


def _listed(cell: object) -> Sequence[object]:
    """The values of a cell that is a list, or its text in JSON; the cell alone where it is neither."""
    if is_empty(cell):
        return ()
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return (cell,)
    return cell if isinstance(cell, list | tuple) else (cell,)


def with_unit(columns: BoxColumns, first: Iterable[Mapping[str, object]]) -> BoxColumns:
    """The columns, and whether the boxes of the first rows are shares of the images' sides."""
    boxes, is_sized = [], False
    for row in first:
        try:
            is_sized = is_sized or (columns.size is not None and size_in(row, columns.size) is not None)
            boxes.append(box_of(columns.values(row), columns.sides))
        except BadInput:
            continue
    relative = not is_sized and look_relative([box for box in boxes if box is not None])
    return dataclasses.replace(columns, relative=relative)


def look_relative(boxes: Sequence[Box]) -> bool:
    """Whether coordinates are all from 0 to 1, and one is between."""
    values = [value for box in boxes for value in box]
    return all(0 <= value <= 1 for value in values) and any(0 < value < 1 for value in values)


def box_of(values: Sequence[object], sides: bool) -> Box | None:
    """The box in four cells, or None where all are empty.

    Raises:
        BadInput: stage `annotations`, `box is not four numbers`.
    """
    if all(map(is_empty, values)):
        return None
    numbers = [_number(value) for value in values]
    if len(numbers) != 4 or None in numbers:
        shown = ", ".join("" if is_empty(value) else str(value)[:40] for value in values[:8])
        raise BadInput("annotations", "box is not four numbers", shown)
    x, y, right, bottom = (float(number) for number in numbers if number is not None)
    return Box(x, y, x + right, y + bottom) if sides else Box(x, y, right, bottom)


def check_unit(box: Box, relative: bool) -> None:
    """Raises BadInput where a box lies so far out of the image that it cannot be in shares of its sides."""
    if relative and any(abs(value) > _FAR_OFF for value in box):
        raise BadInput(
            "annotations",
            "box is not relative",
            f"{', '.join(map(str, box))}; other boxes of the manifest are shares of the image, from 0 to 1",
        )


def size_in(row: Mapping[str, object], columns: tuple[str, str]) -> tuple[int, int] | None:
    """Height and width of the image that a row declares; None where one is empty or 0.

    Raises:
        BadInput: stage `annotations`, `size is not two whole numbers`.
    """
    return size_of(row.get(columns[0]), row.get(columns[1]))


def size_of(height: object, width: object) -> tuple[int, int] | None:
    """Height and width, as `size_in`."""
    if is_empty(height) or is_empty(width):
        return None
    numbers = (_number(height), _number(width))
    if any(number is None or number < 0 or number != int(number) for number in numbers):
        raise BadInput("annotations", "size is not two whole numbers", f"height {height}, width {width}")
    size = (int(numbers[0] or 0), int(numbers[1] or 0))
    return size if all(size) else None


def box_label(value: object, column: str | None) -> str | int:
    """The label of a box.

    Raises:
        BadInput: stage `annotations`; there is none in its column, or it is neither text nor an integer.
    """
    if column is None:
        return UNNAMED
    value = whole(value)
    if isinstance(value, str) and (text := value.strip()):
        return text
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if is_missing(value) or is_empty(value):
        raise BadInput("annotations", "box without a label", f"{column} is empty")
    raise BadInput("annotations", "label is not text or an integer", f"{column} is {str(value)[:100]}")


def attribute_name(column: str) -> str:
    """What an attribute of an object is called: as its column, but for other names of usual ones."""
    return _ATTRIBUTES.get(column.lower(), column)


def attributes_of(values: Iterable[tuple[str, Scalar]]) -> dict[str, Scalar]:
    """Attributes by name from the (column, value) of a row; the first wins where two come to one name."""
    attributes: dict[str, Scalar] = {}
    for column, value in values:
        name = column if column in attributes else attribute_name(column)
        attributes[column if name in attributes else name] = value
    return attributes


def is_empty(value: object) -> bool:
    """Whether a cell has nothing in it."""
    return value is None or (isinstance(value, str) and not value.strip())


def is_number(value: object) -> bool:
    """Whether a cell is a finite number."""
    return _number(value) is not None


def _number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, str) and "_" in value:  # which Python takes for a thousands separator
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
