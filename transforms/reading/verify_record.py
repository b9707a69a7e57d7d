"""Verifies what is in a record: its features against the manifest, its labels, boxes, images and masks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from recordmill.transforms.examples.record_view import IMAGE_KEYS
from recordmill.transforms.examples.schema import FeatureSpec
from recordmill.transforms.examples.wire import Feature, Span, read_example, read_feature_lists
from recordmill.transforms.reading.verify_dataset import Expected
from recordmill.transforms.reading.verify_image import (
    UNKNOWN_CLASS,
    Fault,
    Told,
    image_faults,
    mask_faults,
)
from recordmill.transforms.records import BadInput

NOT_AN_EXAMPLE = "record that is no Example"
WRONG_FEATURES = "features differ from the manifest"
WRONG_TEXT, BAD_BOX = "label text differs from the manifest", "box outside the image"
UNEVEN, WRONG_DIGEST = "lists of different lengths", "image differs from its SHA-256"

_KINDS = {"int64": "int64", "float32": "float", "string": "bytes"}
_NOTHING = Feature(None)
_SIDES = ("xmin", "xmax", "ymin", "ymax")
_OBJECT = "image/object/"
_OBJECT_MASK = "image/object/mask"
# Ids, and the names beside them: of whole images, of objects; in `imagenet` the synset is the name.
_LABELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("image/class/label", ("image/class/synset", "image/class/text")),
    ("image/object/class/label", ("image/object/class/text",)),
    ("image/object/bbox/label", ()),
)
# Of the schemas `plain` and `features`.
_FREE_LABELS = (("label", ("label/text",)),)
# Masks of whole images, and whether their pixels are classes.
_MASKS = {
    "image/segmentation/class/encoded": True,
    "image/segmentation/instance/encoded": False,
    "image/panoptic/category/encoded": True,
    "image/panoptic/instance/encoded": False,
    "mask_raw": True,
}
_BACKGROUND = 0
_T = TypeVar("_T")


class Checked(NamedTuple):
    """What was found of a record.

    Attributes:
        key: empty where it has none.
        faults: in no order.
        images: that were decoded, frames of sequences among them.
        masks: likewise.
    """

    key: str
    faults: list[Fault]
    images: int
    masks: int


class RecordChecker:
    """Checks records of one dataset.

    Args:
        expected: of them.
    """

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        # Objects are painted on a background of 0, and nothing says what class that is.
        self._classes = {*expected.labels, _BACKGROUND} if expected.labels else None
        labels = _LABELS
        if expected.labels and "image/encoded" not in {self._own(name) for name in expected.features or ()}:
            labels += _FREE_LABELS
        self._labels = labels if expected.is_ours else ()

    def check(self, payload: bytes) -> Checked:
        """What is in a record."""
        try:
            features, lists = read_example(payload), read_feature_lists(payload)
        except BadInput as error:
            return Checked("", [(NOT_AN_EXAMPLE, error.detail)], 0, 0)
        faults: list[Fault] = []
        if self._expected.features is not None:
            faults += _spec_faults(features, self._expected.features)
            faults += _list_spec_faults(lists, self._expected.lists)
        elif not features and not lists:
            faults.append((NOT_AN_EXAMPLE, f"its {len(payload):,} bytes hold no feature"))
        context = _Fields(payload, self._renamed(features))
        key = context.text("sequence/key" if lists else "image/filename")
        images = masks = 0
        for fields in self._parts(context, self._renamed(lists), faults):
            images += self._check_images(fields, faults)
            masks += self._check_masks(fields, faults)
            faults += self._label_faults(fields)
            faults += _object_faults(fields, self._expected.is_ours)
        return Checked(key, faults, images, masks)

    def _parts(
        self, context: _Fields, lists: Mapping[str, list[Feature]], faults: list[Fault]
    ) -> Iterator[_Fields]:
        """The record, and each step of a sequence."""
        yield context
        image_lists = {name: len(steps) for name, steps in lists.items() if name.startswith("image/")}
        if len(set(image_lists.values())) > 1:
            told = ", ".join(f"{count} {name}" for name, count in sorted(image_lists.items()))
            faults.append((UNEVEN, f"a sequence with {told}"))
        for at in range(max(image_lists.values(), default=0)):
            found = {name: steps[at] for name, steps in lists.items() if at < len(steps)}
            yield _Fields(context.record, found, f"step {at}: ")

    def _check_images(self, fields: _Fields, faults: list[Fault]) -> int:
        """Decodes the image of a record or a step; how many there were."""
        span = fields.image(self._expected.is_ours)
        if span is None:
            return 0
        data = fields.data(span)
        told = fields.told()
        for kind, what in image_faults(data, told, self._expected.pillow_at):
            faults.append((kind, fields.where + what))
        digest = fields.text("image/key/sha256")
        if digest and self._expected.is_ours and hashlib.sha256(data).hexdigest() != digest:
            faults.append((WRONG_DIGEST, fields.where + "image/key/sha256 is another image's"))
        return 1

    def _check_masks(self, fields: _Fields, faults: list[Fault]) -> int:
        """Decodes the masks of a record; how many there were."""
        told = fields.told()
        found: list[Fault] = []
        count = 0
        for name, is_classes in _MASKS.items():
            for span in fields.spans(name):
                classes = self._classes if is_classes else None
                found += mask_faults(fields.data(span), told, classes, raw=name == "mask_raw")
                count += 1
        for span in fields.spans(_OBJECT_MASK):
            found += mask_faults(fields.data(span), told, (0, 1), raw=False)
            count += 1
        faults += [(kind, fields.where + what) for kind, what in found]
        return count

    def _label_faults(self, fields: _Fields) -> Iterator[Fault]:
        """Ids that no label has, and names that are another's."""
        names = self._expected.labels
        for name, texts in self._labels:
            ids = fields.numbers(name)
            for number in ids:
                if number not in names:
                    yield UNKNOWN_CLASS, f"{fields.where}{name} is {number}"
            for text_name in texts:
                if text_name not in fields.features:
                    continue
                found = fields.texts(text_name)
                if len(found) != len(ids):
                    yield UNEVEN, f"{fields.where}{len(ids)} {name} and {len(found)} {text_name}"
                for number, text in zip(ids, found, strict=False):
                    wanted = names.get(number, text) if isinstance(number, int) else text
                    if text != wanted:
                        what = f"{text_name} is {text!r}; class {number} is {wanted!r}"
                        yield WRONG_TEXT, fields.where + what
                break  # beside a synset, the text is what people call the class

    def _renamed(self, items: Mapping[str, _T]) -> dict[str, _T]:
        return {self._own(name): item for name, item in items.items()}

    def _own(self, name: str) -> str:
        return self._expected.renames.get(name, name)


class _Fields:
    """Features of a record, or of a step of it, under our names."""

    def __init__(self, record: bytes, features: Mapping[str, Feature], where: str = "") -> None:
        self.record = record
        self.features = features
        self.where = where

    def data(self, span: Span) -> bytes:
        """The bytes of a span."""
        return self.record[span.start : span.stop]

    def spans(self, name: str) -> tuple[Span, ...]:
        """The values of a feature of bytes."""
        return self.features.get(name, _NOTHING).spans

    def numbers(self, name: str) -> tuple[int | float, ...]:
        """The values of a feature of numbers."""
        return self.features.get(name, _NOTHING).numbers

    def texts(self, name: str) -> list[str]:
        """The values of a feature of bytes, as text."""
        return [self.data(span).decode("utf-8", "replace") for span in self.spans(name)]

    def text(self, name: str) -> str:
        """The first of them; empty where there is none."""
        return (*self.texts(name)[:1], "")[0]

    def image(self, is_ours: bool) -> Span | None:
        """Where the image lies; None where there is none."""
        for name in IMAGE_KEYS[:2] if is_ours else IMAGE_KEYS:
            spans = self.spans(name)
            if len(spans) == 1 and (is_ours or name in IMAGE_KEYS[:2] or _looks_encoded(self.data(spans[0]))):
                return spans[0]
        return None

    def told(self) -> Told:
        """What is told of the image."""
        return Told(
            self._integer("image/height", "height"),
            self._integer("image/width", "width"),
            self._integer("image/channels", "depth"),
            self.text("image/format").lower(),
            self.text("image/dtype") or self.text("dtype"),
            self.text("image/colorspace"),
        )

    def _integer(self, *names: str) -> int | None:
        for name in names:
            for number in self.numbers(name)[:1]:
                return number if isinstance(number, int) else None
        return None


def _looks_encoded(data: bytes) -> bool:
    return data.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8")) or data[8:12] == b"WEBP"


def _spec_faults(features: Mapping[str, Feature], specs: Mapping[str, FeatureSpec]) -> Iterator[Fault]:
    """Of the features of a record, or of its context."""
    if features.keys() != specs.keys():
        for name in sorted(specs.keys() - features.keys()):
            yield WRONG_FEATURES, f"{name} is not there"
        for name in sorted(features.keys() - specs.keys()):
            yield WRONG_FEATURES, f"{name} is in no manifest"
    for name, spec in specs.items():
        feature = features.get(name)
        if feature is not None:
            yield from _feature_faults(name, feature, spec)


def _feature_faults(name: str, feature: Feature, spec: FeatureSpec) -> Iterator[Fault]:
    if feature.kind != _KINDS[spec.dtype]:
        yield WRONG_FEATURES, f"{name} is a list of {feature.kind or 'nothing'}, not of {spec.dtype}"
    elif spec.shape != (None,):
        fixed = math.prod(size for size in spec.shape if size is not None)
        count = len(feature)
        fits = count == fixed if None not in spec.shape else not (fixed and count % fixed)
        if not fits:
            yield WRONG_FEATURES, f"{name} has {count:,} values; its shape is {list(spec.shape)}"


def _list_spec_faults(
    lists: Mapping[str, Sequence[Feature]], specs: Mapping[str, FeatureSpec]
) -> Iterator[Fault]:
    """Of the feature lists of a sequence."""
    for name in sorted(specs.keys() - lists.keys()):
        yield WRONG_FEATURES, f"the feature list {name} is not there"
    for name in sorted(lists.keys() - specs.keys()):
        yield WRONG_FEATURES, f"the feature list {name} is in no manifest"
    for name in sorted(specs.keys() & lists.keys()):
        for at, feature in enumerate(lists[name]):
            yield from (
                (kind, f"step {at}: {what}") for kind, what in _feature_faults(name, feature, specs[name])
            )


def _object_faults(fields: _Fields, is_ours: bool) -> Iterator[Fault]:
    """Boxes, and the lists that have a value an object."""
    if not any(name.startswith(_OBJECT) for name in fields.features):
        return
    for prefix in (f"{_OBJECT}bbox", f"{_OBJECT}part/bbox"):
        yield from _box_faults(fields, prefix)
    count = len(fields.features.get(f"{_OBJECT}bbox/xmin", _NOTHING))
    for name, feature in sorted(fields.features.items()):
        rest = name.removeprefix(_OBJECT)
        of_objects = rest != name and ("/" not in rest or rest.startswith("class/") or rest == "bbox/label")
        if of_objects and len(feature) not in (count, count if is_ours else 0):
            yield UNEVEN, f"{count} boxes and {len(feature)} {name}"
    points = {len(fields.numbers(f"{_OBJECT}keypoint/{name}")) for name in ("x", "y", "visibility")}
    if len(points) > 1 or (count and max(points) % count) or (not count and max(points)):
        yield UNEVEN, f"{count} boxes and {', '.join(map(str, sorted(points)))} values of key points"
    parts = fields.numbers(f"{_OBJECT}part/object")
    if any(not 0 <= number < count for number in parts):
        yield UNEVEN, f"a part of an object that is not there, of {count}"


def _box_faults(fields: _Fields, prefix: str) -> Iterator[Fault]:
    sides = [fields.numbers(f"{prefix}/{side}") for side in _SIDES]
    if len(set(map(len, sides))) > 1:
        told = ", ".join(f"{len(side)} {name}" for side, name in zip(sides, _SIDES, strict=True))
        yield UNEVEN, f"{prefix} has {told}"
        return
    for at, (xmin, xmax, ymin, ymax) in enumerate(zip(*sides, strict=True)):
        if not (0 <= xmin <= xmax <= 1 and 0 <= ymin <= ymax <= 1):
            what = f"{prefix} {at}: x {xmin:g} to {xmax:g}, y {ymin:g} to {ymax:g}; each has to be in 0 to 1"
            yield BAD_BOX, what
