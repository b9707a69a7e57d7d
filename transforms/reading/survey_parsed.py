"""One record parsed, as far as memory allows, and the images that its features are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from recordmill.transforms.examples.wire import (
    Feature,
    Span,
    fields,
    read_example,
    read_feature_lists,
)
from recordmill.transforms.reading.survey_images import ImageFacts, image_facts
from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.tfrecord.records import (
    IMAGE_KEYS,
    PIXELS_UNKNOWN,
    Fields,
    image_within,
    is_encoded,
)

MOST_NUMBER_BYTES = 16 << 20
"""Bytes of lists of numbers in one record that are parsed: as numbers they take many times as much memory."""

TOO_MANY_NUMBERS = "too many numbers to be looked into"

_LENGTH = 2  # wire type of messages and bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Parsed:
    """A record.

    Attributes:
        payload: its bytes.
        features: under the names that they are stored under.
        lists: likewise, a feature a step; none where it is an Example.
    """

    payload: bytes = dataclasses.field(repr=False)
    features: Mapping[str, Feature]
    lists: Mapping[str, list[Feature]]

    @property
    def values(self) -> int:
        """Values in all its features."""
        steps = sum(len(step) for steps in self.lists.values() for step in steps)
        return sum(map(len, self.features.values())) + steps


def parsed(payload: bytes) -> Parsed | None:
    """A record as an Example or a SequenceExample; None where it is neither.

    Raises:
        BadInput: stage `build`, `TOO_MANY_NUMBERS`.
    """
    try:
        # what a smaller record has is parsed without a look at it first
        if len(payload) > MOST_NUMBER_BYTES and (size := _number_bytes(payload)) > MOST_NUMBER_BYTES:
            raise BadInput("build", TOO_MANY_NUMBERS, f"{size:,} bytes of them")
        features, lists = read_example(payload), read_feature_lists(payload)
    except BadInput as error:
        if error.reason == TOO_MANY_NUMBERS:
            raise
        return None
    # an Example without a feature has no bytes at all
    return Parsed(payload, features, lists) if features or lists or not payload else None


def _number_bytes(payload: bytes) -> int:
    """Bytes of the lists of numbers in an Example or a SequenceExample."""
    maps = _within(payload, [Span(0, len(payload))], 1, 2)
    values = _within(payload, _within(payload, maps, 1), 2)
    # the value of an entry is a Feature, or a FeatureList, which has Features
    total = 0
    for feature in (*values, *_steps(payload, values)):
        total += sum(span.stop - span.start for span in _number_lists(payload, feature))
    return total


def _within(payload: bytes, spans: Iterable[Span], *numbers: int) -> list[Span]:
    """The messages in fields of these numbers of messages."""
    return [
        value
        for span in spans
        for number, wire_type, value in fields(payload, span)
        if number in numbers and wire_type == _LENGTH
    ]


def _steps(payload: bytes, values: Sequence[Span]) -> list[Span]:
    """The Features of those values that are FeatureLists; a Feature has bytes there, or nothing."""
    return _within(payload, values, 1)


def _number_lists(payload: bytes, feature: Span) -> list[Span]:
    """The lists of numbers of a Feature; none where it is none."""
    try:
        return _within(payload, [feature], 2, 3)
    except BadInput:
        return []


def image_in(payload: bytes, name: str, span: Span, ours: Fields) -> ImageFacts | None:
    """What the one value of a feature is as an image; None where it is none.

    Args:
        payload: of the record.
        name: ours, of the feature.
        span: of the value.
        ours: the features that tell the shape of pixels, under our names.
    """
    if name not in IMAGE_KEYS or span.start == span.stop:
        return facts_of(payload, span)
    try:
        found, pixels = image_within(payload, span, ours.shape())
    except BadInput as error:
        is_fault = name == IMAGE_KEYS[0] and error.reason == PIXELS_UNKNOWN
        return ImageFacts("unknown", fault=error.reason) if is_fault else None
    if pixels is not None:
        return ImageFacts("tensor" if found != span else "raw", *pixels)
    return image_facts(payload[span.start : span.stop], expected=True)


def facts_of(payload: bytes, span: Span) -> ImageFacts | None:
    """What the header of an image file tells; None where these bytes are none."""
    if not is_encoded(payload[span.start : min(span.stop, span.start + 16)]):
        return None
    return image_facts(payload[span.start : span.stop])


def fields_of(payload: bytes, features: Mapping[str, Feature], renames: Mapping[str, str]) -> Fields:
    """Features of a record, or of one of its steps, under our names."""
    return Fields(payload, {renames.get(name, name): one for name, one in features.items()})
