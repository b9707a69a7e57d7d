"""Pictures of some records of a dataset: spread over its shards, a few of each class, few bytes in all."""

from __future__ import annotations

import concurrent.futures
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

MOST, LEAST = 48, 24
"""Pictures on a page: at most, and at least where there are so many records; large records get fewer."""

_LOOKED_AT = 144
_MOST_SHARDS = 24
# Beyond the least number of records, the bytes of those that are looked at, and of those that are drawn.
_BYTES_LOOKED_AT, _BYTES_DRAWN = 32 << 20, 12 << 20
_SIDE = 288
_QUALITIES = (80, 65, 45, 25, 10)
_MOST_BYTES = 20_000
# Of a record that is looked at, and of all of them.
_MOST_RECORD_BYTES, _MOST_BYTES_READ = 64 << 20, 384 << 20
_AT_ONCE = 16
_DRAWN_AT_ONCE = 2  # decoders release the interpreter lock
_T = TypeVar("_T")
_DAMAGES = (ValueError, FileNotFoundError)


class Sample(NamedTuple):
    """A picture of one record.

    Attributes:
        group: class that it is shown for; empty where the record has none.
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


def places_in(dataset: Dataset) -> list[RecordLocation]:
    """Some records of a dataset with a manifest, spread over splits, shards and records.

    Of a shard without an index, the first ones.
    """
    splits = {split: shards for split, shards in dataset.splits.items() if shards}
    found: list[RecordLocation] = []
    for split, shards in splits.items():
        chosen = spread(shards, max(_MOST_SHARDS // len(splits), 2))
        each = -(-_LOOKED_AT // (len(splits) * len(chosen)))
        for shard in chosen:
            found += _places(shard, split, each)
    return found


def spread(items: Sequence[_T], most: int) -> list[_T]:
    """At most `most` items, spread evenly, with the first one."""
    count = min(len(items), most)
    return [items[at * len(items) // count] for at in range(count)]


def _places(shard: ShardEntry, split: str, most: int) -> list[RecordLocation]:
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


def place_of(dataset: Dataset, split: str, shard: int, number: int) -> RecordLocation | None:
    """The location of a record by its number in a shard; None if the shard or its index lacks it."""
    with contextlib.suppress(IndexError, *_DAMAGES):
        entry = dataset.splits[split][shard]
        index = read_index(entry.index or "")
        return RecordLocation(entry.path, split, number, index.offsets[number], index.lengths[number])
    return None


def samples(
    places: Sequence[RecordLocation], names: Mapping[int, str], renames: Mapping[str, str]
) -> tuple[Sample, ...]:
    """Pictures of some records, a few of each class, by class.

    Args:
        renames: our name of a feature, by the name that it is stored under.

    Raises:
        OSError: a shard cannot be read now.
    """
    some = _affordable(spread(places, _LOOKED_AT))
    size = sum(place.length or 0 for place in some)
    looked_at = spread(some, max(LEAST, len(some) * _BYTES_LOOKED_AT // max(size, 1)))
    seen = [(place, _classes(record)) for place, record in _records(looked_at, names, renames)]
    chosen = choose(seen)
    records = dict(_records([place for _, place in chosen], names, renames))
    shown = [(group, place, records[place]) for group, place in chosen if place in records]
    with concurrent.futures.ThreadPoolExecutor(_DRAWN_AT_ONCE) as pool:
        return tuple(pool.map(_sample, *zip(*shown, strict=True))) if shown else ()


def pictures(
    places: Sequence[RecordLocation], names: Mapping[int, str], renames: Mapping[str, str]
) -> dict[RecordLocation, Sample]:
    """A picture of each record that can be read within the limits; arguments and errors as of `samples`."""
    read = _records(_affordable(places), names, renames)
    return {place: _sample("", place, record) for place, record in read}


def _records(
    places: Sequence[RecordLocation], names: Mapping[int, str], renames: Mapping[str, str]
) -> Iterator[tuple[RecordLocation, StoredRecord | BadInput]]:
    for place, payload in _payloads(places):
        key = f"{place.path.rpartition('/')[2]}/{place.number:08}"
        try:
            yield place, stored_record(payload, names, renames, key)
        except BadInput as error:
            yield place, BadInput(error.stage, error.reason, error.detail, error.key or key)


def choose(seen: Sequence[tuple[RecordLocation, frozenset[str]]]) -> list[tuple[str, RecordLocation]]:
    """The records to show, each with the class that it is shown for; a few of each class, by class.

    At least `LEAST`, and up to `MOST` if they have few bytes.

    Classes take turns, the rarest first, so that each gets a picture; splits take turns too.
    """
    found: dict[str, list[RecordLocation]] = {}
    for place, classes in seen:
        for name in classes or {""}:
            found.setdefault(name, []).append(place)
    turns = sorted(found, key=lambda name: (len(found[name]), name))
    by_class = {name: _alternating(found[name]) for name in turns}
    taken: dict[RecordLocation, str] = {}
    size = 0
    for _ in range(MOST):
        for name in turns:
            free = next((place for place in by_class[name] if place not in taken), None)
            if free is not None and len(taken) < (MOST if size < _BYTES_DRAWN else LEAST):
                taken[free] = name
                size += free.length or 0
    order = {place: at for at, (place, _) in enumerate(seen)}
    return sorted(((name, place) for place, name in taken.items()), key=lambda one: (one[0], order[one[1]]))


def _alternating(places: Iterable[RecordLocation]) -> list[RecordLocation]:
    """The same locations; splits take turns."""
    by_split: dict[str, list[RecordLocation]] = {}
    for place in places:
        by_split.setdefault(place.split, []).append(place)
    turns = itertools.zip_longest(*by_split.values())
    return [place for turn in turns for place in turn if place is not None]


def _affordable(places: Iterable[RecordLocation]) -> list[RecordLocation]:
    """The records that can be read within the limits."""
    left, found = _MOST_BYTES_READ, []
    for place in places:
        length = place.length or 0
        if length <= min(left, _MOST_RECORD_BYTES):
            left -= length
            found.append(place)
    return found


def _payloads(places: Sequence[RecordLocation]) -> Iterator[tuple[RecordLocation, bytes]]:
    """The records at some locations, without damaged ones; of shards without an index, in order."""
    indexed = [place for place in places if place.length is not None]
    for start in range(0, len(indexed), _AT_ONCE):
        part = indexed[start : start + _AT_ONCE]
        for place, payload in zip(part, file_system(part[0].path).each(_payload, part), strict=True):
            if payload is not None:
                yield place, payload
    in_order: dict[str, dict[int, RecordLocation]] = {}
    for place in places:
        if place.length is None:
            in_order.setdefault(place.path, {})[place.number] = place
    for path, numbers in in_order.items():
        with contextlib.suppress(*_DAMAGES):
            for number, frame in enumerate(itertools.islice(frames(path), max(numbers) + 1)):
                if number in numbers:
                    yield numbers[number], frame.payload


def _payload(place: RecordLocation) -> bytes | None:
    try:
        return record_at(place.path, place.offset or 0, place.length or 0)
    except _DAMAGES:
        return None  # reading the complete shard reports the damage


def _classes(record: StoredRecord | BadInput) -> frozenset[str]:
    """Names of the classes of a record: of the image, its objects, its steps, or its mask."""
    if isinstance(record, BadInput):
        return frozenset()
    named = {*record.labels, *(one.name for one in record.objects)}
    named = named or {label for step in record.step_labels for label in step}
    if not named and record.class_mask is not None:
        named = {text for color, text in caption_of(record)[0] if color is not None}
    return frozenset(named)


def _sample(group: str, place: RecordLocation, record: StoredRecord | BadInput) -> Sample:
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
    return Sample(group, record.key, place.split, size, tuple(caption), _small(pixels), (height, width))


def _small(pixels: Array) -> bytes:
    """A picture in few bytes: a WebP would have two thirds of them, and take thirty times as long."""
    for quality in _QUALITIES:
        data = jpeg.encode(pixels, quality)
        if len(data) <= _MOST_BYTES:
            break
    return data
