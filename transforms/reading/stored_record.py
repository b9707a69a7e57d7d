"""A stored record for display: its image, labels by name, boxes in pixels, masks, captions."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

import numpy as np

from recordmill.transforms.annotations.decoded import read_ids
from recordmill.transforms.examples.record_view import Pixels, read_view
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.opened import opened
from recordmill.transforms.images.picture import OpenedImage
from recordmill.transforms.records import AnnotatedObject, BadInput, Box, FeatureValue, ImageRef
from recordmill.transforms.sources.tfrecord.records import read_record

_INCLUDED = ("masks", "keypoints", "captions")


@dataclasses.dataclass(frozen=True, slots=True)
class StoredImageBytes:
    """An image as a record stores it.

    Attributes:
        pixels: (height, width, channels) of raw pixels; None if `data` is a file.
    """

    data: bytes = dataclasses.field(repr=False)
    pixels: Pixels | None = None

    @classmethod
    def of(cls, payload: bytes, image: ImageRef) -> StoredImageBytes:
        """The image at a reference into a record."""
        return cls(payload[image.offset : image.offset + (image.length or 0)], image.pixels)

    def opened(self) -> OpenedImage:
        """The image with its header read.

        Raises:
            BadInput: stage `decode`: it is not an image.
        """
        return opened(self.data, self.pixels)

    def size(self) -> tuple[int, int]:
        """Height and width, from the header if possible.

        Raises:
            BadInput: stage `decode`: it is not an image, or damaged.
        """
        if self.pixels is not None:
            return self.pixels[:2]
        image = self.opened()
        if image.kept is not None:
            return image.kept.height, image.kept.width
        height, width = image.decode().pixels.shape[:2]
        return height, width

    def ids(self) -> Array:
        """The pixels of a mask: uint8 or uint16 (height, width).

        Raises:
            BadInput: stage `annotations`: it is damaged, or has more than one channel.
        """
        return read_ids(ImageRef("mask", 0, len(self.data), self.pixels), lambda _: self.data)


@dataclasses.dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of a record.

    Attributes:
        name: of its class; the id as text if it has no name.
        label: the class as it is stored: its id, or its name if there is no id.
        box: in pixels of the stored image; None if it has no finite one.
        mask: not 0 for pixels of the object; None if it has no mask.
    """

    name: str
    label: int | str
    box: Box | None = None
    mask: StoredImageBytes | None = None
    keypoints: tuple[tuple[float, float, int], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record.

    Attributes:
        key: its own, or the given one.
        labels: of the image, by name; ids as text if they have no name.
        image: None if it has none; a sequence has frames instead.
        size: (height, width) of the coordinates of objects and masks; None if nothing needs it.
        objects: in their order.
        class_mask: of the image: class ids; 255 means ignore.
        instance_mask: of the image: numbers of objects.
        step_labels: of a sequence, by name; empty, or the labels of each step.
        features: the free ones; of a sequence's steps, as tuples.
        label_ids: of the image, as they are stored: ids, or names if there are no ids.
    """

    key: str
    labels: tuple[str, ...] = ()
    image: StoredImageBytes | None = None
    size: tuple[int, int] | None = None
    objects: tuple[StoredObject, ...] = ()
    class_mask: StoredImageBytes | None = None
    instance_mask: StoredImageBytes | None = None
    captions: tuple[str, ...] = ()
    frames: tuple[StoredImageBytes, ...] = ()
    step_labels: tuple[tuple[str, ...], ...] = ()
    features: Mapping[str, FeatureValue | tuple[FeatureValue, ...]] = dataclasses.field(default_factory=dict)
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    label_ids: tuple[int | str, ...] = ()


def stored_record(
    payload: bytes, names: Mapping[int, str], renames: Mapping[str, str], key: str = "record"
) -> StoredRecord:
    """Reads a record of any schema of ours, or of a common foreign one.

    Args:
        names: of classes by stored id, if the manifest or files next to the records have them.
        renames: our name of a feature, by its stored name.
        key: for a record that has none of its own.

    Raises:
        BadInput: it is not an Example, its image has no known format, or its annotations contradict each
            other.
    """
    found, classes = read_record(read_view(payload, renames), key, include=_INCLUDED)
    names = {**classes.names, **names}

    def named(label: str | int) -> str:
        name = names.get(label, str(label)) if isinstance(label, int) else label
        return classes.texts.get(name, name)

    annotations, steps = found.annotations, found.annotations.steps
    image = None if found.image is None else StoredImageBytes.of(payload, found.image)
    masks = {kind: StoredImageBytes.of(payload, mask.image) for kind, mask in annotations.masks.items()}
    size = annotations.size
    if size is None and image is not None and (annotations.objects or masks):
        with contextlib.suppress(BadInput):  # drawing the image shows why it cannot be decoded
            size = image.size()
    return StoredRecord(
        key=found.key,
        labels=tuple(map(named, annotations.labels)),
        image=image,
        size=size,
        objects=tuple(_object(payload, one, named(one.label), size) for one in annotations.objects),
        class_mask=masks.get("class"),
        instance_mask=masks.get("instance"),
        captions=annotations.captions,
        frames=tuple(StoredImageBytes.of(payload, frame) for frame in steps.frames) if steps else (),
        step_labels=tuple(tuple(map(named, labels)) for labels in steps.labels) if steps else (),
        features={**annotations.features, **(steps.lists if steps else {})},
        names=names,
        label_ids=annotations.labels,
    )


def _object(payload: bytes, one: AnnotatedObject, name: str, size: tuple[int, int] | None) -> StoredObject:
    mask = StoredImageBytes.of(payload, one.mask) if isinstance(one.mask, ImageRef) else None
    if size is None:
        return StoredObject(name, one.label, None, mask)
    height, width = size
    box = None
    if one.box is not None and np.isfinite(one.box).all():
        box = Box(one.box.xmin * width, one.box.ymin * height, one.box.xmax * width, one.box.ymax * height)
    points = tuple((x * width, y * height, seen) for x, y, seen in one.keypoints if np.isfinite((x, y)).all())
    return StoredObject(name, one.label, box, mask, points)
