"""The rows of a Parquet table as records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Box,
    ClassNames,
    Failure,
    FeatureValue,
    ImageRecord,
    ImageRef,
    MaskImage,
    Scalar,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import failed, skipped
from recordmill.transforms.sources.selection import EXCLUDED, Selection, label_pattern
from recordmill.transforms.sources.tables.box_columns import is_number
from recordmill.transforms.sources.tables.parquet_columns import TableColumns
from recordmill.transforms.sources.tables.rows import is_missing, whole
from recordmill.transforms.sources.tables.sample_json import feature_value
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.files import is_file
from recordmill.transforms.storage.paths import real_path
from recordmill.transforms.storage.spool import Spool

if TYPE_CHECKING:
    import pyarrow

_BATCH_ROWS = 16
_BATCH_FEATURES = 1024
_CROWD = ("iscrowd", "is_crowd")


def not_parquet() -> tuple[type[Exception], ...]:
    """What pyarrow raises of a file that is none, or damaged."""
    import pyarrow

    return pyarrow.ArrowInvalid, pyarrow.ArrowException, EOFError


def cells(column: pyarrow.Array) -> list[Any]:
    """The values of a column; nanoseconds, which `datetime` does not have, as text."""
    import pyarrow

    kind = column.type
    if pyarrow.types.is_timestamp(kind) and kind.unit == "ns":
        texts: list[str | None] = column.cast(pyarrow.string()).to_pylist()
        return [text and text.replace(" ", "T", 1) for text in texts]
    if kind in (pyarrow.time64("ns"), pyarrow.duration("ns")):
        return list(column.cast(pyarrow.int64()).to_pylist())
    return list(column.to_pylist())


class TableRows:
    """Makes the rows of one table into records.

    Args:
        path: of the table.
        key: what keys start with.
        split: of all rows.
        columns: what the columns are.
        config: of the source.
    """

    def __init__(
        self, path: str, key: str, split: str | None, columns: TableColumns, config: SourceConfig
    ) -> None:
        self._path = path
        self._key = key
        self._split = split
        self._columns = columns
        self._selection = Selection(config)
        self._label_pattern = label_pattern(config)
        folder = os.path.dirname(path)
        root = folder if is_file(config.input) else real_path(config.input)
        self._bases = tuple(dict.fromkeys((folder, root, *map(real_path, config.image_roots))))
        self._confinement = Confinement(self._bases if folder.startswith(root) else self._bases[1:])
        self._mask = columns.mask if "masks" in config.include_annotations else None
        names = (columns.image, *columns.labels, self._mask, columns.objects, *columns.features)
        self.wanted = [name for name in names if name is not None]
        self.batch_rows = _BATCH_FEATURES if columns.image is None else _BATCH_ROWS

    def classes(self, told: set[tuple[str, ...]]) -> Iterator[ClassNames]:
        """The classes that the table names, unless they are among those already `told`."""
        for column in (*self._columns.labels, self._columns.objects):
            names = self._columns.names.get(column or "", ())
            if names and names not in told:
                told.add(names)
                yield ClassNames(dict(enumerate(names)))

    def item(self, number: int, row: Mapping[str, Any], spool: Spool) -> ImageRecord | Failure:
        """The record of a row, or why there is none."""
        key = f"{self._key}/{number:08}"
        if not self._selection.takes(key):
            return skipped(key, EXCLUDED)
        try:
            annotations = self._annotations(key, row, spool)
            image, size = self._image(row, spool)
        except BadInput as fault:
            return failed(key, fault)
        return ImageRecord(key, image, self._split, annotations, f"{self._key}, row {number}", size)

    def _image(self, row: Mapping[str, Any], spool: Spool) -> tuple[ImageRef | None, int]:
        if self._columns.image is None:
            return None, 0
        return self._stored(row[self._columns.image], spool)

    def _stored(self, value: Any, spool: Spool) -> tuple[ImageRef, int]:
        """Where an image is, and its size: its bytes, or the file that its path means."""
        data, path = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, None)
        if isinstance(data, str):
            data, path = None, data
        if data:
            return spool.add(data), len(data)
        if not path:
            raise BadInput("annotations", "no image", "the row has neither bytes nor path")
        if not isinstance(path, str):
            raise BadInput("annotations", "path is not text", repr(path)[:100])
        found = self._confinement.find(path, self._bases)
        return ImageRef(found.path, version=found.version), found.size

    def _annotations(self, key: str, row: Mapping[str, Any], spool: Spool) -> Annotations:
        labels: tuple[str | int, ...]
        if self._label_pattern is not None:
            labels = (self._label_pattern.label(key),)
        else:
            labels = tuple(label for name in self._columns.labels for label in self._labels(name, row[name]))
        features: dict[str, FeatureValue] = {}
        for name in self._columns.features:
            if row[name] is not None:
                features[name] = _feature(row[name])
        masks = {}
        if self._mask is not None and row[self._mask] is not None:
            masks["class"] = MaskImage(self._stored(row[self._mask], spool)[0])
        objects = self._objects(row) if self._columns.objects is not None else ()
        return Annotations(labels, features, objects, masks=masks)

    def _labels(self, column: str, value: Any) -> tuple[str | int, ...]:
        """The labels in a cell: names where the column has some; none where it is null or -1 (not known)."""
        values = value if isinstance(value, list) else [value]
        names = self._columns.names.get(column, ())
        labels: list[str | int] = []
        for one in map(whole, values):
            if is_missing(one) or (names and one == -1):
                continue
            if isinstance(one, bool) or not isinstance(one, (str, int)):
                raise BadInput("annotations", "label is neither whole number nor text", f"{column}: {one!r}")
            labels.append(_named(one, names, column))
        return tuple(labels)

    def _objects(self, row: Mapping[str, Any]) -> tuple[AnnotatedObject, ...]:
        """The objects of a row: a struct of lists, or a list of structs."""
        columns = self._columns
        told = row[columns.objects or ""] or []
        if isinstance(told, dict):
            lists = {name: values for name, values in told.items() if values is not None}
            if not all(isinstance(values, list) for values in lists.values()):
                raise BadInput("annotations", "objects are not lists of values", f"{columns.objects}")
            if len(set(map(len, lists.values()))) > 1:
                raise BadInput("annotations", "lists of objects differ in length", f"{columns.objects}")
            count = len(lists.get(columns.box) or ())
            told = [{name: values[at] for name, values in lists.items()} for at in range(count)]
        names = columns.names.get(columns.objects or "", ())
        return tuple(_object(one, columns.box, columns.category, names) for one in told)


def _object(
    told: Mapping[str, Any], box: str, category: str | None, names: tuple[str, ...]
) -> AnnotatedObject:
    if not isinstance(told, Mapping):
        raise BadInput("annotations", "object is not a struct", repr(told)[:100])
    corners = told.get(box)
    if not isinstance(corners, list) or len(corners) != 4 or not all(map(is_number, corners)):
        raise BadInput("annotations", "box has not four numbers", repr(corners)[:100])
    left, top, width, height = map(float, corners)
    label = whole(told.get(category)) if category is not None else None
    if isinstance(label, bool) or not isinstance(label, (str, int)):
        raise BadInput("annotations", "object without a class", f"{category or 'no column'}: {label!r}")
    attributes: dict[str, Scalar] = {}
    for name, value in told.items():
        if name not in (box, category) and isinstance(value, (str, int, float, bool, bytes)):
            attributes["is_crowd" if name in _CROWD else name] = value
    shape = Box(left, top, left + width, top + height)
    return AnnotatedObject(_named(label, names, category or ""), shape, attributes=attributes)


def _named(label: str | int, names: tuple[str, ...], column: str) -> str | int:
    if not names or isinstance(label, str):
        return label
    if not 0 <= label < len(names):
        raise BadInput("annotations", "label without a name", f"{column}: {label} of {len(names)} classes")
    return names[label]


def _feature(value: Any) -> FeatureValue:
    """A cell as a free feature: dates, decimals and the like as text."""
    if isinstance(value, (str, int, float, bytes, list, dict)):
        return feature_value(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
