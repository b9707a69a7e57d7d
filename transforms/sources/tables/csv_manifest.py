"""Source `csv`: a table with a header, a row an image or a row a box; or Vertex AI's headerless import file.

Vertex AI's file for classification has the rows `[ml_use,]path,label[,label…]`
(https://cloud.google.com/vertex-ai/docs/image-data/classification/prepare-data), that for object detection
`[ml_use,]path,label,xmin,ymin,,,xmax,ymax,,`
(https://cloud.google.com/vertex-ai/docs/image-data/object-detection/prepare-data).
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import is_image_name
from recordmill.transforms.sources.source import Description
from recordmill.transforms.sources.tables.columns import (
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    SPLIT_COLUMNS,
    VERTEX_BOXES,
    VERTEX_IMAGE,
    Columns,
    asks,
    find_columns,
)
from recordmill.transforms.sources.tables.csv_cells import check_columns, read_cells
from recordmill.transforms.sources.tables.manifest_source import ManifestSource, Table, Values
from recordmill.transforms.sources.tables.manifests import PEEKED, Manifest, ManifestLines, open_manifest
from recordmill.transforms.sources.tables.rows import (
    VERTEX_LABELS,
    VERTEX_ML_USE,
    VERTICES,
    Row,
    RowMapper,
    is_vertex_box,
)
from recordmill.transforms.sources.tables.values import TEXT, VERTEX_SPLITS, is_number
from recordmill.transforms.storage.file_system import scheme_of

_DELIMITERS = (",", ";", "\t", "|")


def read_rows(manifest: Manifest, delimiter: str = ",") -> Iterator[tuple[int, list[str] | BadInput]]:
    """The rows of a CSV file: the line each starts at, and its cells or what is wrong with it.

    Blank lines are no rows.
    """
    with open_manifest(manifest) as stream:
        lines = ManifestLines(stream)
        for line, cells in read_cells(lines, delimiter):
            if lines.fault:
                yield line, BadInput("manifest", lines.fault)
                lines.fault = ""
            elif cells:
                yield line, cells


class CsvTable(Table):
    """A CSV file."""

    def __init__(self, manifest: Manifest, config: SourceConfig) -> None:
        super().__init__(manifest, config)
        self._delimiter, first = self._first_row()
        self._is_vertex = not asks(config) and _is_vertex_row(first)
        self._header = () if self._is_vertex else tuple(cell.strip() for cell in first)
        if not self._is_vertex:
            self._check_header()

    def _first_row(self) -> tuple[str, list[str]]:
        """The first row that is not blank, split by the delimiter that gives the most cells.

        `|` is tried only if no other delimiter separates cells: cells have it between several labels.
        """
        delimiter, best, fault = "", list[str](), None
        for tried in _DELIMITERS:
            if tried == "|" and len(best) > 1:
                break
            _, cells = next(read_rows(self.manifest, tried), (0, ()))
            if isinstance(cells, BadInput):  # as quoted cells are by another delimiter than theirs
                fault = fault or cells
            elif len(cells) > len(best):
                delimiter, best = tried, list(cells)
        if fault is not None and len(best) < 2:
            raise ValueError(f"{self.where}, whose first row cannot be read: {_shown(fault)}")
        if not best:
            raise ValueError(f"{self.where}, which is empty")
        return delimiter, best

    def _check_header(self) -> None:
        header = self._header
        if header[0].startswith(("{", "[")):
            raise ValueError(f"{self.where}, which looks like JSON; --source jsonl reads a row a line")
        check_columns(f"{self.where}, which", header)
        unnamed = [number for number, name in enumerate(header, 1) if not name and number > 1]
        if unnamed or not any(header):
            raise ValueError(f"{self.where}, whose header has no name for column {(unnamed or [1])[0]}")
        twice = [name for name, count in collections.Counter(header).items() if name and count > 1]
        if twice:
            raise ValueError(f"{self.where}, whose header names two columns {twice[0]!r}")

    @functools.cached_property
    def first_cells(self) -> list[list[str]]:
        """The first rows below the header."""
        rows = itertools.islice(self._rows(), PEEKED)
        return [cells for _, cells in rows if not isinstance(cells, BadInput)]

    def _rows(self) -> Iterator[tuple[int, list[str] | BadInput]]:
        rows = read_rows(self.manifest, self._delimiter)
        return itertools.islice(rows, 0 if self._is_vertex else 1, None)

    @functools.cached_property
    def columns(self) -> Columns:
        if not self._is_vertex:
            names = [name for name in self._header if name]
            first = [dict(zip(self._header, cells, strict=False)) for cells in self.first_cells]
            return find_columns(names, first, self.config, self.manifest)
        if any(map(_is_headless_box, self.first_cells)):
            raise ValueError(
                f"{self.where}, whose rows are a path, four numbers and a class; "
                "put a header above them, such as filename,xmin,ymin,xmax,ymax,class"
            )
        has_boxes = any(is_vertex_box(_without_split(cells)[1][2:]) for cells in self.first_cells)
        return Columns(VERTEX_IMAGE, split="ml_use", is_vertex=True, has_vertex_boxes=has_boxes)

    @property
    def has_box_rows(self) -> bool:
        return self.columns.has_boxes

    def first_images(self) -> list[str]:
        if self._is_vertex or self.columns.image is None:
            return []
        at = self._header.index(self.columns.image)
        return [cells[at] for cells in self.first_cells if at < len(cells) and cells[at].strip()]

    def may_name_splits(self) -> bool:
        return super().may_name_splits() if self._is_vertex else self.columns.split is not None

    def mapper(self) -> Callable[[Values], Row]:
        return RowMapper(self.columns, TEXT).row

    def read(self) -> Iterator[tuple[int, Values | BadInput]]:
        header, width = self._header, len(self._header)
        for line, cells in self._rows():
            if isinstance(cells, BadInput):
                yield line, cells
            elif self._is_vertex:
                yield line, self._vertex_values(cells)
            elif len(cells) != width:
                detail = f"{len(cells)}, the header has {width}"
                yield line, BadInput("manifest", "wrong number of cells", detail)
            else:
                values = dict(zip(header, cells, strict=True))
                values.pop("", None)  # a first column without a name is the index that pandas writes
                yield line, values

    def _vertex_values(self, cells: list[str]) -> Values | BadInput:
        """A row of Vertex AI's file as its JSON Lines have it, but with the cells of a box in one list."""
        ml_use, (path, *others) = _without_split(cells)
        values: Values = {VERTEX_IMAGE: path.strip(), VERTEX_LABELS: {VERTEX_ML_USE: ml_use}}
        vertices = others[1:]
        if not self.columns.has_vertex_boxes:
            if is_vertex_box(vertices):
                remedy = "a row for object detection; put one before the rows without a box"
                return BadInput("manifest", "annotation not supported", remedy)
        elif any(cell.strip() for cell in vertices):
            values[VERTEX_BOXES] = [{"displayName": others[0], VERTICES: vertices}]
            return values
        values["classificationAnnotations"] = [label for cell in others if (label := cell.strip())]
        return values

    def check(self) -> None:
        self.columns  # noqa: B018
        fault = None
        for line, cells in self._rows():
            if not isinstance(cells, BadInput):
                return
            fault = fault or (line, cells)
        if fault is None:
            raise ValueError(f"{self.where}, which has a header and no row")
        raise ValueError(
            f"{self.where}, where no row below the header can be read: "
            f"{_shown(fault[1])}, in the row that starts at line {fault[0]}"
        )


def _shown(fault: BadInput) -> str:
    return f"{fault.reason}: {fault.detail}" if fault.detail else fault.reason


def _is_ml_use(cell: str) -> bool:
    return cell.strip().lower() in VERTEX_SPLITS


def _without_split(cells: list[str]) -> tuple[str, list[str]]:
    """The ml_use of a row of Vertex AI's file, and the cells from the path on."""
    return (cells[0], cells[1:]) if len(cells) > 1 and _is_ml_use(cells[0]) else ("", cells)


def _is_headless_box(cells: Sequence[str]) -> bool:
    """Whether a row is keras-retinanet's `path,x1,y1,x2,y2,class`, which are no labels of Vertex AI's."""
    is_box = len(cells) == 6 and all(map(is_number, cells[1:5]))
    return is_box and bool(cells[5].strip()) and not is_number(cells[5])


def _is_vertex_row(cells: list[str]) -> bool:
    """Whether a first row is data, not a header: it has an image's path where Vertex AI's file has one."""
    path = _without_split(cells)[1][0].strip()
    if scheme_of(path):
        return True
    usual = {*IMAGE_COLUMNS, *LABEL_COLUMNS, *SPLIT_COLUMNS}
    return is_image_name(path) and not any(cell.strip().lower() in usual for cell in cells)


class CsvSource(ManifestSource):
    """Lists the rows of CSV manifests."""

    name = "csv"
    description = Description(
        reads="`.csv`, `.tsv`: a header and a row an image, or a row a box; comma, semicolon, tab "
        "or vertical bar; UTF-8 or UTF-16; "
        "Vertex AI's import file without a header",
        label="the label column",
        split="the split column; else a folder of the image",
        key="path of the image below its root",
        example="labels.csv\nphotos/\n  1.jpg\n  2.jpg",
    )
    table = CsvTable
    extensions = ("csv", "tsv")
    untyped = True
