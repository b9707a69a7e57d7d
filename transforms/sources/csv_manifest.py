"""Source `csv`: a table with a header, a row an image; or Vertex AI's headerless import file.

Vertex AI's file for classification has the rows `[ml_use,]path,label[,label…]`
(https://cloud.google.com/vertex-ai/docs/image-data/classification/prepare-data).
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
from collections.abc import Iterator, Sequence

from transforms.records import BadInput, Failure, FeatureValue, ImageRecord
from transforms.sources.manifests import (
    MAX_LINE,
    PEEKED,
    Manifest,
    ManifestLines,
    check_manifests,
    flag_of,
    manifests,
    open_manifest,
)
from transforms.sources.names import extension_of, is_image_name
from transforms.sources.rows import (
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    SPLIT_COLUMNS,
    VERTEX_SPLITS,
    Columns,
    Row,
    RowRecords,
    describe,
    pick_columns,
    split_name,
)
from transforms.sources.selection import check_selection, limited
from transforms.sources.source import SourceConfig, readable
from transforms.storage.paths import scheme_of

_DELIMITERS = (",", ";", "\t")
_VERTEX_BOX_CELLS = 8  # xmin,ymin,xmax,ymin,xmax,ymax,xmin,ymax, some of them empty


class CsvSource:
    """Lists the rows of CSV manifests."""

    name = "csv"
    summary = "a CSV or TSV manifest, a row an image (or a row of features alone); Vertex AI's import CSV"
    untyped = True

    def sniff(self, config: SourceConfig) -> str | None:
        paths = config.annotations or (config.input,)
        if any(extension_of(path) not in ("csv", "tsv") for path in paths):
            return None
        why = f"{paths[0]!r} is a CSV file by name"
        try:
            layout = read_layout(manifests(config)[0], config)
        except (OSError, ValueError):  # `check` says what is wrong
            return why
        kind = "Vertex AI's import file" if layout.header is None else f"columns: {describe(layout.columns)}"
        return f"{why}; {kind}"

    def check(self, config: SourceConfig) -> None:
        with readable("--input", config.input):
            check_manifests(config, self.name)
            check_selection(config)
            for manifest in manifests(config):
                layout = read_layout(manifest, config)
                cells = _first_cells(manifest, layout, flag_of(config))
                if layout.header is None and _has_vertex_box(cells):
                    raise ValueError(
                        f"{flag_of(config)} is {manifest.path!r}, an import file for object detection; "
                        "this version reads those for classification"
                    )

    def split_names(self, config: SourceConfig) -> tuple[str, ...] | None:
        try:
            return None if any(_may_name_splits(one, config) for one in manifests(config)) else ()
        except (OSError, ValueError):  # `check` says what is wrong
            return None

    def read(self, config: SourceConfig, scratch: str) -> Iterator[ImageRecord | Failure]:
        return limited(_records(config), config.limit)


@dataclasses.dataclass(frozen=True, slots=True)
class CsvLayout:
    """How a CSV file is laid out.

    Attributes:
        delimiter: between cells.
        header: names of the columns, or None for Vertex AI's file without a header.
        columns: which is what.
    """

    delimiter: str
    header: tuple[str, ...] | None
    columns: Columns


def _records(config: SourceConfig) -> Iterator[ImageRecord | Failure]:
    for manifest in manifests(config):
        layout = read_layout(manifest, config)
        rows = RowRecords(config, manifest)
        parser = _VertexRows() if layout.header is None else _HeadedRows(layout.header, layout.columns)
        for line, cells in read_rows(manifest, layout):
            try:
                if isinstance(cells, BadInput):
                    raise cells
                yield rows.record(parser.row(cells), line)
            except BadInput as fault:
                yield rows.failure(line, fault)


def read_layout(manifest: Manifest, config: SourceConfig) -> CsvLayout:
    """Reads delimiter and columns from a manifest's first row.

    Raises:
        ValueError: the header cannot be used, or lacks a column that a flag names.
    """
    flag = flag_of(config)
    delimiter, first = _first_row(manifest, flag)
    asked = config.image_column is not None or config.label_column is not None
    if not asked and _is_vertex_row(first):
        return CsvLayout(delimiter, None, Columns("path", ("label",), "ml_use"))
    header = tuple(cell.strip() for cell in first)
    if header[0].startswith(("{", "[")):
        raise ValueError(
            f"{flag} is {manifest.path!r}, which looks like JSON; --source jsonl reads a row a line"
        )
    unnamed = [number for number, name in enumerate(header, 1) if not name and number > 1]
    if unnamed or not any(header):
        raise ValueError(
            f"{flag} is {manifest.path!r}, whose header has no name for column {(unnamed or [1])[0]}"
        )
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{flag} is {manifest.path!r}, whose header names two columns {twice!r}")
    layout = CsvLayout(delimiter, header, Columns(None, (), None))
    rows = itertools.islice(read_rows(manifest, layout), PEEKED)
    peeked = [dict(zip(header, cells, strict=False)) for _, cells in rows if not isinstance(cells, BadInput)]
    columns = pick_columns([name for name in header if name], peeked, config, manifest)
    if columns.image is None and len(header) == 1 and "|" in header[0]:
        raise ValueError(
            f"{flag} is {manifest.path!r}, whose only column is {header[0]!r}; "
            "columns are separated by commas, semicolons or tabs, not by |"
        )
    return dataclasses.replace(layout, columns=columns)


def _may_name_splits(manifest: Manifest, config: SourceConfig) -> bool:
    """Whether a row may name a split: Vertex AI's file is known not to only where its first rows are all."""
    layout = read_layout(manifest, config)
    if layout.header is not None:
        return layout.columns.split is not None
    first = list(itertools.islice(read_rows(manifest, layout), PEEKED + 1))
    rows = [cells for _, cells in first if not isinstance(cells, BadInput)]
    return len(first) > PEEKED or any(len(cells) > 1 and _is_ml_use(cells[0]) for cells in rows)


def _first_cells(manifest: Manifest, layout: CsvLayout, flag: str) -> list[str]:
    """The first row that can be read. Raises ValueError where there is none, with what is wrong."""
    fault = None
    for line, cells in read_rows(manifest, layout):
        if not isinstance(cells, BadInput):
            return cells
        fault = fault or (line, cells)
    if fault is None:
        raise ValueError(f"{flag} is {manifest.path!r}, which has a header and no row")
    raise ValueError(
        f"{flag} is {manifest.path!r}, where no row below the header can be read: "
        f"{_told(fault[1])}, in the row that starts at line {fault[0]}"
    )


def _told(fault: BadInput) -> str:
    return f"{fault.reason}: {fault.detail}" if fault.detail else fault.reason


def _first_row(manifest: Manifest, flag: str) -> tuple[str, list[str]]:
    """The first row that is not blank, cut by the delimiter that gives the most cells."""
    best: tuple[str, list[str]] | None = None
    for delimiter in _DELIMITERS:
        layout = CsvLayout(delimiter, None, Columns(None, (), None))
        _, cells = next(_all_rows(manifest, layout), (0, None))
        if isinstance(cells, BadInput):
            raise ValueError(f"{flag} is {manifest.path!r}, whose first row cannot be read: {_told(cells)}")
        if cells is not None and (best is None or len(cells) > len(best[1])):
            best = (delimiter, cells)
    if best is None:
        raise ValueError(f"{flag} is {manifest.path!r}, which is empty")
    return best


def read_rows(manifest: Manifest, layout: CsvLayout) -> Iterator[tuple[int, list[str] | BadInput]]:
    """The rows below the header: the line each starts at, and its cells or what is wrong with it.

    Blank lines are no rows.
    """
    rows = _all_rows(manifest, layout)
    if layout.header is not None:
        next(rows, None)
    return rows


def _all_rows(manifest: Manifest, layout: CsvLayout) -> Iterator[tuple[int, list[str] | BadInput]]:
    if csv.field_size_limit() < MAX_LINE:
        csv.field_size_limit(MAX_LINE)
    with open_manifest(manifest) as stream:
        lines = ManifestLines(stream)
        reader = csv.reader(lines, delimiter=layout.delimiter, strict=True)
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield (
                    line,
                    BadInput("manifest", lines.fault or "not CSV", f"{error}, up to line {reader.line_num}"),
                )
                lines.fault = ""
                continue
            if lines.fault:
                yield line, BadInput("manifest", lines.fault)
                lines.fault = ""
            elif cells:
                yield line, cells


def _is_vertex_row(cells: Sequence[str]) -> bool:
    """Whether a first row is data, not a header: it has an image's path where Vertex AI's file has one."""
    path = cells[1] if len(cells) > 1 and _is_ml_use(cells[0]) else cells[0]
    if scheme_of(path.strip()):
        return True
    usual = {*IMAGE_COLUMNS, *LABEL_COLUMNS, *SPLIT_COLUMNS}
    return is_image_name(path.strip()) and not any(cell.strip().lower() in usual for cell in cells)


def _is_ml_use(cell: str) -> bool:
    return cell.strip().lower() in VERTEX_SPLITS


def _has_vertex_box(cells: Sequence[str]) -> bool:
    coordinates = cells[-_VERTEX_BOX_CELLS:]
    return len(cells) > _VERTEX_BOX_CELLS + 1 and all(
        _is_number(cell) for cell in coordinates if cell.strip()
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


class _VertexRows:
    """Parses `[ml_use,]path,label[,label…]`."""

    def row(self, cells: list[str]) -> Row:
        if _has_vertex_box(cells):
            raise BadInput("manifest", "annotation not supported", "a row for object detection")
        split = None
        if len(cells) > 1 and _is_ml_use(cells[0]):
            split, cells = VERTEX_SPLITS[cells[0].strip().lower()], cells[1:]
        labels = tuple(label for cell in cells[1:] if (label := cell.strip()))
        return Row(cells[0].strip(), labels, split, {})


class _HeadedRows:
    """Parses rows by their header."""

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

    def row(self, cells: list[str]) -> Row:
        if len(cells) != self._width:
            raise BadInput("manifest", "wrong number of cells", f"{len(cells)}, the header has {self._width}")
        labels = tuple(label for at in self._labels for label in _cell_labels(cells[at].strip()))
        split = None if self._split is None else split_name(cells[self._split].strip(), self._split_column)
        features: dict[str, FeatureValue] = {name: cells[at] for name, at in self._features if cells[at]}
        return Row(None if self._image is None else cells[self._image], labels, split, features)


def _cell_labels(cell: str) -> tuple[str | int, ...]:
    """The labels in a cell: none, one, or those of a JSON list."""
    if not cell:
        return ()
    if cell.startswith("[") and cell.endswith("]"):
        try:
            labels = json.loads(cell)
        except (ValueError, RecursionError):
            return (cell,)
        if any(isinstance(label, bool) or not isinstance(label, str | int) for label in labels):
            raise BadInput("manifest", "label is not text or an integer", cell)
        return tuple(labels)
    return (cell,)
