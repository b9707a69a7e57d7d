"""One record in readable form: images by size and format, text as text, what is long shortened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from recordmill.transforms.examples.wire import Feature, Span
from recordmill.transforms.reading.shard import Record
from recordmill.transforms.reading.survey_parsed import fields_of, image_in, parsed
from recordmill.transforms.reading.survey_values import DTYPES, json_number, shown_text
from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.tfrecord.records import Fields


class Shortness(NamedTuple):
    """How much of a record is told.

    Attributes:
        values: of a list.
        letters: of a text.
        digits: bytes of what is neither text nor image.
        steps: of a feature list.
    """

    values: int = 8
    letters: int = 80
    digits: int = 16
    steps: int = 3


_ALL = 1 << 40
WHOLE = Shortness(_ALL, _ALL, 256, _ALL)
"""All of it but images, and of other bytes the first."""


def shown_record(record: Record, renames: Mapping[str, str], short: Shortness) -> dict[str, Any]:
    """A record, readable, as JSON has it.

    Args:
        record: that is shown.
        renames: our name of a feature, by the name that it is stored under.
        short: how much of it is told.

    Returns:
        `kind` (`example`, `sequence_example`, `other`, or `not_looked_into` where it is too large), and as
        far as there are any `features` and `feature_lists` by name: `dtype` and `length` of each with the
        first `values`, or its number of `steps` with the `first` of them. A number is itself; bytes have
        their number, `bytes`, and `image`, `text` (`shortened` where it goes on), or `hex`, the first of
        them as hexadecimal digits.
    """
    found: dict[str, Any] = {"number": record.number, "offset": record.offset, "bytes": record.size}
    if record.payload is None:
        return {**found, "kind": "not_looked_into"}
    payload = record.payload
    try:
        read = parsed(payload)
    except BadInput:
        return {**found, "kind": "not_looked_into"}
    if read is None:
        return {**found, "kind": "other", "content": _told_bytes(payload, Span(0, len(payload)), short)}
    found["kind"] = "sequence_example" if read.lists else "example"
    ours = fields_of(payload, read.features, renames)
    found["features"] = {
        name: _feature(renames.get(name, name), feature, ours, short)
        for name, feature in sorted(read.features.items())
    }
    if read.lists:
        found["feature_lists"] = {
            name: _steps(renames.get(name, name), steps, ours, short)
            for name, steps in sorted(read.lists.items())
        }
    return found


def _steps(name: str, steps: list[Feature], context: Fields, short: Shortness) -> dict[str, Any]:
    """A feature list, by our name for it; the context may tell the shape of its images."""
    first = []
    for step in steps[: short.steps]:
        beside = Fields(context.record, {**context.features, name: step})
        first.append(_feature(name, step, beside, short))
    return {"steps": len(steps), "first": first}


def _feature(name: str, feature: Feature, ours: Fields, short: Shortness) -> dict[str, Any]:
    values: list[Any] = [json_number(number) for number in feature.numbers[: short.values]]
    single = len(feature.spans) == 1
    for span in feature.spans[: short.values]:
        facts = image_in(ours.record, name if single else "", span, ours)
        if facts is None:
            values.append(_told_bytes(ours.record, span, short))
        else:
            values.append({"bytes": span.stop - span.start, "image": facts.as_json()})
    return {"dtype": DTYPES[feature.kind], "length": len(feature), "values": values}


def _told_bytes(payload: bytes, span: Span, short: Shortness) -> dict[str, Any]:
    """Bytes that are no image."""
    start, stop = span
    told: dict[str, Any] = {"bytes": stop - start}
    head = payload[start : min(stop, start + 4 * short.letters + 4)]  # a character has at most four bytes
    if shown_text(head, cut=len(head) < stop - start) is None:
        return {**told, "hex": payload[start : min(stop, start + short.digits)].hex(" ")}
    text = head.decode(errors="replace")
    if len(text) > short.letters or len(head) < stop - start:
        return {**told, "text": text[: short.letters], "shortened": True}
    return {**told, "text": text}
