"""One TFRecord as an ImageRecord: an Example, or a SequenceExample."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeVar

from recordmill.transforms.records import Annotations, BadInput, FeatureValue, ImageRecord, ImageRef, Steps
from recordmill.transforms.sources.tfrecord.features import (
    CAPTIONS,
    FILENAME,
    LABEL_KEYS,
    SOURCE_ID,
    SYNSET,
    TEXT,
    Fields,
    Refer,
    image_of,
    labels_of,
    masks_of,
)
from recordmill.transforms.sources.tfrecord.objects import objects_of
from recordmill.transforms.sources.tfrecord.wire import (
    NOT_AN_EXAMPLE,
    Feature,
    read_example,
    read_feature_lists,
)

_SEQUENCE_KEY = "sequence/key"
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a record is.

    Attributes:
        key: of its file and number.
        split: of its file.
        named_by_us: image/filename, or sequence/key, is its key.
    """

    key: str
    split: str | None
    named_by_us: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What is in a record.

    Attributes:
        record: of the image.
        names: of classes by id, as the record tells them.
        texts: of classes whose names are synsets, by name.
    """

    record: ImageRecord
    names: Mapping[int, str]
    texts: Mapping[str, str]


class RecordReader:
    """Reads records.

    Args:
        include: what of `masks`, `keypoints` and `captions` is taken.
        renames: (old, new) names of features, the new being ours.
    """

    def __init__(self, include: tuple[str, ...], renames: tuple[tuple[str, str], ...]) -> None:
        self._include = frozenset(include)
        self._renames = dict(renames)

    def features(self, payload: bytes) -> tuple[dict[str, Feature], dict[str, list[Feature]]]:
        """The features of a record, and its feature lists, under our names.

        Raises:
            BadInput: stage `manifest`: it is no Example, has no feature, or one name is to have two.
        """
        features, lists = read_example(payload), read_feature_lists(payload)
        if not features and not lists:
            detail = f"its {len(payload)} bytes hold no feature"
            raise BadInput("manifest", NOT_AN_EXAMPLE, detail)
        return self._renamed(features), self._renamed(lists)

    def read(self, payload: bytes, place: Place, refer: Refer) -> Found:
        """The record that a payload is.

        Raises:
            BadInput: it cannot be used.
        """
        features, lists = self.features(payload)
        fields = Fields(payload, features, refer)
        key = (place.named_by_us and fields.text(_SEQUENCE_KEY if lists else FILENAME)) or place.key
        if lists:
            return _sequence(key, place, fields, lists)
        return self._example(key, place, fields)

    def _example(self, key: str, place: Place, fields: Fields) -> Found:
        shape = fields.shape()
        image, masks = image_of(fields, shape), masks_of(fields, shape)
        labels, names, texts = _labels(fields)
        objects, object_names = objects_of(fields, labels, self._include)
        captions = [caption for name in CAPTIONS for caption in fields.texts(name)]
        declared = (shape.height or 0, shape.width or 0)
        annotations = Annotations(
            labels=labels,
            features=_free(fields, key, image is not None),
            objects=objects,
            captions=tuple(captions) if "captions" in self._include else (),
            masks=masks,
            size=declared if (objects or masks) and all(side > 0 for side in declared) else None,
            relative=bool(objects),
            source_id=_source_id(fields, key),
        )
        size = (image.length or 0) if image else 0
        record = ImageRecord(key, image, place.split, annotations, place.key, size)
        return Found(record, {**object_names, **names}, texts)

    def _renamed(self, features: dict[str, _T]) -> dict[str, _T]:
        if not self._renames:
            return features
        renamed: dict[str, _T] = {}
        for name, feature in features.items():
            new = self._renames.get(name, name)
            if new in renamed:
                detail = f"--input_features makes {name!r} or another {new!r}; rename what has that name too"
                raise BadInput("manifest", "two features of one name", detail)
            renamed[new] = feature
        return renamed


def _labels(fields: Fields) -> tuple[tuple[str | int, ...], dict[int, str], dict[str, str]]:
    found = labels_of(fields)
    fields.use((TEXT, SYNSET))
    return found


def _source_id(fields: Fields, key: str) -> str:
    texts = [str(value) for value in fields.values(fields.take(SOURCE_ID)) if not isinstance(value, bytes)]
    return texts[0] if texts and texts[0] != key else ""


def _free(fields: Fields, key: str, has_image: bool, name: str = FILENAME) -> dict[str, FeatureValue]:
    """The free features. The file's name, in the feature `name`, is one of them where it is not the key."""
    filename = fields.text(name)
    fields.use((SOURCE_ID, *CAPTIONS))
    free = fields.free(has_image)
    return {**free, "source_filename": filename} if filename and filename != key else free


def _sequence(key: str, place: Place, fields: Fields, lists: Mapping[str, list[Feature]]) -> Found:
    """A SequenceExample; its labels and features are those of its context."""
    labels, names, texts = _labels(fields)
    count = max(map(len, lists.values()))
    steps = [
        Fields(
            fields.record,
            {name: values[at] for name, values in lists.items() if at < len(values)},
            fields.refer,
        )
        for at in range(count)
    ]
    frames = _frames(fields, steps)
    step_labels = [labels_of(step) for step in steps]
    for _, found, more_texts in step_labels:
        names, texts = {**names, **found}, {**texts, **more_texts}
    annotations = Annotations(
        labels=labels,
        features=_free(fields, key, bool(frames), _SEQUENCE_KEY),
        source_id=_source_id(fields, key),
        steps=Steps(
            frames,
            tuple(step[0] for step in step_labels) if any(step[0] for step in step_labels) else (),
            _lists(steps, lists, bool(frames)),
        ),
    )
    return Found(ImageRecord(key, None, place.split, annotations, place.key), names, texts)


def _frames(context: Fields, steps: list[Fields]) -> tuple[ImageRef, ...]:
    """The image of each step; none where no step has any. Shapes are told by the step, else the context."""
    found = []
    for step in steps:
        own, common = step.shape(), context.shape()
        shape = type(own)(
            own.height or common.height,
            own.width or common.width,
            own.channels or common.channels,
            own.image_format or common.image_format,
            own.dtype if own.dtype != "uint8" else common.dtype,
        )
        found.append(image_of(step, shape))
    frames = tuple(frame for frame in found if frame is not None)
    if frames and len(frames) != len(found):
        detail = f"{len(found)} steps, of which {len(frames)} have an image"
        raise BadInput("manifest", "step without an image", detail)
    return frames


def _lists(
    steps: list[Fields], lists: Mapping[str, list[Feature]], has_frames: bool
) -> dict[str, tuple[FeatureValue, ...]]:
    """The lists that are neither images nor labels: one value a step as itself, others as a tuple."""
    for step in steps:
        step.use((*LABEL_KEYS[:1], TEXT, SYNSET))
    free = [set(step.free(has_frames)) for step in steps]
    found: dict[str, tuple[FeatureValue, ...]] = {}
    for name, features in sorted(lists.items()):
        if not any(name in names for names in free):
            continue
        values = [step.values(feature) for step, feature in zip(steps, features, strict=False)]
        single = all(len(value) == 1 for value in values)
        found[name] = tuple(value[0] if single else value for value in values)
    return found
