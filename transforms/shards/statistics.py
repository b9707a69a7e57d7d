"""Counts of stored records for the report: sizes, shapes, classes and boxes."""

from __future__ import annotations

import functools
import math
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec
import numpy as np

from recordmill.transforms.examples.features import Feature
from recordmill.transforms.examples.schema import DatasetSummary, FeatureSettings, Schema, all_specs
from recordmill.transforms.images.mask import decode_mask, pixel_counts
from recordmill.transforms.images.policy import LOSSY
from recordmill.transforms.records import StoredImage

MOST_REENCODED = 4
"""How many re-encoded images are listed."""

MOST_BOXES = 100
_ASPECTS = (-12, 12)
_BOX_SIDES = (-16, 0)
_four_floats = struct.Struct("<4f")
_BOX = "image/object/bbox/"
# Schema `imagenet` has the classes of objects next to their boxes.
_OBJECT_LABELS = (f"{_BOX}label",)
# Class masks of an image, by their name in `Mapped.masks`. If a record has several, they are equal.
_CLASS_MASKS = ("class_png", "class_raw", "panoptic_category_png")
_NO_MASKS: Mapping[str, bytes] = MappingProxyType({})
_ENCODED = frozenset({"reencoded", "transcoded"})

NO_PIXELS: Mapping[int, int] = MappingProxyType({})
_T = TypeVar("_T", bound=msgspec.Struct)

Sides = tuple[float, float, float, float]
"""xmin, ymin, xmax, ymax of a box, normalised to [0, 1]."""


def add_counts(total: msgspec.Struct, more: msgspec.Struct) -> None:
    """Adds the numbers and counters of `more` to those of `total`, field by field."""
    for name in total.__struct_fields__:
        mine, theirs = getattr(total, name), getattr(more, name)
        if isinstance(mine, Counter):
            mine.update(theirs)
        elif isinstance(mine, int):
            setattr(total, name, mine + theirs)
        elif isinstance(mine, Statistics):
            mine.merge(theirs)


def in_order(counts: _T) -> _T:
    """A copy with sorted counters: equal counts are encoded as equal bytes."""
    changes: dict[str, Any] = {}
    for name in counts.__struct_fields__:
        value = getattr(counts, name)
        if isinstance(value, Counter):
            changes[name] = Counter(dict(sorted(value.items())))
        elif isinstance(value, Statistics):
            changes[name] = in_order(value)
    return msgspec.structs.replace(counts, **changes)


def decode_counter(kind: Any, value: Any) -> Counter[Any]:
    """The `dec_hook` of msgspec for structs with counters."""
    return Counter(msgspec.convert(value, dict[get_args(kind)[0], int], str_keys=True))  # type: ignore[misc]


class Statistics(msgspec.Struct):
    """Mergeable counts of the records of one or more shards of one split.

    Attributes:
        records: number of records.
        images: number of images with a height and a width; of sequences, every frame.
        unlabelled: records without a label or an object.
        least: width and height of the smallest image by area; None without images.
        most: width and height of the largest.
        widths: of images, by bin: bin b has those of 2^(b/2) pixels, rounded.
        heights: of images, by bin, as `widths`.
        aspects: width over height, by bin: bin b has those of 2^(b/4), rounded; from -12 to 12.
        labels: class ids of images, each counted once a label.
        objects: class ids of objects.
        pixels: number of pixels of each class id in the masks of images; 255 is the ignore label.
        pixel_images: number of images whose mask has a class id, by class id.
        boxes_per_image: number of boxes of each image; more than 100 are 100.
        box_sides: square root of the part of the image that a box covers, by bin: bin b has those of
            2^(b/2), rounded; from -16 to 0.
        box_aspects: as `aspects`, in pixels.
        reencoded: key and packed reference of a few images that were re-encoded lossily: those with the
            first references, in whatever order they were written.
    """

    records: int = 0
    images: int = 0
    unlabelled: int = 0
    least: tuple[int, int] | None = None
    most: tuple[int, int] | None = None
    widths: Counter[int] = msgspec.field(default_factory=Counter)
    heights: Counter[int] = msgspec.field(default_factory=Counter)
    aspects: Counter[int] = msgspec.field(default_factory=Counter)
    labels: Counter[int] = msgspec.field(default_factory=Counter)
    objects: Counter[int] = msgspec.field(default_factory=Counter)
    pixels: Counter[int] = msgspec.field(default_factory=Counter)
    pixel_images: Counter[int] = msgspec.field(default_factory=Counter)
    boxes_per_image: Counter[int] = msgspec.field(default_factory=Counter)
    box_sides: Counter[int] = msgspec.field(default_factory=Counter)
    box_aspects: Counter[int] = msgspec.field(default_factory=Counter)
    reencoded: list[tuple[str, bytes]] = []

    def add(
        self,
        sizes: Iterable[tuple[int, int]],
        labels: Iterable[int] = (),
        objects: Iterable[int] = (),
        boxes: Sequence[Sides] | None = None,
        pixels: Mapping[int, int] = NO_PIXELS,
    ) -> None:
        """Counts one record.

        Args:
            sizes: width and height of its image, or of each frame of a sequence.
            labels, objects, boxes, pixels: as in `Counted`.
        """
        self.records += 1
        size = None
        for size in sizes:
            self._add_size(size)
        label: int | None = None
        for label in labels:
            self.labels[label] += 1
        for label in objects:
            self.objects[label] += 1
        if pixels:
            self.pixels.update(pixels)
            self.pixel_images.update(pixels.keys())
        self.unlabelled += label is None
        if boxes is not None:
            self.boxes_per_image[min(len(boxes), MOST_BOXES)] += 1
            for box in boxes:
                self._add_box(box, size or (1, 1))

    def add_reencoded(self, key: str, reference: bytes) -> None:
        """Lists an image that was re-encoded, if its reference is among the first."""
        if len(self.reencoded) < MOST_REENCODED or reference < self.reencoded[-1][1]:
            self._remember([(key, reference)])

    def merge(self, other: Statistics) -> None:
        """Adds the counts of `other`."""
        add_counts(self, other)
        for size in (other.least, other.most):
            if size is not None:
                self._stretch(size)
        self._remember(other.reencoded)

    def as_json(self) -> dict[str, Any]:
        """The counts as in report.json: by bin or id, in order; and `reencoded`."""
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(in_order(self)))
        return found

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Statistics:
        """The inverse of `as_json`; `reencoded` and `unlabelled` may be missing.

        Raises:
            ValueError: something else is missing, or has another type.
        """
        statistics = msgspec.convert(found, Statistics, str_keys=True, dec_hook=decode_counter)
        if missing := set(Statistics.__struct_fields__) - {*found, "reencoded", "unlabelled"}:
            raise ValueError(f"{min(missing)} is missing")
        return statistics

    def _add_size(self, size: tuple[int, int]) -> None:
        self.images += 1
        width, height, aspect = _size_bins(size)
        self.widths[width] += 1
        self.heights[height] += 1
        self.aspects[aspect] += 1
        if size != self.least and size != self.most:
            self._stretch(size)

    def _stretch(self, size: tuple[int, int]) -> None:
        """Of several sizes of one area the narrowest counts, so that their order does not matter."""
        if self.least is None or _by_area(size) < _by_area(self.least):
            self.least = size
        if self.most is None or _by_area(size) > _by_area(self.most):
            self.most = size

    def _add_box(self, box: Sides, size: tuple[int, int]) -> None:
        # As records store them: counting stored records must give the same.
        xmin, ymin, xmax, ymax = _four_floats.unpack(_four_floats.pack(*box))
        width, height = xmax - xmin, ymax - ymin
        is_area = width > 0 and height > 0
        self.box_sides[_bin(math.sqrt(width * height), 2, _BOX_SIDES) if is_area else _BOX_SIDES[0]] += 1
        self.box_aspects[_aspect_bin(width * size[0], height * size[1])] += 1

    def _remember(self, more: Iterable[tuple[str, bytes]]) -> None:
        self.reencoded = sorted([*self.reencoded, *more], key=_by_reference)[:MOST_REENCODED]


def _bin(value: float, to_double: int, limits: tuple[int, int] | None = None) -> int:
    """The bin of a positive value; it doubles every `to_double` bins."""
    position = to_double * math.log2(value)
    if limits is not None:
        position = min(max(position, limits[0]), limits[1])
    return round(position)


def _aspect_bin(width: float, height: float) -> int:
    """The bin of a shape; the first and last are for those without width or height."""
    if not width > 0:
        return _ASPECTS[0] if height > 0 else 0
    return _bin(width / height, 4, _ASPECTS) if height > 0 else _ASPECTS[1]


@functools.lru_cache(maxsize=4096)
def _size_bins(size: tuple[int, int]) -> tuple[int, int, int]:
    """Of width, height and aspect."""
    width, height = size
    return _bin(max(width, 1), 2), _bin(max(height, 1), 2), _aspect_bin(width, height)


def _by_area(size: tuple[int, int]) -> tuple[int, int]:
    return size[0] * size[1], size[0]


def _by_reference(one: tuple[str, bytes]) -> bytes:
    return one[1]


class Counted(NamedTuple):
    """The arguments of `Statistics.add` after the sizes of images.

    Attributes:
        labels: class ids of the image, or of the sequence and of its steps.
        objects: class ids of objects.
        boxes: of objects; None for records of a kind without boxes.
        pixels: number of pixels of each class id in the mask of the image.
    """

    labels: Sequence[int] = ()
    objects: Sequence[int] = ()
    boxes: Sequence[Sides] | None = None
    pixels: Mapping[int, int] = NO_PIXELS


_NOTHING_COUNTED = Counted()


class CountedFeatures:
    """Finds the counted features by their names.

    Args:
        schema: of the features.
        settings: of the dataset. Its free features are not counted, whatever their names.
    """

    def __init__(self, schema: Schema, settings: FeatureSettings) -> None:
        summary = DatasetSummary(True, (1, 1), annotated=settings.annotated)
        own = all_specs(schema, summary)
        specs = {name: spec for name, spec in own.items() if name not in settings.columns}
        self._labels = next((name for name, spec in specs.items() if spec.role == "label"), "")
        objects = [name for name, spec in specs.items() if spec.role == "object_label"]
        objects += [name for name in _OBJECT_LABELS if name in specs]
        self._objects = objects[0] if objects else ""

    @property
    def has_labels(self) -> bool:
        """Whether labels of images are counted."""
        return bool(self._labels)

    @property
    def has_objects(self) -> bool:
        """Whether objects are counted."""
        return bool(self._objects)

    def of(
        self,
        features: Mapping[str, Feature],
        lists: Mapping[str, Sequence[Feature]] | None = None,
        masks: Mapping[str, bytes] = _NO_MASKS,
    ) -> Counted:
        """The counts of one record.

        Args:
            features: of the record, under our names; of a sequence, its context.
            lists: of a sequence.
            masks: of the image, as `Mapped.masks`.
        """
        labels: Sequence[int] = features[self._labels].values if self._labels in features else ()
        if lists is not None:
            labels = [*labels, *(label for step in lists.get(self._labels, ()) for label in step.values)]
        pixels = _class_pixels(masks)
        if not self._objects:
            return Counted(labels, pixels=pixels) if labels or pixels else _NOTHING_COUNTED
        xmin, ymin, xmax, ymax = (features[_BOX + side].values for side in ("xmin", "ymin", "xmax", "ymax"))
        boxes = list(zip(xmin, ymin, xmax, ymax, strict=True))
        return Counted(labels, features[self._objects].values, boxes, pixels)


def _class_pixels(masks: Mapping[str, bytes]) -> Mapping[int, int]:
    """The pixels of each class, from the stored bytes: a reused mask has nothing else."""
    name = next((name for name in _CLASS_MASKS if name in masks), None) if masks else None
    if name is None:
        return NO_PIXELS
    ids = np.frombuffer(masks[name], np.uint8) if name == "class_raw" else decode_mask(masks[name])
    return pixel_counts(ids)


def is_lossy(images: Iterable[StoredImage]) -> bool:
    """Whether an image was re-encoded in a format that changes pixels."""
    return any(image.image_format in LOSSY and not _ENCODED.isdisjoint(image.actions) for image in images)
