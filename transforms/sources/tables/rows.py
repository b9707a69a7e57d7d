"""Maps rows, dicts by column, to records: the same for CSV, JSON Lines and Parquet.

Rows of boxes become one record an image, wherever in the manifests they stand.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Box,
    Failure,
    FeatureValue,
    ImageRecord,
    ImageRef,
    Scalar,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import failed, printable, split_of_folders
from recordmill.transforms.sources.selection import EXCLUDED, Selection
from recordmill.transforms.sources.tables.columns import (
    LABEL_COLUMNS,
    LIST_COLUMN,
    OBJECTS,
    VERTEX_BOXES,
    VERTEX_IMAGE,
    Columns,
    list_of_boxes,
    usual_name,
)
from recordmill.transforms.sources.tables.images import ImageFinder
from recordmill.transforms.sources.tables.manifests import Manifest
from recordmill.transforms.sources.tables.values import (
    Labels,
    ValueKind,
    box_in,
    box_label,
    check_unit,
    is_empty,
    labels_in,
    shown,
    size_of,
    split_in,
    take,
)

VERTEX_TASKS = ("segmentationAnnotation", "polygonAnnotations", "polylineAnnotations")
"""Names in rows of Vertex AI's files for tasks that are not read."""

VERTEX_LABELS = "dataItemResourceLabels"
VERTEX_ML_USE = "aiplatform.googleapis.com/ml_use"
VERTICES = "vertices"
"""Where a row of Vertex AI's CSV file has its cells after the label."""

_BOX_CELLS = 8  # the four vertices; or two that face each other, in the cells of the first and the third
_TWO_VERTICES = (0, 1, 4, 5)
_NO_FEATURES: Mapping[str, FeatureValue] = {}


class Row(NamedTuple):  # a third of the time of a frozen dataclass, a million times
    """One row, read but not looked up.

    Attributes:
        image: path or URI as the table has it, or what else is in its cell; None for features alone.
        labels: as the table has them.
        split: the source's own.
        features: every further column.
        objects: with their boxes.
        size: (height, width) of the image, as the table declares it.
        relative: boxes are shares of width and height.
        fault: why the image that the row is about cannot be in the dataset.
        lists: values a step, of a sequence.
    """

    image: Any
    labels: Labels = ()
    split: str | None = None
    features: Mapping[str, FeatureValue] = {}
    objects: tuple[AnnotatedObject, ...] = ()
    size: tuple[int, int] | None = None
    relative: bool = False
    fault: BadInput | None = None
    lists: Mapping[str, tuple[FeatureValue, ...]] | None = None


class RowMapper:
    """Maps the rows of one table.

    Args:
        columns: of the table.
        kind: how values are read.
        columns_of: the columns of one row, where rows differ.
    """

    def __init__(
        self,
        columns: Columns,
        kind: ValueKind,
        columns_of: Callable[[Mapping[str, Any]], Columns] | None = None,
    ) -> None:
        self._columns = columns
        self._kind = kind
        self._columns_of = columns_of

    def row(self, values: dict[str, Any]) -> Row:
        """The row with these values, which are used up.

        Raises:
            BadInput: the row cannot be used.
        """
        table, kind = self._columns, self._kind
        if table.is_vertex and VERTEX_IMAGE in values:
            return self._vertex_row(values)
        columns = table if self._columns_of is None else self._columns_of(values)
        image = None
        if table.image is not None:
            image = None if columns.image is None else take(values, columns.image)
            if not isinstance(image, str):
                name = columns.image or table.image
                raise BadInput("manifest", "no image path", f"{name} is {shown(image)}")
        split = None if columns.split is None else split_in(take(values, columns.split), columns.split)
        objects: tuple[AnnotatedObject, ...] = ()
        size = None
        try:
            if table.objects is not None:
                objects = self._structs(values.pop(table.objects), table.objects)
            elif not kind.is_text and table.image is not None and (found := list_of_boxes(values)):
                objects, size = self._listed(values, columns, *found)
            elif table.box and (kind.is_text or any(name in values for name in table.box)):
                return self._box_row(image, split, values, columns)
        except BadInput as fault:
            return Row(image, split=split, fault=fault)
        labels: Labels = ()
        for name in columns.labels:
            labels += kind.labels(take(values, name), name)
        return Row(image, labels, split, kind.features(values), objects, size, table.relative_lists)

    def _box_row(self, image: Any, split: str | None, values: dict[str, Any], columns: Columns) -> Row:
        """A row that is a box: other columns are attributes of the object.

        Where the box is empty, the row is an image without one, and a label is the image's.
        """
        name = columns.labels[0] if columns.labels else columns.box_label
        label = None if name is None else take(values, name)
        size = None if columns.size is None else size_of(*(take(values, one) for one in columns.size))
        box = columns.box_of([take(values, one) for one in columns.box])
        if box is None:
            labels: Labels = ()
            if not is_empty(label):
                labels = self._kind.labels(label, "") if self._kind.is_text else (box_label(label, name),)
            return Row(image, labels, split, size=size)
        check_unit(box, columns.relative)
        attributes = self._kind.attributes(values)
        item = AnnotatedObject(box_label(label, name), box, attributes=attributes)
        return Row(image, (), split, {}, (item,), size, columns.relative)

    def _listed(
        self, values: dict[str, Any], columns: Columns, name: str, boxes: list[Any]
    ) -> tuple[tuple[AnnotatedObject, ...], tuple[int, int] | None]:
        """Takes a list of boxes out of a row, and what goes with each; and the size."""
        sides = name == OBJECTS
        if sides:
            inner = values[OBJECTS]
            label = usual_name(("categories", *LABEL_COLUMNS), inner)
            del inner[LIST_COLUMN]
        else:
            inner = {}
            label = next(iter(columns.labels), None) or usual_name(LABEL_COLUMNS, values)
            del values[name]
        labels = None if label is None else take(inner if sides else values, label)
        size = size_of(values.pop("height", None), values.pop("width", None))
        if labels is not None and not (isinstance(labels, list) and len(labels) == len(boxes)):
            count = len(labels) if isinstance(labels, list) else shown(labels)
            raise BadInput("annotations", "boxes and labels differ in number", f"{len(boxes)} and {count}")
        others = [key for key, one in inner.items() if isinstance(one, list) and len(one) == len(boxes)]
        lists = {key: inner.pop(key) for key in others}
        objects = []
        for at, corners in enumerate(boxes):
            box = box_in(corners, sides)
            check_unit(box, columns.relative_lists)
            named = box_label(None, None) if labels is None else box_label(labels[at], label)
            attributes = self._kind.attributes({key: one[at] for key, one in lists.items()})
            objects.append(AnnotatedObject(named, box, attributes=attributes))
        return tuple(objects), size

    def _structs(self, parts: Any, column: str) -> tuple[AnnotatedObject, ...]:
        """The objects of a cell of Parquet: a list of structs, or a struct of lists."""
        box, label = self._columns.object_names
        if isinstance(parts, dict):
            lists = {name: values for name, values in parts.items() if values is not None}
            if not all(isinstance(values, list) for values in lists.values()):
                raise BadInput("annotations", "objects are not lists of values", column)
            if len(set(map(len, lists.values()))) > 1:
                raise BadInput("annotations", "lists of objects differ in length", column)
            steps = zip(*lists.values(), strict=True) if box in lists else ()
            parts = [dict(zip(lists, values, strict=True)) for values in steps]
        objects = []
        for part in parts or ():
            if not isinstance(part, dict):
                raise BadInput("annotations", "object is not a struct", repr(part)[:100])
            found = box_in(part.pop(box, None), sides=True)
            value = None if label is None else part.pop(label, None)
            labels = self._kind.labels(value, column)
            if len(labels) != 1:
                raise BadInput("annotations", "object without a class", f"{label or 'no column'}: {value!r}")
            objects.append(AnnotatedObject(labels[0], found, attributes=self._kind.attributes(part)))
        return tuple(objects)

    def _vertex_row(self, values: dict[str, Any]) -> Row:
        """A row of Vertex AI's files: https://cloud.google.com/vertex-ai/docs/image-data."""
        other = next((task for task in VERTEX_TASKS if task in values), None)
        if other is not None:
            raise BadInput("manifest", "annotation not supported", other)
        image = values.pop(VERTEX_IMAGE)
        if not isinstance(image, str):
            raise BadInput("manifest", "no image path", f"{VERTEX_IMAGE} is {shown(image)}")
        several = values.pop("classificationAnnotations", None) or []
        one = values.pop("classificationAnnotation", None)
        parts = (several if isinstance(several, list) else [several]) + ([] if one is None else [one])
        names = [part.get("displayName") if isinstance(part, dict) else part for part in parts]
        labels = tuple(label for name in names for label in labels_in(name))
        split = split_in(take(values, f"{VERTEX_LABELS}/{VERTEX_ML_USE}"), "ml_use")
        try:
            objects = self._vertex_objects(values.pop(VERTEX_BOXES, None) or [])
        except BadInput as fault:
            if not self._kind.is_text:
                raise
            return Row(image, split=split, fault=fault)
        return Row(image, labels, split, self._kind.features(values), objects, relative=True)

    def _vertex_objects(self, parts: Any) -> tuple[AnnotatedObject, ...]:
        if not isinstance(parts, list):
            raise BadInput("annotations", "boxes are not a list", f"{VERTEX_BOXES} is {shown(parts)}")
        objects = []
        for part in parts:
            if not isinstance(part, dict):
                raise BadInput("annotations", "box is not four numbers", shown(part))
            if self._kind.is_text:
                box, column = _box_of_vertices(part.pop(VERTICES)), "the cell after the path"
            else:
                corners = [part.pop(name, None) for name in ("xMin", "yMin", "xMax", "yMax")]
                box, column = box_in(corners, sides=False), "displayName"
            check_unit(box, relative=True)
            label = box_label(part.pop("displayName", None), column)
            objects.append(AnnotatedObject(label, box, attributes=self._kind.attributes(part)))
        return tuple(objects)


def _box_of_vertices(cells: Sequence[str]) -> Box:
    """The box of two opposite vertices, `xmin,ymin,,,xmax,ymax,,`, or of all four."""
    if any(cell.strip() for cell in cells[_BOX_CELLS:]):
        raise BadInput("annotations", "wrong number of cells", f"{len(cells) + 2} from the path on")
    cells = cells[:_BOX_CELLS]
    filled = tuple(at for at, cell in enumerate(cells) if cell.strip())
    if filled == _TWO_VERTICES:
        return box_in([cells[at] for at in filled], sides=False)
    if len(filled) != _BOX_CELLS:
        raise BadInput("annotations", "box is not two or four vertices", ",".join(cells)[:100])
    halves = [box_in(list(cells[at : at + 4]), sides=False) for at in (0, 4)]
    xs, ys = zip(*(vertex for half in halves for vertex in (half[:2], half[2:])), strict=True)
    return Box(min(xs), min(ys), max(xs), max(ys))


def is_vertex_box(cells: Sequence[str]) -> bool:
    """Whether cells after path and label are a box of Vertex AI's CSV file."""
    try:
        return len(cells) >= _BOX_CELLS and bool(_box_of_vertices(cells))
    except BadInput:
        return False


class RowRecords:
    """Makes the rows of one manifest into records: finds images, reads labels from keys, selects.

    Args:
        config: of the source.
        manifest: that the rows are from.
        split: of the rows that name none.
        by_folder: a row without a split has that of a folder in the path of its image.
    """

    def __init__(
        self, config: SourceConfig, manifest: Manifest, split: str | None = None, by_folder: bool = False
    ) -> None:
        self.manifest = manifest
        self.images = ImageFinder(config, manifest)
        self._split = split
        self._by_folder = by_folder
        self._selection = Selection(config)

    def record(self, row: Row, line: int) -> ImageRecord | Failure:
        """The record of a row that starts at `line`, or why there is none."""
        origin = self.manifest.origin(line)
        try:
            found = None if row.image is None else self.images.find(row.image)
            key = self.manifest.row_key(line) if found is None else found.key
            if not self._selection.takes(key):
                return Failure(key, "list", EXCLUDED, origin, skipped=True)
            if row.fault is not None:
                raise row.fault
            annotations = Annotations(
                self._selection.labels(key, row.labels),
                row.features,
                row.objects,
                size=row.size,
                relative=row.relative and bool(row.objects),
            )
        except BadInput as fault:
            return self.failure(line, fault)
        split = self.split_of(row, key)
        if found is None:
            return ImageRecord(key, None, split, annotations, origin)
        image = ImageRef(found.path, version=found.version)
        return ImageRecord(key, image, split, annotations, origin, found.size)

    def split_of(self, row: Row, key: str) -> str | None:
        """The split of a row with the key of its record."""
        split = row.split or self._split
        return split_of_folders(key) if split is None and self._by_folder and row.image is not None else split

    def failure(self, line: int, fault: BadInput) -> Failure:
        """The failed record of a row that starts at `line`."""
        key = self.manifest.row_key(line)
        return Failure(key, fault.stage, fault.reason, printable(fault.detail))


class BoxRows:
    """Collects the rows of all manifests of a call by their image.

    Holds a few hundred bytes an image, and its boxes as text.
    """

    def __init__(self) -> None:
        self._images: dict[str, _Image] = {}  # by path
        self._columns: dict[tuple[str, ...], int] = {}  # names of attributes that objects have together
        self._rows: RowRecords | None = None
        self._last: tuple[str, _Image] | None = None
        self._left_out: set[str] = set()

    def add(self, rows: RowRecords, row: Row, line: int) -> Failure | None:
        """Adds a row that starts at `line`; returns why its image is left out, at the first of its rows."""
        if rows is not self._rows:
            self._rows, self._last = rows, None
            self._left_out.clear()
        name = row.image or ""
        if name in self._left_out:
            return None
        if self._last is not None and self._last[0] == name:
            image = self._last[1]
        else:
            found = rows.record(row._replace(objects=(), size=None, fault=None), line)
            if isinstance(found, Failure):
                if name.strip():
                    self._left_out.add(name)
                return found
            path = found.key if found.image is None else found.image.uri
            image = self._images.get(path) or self._images.setdefault(path, _Image(found))
            self._last = name, image
        try:
            image.merge(row, rows.split_of(row, image.record.key))
        except BadInput as fault:
            origin = rows.manifest.origin(line)
            fault.detail = f"{origin}: {fault.detail}" if fault.detail else origin
            image.fault = image.fault or failed(image.record.key, fault)
            return None
        for item in row.objects:
            columns = self._columns.setdefault(tuple(item.attributes), len(self._columns))
            values = (item.label, columns, *(item.box or ()), *item.attributes.values())
            image.boxes += json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode() + b","
        return None

    def records(self) -> Iterator[ImageRecord | Failure]:
        """A record for each image, or why there is none, in the order of their first rows; frees them."""
        images = list(reversed(self._images.values()))
        self._images.clear()
        self._last = None
        columns = list(self._columns)
        while images:
            yield images.pop().made(columns)


class _Image:
    """What the rows of one image have so far: its record of the first row, and what others add."""

    __slots__ = ("boxes", "fault", "features", "labels", "record", "relative", "size")

    def __init__(self, record: ImageRecord) -> None:
        if not record.annotations.features:
            annotations = msgspec.structs.replace(record.annotations, features=_NO_FEATURES)
            record = msgspec.structs.replace(record, annotations=annotations)
        self.record = record
        self.size: tuple[int, int] | None = None
        self.relative: bool | None = None
        self.boxes = bytearray()
        self.labels: dict[str | int, None] | None = None  # with those of the record
        self.features: dict[str, FeatureValue] | None = None  # likewise
        self.fault: Failure | None = None

    def merge(self, row: Row, split: str | None) -> None:
        """Adds what a row has of the image itself.

        Raises:
            BadInput: stage `annotations`: the row has a fault of its own, or contradicts an earlier one.
        """
        if row.fault is not None:
            raise row.fault
        if split != self.record.split:
            raise self._conflict("image is in two splits", split, self.record.split)
        if row.size is not None:
            if self.size not in (None, row.size):
                raise self._conflict("image has two sizes", row.size, self.size)
            self.size = row.size
        if row.objects:
            if self.relative not in (None, row.relative):
                units = ("shares", "pixels") if row.relative else ("pixels", "shares")
                raise self._conflict("boxes are in two units", *units)
            self.relative = row.relative
        first = self.record.annotations
        features = first.features if self.features is None else self.features
        for name, value in row.features.items():
            if features.get(name, value) != value:
                conflict = "image has two values of one feature"
                raise self._conflict(conflict, f"{name} {value!r}", repr(features[name]))
        if row.features.keys() - features.keys():
            self.features = {**features, **row.features}
        if row.labels and row.labels != first.labels:
            self.labels = dict.fromkeys(first.labels) if self.labels is None else self.labels
            self.labels.update(dict.fromkeys(row.labels))

    def _conflict(self, reason: str, value: object, earlier: object) -> BadInput:
        detail = f"{value}, and {earlier} before it, from {self.record.origin} on"
        return BadInput("annotations", reason, detail)

    def made(self, columns: list[tuple[str, ...]]) -> ImageRecord | Failure:
        """The record of the image, or why there is none."""
        if self.fault is not None:
            return self.fault
        first = self.record.annotations
        more = itertools.islice(self.labels or (), len(set(first.labels)), None)
        annotations = msgspec.structs.replace(
            first,
            labels=(*first.labels, *more),
            features=first.features if self.features is None else self.features,
            objects=tuple(_object(columns, *values) for values in json.loads(b"[%s]" % self.boxes[:-1])),
            size=self.size,
            relative=bool(self.relative),
        )
        return msgspec.structs.replace(self.record, annotations=annotations)


def _object(columns: list[tuple[str, ...]], label: str | int, at: int, *values: Scalar) -> AnnotatedObject:
    box = Box(*map(float, values[:4]))
    return AnnotatedObject(label, box, attributes=dict(zip(columns[at], values[4:], strict=True)))
