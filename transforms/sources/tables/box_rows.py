"""Rows of boxes as one record an image, wherever in the manifests the rows of an image stand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping

import msgspec

from recordmill.transforms.records import (
    AnnotatedObject,
    BadInput,
    Box,
    Failure,
    FeatureValue,
    ImageRecord,
    Scalar,
)
from recordmill.transforms.sources.names import failed
from recordmill.transforms.sources.tables.rows import Row, RowRecords

_NO_FEATURES: Mapping[str, FeatureValue] = {}


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
