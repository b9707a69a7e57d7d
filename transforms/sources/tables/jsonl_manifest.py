"""Source `jsonl`: a JSON object a line, each about one image or one box; or Vertex AI's import file.

Vertex AI's file for classification has `imageGcsUri`, `classificationAnnotation` or
`classificationAnnotations` with a `displayName`, and ml_use in `dataItemResourceLabels`; that for object
detection has `boundingBoxAnnotations` with `displayName`, `xMin`, `yMin`, `xMax` and `yMax`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.names import is_unicode
from recordmill.transforms.sources.source import Description
from recordmill.transforms.sources.tables.columns import (
    VERTEX_BOXES,
    VERTEX_IMAGE,
    Columns,
    RowColumns,
    asked_labels,
    asks,
    find_columns,
    with_box_columns,
    with_lists,
)
from recordmill.transforms.sources.tables.csv_cells import check_columns
from recordmill.transforms.sources.tables.manifest_source import ManifestSource, Table, Values
from recordmill.transforms.sources.tables.manifests import Manifest, ManifestLines, open_manifest
from recordmill.transforms.sources.tables.rows import VERTEX_TASKS, Row, RowMapper
from recordmill.transforms.sources.tables.values import JSON, all_names, flat

JSON_LINES = ("jsonl", "ndjson", "jsonlines")
_MAX_DEPTH = 64


def read_objects(manifest: Manifest) -> Iterator[tuple[int, Values | BadInput]]:
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


def _parse(line: str) -> Values | BadInput:
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


class JsonTable(Table):
    """A JSON Lines file."""

    def read(self) -> Iterator[tuple[int, Values | BadInput]]:
        return read_objects(self.manifest)

    @functools.cached_property
    def _first_flat(self) -> list[Values]:
        return [flat(row, strict=False) for row in self.first]

    @functools.cached_property
    def columns(self) -> Columns:
        names = self._names()
        if not asks(self.config) and any(VERTEX_IMAGE in row for row in self.first):
            columns = with_box_columns(Columns(VERTEX_IMAGE), names, self._first_flat, self.config)
        else:
            columns = find_columns(names, self._first_flat, self.config, self.manifest)
        is_vertex = columns.image is not None and not asks(self.config)
        has_boxes = is_vertex and any(VERTEX_BOXES in row for row in self.first)
        columns = columns._replace(is_vertex=is_vertex, has_vertex_boxes=has_boxes)
        return with_lists(columns, self.first)

    def _names(self) -> list[str]:
        """The names in the first rows, and those that flags name and only later rows have.

        Reads on while one that a flag names has not been seen: none of millions of rows may have it.
        """
        names = list(dict.fromkeys(name for row in self.first for name in all_names(row)))
        check_columns(f"{self.where}, which", names)
        asked = {self.config.image_column or "", *asked_labels(self.config, names)} - {""}
        missing = {name.lower() for name in asked} - {name.lower() for name in names}
        for _, item in self.read() if missing else ():
            if not isinstance(item, BadInput):
                late = [name for name in all_names(item) if name.lower() in missing]
                names += late
                missing.difference_update(map(str.lower, late))
                if not missing:
                    break
        return names

    def first_images(self) -> list[str]:
        images = (row.get(self.columns.image or "") for row in self._first_flat)
        return [image for image in images if isinstance(image, str) and image.strip()]

    def mapper(self) -> Callable[[Values], Row]:
        return RowMapper(self.columns, JSON, RowColumns(self.columns, self.first, self.config)).row

    def check(self) -> None:
        if not self.first:
            raise ValueError(
                f"{self.where}, whose first lines are no JSON objects; --source jsonl wants one object a line"
            )
        if any(task in row for row in self.first for task in VERTEX_TASKS if VERTEX_IMAGE in row):
            raise ValueError(
                f"{self.where}, an import file for another task; "
                "those for classification and object detection are read"
            )
        self.columns  # noqa: B018


class JsonlSource(ManifestSource):
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
    table = JsonTable
    extensions = JSON_LINES
