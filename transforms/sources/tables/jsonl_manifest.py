"""Source `jsonl`: a JSON object a line, each about one image or one box; or Vertex AI's import file.

Vertex AI's file for classification has `imageGcsUri`, `classificationAnnotation` or
`classificationAnnotations` with a `displayName`, and ml_use in `dataItemResourceLabels`
(https://cloud.google.com/vertex-ai/docs/image-data/classification/prepare-data); that for object detection
has `boundingBoxAnnotations` with `displayName`, `xMin`, `yMin`, `xMax` and `yMax`
(https://cloud.google.com/vertex-ai/docs/image-data/object-detection/prepare-data).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from typing import Any

from recordmill.transforms.records import BadInput, Failure, ImageRecord
from recordmill.transforms.sources.config import SourceConfig, readable
from recordmill.transforms.sources.names import is_unicode
from recordmill.transforms.sources.selection import check_selection
from recordmill.transforms.sources.source import (
    Description,
    Items,
    Source,
)
from recordmill.transforms.sources.tables.box_columns import BoxColumns, find_box_columns, with_unit
from recordmill.transforms.sources.tables.box_rows import BoxRows
from recordmill.transforms.sources.tables.csv_cells import check_columns
from recordmill.transforms.sources.tables.json_boxes import (
    VERTEX_BOXES,
    Boxes,
    BoxLists,
    find_box_lists,
    list_of_boxes,
    take_box,
    take_lists,
    take_vertex_boxes,
)
from recordmill.transforms.sources.tables.json_columns import VERTEX_IMAGE, RowColumns, all_names, flat, take
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
    Columns,
    Row,
    RowRecords,
    describe,
    labels_in,
    pick_columns,
    split_name,
)

_MAX_DEPTH = 64
_VERTEX_ML_USE = "aiplatform.googleapis.com/ml_use"
_VERTEX_OTHER_TASKS = (
    "segmentationAnnotation",
    "polygonAnnotations",
    "polylineAnnotations",
)


class JsonlSource(Source):
    """Lists the rows of JSON Lines manifests."""

    name = "jsonl"
    description = Description(
        reads="`.jsonl`, `.ndjson`, `.jsonlines`: an object an image, or an object a box; "
        "Vertex AI's import file",
        label="the label column",
        split="the split column; else a folder of the image",
        key="path of the image below its root",
        example="labels.jsonl\nphotos/\n  1.jpg\n  2.jpg",
    )

    def check(self, config: SourceConfig) -> None:
        with readable("--input", config.input):
            check_manifests(config, self.name)
            check_selection(config)
            for manifest in manifests(config):
                _check_rows(manifest, config)

    def split_names(self, config: SourceConfig) -> tuple[str, ...] | None:
        try:
            if any(_may_name_splits(one, config) for one in manifests(config)):
                return None
            return tuple(sorted(set(splits_by_name(config).values())))
        except (OSError, ValueError):  # `check` says what is wrong
            return None

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        layouts = [_read_layout(manifest, config) for manifest in manifests(config)]
        return ("detection",) if any(layout.has_boxes for layout in layouts) else ()

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _records(config)


def described(config: SourceConfig) -> str:
    """What the keys of the first manifest mean, for people. Raises OSError or ValueError."""
    manifest = manifests(config)[0]
    first = _peek(manifest)
    layout = _layout(first, _names(first), config, manifest)
    meaning = f"columns: {describe(layout.columns)}" if layout.boxes is None else layout.boxes.describe()
    folder = RowRecords(config, manifest).find_folder(_first_images(layout))
    return meaning + ("" if folder is None else f"; images are found in {folder!r}")


def _check_rows(manifest: Manifest, config: SourceConfig) -> None:
    """Raises ValueError where the first rows of a manifest cannot be used."""
    first = _peek(manifest)
    if not first:
        raise ValueError(
            f"{flag_of(config)} is {manifest.path!r}, whose first lines are no JSON objects; "
            "--source jsonl wants one object a line"
        )
    if any(task in row for row in first for task in _VERTEX_OTHER_TASKS if VERTEX_IMAGE in row):
        raise ValueError(
            f"{flag_of(config)} is {manifest.path!r}, an import file for another task; "
            "those for classification and object detection are read"
        )
    _layout(first, _names_and_asked(manifest, first, config), config, manifest)


def _may_name_splits(manifest: Manifest, config: SourceConfig) -> bool:
    """Whether a row may name a split: known not to only where the first rows are all, and none does."""
    first = list(itertools.islice(_rows(manifest, _read_layout(manifest, config), config), PEEKED + 1))
    return len(first) > PEEKED or any(isinstance(row, Row) and row.split for _, row in first)


@dataclasses.dataclass(frozen=True, slots=True)
class _Layout:
    """How a manifest is laid out, as its first rows tell.

    Attributes:
        first: those rows.
        columns: which is what.
        boxes: which of them hold boxes, where a row is a box.
        lists: lists of boxes in rows that are images.
        is_vertex: it has rows of Vertex AI's file.
    """

    first: list[dict[str, Any]]
    columns: Columns
    boxes: BoxColumns | None
    lists: BoxLists
    is_vertex: bool

    @property
    def has_boxes(self) -> bool:
        vertex = self.is_vertex and any(VERTEX_BOXES in row for row in self.first)
        return self.boxes is not None or self.lists.found or vertex


def _read_layout(manifest: Manifest, config: SourceConfig) -> _Layout:
    first = _peek(manifest)
    return _layout(first, _names_and_asked(manifest, first, config), config, manifest)


def _layout(
    first: list[dict[str, Any]], names: list[str], config: SourceConfig, manifest: Manifest
) -> _Layout:
    columns = _columns(first, names, config, manifest)
    is_vertex = columns.image is not None and not _asks(config)
    rows = [flat(row, strict=False) for row in first]
    boxes = find_box_columns(names, rows, columns, config)
    if boxes is not None:
        boxes = with_unit(boxes, rows)
    lists = find_box_lists(first) if columns.image is not None else BoxLists(False, False)
    return _Layout(first, columns, boxes, lists, is_vertex)


def _records(config: SourceConfig) -> Iterator[ImageRecord | Failure]:
    read = [(manifest, _read_layout(manifest, config)) for manifest in manifests(config)]
    boxes = BoxRows() if any(layout.boxes is not None for _, layout in read) else None
    splits = splits_by_name(config)
    for manifest, layout in read:
        names_splits = layout.columns.split is not None
        split = None if names_splits else splits.get(manifest.path)
        rows = RowRecords(config, manifest, split, by_folder=not names_splits)
        rows.find_folder(_first_images(layout))
        for line, row in _rows(manifest, layout, config):
            if not isinstance(row, Row):
                yield rows.failure(line, row)
                continue
            item = rows.record(row, line) if boxes is None else boxes.add(rows, row, line)
            if item is not None:
                yield item
    if boxes is not None:
        yield from boxes.records()


def _first_images(layout: _Layout) -> list[str]:
    images = (flat(row, strict=False).get(layout.columns.image or "") for row in layout.first)
    return [image for image in images if isinstance(image, str) and image.strip()]


def _rows(manifest: Manifest, layout: _Layout, config: SourceConfig) -> Iterator[tuple[int, Row | BadInput]]:
    """The rows of a manifest: the line of each, and itself or what is wrong with it."""
    row_columns = RowColumns(layout.columns, layout.first, config)
    for line, item in read_objects(manifest):
        row: Row | BadInput
        try:
            if isinstance(item, BadInput):
                row = item
            elif layout.is_vertex and VERTEX_IMAGE in item:
                row = _vertex_row(item)
            else:
                row = _plain_row(item, row_columns.of(item), layout)
        except BadInput as fault:
            row = fault
        yield line, row


def read_objects(manifest: Manifest) -> Iterator[tuple[int, dict[str, Any] | BadInput]]:
    """The objects of a manifest: the line of each, and itself or what is wrong with it.

    Blank lines are no rows.
    """
    with open_manifest(manifest) as stream:
        lines = ManifestLines(stream)
        for number, line in enumerate(lines, 1):
            if lines.fault:
                yield number, BadInput("manifest", lines.fault)
                lines.fault = ""
            elif not line.isspace():
                yield number, _parse(line)


def _parse(line: str) -> dict[str, Any] | BadInput:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:
        return BadInput("manifest", "not JSON", str(error))
    if not isinstance(item, dict):
        return BadInput("manifest", "not a JSON object", f"it is a JSON {type(item).__name__}")
    if line.count("{") + line.count("[") > _MAX_DEPTH and _is_too_deep(item):
        return BadInput("manifest", "not JSON", f"nested more than {_MAX_DEPTH} deep")
    # JSON can escape half of a surrogate pair, which no UTF-8 can hold
    if "\\u" in line and not is_unicode(json.dumps(item, ensure_ascii=False)):
        return BadInput("manifest", "row is not Unicode", "a \\u escape is half of a pair")
    return item


def _is_too_deep(item: Any) -> bool:
    level = [item]
    for _ in range(_MAX_DEPTH):
        inner = [part.values() if isinstance(part, dict) else part for part in level]
        level = [part for parts in inner for part in parts if isinstance(part, dict | list)]
    return bool(level)


def _peek(manifest: Manifest) -> list[dict[str, Any]]:
    rows = itertools.islice(read_objects(manifest), PEEKED)
    return [row for _, row in rows if not isinstance(row, BadInput)]


def _asks(config: SourceConfig) -> bool:
    return config.image_column is not None or config.label_column is not None


def _columns(
    first: list[dict[str, Any]], names: list[str], config: SourceConfig, manifest: Manifest
) -> Columns:
    if not _asks(config) and any(VERTEX_IMAGE in row for row in first):
        return Columns(VERTEX_IMAGE, (), None)
    return pick_columns(names, [flat(row, strict=False) for row in first], config, manifest)


def _names(first: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in first for name in all_names(row)))


def _names_and_asked(manifest: Manifest, first: list[dict[str, Any]], config: SourceConfig) -> list[str]:
    """The names in the first rows, and those that flags name and only later rows have.

    Reads on while one that a flag names has not been seen: none of millions of rows may have it.
    """
    names = _names(first)
    check_columns(f"{flag_of(config)} is {manifest.path!r}, which", names)
    missing = {name.lower() for name in _asked(config, names)} - {name.lower() for name in names}
    if not missing:
        return names
    for _, item in read_objects(manifest):
        if isinstance(item, BadInput):
            continue
        late = [name for name in all_names(item) if name.lower() in missing]
        names += late
        missing.difference_update(name.lower() for name in late)
        if not missing:
            break
    return names


def _asked(config: SourceConfig, names: list[str]) -> list[str]:
    """The columns that flags name."""
    asked = [] if config.image_column is None else [config.image_column]
    label = config.label_column
    if label is not None:
        asked += [label] if label in names else [part.strip() for part in label.split(",")]
    return asked


def _plain_row(item: dict[str, Any], columns: Columns, layout: _Layout) -> Row:
    """A row by its own columns."""
    image = None
    if layout.columns.image is not None:
        image = None if columns.image is None else take(item, columns.image)
        if not isinstance(image, str):
            name = columns.image or layout.columns.image
            raise BadInput("manifest", "no image path", f"{name} is {json.dumps(image)[:100]}")
    split = None
    if columns.split is not None:
        value = take(item, columns.split)
        split = split_name("" if value is None else str(value), columns.split)
    try:
        boxes, relative = _boxes(item, columns, layout)
    except BadInput as fault:
        return Row(image, (), split, {}, fault=fault)
    labels = tuple(label for name in columns.labels for label in labels_in(take(item, name)))
    if boxes is None:
        return Row(image, labels, split, flat(item))
    return Row(image, (*boxes.labels, *labels), split, flat(item), boxes.objects, boxes.size, relative)


def _boxes(item: dict[str, Any], columns: Columns, layout: _Layout) -> tuple[Boxes | None, bool]:
    """Takes the boxes out of a row, and tells whether they are relative; None where it has none."""
    if layout.columns.image is None:
        return None, False
    label = columns.labels[0] if columns.labels else None
    if list_of_boxes(item) is not None:
        return take_lists(item, label, layout.lists.relative), layout.lists.relative
    if layout.boxes is not None and any(name in item for name in layout.boxes.box):
        return take_box(item, layout.boxes, label), layout.boxes.relative
    return None, False


def _vertex_row(item: dict[str, Any]) -> Row:
    other = next((task for task in _VERTEX_OTHER_TASKS if task in item), None)
    if other is not None:
        raise BadInput("manifest", "annotation not supported", other)
    image = item.pop(VERTEX_IMAGE)
    if not isinstance(image, str):
        raise BadInput("manifest", "no image path", f"{VERTEX_IMAGE} is {json.dumps(image)[:100]}")
    several = item.pop("classificationAnnotations", None) or []
    one = item.pop("classificationAnnotation", None)
    found = (several if isinstance(several, list) else [several]) + ([] if one is None else [one])
    names = [part.get("displayName") if isinstance(part, dict) else part for part in found]
    labels = tuple(label for name in names for label in labels_in(name))
    objects = take_vertex_boxes(item)
    value = take(item, f"dataItemResourceLabels/{_VERTEX_ML_USE}")
    split = split_name("" if value is None else str(value), "ml_use")
    return Row(image, labels, split, flat(item), objects, relative=True)
