"""Two serialised Examples, feature by feature: what the source makes, and what is stored."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from recordmill.transforms.examples.wire import Feature, read_example, read_feature_lists
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.mask import decode_mask
from recordmill.transforms.reading.against_difference import Difference, counted, shown
from recordmill.transforms.records import BadInput

_PNG = b"\x89PNG\r\n\x1a\n"
_ABSENT = "no such feature"
_NO_FEATURE = Feature(None)


def stored_images(payload: bytes, name: str) -> list[bytes]:
    """The images of a record: of an Example its one, if it has one, of a SequenceExample those of its steps.

    Args:
        payload: of the record.
        name: that images are stored under.

    Raises:
        BadInput: it is no Example.
    """
    features = [read_example(payload).get(name, _NO_FEATURE), *read_feature_lists(payload).get(name, ())]
    return [payload[span.start : span.stop] for feature in features for span in feature.spans]


def feature_differences(key: str, expected: bytes, found: bytes, image: str) -> list[Difference]:
    """What two records have otherwise, by the names of their features: floats to the bit, masks by pixels.

    Args:
        key: of both.
        expected: the payload that the source makes.
        found: the payload that is stored.
        image: feature that is compared elsewhere.

    Raises:
        BadInput: one of them is no Example.
    """
    if expected == found:
        return []
    records = (expected, found)
    examples = [read_example(record) for record in records]
    differences = []
    for name in _names(examples, image):
        one, other = (example.get(name) for example in examples)
        if one is None or other is None:
            differences.append(_one_sided(key, name, one is None))
        else:
            differences += _of_feature(key, name, "", expected, one, found, other)
    lists = [read_feature_lists(record) for record in records]
    for name in _names(lists, image):
        steps = [one.get(name) for one in lists]
        differences += _of_steps(key, name, expected, steps[0], found, steps[1])
    return differences


def _names(records: Sequence[Mapping[str, object]], image: str) -> list[str]:
    return sorted({*records[0], *records[1]} - {image})


def _one_sided(key: str, name: str, is_extra: bool) -> Difference:
    return Difference(key, name, *((_ABSENT, "a feature") if is_extra else ("a feature", _ABSENT)))


def _of_steps(
    key: str,
    name: str,
    expected: bytes,
    wanted: Sequence[Feature] | None,
    found: bytes,
    stored: Sequence[Feature] | None,
) -> Iterator[Difference]:
    """The differences of a feature list."""
    if wanted is None or stored is None:
        yield _one_sided(key, name, wanted is None)
        return
    if len(wanted) != len(stored):
        yield Difference(key, name, counted(len(wanted), "step"), counted(len(stored), "step"))
        return
    for number, (one, other) in enumerate(zip(wanted, stored, strict=True)):
        yield from _of_feature(key, name, f"step {number}", expected, one, found, other)


def _of_feature(
    key: str, name: str, step: str, expected: bytes, wanted: Feature, found: bytes, stored: Feature
) -> Iterator[Difference]:
    """The differences of one feature: its kind, its length, or its first value that is another."""
    if wanted.kind != stored.kind:
        yield Difference(key, name, f"{wanted.kind} values", f"{stored.kind or 'untyped'} values", step)
    elif len(wanted) != len(stored):
        yield Difference(key, name, counted(len(wanted), "value"), counted(len(stored), "value"), step)
    elif wanted.kind == "bytes":
        for number, (one, other) in enumerate(zip(wanted.spans, stored.spans, strict=True)):
            told = _of_bytes(name, expected[one.start : one.stop], found[other.start : other.stop])
            if told is not None:
                yield Difference(key, name, *told[:2], _where(step, number, len(wanted), told[2]))
                return
    else:
        for number, values in enumerate(zip(wanted.numbers, stored.numbers, strict=True)):
            if not _is_same_number(*values):
                one_shown, other_shown = map(shown, values)
                yield Difference(key, name, one_shown, other_shown, _where(step, number, len(wanted)))
                return


def _where(step: str, number: int, count: int, place: str = "") -> str:
    value = f"value {number} of {count}" if count > 1 else ""
    return ", ".join(part for part in (step, value, place) if part)


def _is_same_number(one: int | float, other: int | float) -> bool:
    """Equal to the bit: 0.0 is not -0.0, and every NaN is itself."""
    if one == other and one != 0:
        return True
    if isinstance(one, int) or isinstance(other, int):
        return one == other
    return struct.pack("<d", one) == struct.pack("<d", other)


def _of_bytes(name: str, expected: bytes, found: bytes) -> tuple[str, str, str] | None:
    """What is expected, found, and where, of two values; None where they say the same."""
    if expected == found:
        return None
    if expected.startswith(_PNG):
        return _of_masks(expected, found)
    if name.rpartition("/")[2] == "mask_raw" and len(expected) == len(found):
        return _first_of([np.frombuffer(data, np.uint8)[None] for data in (expected, found)])
    return shown(expected), shown(found), ""


def _of_masks(expected: bytes, found: bytes) -> tuple[str, str, str] | None:
    """The same of two masks, by their pixels: other bytes may hold the same."""
    try:
        masks = [decode_mask(data) for data in (expected, found)]
    except BadInput as error:
        return "a mask", str(error), ""
    sizes = ["x".join(map(str, mask.shape[::-1])) for mask in masks]
    if sizes[0] != sizes[1]:
        return f"a mask of {sizes[0]} pixels", f"one of {sizes[1]}", ""
    return _first_of(masks)


def _first_of(masks: Sequence[Array]) -> tuple[str, str, str] | None:
    """The first pixel in which two masks of one size differ."""
    rows, columns = np.nonzero(masks[0] != masks[1])
    if not len(rows):
        return None
    row, column = int(rows[0]), int(columns[0])
    values = [f"id {int(mask[row, column])}" for mask in masks]
    place = f"row {row}, column {column}" if len(masks[0]) > 1 else f"pixel {column}"
    return values[0], values[1], f"{place}, the first of {counted(len(rows), 'pixel')}"
