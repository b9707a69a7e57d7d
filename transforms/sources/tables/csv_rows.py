"""What the cells of a CSV row tell, by the header or as Vertex AI's import files have them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from recordmill.transforms.records import AnnotatedObject, BadInput, Box, FeatureValue
from recordmill.transforms.sources.tables.box_columns import (
    BoxColumns,
    attributes_of,
    box_label,
    box_of,
    check_unit,
    size_in,
)
from recordmill.transforms.sources.tables.rows import VERTEX_SPLITS, Columns, Row, labels_in, split_name

Parser = Callable[[list[str]], Row]
"""Makes the cells of a row into it. Raises BadInput where the row cannot be used."""

_BOX_CELLS = (
    8  # the four vertices; or two that face each other, in the cells that are the first's and third's
)
_TWO_VERTICES = (0, 1, 4, 5)


class HeadedRows:
    """Parses rows by their header: a row an image, or features alone."""

    def __init__(self, header: Sequence[str], columns: Columns) -> None:
        position = {name: number for number, name in enumerate(header)}
        self._width = len(header)
        self._image = None if columns.image is None else position[columns.image]
        self._labels = tuple(position[name] for name in columns.labels)
        self._split = None if columns.split is None else position[columns.split]
        self._split_column = columns.split
        used = {self._image, self._split, *self._labels}
        # a first column without a name is the index that pandas writes
        self._features = tuple((name, at) for name, at in position.items() if name and at not in used)

    def __call__(self, cells: list[str]) -> Row:
        _check_width(cells, self._width)
        labels = tuple(label for at in self._labels for label in _cell_labels(cells[at].strip()))
        split = None if self._split is None else split_name(cells[self._split].strip(), self._split_column)
        features: dict[str, FeatureValue] = {name: cells[at] for name, at in self._features if cells[at]}
        return Row(None if self._image is None else cells[self._image], labels, split, features)


class BoxedRows:
    """Parses rows by their header: a row a box, or an image without any where the cells of the box are empty.

    Other columns are attributes of the object; where there is no box, a label is the image's.
    """

    def __init__(self, header: Sequence[str], columns: Columns, boxes: BoxColumns) -> None:
        self._header = header
        self._columns = columns
        self._boxes = boxes
        used = {columns.image, columns.split, boxes.label, *boxes.box, *(boxes.size or ())}
        self._attributes = tuple(name for name in header if name and name not in used)

    def __call__(self, cells: list[str]) -> Row:
        _check_width(cells, len(self._header))
        row = dict(zip(self._header, cells, strict=True))
        image, split, boxes = row[str(self._columns.image)], None, self._boxes
        if self._columns.split is not None:
            split = split_name(row[self._columns.split].strip(), self._columns.split)
        label = "" if boxes.label is None else row[boxes.label]
        try:
            size = None if boxes.size is None else size_in(row, boxes.size)
            box = box_of(boxes.values(row), boxes.sides)
            if box is None:
                return Row(image, _cell_labels(label.strip()), split, {}, size=size)
            check_unit(box, boxes.relative)
            attributes = attributes_of((name, row[name]) for name in self._attributes if row[name])
            item = AnnotatedObject(box_label(label, boxes.label), box, attributes=attributes)
        except BadInput as fault:
            return Row(image, (), split, {}, fault=fault)
        return Row(image, (), split, {}, (item,), size, boxes.relative)


def _check_width(cells: list[str], width: int) -> None:
    if len(cells) != width:
        raise BadInput("manifest", "wrong number of cells", f"{len(cells)}, the header has {width}")


def _cell_labels(cell: str) -> tuple[str | int, ...]:
    """The labels in a cell: none, one, or those of a JSON list."""
    if not cell:
        return ()
    if cell.startswith("[") and cell.endswith("]"):
        try:
            labels = json.loads(cell)
        except (ValueError, RecursionError):
            return (cell,)
        return labels_in(labels)
    return (cell,)


def is_ml_use(cell: str) -> bool:
    """Whether a cell is Vertex AI's name of a split, or empty."""
    return cell.strip().lower() in VERTEX_SPLITS


def vertex_row(cells: list[str]) -> Row:
    """A row of `[ml_use,]path,label[,label…]`."""
    if has_vertex_box(cells):
        remedy = "a row for object detection; put one before the rows without a box"
        raise BadInput("manifest", "annotation not supported", remedy)
    split, cells = _vertex_split(cells)
    return Row(cells[0].strip(), _texts(cells[1:]), split, {})


def vertex_box_row(cells: list[str]) -> Row:
    """A row of `[ml_use,]path[,label,xmin,ymin,,,xmax,ymax,,]`, or with all four vertices.

    Where there is no box, a label is the image's.
    """
    split, cells = _vertex_split(cells)
    path, vertices = cells[0].strip(), cells[2 : 2 + _BOX_CELLS]
    try:
        if any(cell.strip() for cell in cells[2 + _BOX_CELLS :]):
            raise BadInput("annotations", "wrong number of cells", f"{len(cells)} from the path on")
        box = _vertex_box(vertices)
        if box is None:
            return Row(path, _texts(cells[1:2]), split, {})
        check_unit(box, relative=True)
        item = AnnotatedObject(box_label(cells[1], "the cell after the path"), box)
    except BadInput as fault:
        return Row(path, (), split, {}, fault=fault)
    return Row(path, (), split, {}, (item,), relative=True)


def has_vertex_box(cells: Sequence[str]) -> bool:
    """Whether a row of Vertex AI's file has a box."""
    _, cells = _vertex_split(list(cells))
    if len(cells) < 2 + _BOX_CELLS or any(cell.strip() for cell in cells[2 + _BOX_CELLS :]):
        return False
    try:
        return _vertex_box(cells[2 : 2 + _BOX_CELLS]) is not None
    except BadInput:
        return False


def _vertex_box(cells: Sequence[str]) -> Box | None:
    filled = tuple(at for at, cell in enumerate(cells) if cell.strip())
    if filled in ((), _TWO_VERTICES):
        return box_of([cells[at] for at in filled], sides=False)
    if len(filled) != _BOX_CELLS:
        raise BadInput("annotations", "box is not two or four vertices", ",".join(cells)[:100])
    halves = [box_of(cells[at : at + 4], sides=False) for at in (0, 4)]
    vertices = [vertex for half in halves if half for vertex in (half[:2], half[2:])]
    (left, top), (right, bottom) = (tuple(map(pick, zip(*vertices, strict=True))) for pick in (min, max))
    return Box(left, top, right, bottom)


def _vertex_split(cells: list[str]) -> tuple[str | None, list[str]]:
    if len(cells) > 1 and is_ml_use(cells[0]):
        return VERTEX_SPLITS[cells[0].strip().lower()], cells[1:]
    return None, cells


def _texts(cells: Sequence[str]) -> tuple[str, ...]:
    return tuple(label for cell in cells if (label := cell.strip()))
