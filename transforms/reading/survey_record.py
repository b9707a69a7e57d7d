"""One record for `recordmill inspect`: its features, the headers of its images, and a readable form of both.

No pixel is decoded.
"""

from __future__ import annotations

import codecs
import dataclasses
import io
import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from recordmill.transforms.examples.record_view import (
    IMAGE_KEYS,
    PIXELS_UNKNOWN,
    RecordView,
    image_within,
    is_encoded,
)
from recordmill.transforms.examples.wire import (
    Feature,
    Kind,
    Span,
    number_bytes,
    read_example,
    read_feature_lists,
)
from recordmill.transforms.reading.shard import Record
from recordmill.transforms.records import BadInput

MOST_NUMBER_BYTES = 16 << 20
"""Bytes of numbers in one record that are parsed: parsed numbers take many times as much memory."""

DTYPES: dict[Kind | None, str] = {"int64": "int64", "float": "float32", "bytes": "string", None: "none"}
"""As tf.io.parse_single_example names them; `none` for a feature without a list."""

_TEXT_BYTES = 4096  # at the start of a value, which show whether it is text
_ALL = 1 << 40

Number = int | float


class Limits(NamedTuple):
    """How much of a record is shown.

    Attributes:
        values: of a list.
        letters: of a text.
        digits: bytes of a value that is neither text nor image.
        steps: of a feature list.
    """

    values: int = 8
    letters: int = 80
    digits: int = 16
    steps: int = 3


COMPLETE = Limits(_ALL, _ALL, 256, _ALL)
"""Everything but the bytes of images, and the first bytes of other values."""


@dataclasses.dataclass(frozen=True, slots=True)
class ImageFacts:
    """The header of an image.

    Attributes:
        image_format: according to its bytes; `raw` and `tensor` for pixels.
        height: pixels, as stored; 0 if unknown.
        width: pixels, as stored; 0 if unknown.
        channels: values per pixel; 0 if unknown.
        fault: what is wrong with it; empty if no fault was found.
    """

    image_format: str
    height: int = 0
    width: int = 0
    channels: int = 0
    orientation: int = 1
    fault: str = ""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        sides = {"height": self.height, "width": self.width} if self.height else {}
        turned = self.orientation if self.orientation != 1 else None
        others = {"channels": self.channels, "orientation": turned, "fault": self.fault}
        return {"format": self.image_format, **sides, **{key: one for key, one in others.items() if one}}


def is_too_large(payload: bytes) -> bool:
    """Whether a record has more than `MOST_NUMBER_BYTES` of numbers."""
    try:
        return len(payload) > MOST_NUMBER_BYTES and number_bytes(payload) > MOST_NUMBER_BYTES
    except BadInput:
        return False


def parsed(payload: bytes) -> RecordView | None:
    """A record under its stored names; None if it is neither an Example nor a SequenceExample."""
    try:
        view = RecordView(payload, read_example(payload), read_feature_lists(payload))
    except BadInput:
        return None
    # an Example without a feature has no bytes at all
    return view if view.features or view.lists or not payload else None


def under_our_names(record: bytes, features: Mapping[str, Feature], renames: Mapping[str, str]) -> RecordView:
    """Features of a record, or of one of its steps; `renames` maps stored names to ours."""
    return RecordView(record, {renames.get(name, name): one for name, one in features.items()})


def image_in(name: str, span: Span, ours: RecordView) -> ImageFacts | None:
    """The image that is the only value of a feature; None if it is not an image.

    Args:
        span: of the value.
        ours: the record, whose other features describe the shape of raw pixels.
    """
    if name not in IMAGE_KEYS or span.start == span.stop:
        return image_file(ours.record, span)
    try:
        found, pixels = image_within(ours.record, span, ours.shape())
    except BadInput as error:
        is_fault = name == IMAGE_KEYS[0] and error.reason == PIXELS_UNKNOWN
        return ImageFacts("unknown", fault=error.reason) if is_fault else None
    if pixels is not None:
        return ImageFacts("tensor" if found != span else "raw", *pixels)
    return _file_facts(ours.record[span.start : span.stop])


def image_file(record: bytes, span: Span) -> ImageFacts | None:
    """The header of an image file; None if the bytes do not begin like one."""
    if not is_encoded(record[span.start : min(span.stop, span.start + 16)]):
        return None
    return _file_facts(record[span.start : span.stop])


def _file_facts(data: bytes) -> ImageFacts:
    # decoders take a while to import, and there may be no image
    from recordmill.transforms.images.opened import image_kind, opened

    kind = "unknown"
    try:
        kind = image_kind(data)
        image = opened(data)
    except BadInput as error:
        shown = "unknown" if kind == "tga" else kind  # TGA has no signature: unknown formats look like it
        return ImageFacts(shown, fault=f"{error.reason}: {error.detail}" if error.detail else error.reason)
    if image.kept is None:
        return ImageFacts(kind, *_size_by_pillow(data), image.orientation)
    return ImageFacts(kind, image.kept.height, image.kept.width, image.kept.channels, image.orientation)


def _size_by_pillow(data: bytes) -> tuple[int, int, int]:
    """Height, width and channels."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.height, image.width, len(image.getbands())
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return 0, 0, 0


def shown_record(record: Record, renames: Mapping[str, str], limits: Limits) -> dict[str, Any]:
    """A record as JSON.

    Returns:
        `kind` (`example`, `sequence_example`, `other`, or `not_looked_into` if it is too large), and
        if there are any, `features` and `feature_lists` by name: `dtype` and `length` of each with the
        first `values`, or its number of `steps` with the `first` of them. A number is itself; bytes have
        their number, `bytes`, and `image`, `text` (`shortened` if it is cut), or `hex`, the first of
        them as hexadecimal digits.
    """
    found: dict[str, Any] = {"number": record.number, "offset": record.offset, "bytes": record.size}
    payload = record.payload
    if payload is None or is_too_large(payload):
        return {**found, "kind": "not_looked_into"}
    view = parsed(payload)
    if view is None:
        return {**found, "kind": "other", "content": _shown_bytes(payload, Span(0, len(payload)), limits)}
    found["kind"] = "sequence_example" if view.lists else "example"
    ours = under_our_names(payload, view.features, renames)
    found["features"] = {
        name: _shown_feature(renames.get(name, name), feature, ours, limits)
        for name, feature in sorted(view.features.items())
    }
    for name, steps in sorted(view.lists.items()):
        our_name = renames.get(name, name)
        # the context may describe the shape of the images of a step
        views = ((step, RecordView(payload, {**ours.features, our_name: step})) for step in steps)
        first = [_shown_feature(our_name, *one, limits) for one in itertools.islice(views, limits.steps)]
        found.setdefault("feature_lists", {})[name] = {"steps": len(steps), "first": first}
    return found


def _shown_feature(name: str, feature: Feature, ours: RecordView, limits: Limits) -> dict[str, Any]:
    values: list[Any] = [json_number(number) for number in feature.numbers[: limits.values]]
    single = len(feature.spans) == 1
    for span in feature.spans[: limits.values]:
        facts = image_in(name if single else "", span, ours)
        if facts is None:
            values.append(_shown_bytes(ours.record, span, limits))
        else:
            values.append({"bytes": span.stop - span.start, "image": facts.as_json()})
    return {"dtype": DTYPES[feature.kind], "length": len(feature), "values": values}


def _shown_bytes(record: bytes, span: Span, limits: Limits) -> dict[str, Any]:
    start, stop = span
    size = stop - start
    head = record[start : min(stop, start + 4 * limits.letters + 4)]  # a character has at most four bytes
    if text_of(head, cut=len(head) < size) is None:
        return {"bytes": size, "hex": record[start : min(stop, start + limits.digits)].hex(" ")}
    text = head.decode(errors="replace")
    if len(text) > limits.letters or len(head) < size:
        return {"bytes": size, "text": text[: limits.letters], "shortened": True}
    return {"bytes": size, "text": text}


def text_of(data: bytes, cut: bool = False) -> str | None:
    """Printable text at the start of bytes; None if they are not text.

    Args:
        cut: whether they may end within a character.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(data[:_TEXT_BYTES], not cut and len(data) <= _TEXT_BYTES)
    except UnicodeDecodeError:
        return None
    return text if all(letter.isprintable() or letter in "\t\r\n" for letter in text) else None


def is_text(record: bytes, span: Span) -> bool:
    """Whether a value is printable text, as far as its start shows."""
    return text_of(record[span.start : min(span.stop, span.start + _TEXT_BYTES + 1)]) is not None


def text_or_hex(data: bytes) -> str:
    """Bytes as text; as hexadecimal digits after `0x` if they are not text."""
    text = text_of(data)
    return "0x" + data.hex() if text is None else text


def json_number(number: Number | None) -> Number | str | None:
    """A number in JSON: float32 with the fewest digits that identify it, NaN and infinity as text."""
    if not isinstance(number, float):
        return number
    if not math.isfinite(number):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(number, "NaN")
    return float(str(np.float32(number)))


def json_value(value: Number | bytes) -> Number | str | None:
    """A number, or short bytes, in JSON."""
    return text_or_hex(value) if isinstance(value, bytes) else json_number(value)
