"""Maps rows, dicts by column, to records: the same for CSV, JSON Lines and Parquet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Box,
    Failure,
    FeatureValue,
    ImageRecord,
    ImageRef,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import printable, split_of_folders
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
    box_of,
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
        table = self._columns
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
        try:
            if table.box and any(name in values for name in table.box) and not self._has_list(values):
                return self._box_row(image, split, values, columns)
            objects, size = self._listed(values, columns)
        except BadInput as fault:
            return Row(image, split=split, fault=fault)
        labels = tuple(
            label for name in columns.labels for label in self._kind.labels(take(values, name), name)
        )
        features = self._kind.features(values)
        return Row(image, labels, split, features, objects, size, table.relative_lists)

    def _has_list(self, values: Mapping[str, Any]) -> bool:
        return not self._kind.is_text and list_of_boxes(values) is not None

    def _box_row(self, image: Any, split: str | None, values: dict[str, Any], columns: Columns) -> Row:
        """A row that is a box: other columns are attributes of the object.

        Where the box is empty, the row is an image without one, and a label is the image's.
        """
        name = columns.labels[0] if columns.labels else columns.box_label
        label = None if name is None else take(values, name)
        size = None if columns.size is None else size_of(*(take(values, one) for one in columns.size))
        box = box_of(columns.box_values({one: take(values, one) for one in columns.box}), columns.sides)
        if box is None:
            if is_empty(label):
                labels: Labels = ()
            else:
                labels = self._kind.labels(label, "") if self._kind.is_text else (box_label(label, name),)
            return Row(image, labels, split, size=size)
        check_unit(box, columns.relative)
        attributes = self._kind.attributes(values)
        item = AnnotatedObject(box_label(label, name), box, attributes=attributes)
        return Row(image, (), split, {}, (item,), size, columns.relative)

    def _listed(
        self, values: dict[str, Any], columns: Columns
    ) -> tuple[tuple[AnnotatedObject, ...], tuple[int, int] | None]:
        """Takes the list of boxes out of a row, if it has one, and what goes with each; and the size."""
        if self._columns.objects is not None:
            return self._structs(values.pop(self._columns.objects)), None
        if self._kind.is_text or columns.image is None or (found := list_of_boxes(values)) is None:
            return (), None
        name, boxes = found
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

    def _structs(self, parts: Any) -> tuple[AnnotatedObject, ...]:
        """The objects of a cell of Parquet: a list of structs, or a struct of lists."""
        column, (box, label) = str(self._columns.objects), self._columns.object_names
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
        """A row of Vertex AI's import files.

        https://cloud.google.com/vertex-ai/docs/image-data/classification/prepare-data
        https://cloud.google.com/vertex-ai/docs/image-data/object-detection/prepare-data
        """
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
        split_value = take(values, f"{VERTEX_LABELS}/{VERTEX_ML_USE}")
        split = split_in(split_value, "ml_use")
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
