"""Counts the records of a dataset that has no report.json, from its shards, in one pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from recordmill.transforms.examples.framing import FRAME_BYTES, DamagedRecordError
from recordmill.transforms.examples.record_view import BOX_KEYS, read_view
from recordmill.transforms.images.mask import pixel_counts
from recordmill.transforms.reading.class_names import class_names
from recordmill.transforms.reading.dataset import Dataset, ShardEntry
from recordmill.transforms.reading.shard import opened
from recordmill.transforms.reading.stored_record import StoredImageBytes
from recordmill.transforms.records import AnnotatedObject, BadInput, ImageRef, MaskImage
from recordmill.transforms.shards.statistics import Sides, Statistics
from recordmill.transforms.sources.tfrecord.records import read_record

_MOST_NAMES = 100_000
_MOST_KEPT = 512

UNREADABLE = (DamagedRecordError, FileNotFoundError)
"""Errors of a damaged or missing shard; trying again does not help."""


class RecordPlace(NamedTuple):
    """The location of a record.

    Attributes:
        path: of its shard.
        split: of its shard.
        number: in its shard, from 0.
        offset: of its frame; None if the shard is compressed, or has no index.
        length: of its frame; None likewise.
    """

    path: str
    split: str
    number: int
    offset: int | None = None
    length: int | None = None


class _Spread:
    """An even sample of bounded size of the records that are added."""

    def __init__(self) -> None:
        self._step = 1
        self._seen = 0
        self.kept: list[RecordPlace] = []

    def add(self, place: RecordPlace) -> None:
        if self._seen % self._step == 0:
            self.kept.append(place)
            if len(self.kept) >= 2 * _MOST_KEPT:
                self.kept = self.kept[::2]
                self._step *= 2
        self._seen += 1


@dataclasses.dataclass
class Count:
    """The figures of a dataset, counted from its records.

    Attributes:
        statistics: by split.
        labels: class name by id; classes that are stored by name alone have negative ids, in the order in
            which they were met.
        records: by path of the shard; of a damaged one those before the damage.
        damages: path of a damaged shard, and the damage.
        faults: records that could not be understood, by reason.
        places: of some records, spread evenly.
    """

    statistics: dict[str, Statistics]
    labels: dict[int, str]
    records: dict[str, int] = dataclasses.field(default_factory=dict)
    damages: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    faults: dict[str, int] = dataclasses.field(default_factory=dict)
    places: list[RecordPlace] = dataclasses.field(default_factory=list)


def count_records(dataset: Dataset) -> Count:
    """Reads all shards, one record at a time.

    Raises:
        OSError: a shard cannot be read now.
    """
    counting = _Counting(class_names(dataset).shown, dataset.renames)
    found = Count({split: Statistics() for split in dataset.splits}, counting.labels)
    for split, shards in dataset.splits.items():
        for shard in shards:
            _count_shard(shard, split, counting, found)
    found.places = counting.spread.kept
    return found


def _count_shard(shard: ShardEntry, split: str, counting: _Counting, found: Count) -> None:
    number = -1
    try:
        with opened(shard.path) as file:
            for number, frame in enumerate(file.frames()):
                where = (None, None) if file.compression else (frame.offset, len(frame.payload) + FRAME_BYTES)
                counting.spread.add(RecordPlace(shard.path, split, number, *where))
                try:
                    counting.add(frame.payload, found.statistics[split])
                except BadInput as fault:
                    found.faults[fault.reason] = found.faults.get(fault.reason, 0) + 1
    except UNREADABLE as error:
        damage = "missing" if isinstance(error, FileNotFoundError) else str(error)
        found.damages.append((shard.path, damage))
    found.records[shard.path] = number + 1


class _Counting:
    """Reads the counted values of a record."""

    def __init__(self, labels: Mapping[int, str], renames: Mapping[str, str]) -> None:
        self._renames = renames
        self._is_named = bool(labels)
        self._ids: dict[str, int] = {}
        self.labels = dict(labels)
        self.spread = _Spread()

    def add(self, payload: bytes, statistics: Statistics) -> None:
        """Counts a record, also one that cannot be parsed.

        Raises:
            BadInput: the record cannot be parsed.
        """
        try:
            fields = read_view(payload, self._renames)
            record, classes = read_record(fields, "record")
        except BadInput:
            statistics.add(())
            raise
        self._learn(classes.names, classes.texts)
        annotations, image = record.annotations, record.image
        images = [image] if image else []
        labels = [*annotations.labels]
        if annotations.steps is not None:
            images += annotations.steps.frames
            labels += [label for step in annotations.steps.labels for label in step]
        objects = annotations.objects
        shape = fields.shape()
        sizes, fault = _sizes(payload, images, (shape.width or 0, shape.height or 0))
        pixels: dict[int, int] = {}
        try:
            pixels = _pixels(payload, annotations.masks.get("class"))
        except BadInput as error:
            fault = error
        statistics.add(
            sizes,
            map(self._id, labels),
            [self._id(one.label) for one in objects],
            _boxes(objects) if BOX_KEYS[0] in fields.features else None,
            pixels,
        )
        if fault is not None:
            raise fault

    def _learn(self, names: Mapping[int, str], texts: Mapping[str, str]) -> None:
        if self._is_named:
            return
        for number, name in names.items():
            if len(self.labels) < _MOST_NAMES:
                self.labels.setdefault(number, texts.get(name, name))

    def _id(self, label: str | int) -> int:
        if isinstance(label, int):
            return label
        if label not in self._ids:
            ids = {name: number for number, name in self.labels.items()} if self._is_named else {}
            self._ids[label] = ids.get(label, -1 - len(self._ids))
            self.labels.setdefault(self._ids[label], label)
        return self._ids[label]


def _sizes(
    payload: bytes, images: list[ImageRef], stored: tuple[int, int]
) -> tuple[list[tuple[int, int]], BadInput | None]:
    """Width and height of each image, and what was wrong with one; a 0 in `stored` means unknown."""
    if all(side > 0 for side in stored):
        return [stored] * len(images), None
    sizes: list[tuple[int, int]] = []
    fault = None
    for image in images:
        data = payload[image.offset : image.offset + (image.length or 0)]
        try:
            height, width = StoredImageBytes(data, image.pixels).size()
            sizes.append((width, height))
        except BadInput as error:
            fault = error
    return sizes, fault


def _pixels(payload: bytes, mask: MaskImage | None) -> dict[int, int]:
    """The number of pixels of each class id; none without a mask.

    Raises:
        BadInput: the mask cannot be decoded.
    """
    if mask is None:
        return {}
    image = mask.image
    data = payload[image.offset : image.offset + (image.length or 0)]
    return pixel_counts(StoredImageBytes(data, image.pixels).ids())


def _boxes(objects: tuple[AnnotatedObject, ...]) -> list[Sides]:
    return [(box.xmin, box.ymin, box.xmax, box.ymax) for one in objects if (box := one.box) is not None]
