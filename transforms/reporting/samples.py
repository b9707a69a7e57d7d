"""Pictures of some records of a dataset: spread over its shards, a few of each class, few bytes in all."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from recordmill.transforms.images import jpeg
from recordmill.transforms.images.exif import Array
from recordmill.transforms.reading.dataset import Dataset, ShardEntry
from recordmill.transforms.reading.drawing import draw, fault_picture
from recordmill.transforms.reading.shard import frames, read_index, record_at
from recordmill.transforms.reading.sheet import Part
from recordmill.transforms.reading.sheet import caption as caption_of
from recordmill.transforms.reading.stored_record import StoredRecord, stored_record
from recordmill.transforms.records import BadInput
from recordmill.transforms.reporting.count import RecordLocation
from recordmill.transforms.storage.file_system import file_system

MOST = 48
"""Pictures on a page."""

_LOOKED_AT = 144
_MOST_SHARDS = 24
_SIDE = 288
_QUALITIES = (80, 65, 45, 25, 10)
_MOST_BYTES = 20_000
# Of a record that is looked at, and of all of them.
_MOST_RECORD_BYTES, _MOST_BYTES_READ = 64 << 20, 384 << 20
_AT_ONCE = 16
_T = TypeVar("_T")
_DAMAGES = (ValueError, FileNotFoundError)


class Sample(NamedTuple):
    """A picture of one record.

    Attributes:
        group: class that it is shown for; empty where the record has none.
        key: of the record.
        split: of the record.
        size: height and width of the stored image; None if there is none, or if they are unknown.
        caption: its classes, with the colours that they are drawn in, or its stored caption.
        picture: JPEG with boxes and masks; the reason, if the image cannot be decoded.
        pixels: height and width of the picture.
    """

    group: str
    key: str
    split: str
    size: tuple[int, int] | None
    caption: tuple[Part, ...]
    picture: bytes
    pixels: tuple[int, int]


class _Seen(NamedTuple):
    """A record that was looked at, and the names of its classes."""

    location: RecordLocation
    classes: frozenset[str]


def locations_in(dataset: Dataset) -> list[RecordLocation]:
    """Some records of a dataset with a manifest, by its indexes: spread over splits, shards and records.

    Of a shard that has no index, the first ones.
    """
    splits = {split: shards for split, shards in dataset.splits.items() if shards}
    found: list[RecordLocation] = []
    for split, shards in splits.items():
        chosen = spread(shards, max(_MOST_SHARDS // len(splits), 2))
        each = -(-_LOOKED_AT // (len(splits) * len(chosen)))
        for shard in chosen:
            found += _locations(shard, split, each)
    return found


def spread(items: Sequence[_T], most: int) -> list[_T]:
    """At most so many of some things, spread evenly, the first among them."""
    count = min(len(items), most)
    return [items[at * len(items) // count] for at in range(count)]


def _locations(shard: ShardEntry, split: str, most: int) -> list[RecordLocation]:
    if shard.index is None:
        count = most if shard.records is None else min(shard.records, most)
        return [RecordLocation(shard.path, split, number) for number in range(count)]
    try:
        index = read_index(shard.index)
    except (ValueError, FileNotFoundError):
        return []  # other shards have samples
    return [
        RecordLocation(shard.path, split, number, index.offsets[number], index.lengths[number])
        for number in spread(range(len(index)), most)
    ]


def samples(
    locations: Sequence[RecordLocation], names: Mapping[int, str], renames: Mapping[str, str]
) -> tuple[Sample, ...]:
    """Pictures of some records, a few of each class, by class.

    Args:
        locations: of records to choose from.
        names: of classes by stored id.
        renames: our name of a feature, by the name that it is stored under.

    Raises:
        OSError: a shard cannot be read now.
    """
    seen = []
    for location, payload in _payloads(_affordable(spread(locations, _LOOKED_AT))):
        seen.append(_Seen(location, _classes(_read(payload, location, names, renames))))
    chosen = choose(seen)
    drawn = {}
    for location, payload in _payloads([location for _, location in chosen]):
        drawn[location] = _read(payload, location, names, renames)
    return tuple(_sample(group, location, drawn[location]) for group, location in chosen if location in drawn)


def choose(seen: Sequence[tuple[RecordLocation, frozenset[str]]]) -> list[tuple[str, RecordLocation]]:
    """Records to be shown, each with the class that it is shown for; a few of each class, by class.

    Classes take turns, the rarest first, so that none takes another's only picture; splits take turns too.
    """
    by_class: dict[str, list[RecordLocation]] = {}
    for location, classes in seen:
        for name in classes or {""}:
            by_class.setdefault(name, []).append(location)
    turns = sorted(by_class, key=lambda name: (len(by_class[name]), name))
    for name in turns:
        by_class[name] = _alternating(by_class[name])
    taken: dict[RecordLocation, str] = {}
    for _ in range(MOST):
        for name in turns:
            free = next((location for location in by_class[name] if location not in taken), None)
            if free is not None and len(taken) < MOST:
                taken[free] = name
    order = {location: at for at, (location, _) in enumerate(seen)}
    return sorted(
        ((name, location) for location, name in taken.items()), key=lambda one: (one[0], order[one[1]])
    )


def _alternating(locations: Iterable[RecordLocation]) -> list[RecordLocation]:
    """The same locations, splits taking turns."""
    by_split: dict[str, list[RecordLocation]] = {}
    for location in locations:
        by_split.setdefault(location.split, []).append(location)
    turns = itertools.zip_longest(*by_split.values())
    return [location for turn in turns for location in turn if location is not None]


def _affordable(locations: Iterable[RecordLocation]) -> list[RecordLocation]:
    """Those that are read without reading too much."""
    left, found = _MOST_BYTES_READ, []
    for location in locations:
        length = location.length or 0
        if length <= min(left, _MOST_RECORD_BYTES):
            left -= length
            found.append(location)
    return found


def _payloads(locations: Sequence[RecordLocation]) -> Iterator[tuple[RecordLocation, bytes]]:
    """The records of some locations, those of a shard without an index in order; damaged ones left out."""
    indexed = [location for location in locations if location.length is not None]
    for start in range(0, len(indexed), _AT_ONCE):
        part = indexed[start : start + _AT_ONCE]
        for location, payload in zip(part, file_system(part[0].path).each(_payload, part), strict=True):
            if payload is not None:
                yield location, payload
    in_order: dict[str, dict[int, RecordLocation]] = {}
    for location in locations:
        if location.length is None:
            in_order.setdefault(location.path, {})[location.number] = location
    for path, numbers in in_order.items():
        with contextlib.suppress(*_DAMAGES):
            for number, frame in enumerate(itertools.islice(frames(path), max(numbers) + 1)):
                if number in numbers:
                    yield numbers[number], frame.payload


def _payload(location: RecordLocation) -> bytes | None:
    try:
        return record_at(location.path, location.offset or 0, location.length or 0)
    except _DAMAGES:
        return None  # reading the complete shard reports the damage


def _read(
    payload: bytes, location: RecordLocation, names: Mapping[int, str], renames: Mapping[str, str]
) -> StoredRecord | BadInput:
    key = f"{location.path.rpartition('/')[2]}/{location.number:08}"
    try:
        return stored_record(payload, names, renames, key)
    except BadInput as error:
        return BadInput(error.stage, error.reason, error.detail, error.key or key)


def _classes(record: StoredRecord | BadInput) -> frozenset[str]:
    """Names of the classes of a record: of the image, its objects, its steps, or its mask."""
    if isinstance(record, BadInput):
        return frozenset()
    named = (*record.labels, *(one.name for one in record.objects))
    steps = tuple(label for step in record.step_labels for label in step)
    if named or steps:
        return frozenset(named or steps)
    if record.class_mask is None:
        return frozenset()
    return frozenset(text for color, text in caption_of(record)[0] if color is not None)


def _sample(group: str, location: RecordLocation, record: StoredRecord | BadInput) -> Sample:
    caption, _ = caption_of(record)
    size = None
    if isinstance(record, BadInput):
        pixels = fault_picture(record, _SIDE)
    else:
        pixels = draw(record, _SIDE)
        image = record.image or (record.frames[0] if record.frames else None)
        with contextlib.suppress(BadInput):
            size = image.size() if image is not None else None
    height, width = pixels.shape[:2]
    return Sample(group, record.key, location.split, size, tuple(caption), _small(pixels), (height, width))


def _small(pixels: Array) -> bytes:
    """A picture in few bytes: a WebP would have two thirds of them, and take thirty times as long."""
    for quality in _QUALITIES:
        data = jpeg.encode(pixels, quality)
        if len(data) <= _MOST_BYTES:
            break
    return data
