"""What of a record's features is counted for its dataset's statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from recordmill.transforms.examples.features import Feature
from recordmill.transforms.examples.schema import DatasetSummary, FeatureSettings, Schema, all_specs
from recordmill.transforms.images.mask import decode_mask, pixel_counts
from recordmill.transforms.images.policy import LOSSY
from recordmill.transforms.records import StoredImage
from recordmill.transforms.shards.statistics import NO_PIXELS, Sides

_BOX = "image/object/bbox/"
# Schema `imagenet` has the classes of objects beside their boxes.
_OBJECT_LABELS = (f"{_BOX}label",)
# Class masks of an image, by their name in `Mapped.masks`. If a record has several, they are equal.
_CLASS_MASKS = ("class_png", "class_raw", "panoptic_category_png")
_NO_MASKS: Mapping[str, bytes] = MappingProxyType({})
_ENCODED = frozenset({"reencoded", "transcoded"})


class Counted(NamedTuple):
    """What `Statistics.add` takes beside the sizes of images.

    Attributes:
        labels: class ids of the whole image, or of the sequence and of its steps.
        objects: class ids of objects.
        boxes: of objects; None where no record has any.
        pixels: number of pixels of each class id in the mask of the whole image.
    """

    labels: Sequence[int] = ()
    objects: Sequence[int] = ()
    boxes: Sequence[Sides] | None = None
    pixels: Mapping[int, int] = NO_PIXELS


class CountedFeatures:
    """Finds what is counted by the features' names.

    Args:
        schema: that makes the features.
        settings: of the dataset. Its free features are not counted, whatever they are called.
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
        """Whether labels of whole images are counted."""
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
        """What is counted of one record.

        Args:
            features: of the record, under our names; of a sequence, its context.
            lists: of a sequence.
            masks: of the whole image, as `Mapped.masks`.
        """
        labels: Sequence[int] = features[self._labels].values if self._labels in features else ()
        if lists is not None:
            labels = [*labels, *(label for step in lists.get(self._labels, ()) for label in step.values)]
        pixels = _class_pixels(masks)
        if not self._objects:
            return Counted(labels, pixels=pixels)
        xmin, ymin, xmax, ymax = (features[_BOX + side].values for side in ("xmin", "ymin", "xmax", "ymax"))
        boxes = list(zip(xmin, ymin, xmax, ymax, strict=True))
        return Counted(labels, features[self._objects].values, boxes, pixels)


def _class_pixels(masks: Mapping[str, bytes]) -> Mapping[int, int]:
    """The pixels of each class, counted in the stored bytes: a reused mask has nothing else."""
    name = next((name for name in _CLASS_MASKS if name in masks), None)
    if name is None:
        return NO_PIXELS
    ids = np.frombuffer(masks[name], np.uint8) if name == "class_raw" else decode_mask(masks[name])
    return pixel_counts(ids)


def is_lossy(images: Iterable[StoredImage]) -> bool:
    """Whether an image was encoded anew in a format that changes pixels."""
    return any(image.image_format in LOSSY and not _ENCODED.isdisjoint(image.actions) for image in images)
