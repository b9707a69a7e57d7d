"""Figures about stored records, to be shown: sizes, shapes, classes, boxes. Counted as shards are written."""

from __future__ import annotations

import base64
import dataclasses
import functools
import math
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

MOST_REENCODED = 4
"""How many images that were re-encoded are remembered."""

MOST_BOXES = 100
_ASPECTS = (-12, 12)
_BOX_SIDES = (-16, 0)
_four_floats = struct.Struct("<4f")

NO_PIXELS: Mapping[int, int] = MappingProxyType({})

Sides = tuple[float, float, float, float]
"""xmin, ymin, xmax, ymax of a box: shares of width and height."""


@dataclasses.dataclass(slots=True)
class Statistics:
    """Mergeable counts of what the records of one or more shards of one split hold.

    Attributes:
        records: that were counted.
        images: with a height and a width, among them; of sequences, every frame.
        widths: of images, by bin: the bin b has those of 2^(b/2) pixels, rounded.
        heights: likewise.
        aspects: width over height, by bin: the bin b has those of 2^(b/4), rounded; from -12 to 12.
        least: width and height of the smallest image by area; None where there is none.
        most: of the largest.
        labels: class ids of whole images, each counted once a label.
        objects: class ids of objects.
        pixels: number of pixels of each class id in the masks of images; 255 is the ignore label.
        pixel_images: number of images whose mask has a class id, by class id.
        boxes_per_image: number of boxes of each image; more than 100 are 100.
        box_sides: square root of the share of the image that a box covers, by bin: the bin b has those of
            2^(b/2), rounded; from -16 to 0.
        box_aspects: as `aspects`, in pixels.
        reencoded: key and packed reference of a few images that were stored other than the source has them,
            lossily: those whose references come first, whatever order they were written in.
        unlabelled: records without a label or an object.
    """

    records: int = 0
    images: int = 0
    widths: Counter[int] = dataclasses.field(default_factory=Counter)
    heights: Counter[int] = dataclasses.field(default_factory=Counter)
    aspects: Counter[int] = dataclasses.field(default_factory=Counter)
    least: tuple[int, int] | None = None
    most: tuple[int, int] | None = None
    labels: Counter[int] = dataclasses.field(default_factory=Counter)
    objects: Counter[int] = dataclasses.field(default_factory=Counter)
    pixels: Counter[int] = dataclasses.field(default_factory=Counter)
    pixel_images: Counter[int] = dataclasses.field(default_factory=Counter)
    boxes_per_image: Counter[int] = dataclasses.field(default_factory=Counter)
    box_sides: Counter[int] = dataclasses.field(default_factory=Counter)
    box_aspects: Counter[int] = dataclasses.field(default_factory=Counter)
    reencoded: list[tuple[str, bytes]] = dataclasses.field(default_factory=list)
    unlabelled: int = 0

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
            sizes: width and height of its image, of each frame of a sequence; of none where it has none.
            labels: class ids of the whole image.
            objects: class ids of its objects.
            boxes: of its objects; None where records of its kind have no boxes at all.
            pixels: number of pixels of each class id in the mask of the whole image.
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
        self.pixels.update(pixels)
        self.pixel_images.update(pixels.keys())
        self.unlabelled += label is None
        if boxes is not None:
            self.boxes_per_image[min(len(boxes), MOST_BOXES)] += 1
            for box in boxes:
                self._add_box(box, size or (1, 1))

    def add_reencoded(self, key: str, reference: bytes) -> None:
        """Remembers an image that was re-encoded, if it is among the first."""
        if len(self.reencoded) < MOST_REENCODED or reference < self.reencoded[-1][1]:
            self._remember([(key, reference)])

    def merge(self, other: Statistics) -> None:
        """Counts in all that `other` has counted."""
        self.records += other.records
        self.images += other.images
        self.unlabelled += other.unlabelled
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))
        for size in (other.least, other.most):
            if size is not None:
                self._stretch(size)
        self._remember(other.reencoded)

    def as_json(self) -> dict[str, Any]:
        """All of it as what JSON knows; counts by bin or id, which are text there, in order."""
        return {
            "records": self.records,
            "images": self.images,
            "unlabelled": self.unlabelled,
            "least": self.least and list(self.least),
            "most": self.most and list(self.most),
            **{name: _counts(getattr(self, name)) for name in _COUNTERS},
            "reencoded": [[key, base64.b64encode(packed).decode()] for key, packed in self.reencoded],
        }

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Statistics:
        """The inverse of `as_json`; `reencoded` and `unlabelled` may be missing.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it did not make that.
        """
        counters = {
            name: Counter({int(key): int(count) for key, count in found[name].items()}) for name in _COUNTERS
        }
        return Statistics(
            records=int(found["records"]),
            images=int(found["images"]),
            unlabelled=int(found.get("unlabelled", 0)),
            least=_size(found["least"]),
            most=_size(found["most"]),
            reencoded=[(str(key), base64.b64decode(packed)) for key, packed in found.get("reencoded", ())],
            **counters,
        )

    def _add_size(self, size: tuple[int, int]) -> None:
        self.images += 1
        width, height, aspect = _size_bins(size)
        self.widths[width] += 1
        self.heights[height] += 1
        self.aspects[aspect] += 1
        if size != self.least and size != self.most:
            self._stretch(size)

    def _stretch(self, size: tuple[int, int]) -> None:
        """Of sizes of one area the narrowest counts, so that it is no matter which came first."""
        if self.least is None or _by_area(size) < _by_area(self.least):
            self.least = size
        if self.most is None or _by_area(size) > _by_area(self.most):
            self.most = size

    def _add_box(self, box: Sides, size: tuple[int, int]) -> None:
        # As records store them: who counts again from those finds the same.
        xmin, ymin, xmax, ymax = _four_floats.unpack(_four_floats.pack(*box))
        width, height = xmax - xmin, ymax - ymin
        is_area = width > 0 and height > 0
        self.box_sides[_bin(math.sqrt(width * height), 2, _BOX_SIDES) if is_area else _BOX_SIDES[0]] += 1
        self.box_aspects[_aspect_bin(width * size[0], height * size[1])] += 1

    def _remember(self, more: Iterable[tuple[str, bytes]]) -> None:
        self.reencoded = sorted([*self.reencoded, *more], key=_by_reference)[:MOST_REENCODED]


_COUNTERS = tuple(field.name for field in dataclasses.fields(Statistics) if field.default_factory is Counter)


def _bin(value: float, to_double: int, limits: tuple[int, int] | None = None) -> int:
    """The bin of a positive value, where so many bins double it."""
    place = to_double * math.log2(value)
    if limits is not None:
        place = min(max(place, limits[0]), limits[1])
    return round(place)


def _aspect_bin(width: float, height: float) -> int:
    """The bin of a shape; at the ends those without a width, or without a height."""
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


def _counts(counter: Counter[int]) -> dict[str, int]:
    return {str(key): count for key, count in sorted(counter.items())}


def _size(found: Any) -> tuple[int, int] | None:
    if found is None:
        return None
    width, height = found
    return int(width), int(height)
