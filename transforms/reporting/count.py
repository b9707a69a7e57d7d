"""Counts the records of a dataset from its shards, in one pass."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from recordmill.transforms.examples.framing import FRAME_BYTES, DamagedRecordError
from recordmill.transforms.examples.record_view import BOX_KEYS, Shape, read_view
from recordmill.transforms.images.mask import pixel_counts
from recordmill.transforms.reading.dataset import Dataset, class_names
from recordmill.transforms.reading.shard import opened
from recordmill.transforms.reading.stored_record import StoredImageBytes
from recordmill.transforms.records import BadInput, ImageRef
from recordmill.transforms.shards.statistics import Statistics
from recordmill.transforms.sources.tfrecord.records import read_record

_MOST_NAMES = 100_000
_MOST_KEPT = 512


class RecordLocation(NamedTuple):
    """The location of a record.

    Attributes:
        offset: of its frame; None if the shard is compressed, or has no index.
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
        self.kept: list[RecordLocation] = []

    def add(self, location: RecordLocation) -> None:
        if self._seen % self._step == 0:
            self.kept.append(location)
            if len(self.kept) >= 2 * _MOST_KEPT:
                del self.kept[1::2]
                self._step *= 2
        self._seen += 1


@dataclasses.dataclass
class Count:
    """The figures of a dataset without a report.json, or with one of an earlier version.

    Attributes:
        labels: class name by id; classes that are stored only by name have negative ids, in the order in
            which they were found.
        records: by path of the shard; of a damaged shard, those before the damage.
        damages: path of a damaged shard, and the damage.
        faults: number of records that could not be read, by reason.
    """

    statistics: dict[str, Statistics]
    labels: dict[int, str]
    records: dict[str, int] = dataclasses.field(default_factory=dict)
    damages: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    faults: Counter[str] = dataclasses.field(default_factory=Counter)
    locations: list[RecordLocation] = dataclasses.field(default_factory=list)


def count_records(dataset: Dataset) -> Count:
    """Reads all shards, one record at a time. Raises OSError."""
    counting = _Counting(class_names(dataset).shown, dataset.renames)
    spread = _Spread()
    found = Count({split: Statistics() for split in dataset.splits}, counting.labels, locations=spread.kept)
    for split, path in ((split, shard.path) for split, shards in dataset.splits.items() for shard in shards):
        found.records[path] = 0
        try:
            with opened(path) as file:
                for number, (offset, payload) in enumerate(file.frames()):
                    where = (None, None) if file.compression else (offset, len(payload) + FRAME_BYTES)
                    spread.add(RecordLocation(path, split, number, *where))
                    found.records[path] += 1
                    try:
                        counting.add(payload, found.statistics[split])
                    except BadInput as fault:
                        found.faults[fault.reason] += 1
        except FileNotFoundError:
            found.damages.append((path, "missing"))
        except DamagedRecordError as error:
            found.damages.append((path, str(error)))
    return found


class _Counting:
    """Adds records to statistics, and collects the names of classes.

    Attributes:
        labels: class name by id.
    """

    def __init__(self, labels: Mapping[int, str], renames: Mapping[str, str]) -> None:
        self._renames = renames
        self._ids_by_name = {name: number for number, name in labels.items()}
        self._ids: dict[str, int] = {}
        self.labels = dict(labels)

    def add(self, payload: bytes, statistics: Statistics) -> None:
        """Counts a record, even if it cannot be parsed.

        Raises:
            BadInput: the record, its image or its mask cannot be read.
        """
        try:
            view = read_view(payload, self._renames)
            record, classes = read_record(view, "record")
        except BadInput:
            statistics.add(())
            raise
        self._learn(classes.names, classes.texts)
        annotations, steps = record.annotations, record.annotations.steps
        images = [*([record.image] if record.image else ()), *(steps.frames if steps else ())]
        labels = itertools.chain(annotations.labels, *(steps.labels if steps else ()))
        sizes, fault = _sizes(payload, images, view.shape())
        pixels: dict[int, int] = {}
        if (mask := annotations.masks.get("class")) is not None:
            try:
                pixels = pixel_counts(StoredImageBytes.of(payload, mask.image).ids())
            except BadInput as error:
                fault = error
        objects = annotations.objects
        boxes = [(box.xmin, box.ymin, box.xmax, box.ymax) for one in objects if (box := one.box) is not None]
        statistics.add(
            sizes,
            map(self._id, labels),
            [self._id(one.label) for one in objects],
            boxes if BOX_KEYS[0] in view.features else None,
            pixels,
        )
        if fault is not None:
            raise fault

    def _learn(self, names: Mapping[int, str], texts: Mapping[str, str]) -> None:
        if self._ids_by_name:
            return
        for number, name in names.items():
            if len(self.labels) < _MOST_NAMES:
                self.labels.setdefault(number, texts.get(name, name))

    def _id(self, label: str | int) -> int:
        if isinstance(label, int):
            return label
        if label not in self._ids:
            self._ids[label] = self._ids_by_name.get(label, -1 - len(self._ids))
            self.labels.setdefault(self._ids[label], label)
        return self._ids[label]


def _sizes(
    payload: bytes, images: list[ImageRef], stored: Shape
) -> tuple[list[tuple[int, int]], BadInput | None]:
    """Width and height of each image, and the fault of one whose header cannot be read."""
    height, width = stored.height or 0, stored.width or 0
    if min(height, width) > 0:
        return [(width, height)] * len(images), None
    sizes: list[tuple[int, int]] = []
    fault = None
    for image in images:
        try:
            height, width = StoredImageBytes.of(payload, image).size()
            sizes.append((width, height))
        except BadInput as error:
            fault = error
    return sizes, fault
