"""How often each class comes in records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from recordmill.transforms.examples.wire import Feature
from recordmill.transforms.reading.survey_values import shown_text
from recordmill.transforms.sources.tfrecord.records import LABEL_KEYS, TEXT

_OBJECT_TEXT = "image/object/class/text"
CLASS_KEYS: dict[str, str] = {
    **dict.fromkeys(LABEL_KEYS, TEXT),
    TEXT: "",
    "image/object/class/label": _OBJECT_TEXT,
    "image/object/bbox/label": "",
    _OBJECT_TEXT: "",
}
"""The features that have classes, and the one beside each that has their names; by our names."""

_BESIDE = {TEXT: LABEL_KEYS, _OBJECT_TEXT: ("image/object/class/label",)}
_MOST_CLASSES = 1 << 16
_LONGEST_NAME = 200


class ClassCount(NamedTuple):
    """A class.

    Attributes:
        label: its id, or its name where there are only names.
        name: of an id; empty where nothing tells it.
        times: that it comes.
    """

    label: int | str
    name: str
    times: int


class Classes:
    """How often each class comes in one feature.

    Attributes:
        left_out: values whose class was one too many to be counted.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = dict(names)
        self._counts: Counter[int | str] = Counter()
        self.left_out = 0

    def add(self, payload: bytes, feature: Feature, texts: Feature | None) -> None:
        """Takes in the labels of a record, and the names that it tells of them."""
        labels: list[int | str] = [number for number in feature.numbers if isinstance(number, int)]
        labels += [_text(payload[span.start : span.stop]) for span in feature.spans]
        for label in labels:
            if label in self._counts or len(self._counts) < _MOST_CLASSES:
                self._counts[label] += 1
            else:
                self.left_out += 1
        if texts is None or len(texts.spans) != len(feature.numbers):
            return
        for number, span in zip(feature.numbers, texts.spans, strict=True):
            if number in self._counts and span.stop > span.start:
                self._names.setdefault(int(number), _text(payload[span.start : span.stop]))

    def counts(self) -> list[ClassCount]:
        """The classes in the order of their ids, else of their names."""
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


def is_class(name: str, features: Mapping[str, Feature]) -> bool:
    """Whether a feature, by our name for it, has classes: names alone where no ids are beside them."""
    feature = features.get(name)
    if name not in CLASS_KEYS or feature is None or not len(feature) or feature.kind == "float":
        return False
    if any(span.stop - span.start > _LONGEST_NAME for span in feature.spans):
        return False
    return not any(len(features[key]) for key in _BESIDE.get(name, ()) if key in features)


def _text(data: bytes) -> str:
    text = shown_text(data)
    return "0x" + data.hex() if text is None else text
