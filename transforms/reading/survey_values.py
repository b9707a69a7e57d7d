"""What the values of one feature are over many records."""

from __future__ import annotations

import codecs
import dataclasses
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from recordmill.transforms.examples.wire import Feature, Kind
from recordmill.transforms.reading.survey_images import ImageFacts, Images

DTYPES: dict[Kind | None, str] = {"int64": "int64", "float": "float32", "bytes": "string", None: "none"}
"""As tf.io.parse_single_example names them; `none` for a feature that says no kind, which has no values."""

_MOST_DISTINCT = 24
_LONGEST_DISTINCT = 80  # bytes
_LOOKED_AT = 4096  # bytes of a value that tell whether it is text

Number = int | float


class Range:
    """The least and the greatest of numbers; both None before there is any."""

    __slots__ = ("least", "most")

    def __init__(self) -> None:
        self.least: Number | None = None
        self.most: Number | None = None

    def add(self, least: Number, most: Number) -> None:
        """Takes in numbers of which these are the least and the greatest."""
        self.least = least if self.least is None else min(self.least, least)
        self.most = most if self.most is None else max(self.most, most)

    def as_json(self) -> dict[str, Number | None]:
        """For `--json`."""
        return {"min": self.least, "max": self.most}


@dataclasses.dataclass(slots=True)
class Values:
    """The values of a feature, or of the steps of a feature list.

    Attributes:
        records: that have it.
        steps: of records, for a feature list.
        kinds: how often it is of each dtype.
        lengths: values a record, or a step.
        count: of values.
        numbers: finite ones.
        unfinished: how many are NaN or infinite.
        sizes: bytes of each value.
        texts: whether all values are text that can be shown.
        distinct: how often each value comes; None where there are many, or long ones.
        images: those among its values.
    """

    records: int = 0
    steps: Range = dataclasses.field(default_factory=Range)
    kinds: Counter[str] = dataclasses.field(default_factory=Counter)
    lengths: Range = dataclasses.field(default_factory=Range)
    count: int = 0
    numbers: Range = dataclasses.field(default_factory=Range)
    unfinished: int = 0
    sizes: Range = dataclasses.field(default_factory=Range)
    texts: bool = True
    distinct: Counter[Number | bytes] | None = dataclasses.field(default_factory=Counter)
    images: Images = dataclasses.field(default_factory=Images)

    def add(self, payload: bytes, feature: Feature) -> None:
        """Takes in a feature of a record."""
        count = len(feature)
        self.kinds[DTYPES[feature.kind]] += 1
        self.lengths.add(count, count)
        self.count += count
        if feature.spans:
            self._add_bytes(payload, feature)
        elif feature.numbers:
            self._add_numbers(feature)

    def add_images(self, found: Iterable[ImageFacts]) -> None:
        """Takes in what values of it are."""
        for facts in found:
            self.images.add(facts)

    def _add_bytes(self, payload: bytes, feature: Feature) -> None:
        lengths = [span.stop - span.start for span in feature.spans]
        least, most = min(lengths), max(lengths)
        self.sizes.add(least, most)
        if most > _LONGEST_DISTINCT:
            self.distinct = None
        if self.distinct is not None:
            self._add_distinct([payload[span.start : span.stop] for span in feature.spans])
        if self.texts:
            heads = (payload[start : min(stop, start + _LOOKED_AT + 1)] for start, stop in feature.spans)
            self.texts = all(shown_text(head) is not None for head in heads)

    def _add_numbers(self, feature: Feature) -> None:
        numbers = feature.numbers
        if feature.kind == "float":
            finite = [number for number in numbers if math.isfinite(number)]
            self.unfinished += len(numbers) - len(finite)
            if finite:
                self.numbers.add(min(finite), max(finite))
        else:
            self.numbers.add(min(numbers), max(numbers))
        if self.distinct is not None:
            self._add_distinct(list(numbers))

    def _add_distinct(self, values: list[Number] | list[bytes]) -> None:
        assert self.distinct is not None
        self.distinct.update(values)
        if len(self.distinct) > _MOST_DISTINCT:
            self.distinct = None

    def as_json(self, shared: int) -> dict[str, Any]:
        """For `--json`.

        Args:
            shared: number of records of which some have it.
        """
        found: dict[str, Any] = {
            "dtype": [dtype for dtype, _ in self.kinds.most_common()],
            "records": self.records,
            "share": round(self.records / shared, 6) if shared else 0,
            "length": self.lengths.as_json(),
            "values": self.count,
        }
        if self.steps.most is not None:
            found["steps"] = self.steps.as_json()
        if self.numbers.most is not None:
            found["range"] = {name: json_number(value) for name, value in self.numbers.as_json().items()}
        if self.unfinished:
            found["not_finite"] = self.unfinished
        if self.sizes.most is not None:
            found |= {"bytes": self.sizes.as_json(), "text": self.texts}
        if self.distinct and not self.images.count:
            rows = sorted(self.distinct.items(), key=lambda row: (-row[1], str(row[0])))
            found["distinct"] = [{"value": json_value(value), "count": count} for value, count in rows]
        return found | ({"images": self.images.as_json()} if self.images.count else {})


def shown_text(data: bytes, cut: bool = False) -> str | None:
    """Bytes as text that can be shown; None where they are none.

    Args:
        data: bytes; of long ones, the first are looked at, and are what is given back.
        cut: they may end within a character.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(data[:_LOOKED_AT], not cut and len(data) <= _LOOKED_AT)
    except UnicodeDecodeError:
        return None
    return text if all(letter.isprintable() or letter in "\t\r\n" for letter in text) else None


def json_number(number: Number | None) -> Number | str | None:
    """A number as JSON has it: float32 with the fewest digits that tell it, NaN and infinity as text."""
    if not isinstance(number, float):
        return number
    if not math.isfinite(number):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(number, "NaN")
    return float(str(np.float32(number)))


def json_value(value: Number | bytes) -> Number | str | None:
    """A short value as JSON has it; bytes that are no text as hexadecimal digits behind `0x`."""
    if not isinstance(value, bytes):
        return json_number(value)
    text = shown_text(value)
    return "0x" + value.hex() if text is None else text
