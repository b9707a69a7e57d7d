"""Two serialised Examples, feature by feature: what the source makes, and what is stored."""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from recordmill.transforms.examples.wire import Feature, read_example, read_feature_lists
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.mask import decode_mask
from recordmill.transforms.records import BadInput

_PNG = b"\x89PNG\r\n\x1a\n"
_ABSENT = "no such feature"
_NO_FEATURE = Feature(None)
_LONGEST = 80
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """One difference between a stored record and its source.

    Attributes:
        feature: stored name of the feature; empty for the complete record, `split` for its split.
        expected: what the source asks for.
        found: what is stored.
        where: a value, a step or a pixel of the feature; empty for all of it.
    """

    feature: str
    expected: str
    found: str
    where: str = ""

    def __str__(self) -> str:
        what = f"expected {self.expected}, found {self.found}"
        where = ", ".join(filter(None, (self.feature, self.where)))
        return f"{where}: {what}" if where else what


def shown(value: bytes | int | float | str) -> str:
    """A value as text: numbers in full, long texts shortened, other bytes as their digest."""
    if isinstance(value, bytes):
        digest = f"{counted(len(value), 'byte')} of SHA-256 {hashlib.sha256(value).hexdigest()[:16]}…"
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return digest
        if len(text) > _LONGEST and not text.isprintable():
            return digest
        value = text
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def counted(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def stored_images(payload: bytes, name: str) -> list[bytes]:
    """The images of a record: at most one of an Example, one of each step of a SequenceExample.

    Args:
        payload: of the record.
        name: stored name of the feature that holds images.

    Raises:
        BadInput: it is no Example.
    """
    features = [read_example(payload).get(name, _NO_FEATURE), *read_feature_lists(payload).get(name, ())]
    return [payload[span.start : span.stop] for feature in features for span in feature.spans]


def feature_differences(expected: bytes, found: bytes, image: str) -> list[Difference]:
    """The differences of two records, by feature: floats are compared to the bit, masks by their pixels.

    Args:
        expected: the payload that the source makes.
        found: the payload that is stored.
        image: feature that is not compared here.

    Raises:
        BadInput: one of them is no Example.
    """
    if expected == found:
        return []
    differences: list[Difference] = []
    examples = read_example(expected), read_example(found)
    for name, one, other in _paired(*examples, image, differences):
        differences += _of_feature(name, "", expected, one, found, other)
    lists = read_feature_lists(expected), read_feature_lists(found)
    for name, wanted, stored in _paired(*lists, image, differences):
        if len(wanted) != len(stored):
            differences.append(Difference(name, counted(len(wanted), "step"), counted(len(stored), "step")))
            continue
        for number, (one, other) in enumerate(zip(wanted, stored, strict=True)):
            differences += _of_feature(name, f"step {number}", expected, one, found, other)
    return differences


def _paired(
    wanted: Mapping[str, _T], stored: Mapping[str, _T], image: str, differences: list[Difference]
) -> Iterator[tuple[str, _T, _T]]:
    """The features that both records have, by name; those that only one has become differences."""
    for name in sorted({*wanted, *stored} - {image}):
        if name not in wanted:
            differences.append(Difference(name, _ABSENT, "a feature"))
        elif name not in stored:
            differences.append(Difference(name, "a feature", _ABSENT))
        else:
            yield name, wanted[name], stored[name]


def _of_feature(
    name: str, step: str, expected: bytes, wanted: Feature, found: bytes, stored: Feature
) -> Iterator[Difference]:
    """The difference in kind, in length, or in the first value that differs."""
    if wanted.kind != stored.kind:
        yield Difference(name, f"{wanted.kind} values", f"{stored.kind or 'untyped'} values", step)
        return
    if len(wanted) != len(stored):
        yield Difference(name, counted(len(wanted), "value"), counted(len(stored), "value"), step)
        return
    for number in range(len(wanted)):
        if wanted.kind == "bytes":
            one, other = wanted.spans[number], stored.spans[number]
            difference = _of_bytes(name, expected[one.start : one.stop], found[other.start : other.stop])
        else:
            difference = _of_numbers(name, wanted.numbers[number], stored.numbers[number])
        if difference is not None:
            value = f"value {number} of {len(wanted)}" if len(wanted) > 1 else ""
            where = ", ".join(filter(None, (step, value, difference.where)))
            yield dataclasses.replace(difference, where=where)
            return


def _of_numbers(name: str, expected: int | float, found: int | float) -> Difference | None:
    """Equal to the bit: 0.0 is not -0.0, and every NaN equals itself."""
    if expected == found and expected != 0:
        return None
    if isinstance(expected, int) or isinstance(found, int):
        is_same = expected == found
    else:
        is_same = struct.pack("<d", expected) == struct.pack("<d", found)
    return None if is_same else Difference(name, shown(expected), shown(found))


def _of_bytes(name: str, expected: bytes, found: bytes) -> Difference | None:
    if expected == found:
        return None
    if expected.startswith(_PNG):
        return _of_masks(name, expected, found)
    if name.rpartition("/")[2] == "mask_raw" and len(expected) == len(found):
        return _of_pixels(name, [np.frombuffer(data, np.uint8)[None] for data in (expected, found)])
    return Difference(name, shown(expected), shown(found))


def _of_masks(name: str, expected: bytes, found: bytes) -> Difference | None:
    """The difference in pixels: other bytes may hold the same."""
    try:
        masks = [decode_mask(data) for data in (expected, found)]
    except BadInput as error:
        return Difference(name, "a mask", str(error))
    sizes = ["x".join(map(str, mask.shape[::-1])) for mask in masks]
    if sizes[0] != sizes[1]:
        return Difference(name, f"a mask of {sizes[0]} pixels", f"one of {sizes[1]}")
    return _of_pixels(name, masks)


def _of_pixels(name: str, masks: Sequence[Array]) -> Difference | None:
    rows, columns = np.nonzero(masks[0] != masks[1])
    if not len(rows):
        return None
    row, column = int(rows[0]), int(columns[0])
    expected, found = (f"id {int(mask[row, column])}" for mask in masks)
    place = f"row {row}, column {column}" if len(masks[0]) > 1 else f"pixel {column}"
    return Difference(name, expected, found, f"{place}, the first of {counted(len(rows), 'pixel')}")
