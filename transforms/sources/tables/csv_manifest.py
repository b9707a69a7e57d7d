"""Source `csv`: a table with a header, a row an image or a row a box; or Vertex AI's headerless import file.

Vertex AI's file for classification has the rows `[ml_use,]path,label[,label…]`
(https://cloud.google.com/vertex-ai/docs/image-data/classification/prepare-data), that for object detection
`[ml_use,]path,label,xmin,ymin,,,xmax,ymax,,`
(https://cloud.google.com/vertex-ai/docs/image-data/object-detection/prepare-data).
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from recordmill.transforms.records import BadInput, Failure, ImageRecord
from recordmill.transforms.sources.config import SourceConfig, readable
from recordmill.transforms.sources.names import is_image_name
from recordmill.transforms.sources.selection import check_selection
from recordmill.transforms.sources.source import (
    Description,
    Items,
    Source,
)
from recordmill.transforms.sources.tables.box_columns import (
    BoxColumns,
    find_box_columns,
    is_number,
    with_unit,
)
from recordmill.transforms.sources.tables.box_rows import BoxRows
from recordmill.transforms.sources.tables.csv_cells import check_columns, read_cells
from recordmill.transforms.sources.tables.csv_rows import (
    BoxedRows,
    HeadedRows,
    Parser,
    has_vertex_box,
    is_ml_use,
    vertex_box_row,
    vertex_row,
)
from recordmill.transforms.sources.tables.manifests import (
    PEEKED,
    Manifest,
    ManifestLines,
    check_manifests,
    flag_of,
    manifests,
    open_manifest,
    splits_by_name,
)
from recordmill.transforms.sources.tables.rows import (
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    SPLIT_COLUMNS,
    Columns,
    RowRecords,
    describe,
    pick_columns,
)
from recordmill.transforms.storage.file_system import scheme_of

_DELIMITERS = (",", ";", "\t", "|")


class CsvSource(Source):
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
    untyped = True

    def check(self, config: SourceConfig) -> None:
        with readable("--input", config.input):
            check_manifests(config, self.name)
            check_selection(config)
            for manifest in manifests(config):
                _check_rows(manifest, read_layout(manifest, config), flag_of(config))

    def split_names(self, config: SourceConfig) -> tuple[str, ...] | None:
        try:
            if any(_may_name_splits(one, config) for one in manifests(config)):
                return None
            return tuple(sorted(set(splits_by_name(config).values())))
        except (OSError, ValueError):  # `check` says what is wrong
            return None

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        layouts = [read_layout(manifest, config) for manifest in manifests(config)]
        return ("detection",) if any(layout.has_boxes for layout in layouts) else ()

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _records(config)


def described(config: SourceConfig) -> str:
    """What the columns of the first manifest mean, for people. Raises OSError or ValueError."""
    manifest = manifests(config)[0]
    layout = read_layout(manifest, config)
    folder = RowRecords(config, manifest).find_folder(layout.images)
    return layout.describe() + ("" if folder is None else f"; images are found in {folder!r}")


@dataclasses.dataclass(frozen=True, slots=True)
class CsvLayout:
    """How a CSV file is laid out.

    Attributes:
        delimiter: between cells.
        header: names of the columns, or None for Vertex AI's file without a header.
        columns: which is what.
        boxes: which of them hold boxes, where a row is a box.
        has_vertex_boxes: it is Vertex AI's file for object detection.
        images: image cells of the first rows below a header.
    """

    delimiter: str
    header: tuple[str, ...] | None
    columns: Columns
    boxes: BoxColumns | None = None
    has_vertex_boxes: bool = False
    images: tuple[str, ...] = ()

    @property
    def has_boxes(self) -> bool:
        """Whether a row is a box, and several may be about one image."""
        return self.boxes is not None or self.has_vertex_boxes

    def describe(self) -> str:
        """What was found, for people."""
        if self.header is None:
            return f"Vertex AI's import file{' for object detection' if self.has_vertex_boxes else ''}"
        if self.boxes is None:
            return f"columns: {describe(self.columns)}"
        columns = dataclasses.replace(self.columns, labels=tuple(filter(None, (self.boxes.label,))))
        return f"columns: {describe(columns)}; {self.boxes.describe()}"

    def parser(self) -> Parser:
        """What makes cells into rows."""
        if self.header is None:
            return vertex_box_row if self.has_vertex_boxes else vertex_row
        if self.boxes is None:
            return HeadedRows(self.header, self.columns)
        return BoxedRows(self.header, self.columns, self.boxes)


def _records(config: SourceConfig) -> Iterator[ImageRecord | Failure]:
    read = [(manifest, read_layout(manifest, config)) for manifest in manifests(config)]
    boxes = BoxRows() if any(layout.has_boxes for _, layout in read) else None
    splits = splits_by_name(config)
    for manifest, layout in read:
        names_splits = layout.columns.split is not None
        split = None if names_splits else splits.get(manifest.path)
        rows = RowRecords(config, manifest, split, by_folder=not names_splits)
        rows.find_folder(layout.images)
        parse = layout.parser()
        for line, cells in read_rows(manifest, layout):
            try:
                if isinstance(cells, BadInput):
                    raise cells
                row = parse(cells)
            except BadInput as fault:
                yield rows.failure(line, fault)
                continue
            item = rows.record(row, line) if boxes is None else boxes.add(rows, row, line)
            if item is not None:
                yield item
    if boxes is not None:
        yield from boxes.records()


def read_layout(manifest: Manifest, config: SourceConfig) -> CsvLayout:
    """Reads delimiter and columns from a manifest's first row.

    Raises:
        ValueError: the header cannot be used, or lacks a column that a flag names.
    """
    flag = flag_of(config)
    delimiter, first = _first_row(manifest, flag)
    asked = config.image_column is not None or config.label_column is not None
    if not asked and _is_vertex_row(first):
        layout = CsvLayout(delimiter, None, Columns("path", ("label",), "ml_use"))
        peeked_cells = _peek(manifest, layout)
        if any(map(_is_headless_box, peeked_cells)):
            raise ValueError(
                f"{flag} is {manifest.path!r}, whose rows are a path, four numbers and a class; "
                "put a header above them, such as filename,xmin,ymin,xmax,ymax,class"
            )
        return dataclasses.replace(layout, has_vertex_boxes=any(map(has_vertex_box, peeked_cells)))
    header = tuple(cell.strip() for cell in first)
    if header[0].startswith(("{", "[")):
        raise ValueError(
            f"{flag} is {manifest.path!r}, which looks like JSON; --source jsonl reads a row a line"
        )
    check_columns(f"{flag} is {manifest.path!r}, which", header)
    unnamed = [number for number, name in enumerate(header, 1) if not name and number > 1]
    if unnamed or not any(header):
        raise ValueError(
            f"{flag} is {manifest.path!r}, whose header has no name for column {(unnamed or [1])[0]}"
        )
    twice = next((name for name, count in collections.Counter(header).items() if name and count > 1), None)
    if twice is not None:
        raise ValueError(f"{flag} is {manifest.path!r}, whose header names two columns {twice!r}")
    layout = CsvLayout(delimiter, header, Columns(None, (), None))
    peeked = [dict(zip(header, cells, strict=False)) for cells in _peek(manifest, layout)]
    columns = pick_columns([name for name in header if name], peeked, config, manifest)
    boxes = find_box_columns([name for name in header if name], peeked, columns, config)
    boxes = None if boxes is None else with_unit(boxes, peeked)
    images = tuple(image for row in peeked if (image := row.get(columns.image or "", "")).strip())
    return dataclasses.replace(layout, columns=columns, boxes=boxes, images=images)


def _peek(manifest: Manifest, layout: CsvLayout) -> list[list[str]]:
    rows = itertools.islice(read_rows(manifest, layout), PEEKED)
    return [cells for _, cells in rows if not isinstance(cells, BadInput)]


def _may_name_splits(manifest: Manifest, config: SourceConfig) -> bool:
    """Whether a row may name a split: Vertex AI's file is known not to only where its first rows are all."""
    layout = read_layout(manifest, config)
    if layout.header is not None:
        return layout.columns.split is not None
    first = list(itertools.islice(read_rows(manifest, layout), PEEKED + 1))
    rows = [cells for _, cells in first if not isinstance(cells, BadInput)]
    return len(first) > PEEKED or any(len(cells) > 1 and is_ml_use(cells[0]) for cells in rows)


def _check_rows(manifest: Manifest, layout: CsvLayout, flag: str) -> None:
    """Raises ValueError where no row can be read, with what is wrong."""
    fault = None
    for line, cells in read_rows(manifest, layout):
        if not isinstance(cells, BadInput):
            return
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
    """The first row that is not blank, split by the delimiter that gives the most cells.

    `|` is tried only if no other delimiter separates cells: cells have it between several labels.
    """
    best: tuple[str, list[str]] | None = None
    fault: BadInput | None = None
    for delimiter in _DELIMITERS:
        if delimiter == "|" and best is not None and len(best[1]) > 1:
            break
        layout = CsvLayout(delimiter, None, Columns(None, (), None))
        _, cells = next(_all_rows(manifest, layout), (0, None))
        if isinstance(cells, BadInput):  # as quoted cells are by another delimiter than theirs
            fault = fault or cells
        elif cells is not None and (best is None or len(cells) > len(best[1])):
            best = (delimiter, cells)
    if fault is not None and (best is None or len(best[1]) == 1):
        raise ValueError(f"{flag} is {manifest.path!r}, whose first row cannot be read: {_told(fault)}")
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
    with open_manifest(manifest) as stream:
        lines = ManifestLines(stream)
        for line, cells in read_cells(lines, layout.delimiter):
            if lines.fault:
                yield line, BadInput("manifest", lines.fault)
                lines.fault = ""
            elif cells:
                yield line, cells


def _is_headless_box(cells: Sequence[str]) -> bool:
    """Whether a row is keras-retinanet's `path,x1,y1,x2,y2,class`, which are no labels of Vertex AI's."""
    is_box = len(cells) == 6 and all(map(is_number, cells[1:5]))
    return is_box and bool(cells[5].strip()) and not is_number(cells[5])


def _is_vertex_row(cells: Sequence[str]) -> bool:
    """Whether a first row is data, not a header: it has an image's path where Vertex AI's file has one."""
    path = cells[1] if len(cells) > 1 and is_ml_use(cells[0]) else cells[0]
    if scheme_of(path.strip()):
        return True
    usual = {*IMAGE_COLUMNS, *LABEL_COLUMNS, *SPLIT_COLUMNS}
    return is_image_name(path.strip()) and not any(cell.strip().lower() in usual for cell in cells)
