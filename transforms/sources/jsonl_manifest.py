"""Source `jsonl`: a JSON object a line, each about one image; or Vertex AI's import file.

Vertex AI's file for classification has `imageGcsUri`, `classificationAnnotation` or
`classificationAnnotations` with a `displayName`, and ml_use in `dataItemResourceLabels`
(https://cloud.google.com/vertex-ai/docs/image-data/classification/prepare-data).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from transforms.records import BadInput, Failure, ImageRecord
from transforms.sources.json_columns import VERTEX_IMAGE, RowColumns, all_names, flat, take
from transforms.sources.manifests import (
    PEEKED,
    Manifest,
    ManifestLines,
    check_manifests,
    flag_of,
    manifests,
    open_manifest,
)
from transforms.sources.names import extension_of, is_unicode
from transforms.sources.rows import Columns, Row, RowRecords, describe, pick_columns, split_name
from transforms.sources.selection import check_selection, limited
from transforms.sources.source import SourceConfig, readable

_MAX_DEPTH = 64
_VERTEX_ML_USE = "aiplatform.googleapis.com/ml_use"
_VERTEX_OTHER_TASKS = (
    "boundingBoxAnnotations",
    "segmentationAnnotation",
    "polygonAnnotations",
    "polylineAnnotations",
)


class JsonlSource:
    """Lists the rows of JSON Lines manifests."""

    name = "jsonl"
    summary = "a JSON Lines manifest, an object an image (or features alone); Vertex AI's import JSONL"
    untyped = False

    def sniff(self, config: SourceConfig) -> str | None:
        paths = config.annotations or (config.input,)
        if any(extension_of(path) not in ("jsonl", "ndjson", "jsonlines") for path in paths):
            return None
        why = f"{paths[0]!r} is a JSON Lines file by name"
        try:
            manifest = manifests(config)[0]
            first = _peek(manifest)
            return f"{why}; columns: {describe(_columns(first, _names(first), config, manifest))}"
        except (OSError, ValueError):  # `check` says what is wrong
            return why

    def check(self, config: SourceConfig) -> None:
        with readable("--input", config.input):
            check_manifests(config, self.name)
            check_selection(config)
            for manifest in manifests(config):
                _check_rows(manifest, config)

    def split_names(self, config: SourceConfig) -> tuple[str, ...] | None:
        try:
            return None if any(_may_name_splits(one, config) for one in manifests(config)) else ()
        except (OSError, ValueError):  # `check` says what is wrong
            return None

    def read(self, config: SourceConfig, scratch: str) -> Iterator[ImageRecord | Failure]:
        return limited(_records(config), config.limit)


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
            "this version reads those for classification"
        )
    _columns(first, _names_and_asked(manifest, first, config), config, manifest)


def _may_name_splits(manifest: Manifest, config: SourceConfig) -> bool:
    """Whether a row may name a split: known not to only where the first rows are all, and none does."""
    first = list(itertools.islice(_rows(manifest, config), PEEKED + 1))
    return len(first) > PEEKED or any(isinstance(row, Row) and row.split for _, row in first)


def _records(config: SourceConfig) -> Iterator[ImageRecord | Failure]:
    for manifest in manifests(config):
        rows = RowRecords(config, manifest)
        for line, row in _rows(manifest, config):
            yield rows.record(row, line) if isinstance(row, Row) else rows.failure(line, row)


def _rows(manifest: Manifest, config: SourceConfig) -> Iterator[tuple[int, Row | BadInput]]:
    """The rows of a manifest: the line of each, and itself or what is wrong with it."""
    first = _peek(manifest)
    columns = _columns(first, _names_and_asked(manifest, first, config), config, manifest)
    row_columns = RowColumns(columns, first, config)
    reads_vertex = columns.image is not None and not _asks(config)
    for line, item in read_objects(manifest):
        row: Row | BadInput
        try:
            if isinstance(item, BadInput):
                row = item
            elif reads_vertex and VERTEX_IMAGE in item:
                row = _vertex_row(item)
            else:
                row = _plain_row(item, row_columns.of(item), columns.image)
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


def _plain_row(item: dict[str, Any], columns: Columns, image_column: str | None) -> Row:
    """A row by its own columns; `image_column` is that of the manifest, None where it has no images."""
    image = None
    if image_column is not None:
        image = None if columns.image is None else take(item, columns.image)
        if not isinstance(image, str):
            name = columns.image or image_column
            raise BadInput("manifest", "no image path", f"{name} is {json.dumps(image)[:100]}")
    labels = tuple(label for name in columns.labels for label in _labels(take(item, name)))
    split = None
    if columns.split is not None:
        value = take(item, columns.split)
        split = split_name("" if value is None else str(value), columns.split)
    return Row(image, labels, split, flat(item))


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
    labels = tuple(label for name in names for label in _labels(name))
    value = take(item, f"dataItemResourceLabels/{_VERTEX_ML_USE}")
    split = split_name("" if value is None else str(value), "ml_use")
    return Row(image, labels, split, flat(item))


def _labels(value: Any) -> tuple[str | int, ...]:
    if value is None or value == "":
        return ()
    labels = value if isinstance(value, list) else [value]
    if any(isinstance(label, bool) or not isinstance(label, str | int) for label in labels):
        raise BadInput("manifest", "label is not text or an integer", json.dumps(value)[:100])
    return tuple(labels)
