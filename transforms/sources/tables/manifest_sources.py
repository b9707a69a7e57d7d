"""Sources `csv`, `jsonl` and `sequence`: a row is an image, a box or a sequence; Vertex AI's import files.

Vertex AI's CSV file has no header. For classification its rows are `[ml_use,]path,label[,label…]`, for object
detection `[ml_use,]path,label,xmin,ymin,,,xmax,ymax,,`; they are read as the objects of its JSON Lines file.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from recordmill.transforms.records import (
    BadInput,
    Failure,
    FeatureValue,
    ImageRecord,
    ImageRef,
    Scalar,
    Steps,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import failed, is_image_name
from recordmill.transforms.sources.source import Description, Items, Source
from recordmill.transforms.sources.tables.columns import (
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    SPLIT_COLUMNS,
    VERTEX_BOXES,
    VERTEX_IMAGE,
    Columns,
    RowColumns,
    find_columns,
    named_labels,
    split_columns,
    usual_name,
    with_box_columns,
    with_lists,
)
from recordmill.transforms.sources.tables.manifests import (
    PEEKED,
    Manifest,
    check_manifests,
    manifests,
    splits_by_name,
)
from recordmill.transforms.sources.tables.rows import (
    VERTEX_ML_USE,
    VERTEX_TASKS,
    VERTICES,
    BoxRows,
    Row,
    Table,
    is_vertex_box,
)
from recordmill.transforms.sources.tables.text_rows import Values, check_columns, read_objects, read_rows
from recordmill.transforms.sources.tables.values import (
    VERTEX_SPLITS,
    all_names,
    flat,
    labels_in,
    number_in,
    shown,
    split_in,
    take,
)
from recordmill.transforms.storage.file_system import scheme_of

JSON_LINES = ("jsonl", "ndjson", "jsonlines")
_DELIMITERS = (",", ";", "\t", "|")


class CsvTable(Table):
    """A CSV file. Values are text; empty cells are left out."""

    is_text = True

    def __init__(self, manifest: Manifest, config: SourceConfig) -> None:
        super().__init__(manifest, config)
        self._delimiter, first = self._first_row()
        asked = config.image_column is not None or config.label_column is not None
        self._is_vertex = not asked and _is_vertex_row(first)
        self._header = () if self._is_vertex else tuple(cell.strip() for cell in first)
        if not self._is_vertex:
            self._check_header()

    def _first_row(self) -> tuple[str, list[str]]:
        """The delimiter that splits the first row into the most cells, and these cells.

        `|` is tried only if no other delimiter separates cells: it may separate the labels in a cell.
        """
        delimiter, best, fault = "", list[str](), ""
        for tried in _DELIMITERS:
            if tried == "|" and len(best) > 1:
                break
            _, cells = next(read_rows(self.manifest.file, tried), (0, ()))
            if isinstance(cells, BadInput):  # quoted cells, split by a wrong delimiter
                fault = fault or _shown(cells)
            elif len(cells) > len(best):
                delimiter, best = tried, list(cells)
        if fault and len(best) < 2:
            raise ValueError(f"{self.where}, whose first row cannot be read: {fault}")
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

    def _rows(self) -> Iterator[tuple[int, list[str] | BadInput]]:
        """The rows below the header."""
        rows = read_rows(self.manifest.file, self._delimiter)
        return rows if self._is_vertex else itertools.islice(rows, 1, None)

    @functools.cached_property
    def _first_cells(self) -> list[list[str]]:
        return [
            cells for _, cells in itertools.islice(self._rows(), PEEKED) if not isinstance(cells, BadInput)
        ]

    @property
    def peeked(self) -> Sequence[Values]:
        cells = () if self._is_vertex else self._first_cells
        return [dict(zip(self._header, row, strict=False)) for row in cells]

    @functools.cached_property
    def columns(self) -> Columns:
        if not self._is_vertex:
            names = [name for name in self._header if name]
            return find_columns(names, self.peeked, self.config, self.manifest)
        if any(map(_is_headless_box, self._first_cells)):
            remedy = "put a header above them, such as filename,xmin,ymin,xmax,ymax,class"
            raise ValueError(f"{self.where}, whose rows are a path, four numbers and a class; {remedy}")
        has_boxes = any(is_vertex_box(_without_split(cells)[1][2:]) for cells in self._first_cells)
        box = (VERTEX_BOXES,) if has_boxes else ()
        return Columns(VERTEX_IMAGE, split="ml_use", box=box, is_vertex=True)

    def may_name_splits(self) -> bool:
        return super().may_name_splits() if self._is_vertex else self.columns.split is not None

    def values(self) -> Iterator[tuple[int, Values | BadInput]]:
        header, width = self._header, len(self._header)
        has_index = header[:1] == ("",)  # pandas writes an index without a name
        for line, cells in self._rows():
            if isinstance(cells, BadInput):
                yield line, cells
            elif self._is_vertex:
                yield line, self._vertex_values(cells)
            elif len(cells) != width:
                detail = f"{len(cells)}, the header has {width}"
                yield line, BadInput("manifest", "wrong number of cells", detail)
            else:
                values = dict(zip(header, cells, strict=False))
                if "" in cells:
                    values = {name: cell for name, cell in values.items() if cell}
                if has_index:
                    values.pop("", None)
                yield line, values

    def _vertex_values(self, cells: list[str]) -> Values | BadInput:
        """A row of Vertex AI's file in the form of its JSON Lines, with the cells of a box in one list."""
        ml_use, (path, *others) = _without_split(cells)
        values: Values = {VERTEX_IMAGE: path.strip(), VERTEX_ML_USE: ml_use}
        vertices = others[1:]
        if not self.columns.box and is_vertex_box(vertices):
            remedy = "a row for object detection; put one before the rows without a box"
            return BadInput("manifest", "annotation not supported", remedy)
        if self.columns.box and any(cell.strip() for cell in vertices):
            return {**values, VERTEX_BOXES: [{"displayName": others[0], VERTICES: vertices}]}
        return {**values, "classificationAnnotations": [label for cell in others if (label := cell.strip())]}

    def check(self) -> None:
        fault = ""
        for line, cells in self._rows():
            if not isinstance(cells, BadInput):
                return
            fault = fault or f"{_shown(cells)}, in the row that starts at line {line}"
        if fault:
            raise ValueError(f"{self.where}, where no row below the header can be read: {fault}")
        raise ValueError(f"{self.where}, which has a header and no row")


def _shown(fault: BadInput) -> str:
    return f"{fault.reason}: {fault.detail}" if fault.detail else fault.reason


def _without_split(cells: list[str]) -> tuple[str, list[str]]:
    """The ml_use of a row of Vertex AI's file, and the cells from the path on."""
    has_split = len(cells) > 1 and cells[0].strip().lower() in VERTEX_SPLITS
    return (cells[0], cells[1:]) if has_split else ("", cells)


def _is_headless_box(cells: Sequence[str]) -> bool:
    """Whether a row is keras-retinanet's `path,x1,y1,x2,y2,class`, not Vertex AI's path and labels."""
    is_box = len(cells) == 6 and None not in map(number_in, cells[1:5])
    return is_box and bool(cells[5].strip()) and number_in(cells[5]) is None


def _is_vertex_row(cells: list[str]) -> bool:
    """Whether a first row is data, not a header: it has the path of an image in Vertex AI's column."""
    path = _without_split(cells)[1][0].strip()
    is_header = usual_name((*IMAGE_COLUMNS, *LABEL_COLUMNS, *SPLIT_COLUMNS), map(str.strip, cells))
    return bool(scheme_of(path)) or (is_image_name(path) and is_header is None)


class JsonTable(Table):
    """A JSON Lines file."""

    def values(self) -> Iterator[tuple[int, Values | BadInput]]:
        return read_objects(self.manifest.file)

    @functools.cached_property
    def first(self) -> list[Values]:
        """The first rows, without those that cannot be read."""
        return [row for _, row in itertools.islice(self.values(), PEEKED) if not isinstance(row, BadInput)]

    @functools.cached_property
    def peeked(self) -> Sequence[Values]:
        return [flat(row, strict=False) for row in self.first]

    @functools.cached_property
    def columns(self) -> Columns:
        names = self._names()
        asked = self.config.image_column is not None or self.config.label_column is not None
        if not asked and any(VERTEX_IMAGE in row for row in self.first):
            columns = with_box_columns(Columns(VERTEX_IMAGE), names, self.peeked, self.config)
        else:
            columns = find_columns(names, self.peeked, self.config, self.manifest)
        is_vertex = columns.image is not None and not asked
        return with_lists(replace(columns, is_vertex=is_vertex), self.first)

    def _names(self) -> list[str]:
        """The names in the first rows, and names in flags that only later rows have.

        Reads all rows if none has a name that a flag gives.
        """
        names = list(dict.fromkeys(name for row in self.first for name in all_names(row)))
        check_columns(f"{self.where}, which", names)
        asked = {self.config.image_column or "", *named_labels(self.config, names)} - {""}
        missing = {name.lower() for name in asked} - {name.lower() for name in names}
        for _, item in self.values() if missing else ():
            if not isinstance(item, BadInput):
                late = [name for name in all_names(item) if name.lower() in missing]
                names += late
                missing.difference_update(map(str.lower, late))
                if not missing:
                    break
        return names

    @functools.cached_property
    def _row_columns(self) -> RowColumns:
        return RowColumns(self.columns, self.first, self.config)

    def columns_of(self, values: Values) -> Columns:
        return self._row_columns(values)

    def check(self) -> None:
        if not self.first:
            raise ValueError(f"{self.where}, whose first lines are not JSON objects, one on each line")
        if any(task in row for row in self.first for task in VERTEX_TASKS if VERTEX_IMAGE in row):
            tasks = "classification or object detection"
            raise ValueError(f"{self.where}, an import file for another task than {tasks}")


class ManifestSource(Source):
    """Lists the rows of manifests: `table` reads one of them."""

    table: ClassVar[type[Table]]
    extensions: ClassVar[tuple[str, ...]]
    flags: ClassVar[tuple[str, ...]] = (
        *("annotations", "image_column", "label_column", "label_pattern"),
        "include_annotations",
    )
    searches_roots = True

    def described(self, config: SourceConfig) -> str:
        """Describes the columns of the first manifest. Raises OSError or ValueError."""
        table = self.table(manifests(config)[0], config)
        found, folder = table.columns.describe(), table.find_folder()
        return found if folder is None else f"{found}; images are found in {folder!r}"

    def check_input(self, config: SourceConfig) -> None:
        check_manifests(config, self.name, self.extensions)
        for manifest in manifests(config):
            table = self.table(manifest, config)
            table.check()
            table.columns  # noqa: B018  (raises ValueError)

    def splits(self, config: SourceConfig) -> set[str] | None:
        try:
            if any(self.table(manifest, config).may_name_splits() for manifest in manifests(config)):
                return None
            return set(splits_by_name(config).values())
        except (OSError, ValueError):  # `check` reports it
            return None

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        has_boxes = any(self.table(manifest, config).columns.has_boxes for manifest in manifests(config))
        return ("detection",) if has_boxes else ()

    def items(self, config: SourceConfig, scratch: str) -> Items:
        tables = [self.table(manifest, config) for manifest in manifests(config)]
        boxes = BoxRows() if any(table.columns.box for table in tables) else None
        splits = splits_by_name(config)
        for table in tables:
            table.split = None if table.columns.split is not None else splits.get(table.manifest.path)
            table.find_folder()
            for line, values in table.values():
                try:
                    if isinstance(values, BadInput):
                        raise values
                    row = table.row(values)
                    item = table.record(row, line) if boxes is None else boxes.add(table, row, line)
                except BadInput as fault:
                    item = failed(table.manifest.row_key(line), fault)
                if item is not None:
                    yield item
        if boxes is not None:
            yield from boxes.records()


class CsvSource(ManifestSource):
    """Lists the rows of CSV manifests."""

    name = "csv"
    description = Description(
        reads="`.csv`, `.tsv`: a header, then one row for each image or each box; separated by comma, "
        "semicolon, tab or vertical bar; UTF-8 or UTF-16; Vertex AI's import file, which has no header",
        label="the label column",
        split="the split column; otherwise a folder in the path of the image",
        key="path of the image below the input or its image root",
        example="labels.csv\nphotos/\n  1.jpg\n  2.jpg",
    )
    table = CsvTable
    extensions = ("csv", "tsv")
    untyped = True


class JsonlSource(ManifestSource):
    """Lists the rows of JSON Lines manifests."""

    name = "jsonl"
    description = Description(
        reads="`.jsonl`, `.ndjson`, `.jsonlines`: one JSON object for each image or each box; "
        "Vertex AI's import file",
        label="the label column",
        split="the split column; otherwise a folder in the path of the image",
        key="path of the image below the input or its image root",
        example="labels.jsonl\nphotos/\n  1.jpg\n  2.jpg",
    )
    table = JsonTable
    extensions = JSON_LINES


_CONTEXT = "context"
_LISTS = "feature_lists"
_FRAMES = ("image/encoded", "frames")


class SequenceTable(JsonTable):
    """A file of sequences; its columns are the values of their contexts."""

    @functools.cached_property
    def peeked(self) -> Sequence[Values]:
        return [flat(_context_of(row), strict=False) for row in self.first]

    @functools.cached_property
    def columns(self) -> Columns:
        names = dict.fromkeys(name for context in self.peeked for name in context)
        split = usual_name(split_columns(names, self.peeked), names)
        return Columns(labels=named_labels(self.config), split=split)

    @functools.cached_property
    def _splits(self) -> tuple[str, ...]:
        names = itertools.chain.from_iterable(self.peeked)
        return split_columns(names, self.peeked) if self.columns.split is not None else ()

    def row(self, values: Values) -> Row:
        context, lists = _parts(values)
        column = usual_name(self._splits, context)
        split = None if column is None else split_in(take(context, column), column)
        names = self.columns.labels
        labels = tuple(label for name in names for label in labels_in(take(context, name), name))
        features = flat(context)
        return Row(None, labels, split, features, lists={key: _steps(key, lists[key]) for key in lists})

    def record(self, row: Row, line: int) -> ImageRecord | Failure:
        """The record of a line with its lists; one of them may be paths of frames."""
        record = super().record(row, line)
        if isinstance(record, Failure):
            return record
        lists = dict(row.lists or {})
        names = [name for name in _FRAMES if _are_images(lists.get(name, ()))]
        if len(names) > 1:
            raise BadInput("manifest", "two lists of frames", " and ".join(map(repr, names)))
        found = [self.images.find(str(path)) for name in names for path in lists.pop(name)]
        if both := sorted(record.annotations.features.keys() & lists.keys()):
            raise BadInput("manifest", "a name in the context and in the lists", ", ".join(both))
        frames = tuple(ImageRef(frame.path, version=frame.version) for frame in found)
        annotations = replace(record.annotations, steps=Steps(frames, lists=lists))
        size = sum(frame.size for frame in found)
        return replace(record, annotations=annotations, size=size)

    def check(self) -> None:
        super().check()
        if not any(_LISTS in row or (_CONTEXT not in row and _parts(row)[1]) for row in self.first):
            raise ValueError(
                f"{self.where}, whose first objects have neither {_LISTS} nor a list; see --source jsonl"
            )
        missing = set(self.columns.labels)
        for _, item in self.values() if missing else ():
            if not isinstance(item, BadInput):
                missing -= flat(_context_of(item), strict=False).keys()
            if not missing:
                return
        if missing:
            raise ValueError(
                f"--label_column is {self.config.label_column!r}; no line of {self.manifest.path!r} has "
                f"{', '.join(map(repr, sorted(missing)))} in its context"
            )


def _context_of(item: Values) -> Values:
    """The context of a line; empty if the line is not a sequence."""
    with contextlib.suppress(BadInput):
        return _parts(item)[0]
    return {}


def _parts(item: Values) -> tuple[Values, Values]:
    """The context and the lists of a line."""
    if _CONTEXT not in item and _LISTS not in item:
        lists = {name: value for name, value in item.items() if isinstance(value, list)}
        return {name: value for name, value in item.items() if name not in lists}, lists
    context, lists = item.get(_CONTEXT, {}), item.get(_LISTS, {})
    for name, value in ((_CONTEXT, context), (_LISTS, lists)):
        if not isinstance(value, dict):
            raise BadInput("manifest", "not a sequence", f"{name} is {shown(value)}, not an object")
    others = {name: value for name, value in item.items() if name not in (_CONTEXT, _LISTS)}
    if twice := sorted(others.keys() & context.keys()):
        raise BadInput("manifest", "two values have the same name", ", ".join(twice))
    return {**others, **context}, lists


def _steps(name: str, value: Any) -> tuple[FeatureValue, ...]:
    """A list of steps, each a value or several."""

    def fault(detail: str) -> BadInput:
        remedy = "a list has numbers or texts, one or a list of them a step"
        return BadInput("manifest", "not a list of steps", f"{name!r} {detail}; {remedy}")

    if not isinstance(value, list):
        raise fault(f"is {shown(value)}")
    if not name.strip():
        raise BadInput("manifest", "a value has no name")
    kinds: set[bool] = set()
    for number, step in enumerate(value, 1):
        scalars: list[Scalar] = step if isinstance(step, list) else [step]
        for scalar in scalars:
            if not isinstance(scalar, str | int | float):
                raise fault(f"has {shown(scalar)} in step {number}")
            kinds.add(isinstance(scalar, str))
    if len(kinds) > 1:
        raise fault("has text and numbers")
    return tuple(tuple(step) if isinstance(step, list) else step for step in value)


def _are_images(steps: tuple[FeatureValue, ...]) -> bool:
    return bool(steps) and all(isinstance(step, str) and is_image_name(step) for step in steps)


class SequenceSource(ManifestSource):
    """Lists the sequences of JSON Lines files."""

    name = "sequence"
    description = Description(
        reads="`.jsonl`: one sequence on each line. `context` holds its values; `feature_lists` holds lists "
        "by name, with one or more numbers or texts for each step; the list `frames` holds paths of images. "
        "Without these two names, lists are feature lists, and all other values are context",
        label="the context value that --label_column names",
        split="`split` of the context",
        key="file and line",
        example="series.jsonl",
    )
    flags = ("annotations", "label_column", "label_pattern")
    table = SequenceTable
    extensions = JSON_LINES

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ("sequence",)
