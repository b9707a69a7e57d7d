"""Counts what records contain: their keys with dtypes, shapes and values, their images and their classes."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from recordmill.transforms.examples.record_view import IMAGE_KEYS, LABEL_KEYS, NO_FEATURE, TEXT, RecordView
from recordmill.transforms.examples.wire import Feature
from recordmill.transforms.reading.shard import Record
from recordmill.transforms.reading.survey_record import (
    DTYPES,
    ImageFacts,
    Number,
    image_file,
    image_in,
    is_text,
    is_too_large,
    json_number,
    json_value,
    parsed,
    text_or_hex,
    under_our_names,
)

_OBJECT_LABEL, _OBJECT_TEXT = "image/object/class/label", "image/object/class/text"
CLASS_KEYS: dict[str, str] = {
    **dict.fromkeys(LABEL_KEYS, TEXT),
    TEXT: "",
    _OBJECT_LABEL: _OBJECT_TEXT,
    "image/object/bbox/label": "",
    _OBJECT_TEXT: "",
}
"""The features that contain classes, and the feature with the names of each; by our names."""

_IDS = {TEXT: LABEL_KEYS, _OBJECT_TEXT: (_OBJECT_LABEL,)}  # features with the ids of names
_MOST_KEYS = 2_000
_MOST_IMAGES = 64  # of one feature of one record
_MOST_CLASSES = 1 << 16
_LONGEST_NAME = 200
_MOST_DISTINCT = 24
_LONGEST_DISTINCT = 80  # bytes
_MOST_SIZES = 4096


class Range:
    """The least and the greatest of numbers; both None before there is any."""

    __slots__ = ("least", "most")

    def __init__(self) -> None:
        self.least: Number | None = None
        self.most: Number | None = None

    def add(self, least: Number, most: Number | None = None) -> None:
        """Adds a number, or numbers of which these are the least and the greatest."""
        most = least if most is None else most
        self.least = least if self.least is None else min(self.least, least)
        self.most = most if self.most is None else max(self.most, most)

    def as_json(self) -> dict[str, Number | str | None]:
        """For `--json`."""
        return {"min": json_number(self.least), "max": json_number(self.most)}


@dataclasses.dataclass(slots=True)
class Images:
    """The images of a feature.

    Attributes:
        sizes: number of images by (height, width), for the first `_MOST_SIZES` sizes.
        turned: images with an EXIF orientation.
        faults: number of images by fault.
    """

    count: int = 0
    formats: Counter[str] = dataclasses.field(default_factory=Counter)
    sizes: Counter[tuple[int, int]] = dataclasses.field(default_factory=Counter)
    channels: Counter[int] = dataclasses.field(default_factory=Counter)
    heights: Range = dataclasses.field(default_factory=Range)
    widths: Range = dataclasses.field(default_factory=Range)
    turned: int = 0
    faults: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, facts: ImageFacts) -> None:
        """Counts an image."""
        self.count += 1
        self.formats[facts.image_format] += 1
        self.turned += facts.orientation != 1
        if facts.fault:
            self.faults[facts.fault.partition(":")[0]] += 1
        if not facts.height:
            return
        self.channels[facts.channels] += 1
        size = (facts.height, facts.width)
        if size in self.sizes or len(self.sizes) < _MOST_SIZES:
            self.sizes[size] += 1
        self.heights.add(facts.height)
        self.widths.add(facts.width)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        found: dict[str, Any] = {
            "count": self.count,
            "formats": dict(self.formats.most_common()),
            "channels": {str(number): count for number, count in sorted(self.channels.items())},
            "turned_by_exif": self.turned,
            "faults": dict(self.faults.most_common()),
        }
        if self.heights.most is not None:
            found |= {"height": self.heights.as_json(), "width": self.widths.as_json()}
        found["sizes"] = [
            {"height": height, "width": width, "count": count}
            for (height, width), count in self.sizes.most_common(20)
        ]
        return found


@dataclasses.dataclass(slots=True)
class Values:
    """The values of a feature, or of the steps of a feature list.

    Attributes:
        steps: per record, for a feature list.
        kinds: number of records by dtype.
        lengths: values per record, or per step.
        numbers: finite ones.
        not_finite: how many are NaN or infinite.
        texts: whether all values are printable text.
        distinct: number of each value; None if there are many, or long ones.
    """

    records: int = 0
    steps: Range = dataclasses.field(default_factory=Range)
    kinds: Counter[str] = dataclasses.field(default_factory=Counter)
    lengths: Range = dataclasses.field(default_factory=Range)
    count: int = 0
    numbers: Range = dataclasses.field(default_factory=Range)
    not_finite: int = 0
    sizes: Range = dataclasses.field(default_factory=Range)
    texts: bool = True
    distinct: Counter[Number | bytes] | None = dataclasses.field(default_factory=Counter)
    images: Images = dataclasses.field(default_factory=Images)

    def add(self, record: bytes, feature: Feature) -> None:
        """Counts the values of a feature of a record."""
        count = len(feature)
        self.kinds[DTYPES[feature.kind]] += 1
        self.lengths.add(count)
        self.count += count
        lengths = [span.stop - span.start for span in feature.spans]
        if lengths:
            self.sizes.add(min(lengths), max(lengths))
            self.texts = self.texts and all(is_text(record, span) for span in feature.spans)
        finite = feature.numbers
        if feature.kind == "float":
            finite = tuple(number for number in finite if math.isfinite(number))
            self.not_finite += len(feature.numbers) - len(finite)
        if finite:
            self.numbers.add(min(finite), max(finite))
        if max(lengths, default=0) > _LONGEST_DISTINCT:
            self.distinct = None
        elif self.distinct is not None:
            self.distinct.update(feature.numbers or [record[start:stop] for start, stop in feature.spans])
            if len(self.distinct) > _MOST_DISTINCT:
                self.distinct = None

    def as_json(self, total: int) -> dict[str, Any]:
        """For `--json`; `total` is the number of records that were parsed."""
        found: dict[str, Any] = {
            "dtype": [dtype for dtype, _ in self.kinds.most_common()],
            "records": self.records,
            "share": round(self.records / total, 6) if total else 0,
            "length": self.lengths.as_json(),
            "values": self.count,
        }
        if self.steps.most is not None:
            found["steps"] = self.steps.as_json()
        if self.numbers.most is not None:
            found["range"] = self.numbers.as_json()
        if self.not_finite:
            found["not_finite"] = self.not_finite
        if self.sizes.most is not None:
            found |= {"bytes": self.sizes.as_json(), "text": self.texts}
        if self.images.count:
            found["images"] = self.images.as_json()
        elif self.distinct:
            rows = self.distinct_rows()
            found["distinct"] = [{"value": json_value(value), "count": count} for value, count in rows]
        return found

    def distinct_rows(self) -> list[tuple[Number | bytes, int]]:
        """The distinct values with their number, the most frequent first; none if there are many."""
        return sorted((self.distinct or {}).items(), key=lambda row: (-row[1], str(row[0])))


class ClassCount(NamedTuple):
    """A class.

    Attributes:
        label: its id, or its name if records have only names.
        name: of an id; empty if unknown.
    """

    label: int | str
    name: str
    times: int


class Classes:
    """Number of labels of each class in one feature."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = dict(names)
        self._counts: Counter[int | str] = Counter()

    def add(self, record: bytes, feature: Feature, texts: Feature | None) -> None:
        """Counts the labels of a record, and learns names from `texts`."""
        labels: list[int | str] = [number for number in feature.numbers if isinstance(number, int)]
        labels += [text_or_hex(record[span.start : span.stop]) for span in feature.spans]
        for label in labels:
            if label in self._counts or len(self._counts) < _MOST_CLASSES:
                self._counts[label] += 1
        if texts is None or len(texts.spans) != len(feature.numbers):
            return
        for number, span in zip(feature.numbers, texts.spans, strict=True):
            if number in self._counts and span.stop > span.start:
                self._names.setdefault(int(number), text_or_hex(record[span.start : span.stop]))

    def counts(self) -> list[ClassCount]:
        """The classes in the order of their ids, then of their names."""
        rows = sorted(self._counts.items(), key=lambda row: (isinstance(row[0], str), row[0]))
        return [
            ClassCount(label, self._names.get(label, "") if isinstance(label, int) else "", count)
            for label, count in rows
        ]

    def as_json(self) -> list[dict[str, Any]]:
        """For `--json`."""
        return [
            {"label": label, "count": times} | ({"name": name} if name else {})
            for label, name, times in self.counts()
        ]


class Survey:
    """Counts what records contain.

    Attributes:
        empty: Examples without a feature, which are among the examples.
        others: records that are neither.
        unread: records that are too large to be parsed.
        classes: by our name of the feature.
        misdeclared: images whose height or width differs from the features of their record.
        left_out: number of keys beyond the limit.
    """

    def __init__(self, renames: Mapping[str, str], names: Mapping[int, str]) -> None:
        self._renames = renames
        self._names = names
        self.records = self.examples = self.sequences = self.empty = self.others = self.unread = 0
        self.misdeclared = self.left_out = 0
        self.sizes = Range()
        self.features: dict[str, Values] = {}
        self.lists: dict[str, Values] = {}
        self.classes: dict[str, Classes] = {}

    @property
    def parsed(self) -> int:
        """Records whose features were counted."""
        return self.examples + self.sequences

    def add(self, read: Record) -> int:
        """Counts a record; returns the number of its values."""
        payload = read.payload
        self.records += 1
        self.sizes.add(read.size)
        if payload is None or is_too_large(payload):
            self.unread += 1
            return 0
        record = parsed(payload)
        if record is None:
            self.others += 1
            return 0
        self.sequences += bool(record.lists)
        self.examples += not record.lists
        self.empty += not payload
        self._add_features(record)
        self._add_lists(record)
        steps = itertools.chain.from_iterable(record.lists.values())
        return sum(map(len, itertools.chain(record.features.values(), steps)))

    def _add_features(self, record: RecordView) -> None:
        ours = under_our_names(record.record, record.features, self._renames)
        for name, feature in record.features.items():
            values = self._values(self.features, name)
            if values is not None:
                values.records += 1
                values.add(record.record, feature)
                self._add_images(values, name, feature, ours)
        self._add_classes(ours)

    def _add_lists(self, record: RecordView) -> None:
        for name, steps in record.lists.items():
            values = self._values(self.lists, name)
            if values is None:
                continue
            values.records += 1
            values.steps.add(len(steps))
            for number, step in enumerate(steps):
                values.add(record.record, step)
                if step.spans and number < _MOST_IMAGES:
                    features = {**record.features, name: step}
                    ours = under_our_names(record.record, features, self._renames)
                    self._add_images(values, name, step, ours)
                if self._renames.get(name, name) in CLASS_KEYS:
                    self._add_classes(under_our_names(record.record, {name: step}, self._renames))

    def _add_images(self, values: Values, name: str, feature: Feature, ours: RecordView) -> None:
        """Counts those values of a feature that are images."""
        our_name = self._renames.get(name, name)
        single = len(feature.spans) == 1
        for span in feature.spans[:_MOST_IMAGES]:
            facts = image_in(our_name, span, ours) if single else image_file(ours.record, span)
            if facts is None:
                continue
            values.images.add(facts)
            if single and our_name in IMAGE_KEYS and facts.height:
                shape = ours.shape()
                sides = ((shape.height, facts.height), (shape.width, facts.width))
                self.misdeclared += any(said is not None and said != real for said, real in sides)

    def _add_classes(self, ours: RecordView) -> None:
        for name, texts in CLASS_KEYS.items():
            if _is_class(name, ours.features):
                classes = self.classes.setdefault(name, Classes(self._names))
                classes.add(ours.record, ours.features[name], ours.features.get(texts))

    def _values(self, found: dict[str, Values], name: str) -> Values | None:
        """The counts of a key; None if there are too many keys."""
        if name not in found:
            if len(found) >= _MOST_KEYS:
                self.left_out += 1
                return None
            found[name] = Values()
        return found[name]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "kinds": {
                "examples": self.examples,
                "sequence_examples": self.sequences,
                "without_features": self.empty,
                "others": self.others,
                "not_looked_into": self.unread,
            },
            "record_bytes": self.sizes.as_json(),
            "features": {name: one.as_json(self.parsed) for name, one in sorted(self.features.items())},
            "feature_lists": {name: one.as_json(self.parsed) for name, one in sorted(self.lists.items())},
            "classes": {name: classes.as_json() for name, classes in self.classes.items()},
            "images_misdeclared": self.misdeclared,
        }


def _is_class(name: str, features: Mapping[str, Feature]) -> bool:
    """Whether a feature, by our name, has classes: names count only if there are no ids for them."""
    feature = features.get(name, NO_FEATURE)
    if not feature or feature.kind == "float":
        return False
    if any(span.stop - span.start > _LONGEST_NAME for span in feature.spans):
        return False
    return not any(features.get(key) for key in _IDS.get(name, ()))
