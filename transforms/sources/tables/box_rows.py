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
from recordmill.transforms.sources.names import printable
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
        """Takes a row that starts at `line`; what is wrong with its image, told at the first of its rows."""
        if rows is not self._rows:
            self._rows, self._last = rows, None
            self._left_out.clear()
        name = row.image or ""
        if name in self._left_out:
            return None
        image = self._last[1] if self._last is not None and self._last[0] == name else None
        if image is None:
            found = rows.record(row._replace(objects=(), size=None, fault=None), line)
            if isinstance(found, Failure):
                if name.strip():
                    self._left_out.add(name)
                return found
            image = self._image_of(found)
            self._last = name, image
        try:
            image.merge(row, rows.split_of(row, image.record.key))
        except BadInput as fault:
            if image.fault is None:
                where = f"{rows.manifest.origin(line)}: {fault.detail}" if fault.detail else ""
                image.fault = fault.stage, fault.reason, where or rows.manifest.origin(line)
            return None
        for item in row.objects:
            image.boxes += self._text(item)
        return None

    def records(self) -> Iterator[ImageRecord | Failure]:
        """A record for each image, or why there is none, in the order of their first rows; frees them."""
        images = list(reversed(self._images.values()))
        self._images.clear()
        self._last = None
        columns = list(self._columns)
        while images:
            yield images.pop().made(columns)

    def _image_of(self, record: ImageRecord) -> _Image:
        path = record.key if record.image is None else record.image.uri
        image = self._images.get(path)
        if image is None:
            image = self._images[path] = _Image(record)
        return image

    def _text(self, item: AnnotatedObject) -> bytes:
        columns = self._columns.setdefault(tuple(item.attributes), len(self._columns))
        values = (item.label, columns, *(item.box or ()), *item.attributes.values())
        return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode() + b","


class _Image:
    """What the rows of one image have told so far: its record of the first row, and what others add."""

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
        self.fault: tuple[str, str, str] | None = None

    def merge(self, row: Row, split: str | None) -> None:
        """Takes what a row tells of the image itself.

        Raises:
            BadInput: stage `annotations`: the row has a fault of its own, or is at odds with an earlier one.
        """
        if row.fault is not None:
            raise row.fault
        if split != self.record.split:
            raise self._at_odds("image is in two splits", split, self.record.split)
        if row.size is not None:
            if self.size not in (None, row.size):
                raise self._at_odds("image has two sizes", row.size, self.size)
            self.size = row.size
        if row.objects:
            if self.relative not in (None, row.relative):
                raise self._at_odds("boxes are in two units", *_units(row.relative))
            self.relative = row.relative
        self._merge_annotations(row)

    def _merge_annotations(self, row: Row) -> None:
        known = self.record.annotations
        features = known.features if self.features is None else self.features
        for name, value in row.features.items():
            if features.get(name, value) != value:
                raise self._at_odds(
                    "image has two values of one feature", f"{name} {value!r}", repr(features[name])
                )
        if any(name not in features for name in row.features):
            self.features = dict(features) if self.features is None else self.features
            self.features.update(row.features)
        if row.labels and row.labels != known.labels:
            self.labels = dict.fromkeys(known.labels) if self.labels is None else self.labels
            self.labels.update(dict.fromkeys(row.labels))

    def _at_odds(self, reason: str, value: object, earlier: object) -> BadInput:
        return BadInput(
            "annotations", reason, f"{value}, and {earlier} before it, from {self.record.origin} on"
        )

    def made(self, columns: list[tuple[str, ...]]) -> ImageRecord | Failure:
        """The record of the image, or why there is none."""
        if self.fault is not None:
            stage, reason, detail = self.fault
            return Failure(self.record.key, stage, reason, printable(detail))
        objects = tuple(_object(columns, *values) for values in json.loads(b"[%s]" % self.boxes[:-1]))
        known = self.record.annotations
        more = itertools.islice(self.labels or (), len(set(known.labels)), None)
        annotations = msgspec.structs.replace(
            known,
            labels=(*known.labels, *more),
            features=known.features if self.features is None else self.features,
            objects=objects,
            size=self.size,
            relative=bool(self.relative),
        )
        return msgspec.structs.replace(self.record, annotations=annotations)


def _object(columns: list[tuple[str, ...]], label: str | int, at: int, *values: Scalar) -> AnnotatedObject:
    xmin, ymin, xmax, ymax = (float(value) for value in values[:4])
    attributes = dict(zip(columns[at], values[4:], strict=True))
    return AnnotatedObject(label, Box(xmin, ymin, xmax, ymax), attributes=attributes)


def _units(relative: bool) -> tuple[str, str]:
    return ("shares", "pixels") if relative else ("pixels", "shares")
