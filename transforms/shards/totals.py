"""Totals of the list of records, before any image is read: mergeable, small, independent of the order."""

from __future__ import annotations

import dataclasses
import heapq
from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from recordmill.transforms.examples.columns import ColumnTypes
from recordmill.transforms.records import Annotations, ClassNames, ImageRecord, add_classes
from recordmill.transforms.shards.references import (
    DEFAULT_SPLIT,
    ListedRecord,
    digest_of,
    has_details,
    key_digest,
    unpack_record,
)
from recordmill.transforms.shards.statistics import MOST_BOXES, add_counts

_SAMPLE_SIZE = 32
_KEYS_SAMPLE_SIZE = 1024
_DIGEST_SPACE = 1 << 128


@dataclasses.dataclass(slots=True)
class LowestHashes:
    """A sample of at most `size` items: those of the lowest hashes, whatever the order of arrival."""

    size: int
    heap: list[tuple[int, bytes]] = dataclasses.field(default_factory=list)

    def wants(self, hashed: int) -> bool:
        return len(self.heap) < self.size or -hashed > self.heap[0][0]

    def add(self, hashed: int, item: bytes) -> None:
        if len(self.heap) < self.size:
            heapq.heappush(self.heap, (-hashed, item))
        elif -hashed > self.heap[0][0]:
            heapq.heapreplace(self.heap, (-hashed, item))

    def merge(self, other: LowestHashes) -> None:
        for inverted, item in other.heap:
            self.add(-inverted, item)

    def items(self) -> list[bytes]:
        """The items, ascending by hash."""
        return [item for _, item in sorted(self.heap, reverse=True)]


class SplitTotals(msgspec.Struct):
    """Counts of the records of one split.

    Attributes:
        source_bytes: size of their stored images, as listed.
        keys: a sample of their keys.
        labels: labels of images, of sequences and of their steps.
        objects: classes of objects.
        objects_per_record: number of records by their number of objects; more than 100 count as 100.
        labelled: records with a label.
        unlabelled: records without a label or an object.
    """

    records: int = 0
    source_bytes: int = 0
    keys: LowestHashes = msgspec.field(default_factory=lambda: LowestHashes(_KEYS_SAMPLE_SIZE))
    labels: Counter[str | int] = msgspec.field(default_factory=Counter)
    objects: Counter[str | int] = msgspec.field(default_factory=Counter)
    objects_per_record: Counter[int] = msgspec.field(default_factory=Counter)
    labelled: int = 0
    unlabelled: int = 0

    def add_classes(self, annotations: Annotations) -> None:
        is_labelled = bool(annotations.labels)
        for label in annotations.labels:
            self.labels[label] += 1
        if annotations.steps is not None:
            for labels in annotations.steps.labels:
                self.labels.update(labels)
                is_labelled |= bool(labels)
        if annotations.objects:
            for one in annotations.objects:
                self.objects[one.label] += 1
            self.objects_per_record[min(len(annotations.objects), MOST_BOXES)] += 1
        if is_labelled:
            self.labelled += 1
        elif not annotations.objects:
            self.unlabelled += 1

    def merge(self, other: SplitTotals) -> None:
        add_counts(self, other)
        self.keys.merge(other.keys)


@dataclasses.dataclass(slots=True)
class Classes:
    """The classes that sources define, of all that were listed.

    Attributes:
        names: by id.
        texts: by name.
        optional: names by id, used only if all labels are among them.
    """

    names: dict[int, str] = dataclasses.field(default_factory=dict)
    texts: dict[str, str] = dataclasses.field(default_factory=dict)
    optional: dict[int, str] = dataclasses.field(default_factory=dict)

    def add(self, found: ClassNames) -> None:
        add_classes(self.optional if found.optional else self.names, self.texts, found)

    def merge(self, other: Classes) -> None:
        self.add(ClassNames(other.names, other.texts))
        self.add(ClassNames(other.optional, optional=True))

    def of(self, labels: Collection[str | int]) -> dict[int, str] | None:
        """The classes of a dataset with these labels; None if no source defines any."""
        if self.names:
            return self.names
        defined = {*self.optional.values(), *self.optional}
        return self.optional if self.optional and defined.issuperset(labels) else None


@dataclasses.dataclass(slots=True)
class Totals:
    """Counts, labels, column types and a fixed sample of a set of records; equal whatever the order.

    Attributes:
        label_counts: fewest and most labels of one record.
        unsized: records with an image of unknown size.
        columns: the types of the free features.
        attributes: of the objects' attributes.
        steps: of the lists of sequences.
        annotated: kinds of annotations, as in `FeatureSettings`.
        digest: sum of the records' hashes, modulo 2**128: changes when the listed content changes.
        sample: a few packed records.
    """

    untyped: bool = False
    splits: dict[str, SplitTotals] = dataclasses.field(default_factory=dict)
    segment_labels: set[str | int] = dataclasses.field(default_factory=set)
    label_counts: tuple[int, int] | None = None
    with_image: int = 0
    unsized: int = 0
    columns: ColumnTypes = dataclasses.field(init=False)
    attributes: ColumnTypes = dataclasses.field(init=False)
    steps: ColumnTypes = dataclasses.field(default_factory=ColumnTypes)
    annotated: set[str] = dataclasses.field(default_factory=set)
    classes: Classes = dataclasses.field(default_factory=Classes)
    digest: int = 0
    sample: LowestHashes = dataclasses.field(default_factory=lambda: LowestHashes(_SAMPLE_SIZE))

    def __post_init__(self) -> None:
        self.columns = ColumnTypes(untyped=self.untyped)
        self.attributes = ColumnTypes(untyped=self.untyped)

    @property
    def records(self) -> int:
        return sum(split.records for split in self.splits.values())

    @property
    def labels(self) -> set[str | int]:
        every = set(self.segment_labels)
        for split in self.splits.values():
            every.update(split.labels, split.objects)
        return every

    @property
    def source_bytes(self) -> int:
        return sum(split.source_bytes for split in self.splits.values())

    def add(self, record: ImageRecord, hashed: int, listed: ListedRecord) -> None:
        """Adds one record, given its `key_digest` and its encoded parts."""
        name = record.split or DEFAULT_SPLIT
        split = self.splits.get(name)
        if split is None:
            split = self.splits[name] = SplitTotals()
        split.records += 1
        split.source_bytes += record.size
        labels = record.annotations.labels
        if labels:
            self.annotated.add("labels")
        split.add_classes(record.annotations)
        if has_details(record.annotations):
            self._add_details(record.annotations)
        self._count_labels(len(labels), len(labels))
        if record.image is not None:
            self.with_image += 1
            self.unsized += not record.size
        if record.annotations.features:
            self.columns.observe(record.annotations.features)
        self.digest = (self.digest + int.from_bytes(digest_of(listed.content), "big")) % _DIGEST_SPACE
        # The sample does not depend on the seed: a plan's figures are the same for all seeds.
        if self.sample.wants(hashed):
            self.sample.add(hashed, listed.packed)
        if split.keys.wants(hashed):
            split.keys.add(hashed, record.key.encode("utf-8"))

    def merge(self, other: Totals) -> None:
        for name, split in other.splits.items():
            self.splits.setdefault(name, SplitTotals()).merge(split)
        self.segment_labels |= other.segment_labels
        if other.label_counts is not None:
            self._count_labels(*other.label_counts)
        self.with_image += other.with_image
        self.unsized += other.unsized
        self.columns.merge(other.columns)
        self.attributes.merge(other.attributes)
        self.steps.merge(other.steps)
        self.annotated |= other.annotated
        self.classes.merge(other.classes)
        self.digest = (self.digest + other.digest) % _DIGEST_SPACE
        self.sample.merge(other.sample)

    def sampled(self) -> list[ImageRecord]:
        return [unpack_record(packed) for packed in self.sample.items()]

    def _add_details(self, annotations: Annotations) -> None:
        """Adds everything but labels and free features."""
        found = self.annotated
        for one in annotations.objects:
            if one.attributes:
                self.attributes.observe(one.attributes)
            if one.mask is not None:
                found.add("object_masks")
            if one.keypoints:
                found.add("keypoints")
            if one.parts:
                found.add("parts")
        for mask in annotations.masks.values():
            self.segment_labels.update(segment.label for segment in mask.segments)
        steps = annotations.steps
        if steps is not None:
            for name, values in steps.lists.items():
                for value in values:
                    self.steps.observe({name: value})
        present = {
            "objects": annotations.objects,
            "captions": annotations.captions,
            "source_id": annotations.source_id,
            "steps": steps is not None,
            "frames": steps is not None and steps.frames,
            "step_labels": steps is not None and steps.labels,
        }
        found.update(name for name, value in present.items() if value)
        found.update(annotations.masks)

    def _count_labels(self, fewest: int, most: int) -> None:
        counted = self.label_counts
        if counted is None:
            self.label_counts = (fewest, most)
        elif fewest < counted[0] or most > counted[1]:
            self.label_counts = (min(fewest, counted[0]), max(most, counted[1]))


def total(records: Iterable[ImageRecord], untyped: bool = False) -> Totals:
    totals = Totals(untyped)
    for record in records:
        totals.add(record, key_digest(record.key), ListedRecord.of(record))
    return totals


def merged_totals(parts: Iterable[Totals], untyped: bool) -> Totals:
    result = Totals(untyped)
    for part in parts:
        result.merge(part)
    return result
