"""Makes the rows of manifests into records.

Rows of boxes become one record an image, wherever in the manifests they stand.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence

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
from recordmill.transforms.sources.tables.images import ImageFinder
from recordmill.transforms.sources.tables.manifests import PEEKED, Manifest, flag_of
from recordmill.transforms.sources.tables.rows import Row, Rows
from recordmill.transforms.sources.tables.text_rows import Values

_NO_FEATURES: Mapping[str, FeatureValue] = {}


class Table(Rows):
    """One manifest. Raises ValueError, as all its methods, where its first rows cannot be used."""

    def __init__(self, manifest: Manifest, config: SourceConfig) -> None:
        self.manifest = manifest
        self.config = config
        self.where = f"{flag_of(config)} is {manifest.path!r}"
        self.images = ImageFinder(config, manifest)
        self.split: str | None = None  # of the rows that name none
        self._selection = Selection(config)

    @abc.abstractmethod
    def read(self) -> Iterator[tuple[int, Values | BadInput]]:
        """The rows: the line each starts at, and its values by column or what is wrong with it."""

    @property
    @abc.abstractmethod
    def peeked(self) -> Sequence[Values]:
        """Values of the first rows by column, without nested ones."""

    @abc.abstractmethod
    def check(self) -> None:
        """Looks for rows that can be read."""

    def find_folder(self) -> str | None:
        """Finds the folder of the images by the first rows, as `ImageFinder.find_folder`."""
        name = self.columns.image
        images = () if name is None else (row.get(name) for row in self.peeked)
        return self.images.find_folder([one for one in images if isinstance(one, str) and one.strip()])

    def may_name_splits(self) -> bool:
        """Whether a row may name a split: ruled out only where the first rows are all, and none does."""
        for number, (_, values) in enumerate(self.read()):
            if number == PEEKED:
                return True
            with contextlib.suppress(BadInput):
                if not isinstance(values, BadInput) and self.row(values).split:
                    return True
        return False

    def record(self, row: Row, line: int) -> ImageRecord | Failure:
        """The record of a row that starts at `line`, or that it is excluded. Raises BadInput."""
        origin = self.manifest.origin(line)
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
        split = self.split_of(row, key)
        if found is None:
            return ImageRecord(key, None, split, annotations, origin)
        image = ImageRef(found.path, version=found.version)
        return ImageRecord(key, image, split, annotations, origin, found.size)

    def split_of(self, row: Row, key: str) -> str | None:
        """The split of a row with the key of its record: its own, the file's, or an image folder's."""
        split = row.split or self.split
        by_folder = split is None and row.image is not None and self.columns.split is None
        return split_of_folders(key) if by_folder else split

    def failure(self, line: int, fault: BadInput) -> Failure:
        """The failed record of a row that starts at `line`."""
        return Failure(self.manifest.row_key(line), fault.stage, fault.reason, printable(fault.detail))


class BoxRows:
    """Collects the rows of all manifests of a call by their image.

    Holds a few hundred bytes an image, and its boxes as text.
    """

    def __init__(self) -> None:
        self._images: dict[str, _Image] = {}  # by path
        self._columns: dict[tuple[str, ...], int] = {}  # names of attributes that objects have together
        self._table: Table | None = None
        self._last: tuple[str, _Image] | None = None
        self._left_out: set[str] = set()

    def add(self, table: Table, row: Row, line: int) -> Failure | None:
        """Adds a row that starts at `line`. Says why its image is left out, at the first of its rows.

        Raises:
            BadInput: of the row, which has no image then.
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
            bare = row._replace(features=row.features or _NO_FEATURES, objects=(), size=None, fault=None)
            found = table.record(bare, line)
            if isinstance(found, Failure):
                return found
            self._left_out.discard(name)
            path = found.key if found.image is None else found.image.uri
            image = self._images.get(path) or self._images.setdefault(path, _Image(found))
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
