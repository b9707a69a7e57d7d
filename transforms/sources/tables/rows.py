"""Maps the rows of CSV and JSON Lines, dicts by column, to records.

Rows of boxes become one record for each image, in any order of rows.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

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
from recordmill.transforms.sources.names import failed, split_of_folders
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
from recordmill.transforms.sources.tables.manifests import PEEKED, ImageFinder, Manifest, flag_of
from recordmill.transforms.sources.tables.text_rows import Values
from recordmill.transforms.sources.tables.values import (
    Labels,
    box_in,
    box_label,
    check_unit,
    flat,
    is_empty,
    labels_in,
    labels_of_text,
    renamed,
    scalars,
    shown,
    size_of,
    split_in,
    take,
)

VERTEX_TASKS = ("segmentationAnnotation", "polygonAnnotations", "polylineAnnotations")
"""Names in rows of Vertex AI's files for tasks that are not supported."""

VERTEX_ML_USE = "dataItemResourceLabels/aiplatform.googleapis.com/ml_use"
VERTICES = "vertices"
"""The name of the cells after the label in a row of Vertex AI's CSV file."""

_NO_FEATURES: Mapping[str, FeatureValue] = {}
_BOX_CELLS = 8  # four vertices; or two opposite ones, in the cells of the first and the third
_TWO_VERTICES = (0, 1, 4, 5)


class Row(msgspec.Struct, frozen=True):
    """One row, before its image is looked up."""

    image: Any  # path or URI, or another value of its cell; None for features alone
    labels: Labels = ()
    split: str | None = None
    features: Mapping[str, FeatureValue] = {}  # every further column
    objects: tuple[AnnotatedObject, ...] = ()  # with their boxes
    size: tuple[int, int] | None = None  # height and width of the image in the table
    relative: bool = False  # boxes are normalised
    fault: BadInput | None = None  # why the image of the row cannot be in the dataset
    lists: Mapping[str, tuple[FeatureValue, ...]] | None = None  # of a sequence: a value for each step


class Table(abc.ABC):
    """One manifest. Like its methods, raises ValueError if the first rows cannot be used."""

    is_text = False  # values have no types

    def __init__(self, manifest: Manifest, config: SourceConfig) -> None:
        self.manifest = manifest
        self.config = config
        self.where = f"{flag_of(config)} is {manifest.path!r}"
        self.split: str | None = None  # of the rows that name none
        self._selection = Selection(config)

    @functools.cached_property
    def images(self) -> ImageFinder:
        return ImageFinder(self.config, self.manifest)

    @property
    @abc.abstractmethod
    def columns(self) -> Columns:
        """The meaning of the columns."""

    @abc.abstractmethod
    def values(self) -> Iterator[tuple[int, Values | BadInput]]:
        """The line at which each row starts, and its values by column or why it cannot be read."""

    @property
    @abc.abstractmethod
    def peeked(self) -> Sequence[Values]:
        """Values of the first rows by column, without nested ones."""

    @abc.abstractmethod
    def check(self) -> None:
        """Raises ValueError if no row can be read."""

    def columns_of(self, values: Values) -> Columns:
        """The columns of one row, where rows differ. Raises BadInput."""
        return self.columns

    def find_folder(self) -> str | None:
        """Finds the folder of the images by the first rows, as `ImageFinder.find_folder`."""
        name = self.columns.image
        images = () if name is None else (row.get(name) for row in self.peeked)
        return self.images.find_folder([one for one in images if isinstance(one, str) and one.strip()])

    def may_name_splits(self) -> bool:
        """Whether a row may name a split: False only if the first rows are all rows, and none does."""
        for number, (_, values) in enumerate(self.values()):
            if number == PEEKED:
                return True
            with contextlib.suppress(BadInput):
                if not isinstance(values, BadInput) and self.row(values).split:
                    return True
        return False

    def record(self, row: Row, line: int) -> ImageRecord | Failure:
        """The record of a row that starts at `line`, or a failure if excluded. Raises BadInput."""
        origin = self.manifest.origin(line)
        found = None if row.image is None else self.images.find(row.image)
        key = self.manifest.row_key(line) if found is None else found.key
        if not self._selection.takes(key):
            return Failure(key, "list", EXCLUDED, origin, skipped=True)
        if row.fault is not None:
            raise row.fault
        labels = self._selection.labels(key, row.labels)
        relative = row.relative and bool(row.objects)
        annotations = Annotations(labels, row.features, row.objects, size=row.size, relative=relative)
        split = self.split_of(row, key)
        if found is None:
            return ImageRecord(key, None, split, annotations, origin)
        image = ImageRef(found.path, version=found.version)
        return ImageRecord(key, image, split, annotations, origin, found.size)

    def split_of(self, row: Row, key: str) -> str | None:
        """The split of a row with the record's key: the row's, the file's, or that of an image folder."""
        split = row.split or self.split
        by_folder = split is None and row.image is not None and self.columns.split is None
        return split_of_folders(key) if by_folder else split

    def row(self, values: Values) -> Row:
        """The row with these values, which are consumed. Raises BadInput if it cannot be used."""
        table = self.columns
        if table.is_vertex and VERTEX_IMAGE in values:
            return self._vertex_row(values)
        columns = self.columns_of(values)
        image = None if columns.image is None else take(values, columns.image)
        if table.image is not None and not isinstance(image, str):
            if not self.is_text:
                raise _no_path(columns.image or table.image, image)
            image = ""
        split = None if columns.split is None else split_in(take(values, columns.split), columns.split)
        objects: tuple[AnnotatedObject, ...] = ()
        size = None
        try:
            if not self.is_text and table.image is not None and (found := list_of_boxes(values)):
                objects, size = self._listed(values, columns, *found)
            elif table.box and (self.is_text or any(name in values for name in table.box)):
                return self._box_row(image, split, values, columns)
        except BadInput as fault:
            return Row(image, split=split, fault=fault)
        labels: Labels = ()
        for name in columns.labels:
            labels += self._labels(take(values, name))
        return Row(image, labels, split, self._features(values), objects, size, table.relative_lists)

    def _labels(self, value: Any) -> Labels:
        return labels_of_text(value or "") if self.is_text else labels_in(value)

    def _features(self, values: Values) -> Mapping[str, FeatureValue]:
        return values if self.is_text else flat(values)

    def _object(self, label: str | int, box: Box, values: Values) -> AnnotatedObject:
        return AnnotatedObject(label, box, attributes=renamed(values) if self.is_text else scalars(values))

    def _box_row(self, image: Any, split: str | None, values: Values, columns: Columns) -> Row:
        """A row that is a box: other columns are attributes of the object.

        If the box is empty, the row is an image without boxes, and the label is the image's.
        """
        name = columns.labels[0] if columns.labels else columns.box_label
        label = None if name is None else take(values, name)
        size = None if columns.size is None else size_of(*(take(values, one) for one in columns.size))
        box = columns.box_of([take(values, one) for one in columns.box])
        if box is not None:
            check_unit(box, columns.relative)
            item = self._object(box_label(label, name), box, values)
            return Row(image, split=split, objects=(item,), size=size, relative=columns.relative)
        labels: Labels = ()
        if not is_empty(label):
            labels = self._labels(label) if self.is_text else (box_label(label, name),)
        return Row(image, labels, split, size=size)

    def _listed(
        self, values: Values, columns: Columns, name: str, boxes: list[Any]
    ) -> tuple[tuple[AnnotatedObject, ...], tuple[int, int] | None]:
        """Takes a list of boxes out of a row, with their labels and attributes, and the image's size."""
        sides = name == OBJECTS
        holder = values[OBJECTS] if sides else values
        del holder[LIST_COLUMN if sides else name]
        asked, usual = ((), ("categories", *LABEL_COLUMNS)) if sides else (columns.labels, LABEL_COLUMNS)
        label = asked[0] if asked else usual_name(usual, holder)
        labels = None if label is None else take(holder, label)
        size = size_of(values.pop("height", None), values.pop("width", None))
        if labels is not None and not (isinstance(labels, list) and len(labels) == len(boxes)):
            count = len(labels) if isinstance(labels, list) else shown(labels)
            raise BadInput("annotations", "boxes and labels differ in number", f"{len(boxes)} and {count}")
        parts = holder.items() if sides else ()
        others = [key for key, one in parts if isinstance(one, list) and len(one) == len(boxes)]
        lists = {key: holder.pop(key) for key in others}
        objects = []
        for at, corners in enumerate(boxes):
            box = box_in(corners, sides)
            check_unit(box, columns.relative_lists)
            named = box_label(None, None) if labels is None else box_label(labels[at], label)
            objects.append(self._object(named, box, {key: one[at] for key, one in lists.items()}))
        return tuple(objects), size

    def _vertex_row(self, values: Values) -> Row:
        """A row of Vertex AI's files: https://cloud.google.com/vertex-ai/docs/image-data."""
        other = next((task for task in VERTEX_TASKS if task in values), None)
        if other is not None:
            raise BadInput("manifest", "annotation not supported", other)
        image = values.pop(VERTEX_IMAGE)
        if not isinstance(image, str):
            raise _no_path(VERTEX_IMAGE, image)
        several = values.pop("classificationAnnotations", None) or []
        one = values.pop("classificationAnnotation", None)
        parts = (several if isinstance(several, list) else [several]) + ([] if one is None else [one])
        names = [part.get("displayName") if isinstance(part, dict) else part for part in parts]
        labels = tuple(label for name in names for label in labels_in(name))
        split = split_in(take(values, VERTEX_ML_USE), "ml_use")
        try:
            objects = self._vertex_objects(values.pop(VERTEX_BOXES, None) or [])
        except BadInput as fault:
            if not self.is_text:
                raise
            return Row(image, split=split, fault=fault)
        return Row(image, labels, split, self._features(values), objects, relative=True)

    def _vertex_objects(self, parts: Any) -> tuple[AnnotatedObject, ...]:
        if not isinstance(parts, list):
            raise BadInput("annotations", "boxes are not a list", f"{VERTEX_BOXES} is {shown(parts)}")
        objects = []
        for part in parts:
            if not isinstance(part, dict):
                raise BadInput("annotations", "box is not four numbers", shown(part))
            if self.is_text:
                box, column = _box_of_vertices(part.pop(VERTICES)), "the cell after the path"
            else:
                corners = [part.pop(name, None) for name in ("xMin", "yMin", "xMax", "yMax")]
                box, column = box_in(corners, sides=False), "displayName"
            check_unit(box, relative=True)
            label = box_label(part.pop("displayName", None), column)
            objects.append(self._object(label, box, part))
        return tuple(objects)


def _no_path(column: str, value: object) -> BadInput:
    return BadInput("manifest", "no image path", f"{column} is {shown(value)}")


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
    """Whether the cells after path and label are a box of Vertex AI's CSV file."""
    with contextlib.suppress(BadInput):
        return len(cells) >= _BOX_CELLS and bool(_box_of_vertices(cells))
    return False


class BoxRows:
    """Collects the rows of all manifests by image, in a few hundred bytes and its boxes as JSON."""

    def __init__(self) -> None:
        self._images: dict[str, _Image] = {}  # by path
        self._columns: dict[tuple[str, ...], int] = {}  # names of attributes that objects have together
        self._table: Table | None = None
        self._last: tuple[str, _Image] | None = None
        self._left_out: set[str] = set()

    def add(self, table: Table, row: Row, line: int) -> Failure | None:
        """Adds a row that starts at `line`.

        For an image's first row only, returns a failure if it is excluded; raises BadInput if it is missing.
        """
        if table is not self._table:
            self._table, self._last = table, None
            self._left_out.clear()
        name = row.image or ""
        if name in self._left_out:
            return None
        if self._last is not None and self._last[0] == name:
            image = self._last[1]
        else:
            if name.strip():
                self._left_out.add(name)
            bare = replace(row, features=row.features or _NO_FEATURES, objects=(), size=None, fault=None)
            found = table.record(bare, line)
            if isinstance(found, Failure):
                return found
            self._left_out.discard(name)
            path = found.key if found.image is None else found.image.uri
            if path not in self._images:
                self._images[path] = _Image(found, found.annotations.features)
            image = self._images[path]
            self._last = name, image
        try:
            image.merge(row, table.split_of(row, image.record.key))
        except BadInput as fault:
            origin = table.manifest.origin(line)
            fault.detail = f"{origin}: {fault.detail}" if fault.detail else origin
            image.fault = image.fault or failed(image.record.key, fault)
            return None
        for item in row.objects:
            columns = self._columns.setdefault(tuple(item.attributes), len(self._columns))
            values = (item.label, columns, *(item.box or ()), *item.attributes.values())
            image.boxes += json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode() + b","
        return None

    def records(self) -> Iterator[ImageRecord | Failure]:
        """The record of each image, or its failure, in the order of their first rows; frees them."""
        images = list(reversed(self._images.values()))
        self._images.clear()
        self._last = None
        columns = list(self._columns)
        while images:
            yield images.pop().made(columns)


@dataclasses.dataclass(slots=True)
class _Image:
    """The rows of one image so far: the record of the first row, and additions from others."""

    record: ImageRecord
    features: Mapping[str, FeatureValue]
    size: tuple[int, int] | None = None
    relative: bool | None = None
    boxes: bytearray = dataclasses.field(default_factory=bytearray)  # JSON arrays, a comma after each
    labels: dict[str | int, None] | None = None  # of all rows; None if only of the first
    fault: Failure | None = None

    def merge(self, row: Row, split: str | None) -> None:
        """Adds the image's values in a row. Raises BadInput: the row's fault, or it contradicts others."""
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
        for name, value in row.features.items():
            if (earlier := self.features.get(name, value)) != value:
                reason = "image has two values of one feature"
                raise self._conflict(reason, f"{name} {value!r}", repr(earlier))
        if row.features.keys() - self.features.keys():
            self.features = {**self.features, **row.features}
        first = self.record.annotations.labels
        if row.labels and row.labels != first:
            self.labels = dict.fromkeys(first) if self.labels is None else self.labels
            self.labels.update(dict.fromkeys(row.labels))

    def _conflict(self, reason: str, value: object, earlier: object) -> BadInput:
        detail = f"{value}, and {earlier} before it, from {self.record.origin} on"
        return BadInput("annotations", reason, detail)

    def made(self, columns: list[tuple[str, ...]]) -> ImageRecord | Failure:
        """The record of the image, or its failure."""
        if self.fault is not None:
            return self.fault
        first = self.record.annotations
        more = itertools.islice(self.labels or (), len(set(first.labels)), None)
        annotations = replace(
            first,
            labels=(*first.labels, *more),
            features=self.features,
            objects=tuple(_object(columns, *values) for values in json.loads(b"[%s]" % self.boxes[:-1])),
            size=self.size,
            relative=bool(self.relative),
        )
        return replace(self.record, annotations=annotations)


def _object(columns: list[tuple[str, ...]], label: str | int, at: int, *values: Scalar) -> AnnotatedObject:
    box = Box(*map(float, values[:4]))
    return AnnotatedObject(label, box, attributes=dict(zip(columns[at], values[4:], strict=True)))
