"""A stored record as what a person sees: its image, labels by name, boxes in pixels, masks, captions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from recordmill.transforms.annotations.decoded import read_ids
from recordmill.transforms.examples.record_view import Pixels, read_view
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.opened import opened, opened_pixels
from recordmill.transforms.images.picture import OpenedImage
from recordmill.transforms.records import AnnotatedObject, Annotations, BadInput, Box, FeatureValue, ImageRef
from recordmill.transforms.sources.tfrecord.records import read_record

_INCLUDED = ("masks", "keypoints", "captions")


@dataclasses.dataclass(frozen=True, slots=True)
class StoredImageBytes:
    """An image as a record holds it.

    Attributes:
        data: an image file, or raw uint8 pixels.
        pixels: (height, width, channels) of raw pixels; None where `data` is a file.
    """

    data: bytes = dataclasses.field(repr=False)
    pixels: Pixels | None = None

    def opened(self) -> OpenedImage:
        """Its header read.

        Raises:
            BadInput: stage `decode`: it is no image.
        """
        return opened(self.data) if self.pixels is None else opened_pixels(self.data, self.pixels)

    def size(self) -> tuple[int, int]:
        """Height and width, from the header where that tells.

        Raises:
            BadInput: stage `decode`: it is no image, or damaged.
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
        name: of its class; the id as text where it has no name.
        label: the class as it is stored: its id, or its name where there is no id.
        box: in pixels of the stored image; None where it has none that is finite.
        mask: not 0 where the object is; None where it has none.
        keypoints: x and y in pixels, and COCO's visibility.
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
        key: its own, or the one that was given for it.
        labels: of the whole image, by name; ids as text where they have no name.
        image: None where it has none; a sequence has frames instead.
        size: (height, width) that the objects and masks are measured in; None where nothing needs it.
        objects: in their order.
        class_mask: of the whole image: class ids, 255 where no trainer looks.
        instance_mask: of the whole image: numbers of objects.
        captions: sentences.
        frames: of a sequence.
        step_labels: of a sequence, by name; empty, or those of each step.
        features: the free ones, those of a sequence's steps as tuples.
        names: of classes by id.
        label_ids: of the whole image, as they are stored: ids, or names where there are no ids.
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
    """Reads a record of any schema of ours, and of the usual foreign ones.

    Args:
        payload: a serialised tf.train.Example or SequenceExample.
        names: of classes by stored id, where something beside the records tells them.
        renames: our name of a feature, by the name that it is stored under.
        key: of a record that has none of its own.

    Raises:
        BadInput: it is no Example, its image is of no known format, or its annotations do not fit each other.
    """
    found, classes = read_record(read_view(payload, renames), key, include=_INCLUDED)
    return _Reading(payload, {**classes.names, **names}, classes.texts).record(
        found.key, found.image, found.annotations
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Reading:
    """What is needed to read one record.

    Attributes:
        payload: that references lead into.
        names: of classes by id.
        texts: what people call a class whose name is a code, by name.
    """

    payload: bytes
    names: Mapping[int, str]
    texts: Mapping[str, str]

    def record(self, key: str, image: ImageRef | None, annotations: Annotations) -> StoredRecord:
        stored = None if image is None else self._bytes(image)
        masks = {kind: self._bytes(mask.image) for kind, mask in annotations.masks.items()}
        size = annotations.size
        if size is None and stored is not None and (annotations.objects or masks):
            size = _size_of(stored)
        steps = annotations.steps
        features: dict[str, FeatureValue | tuple[FeatureValue, ...]] = dict(annotations.features)
        return StoredRecord(
            key,
            self._named(annotations.labels),
            stored,
            size,
            tuple(self._object(one, size) for one in annotations.objects),
            masks.get("class"),
            masks.get("instance"),
            annotations.captions,
            tuple(self._bytes(frame) for frame in steps.frames) if steps else (),
            tuple(self._named(labels) for labels in steps.labels) if steps else (),
            {**features, **steps.lists} if steps else features,
            self.names,
            annotations.labels,
        )

    def _bytes(self, ref: ImageRef) -> StoredImageBytes:
        return StoredImageBytes(self.payload[ref.offset : ref.offset + (ref.length or 0)], ref.pixels)

    def _named(self, labels: Iterable[str | int]) -> tuple[str, ...]:
        return tuple(map(self._name, labels))

    def _name(self, label: str | int) -> str:
        name = self.names.get(label, str(label)) if isinstance(label, int) else label
        return self.texts.get(name, name)

    def _object(self, one: AnnotatedObject, size: tuple[int, int] | None) -> StoredObject:
        mask = self._bytes(one.mask) if isinstance(one.mask, ImageRef) else None
        if size is None:
            return StoredObject(self._name(one.label), one.label, None, mask)
        height, width = size
        box = None
        if one.box is not None and np.isfinite(one.box).all():
            box = Box(
                one.box.xmin * width, one.box.ymin * height, one.box.xmax * width, one.box.ymax * height
            )
        points = tuple(
            (x * width, y * height, seen) for x, y, seen in one.keypoints if np.isfinite((x, y)).all()
        )
        return StoredObject(self._name(one.label), one.label, box, mask, points)


def _size_of(image: StoredImageBytes) -> tuple[int, int] | None:
    """Height and width; None of an image that cannot be decoded: drawing it tells why."""
    try:
        return image.size()
    except BadInput:
        return None
