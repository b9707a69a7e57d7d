"""Verifies a record: its features against the manifest, its labels, boxes, images and masks."""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import Image

from recordmill.transforms.examples.record_view import (
    IMAGE_KEYS,
    NO_FEATURE,
    OUR_IMAGE_KEYS,
    RecordView,
    Shape,
)
from recordmill.transforms.examples.schema import FeatureSpec
from recordmill.transforms.examples.wire import Feature, read_example, read_feature_lists
from recordmill.transforms.images import jpeg_header
from recordmill.transforms.images.jpeg_quality import estimated_quality
from recordmill.transforms.images.mask import decode_mask
from recordmill.transforms.images.opened import opened
from recordmill.transforms.images.pillow import DECODER_ERRORS, named
from recordmill.transforms.images.tensor import tensor_bytes
from recordmill.transforms.reading.verify_dataset import Expected
from recordmill.transforms.records import IGNORE, BadInput

NOT_AN_EXAMPLE = "record that is no Example"
WRONG_FEATURES = "features differ from the manifest"
WRONG_TEXT, BAD_BOX = "label text differs from the manifest", "box outside the image"
UNEVEN, WRONG_DIGEST = "lists of different lengths", "image differs from its SHA-256"
UNDECODABLE, WRONG_SHAPE = "image that cannot be decoded", "image of another shape"
WRONG_FORMAT = "image of another format"
BAD_MASK, UNKNOWN_CLASS = "mask that does not fit", "class id without a label"

_KINDS = {"int64": "int64", "float32": "float", "string": "bytes"}
_SIDES = ("xmin", "xmax", "ymin", "ymax")
_OBJECT = "image/object/"
_OBJECT_MASK = "image/object/mask"
# Features of ids, and those of their names: of images, of objects; `imagenet` has synsets as names.
_LABELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("image/class/label", ("image/class/synset", "image/class/text")),
    ("image/object/class/label", ("image/object/class/text",)),
    ("image/object/bbox/label", ()),
)
# Of the schemas `plain` and `features`.
_FREE_LABELS = (("label", ("label/text",)),)
# Masks of images and of objects, and whether their pixels are class ids.
_MASKS = {
    "image/segmentation/class/encoded": True,
    "image/segmentation/instance/encoded": False,
    "image/panoptic/category/encoded": True,
    "image/panoptic/instance/encoded": False,
    "mask_raw": True,
    _OBJECT_MASK: False,
}
_BACKGROUND = 0
_ITEM_BYTES = {"uint8": 1, "uint16": 2}
_ALIASES = {"jpg": "jpeg"}
_T = TypeVar("_T")

Fault = tuple[str, str]
"""Kind, and particulars."""


class Checked(NamedTuple):
    """What was found in a record.

    Attributes:
        key: empty if it has none.
        faults: in no order.
        images: number of decoded images; a sequence has several.
        masks: number of decoded masks.
    """

    key: str
    faults: list[Fault]
    images: int
    masks: int


class RecordChecker:
    """Checks records of one dataset.

    Args:
        expected: what they must be like.
    """

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        # Objects are painted on a background of 0, which has no class name. Labels that are numbers are those
        # of the images: they do not name the ids of masks.
        has_names = any(name != str(number) for number, name in expected.labels.items())
        self._classes = {*expected.labels, _BACKGROUND} if has_names else None
        labels = _LABELS
        if expected.labels and "image/encoded" not in self._renamed(expected.features or {}):
            labels += _FREE_LABELS
        self._labels = labels if expected.is_ours else ()

    def check(self, payload: bytes) -> Checked:
        """Checks one record."""
        expected = self._expected
        try:
            features, lists = read_example(payload), read_feature_lists(payload)
        except BadInput as error:
            return Checked("", [(NOT_AN_EXAMPLE, error.detail)], 0, 0)
        faults: list[Fault] = []
        if expected.features is not None:
            faults += _spec_faults(features, lists, expected)
        elif not features and not lists:
            faults.append((NOT_AN_EXAMPLE, f"its {len(payload):,} bytes hold no feature"))
        context = RecordView(payload, self._renamed(features), self._renamed(lists))
        key = _text(context, "sequence/key" if lists else "image/filename")
        counts = {name: len(one) for name, one in context.lists.items() if name.startswith("image/")}
        # A list without a step is one that this sequence does not have, such as the labels of its frames.
        lengths = {count for name, count in counts.items() if count or name == OUR_IMAGE_KEYS[0]}
        if len(lengths) > 1:
            numbers = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
            faults.append((UNEVEN, f"a sequence with {numbers}"))
        images = masks = 0
        parts = [("", context), *((f"step {at}: ", step) for at, step in enumerate(context.steps()))]
        for where, view in parts:
            image = _image(view, expected.is_ours)
            images += image is not None
            mask_names = [name for name in _MASKS if name in view.features]
            masks += sum(len(view.features[name].spans) for name in mask_names)
            shape = _shape(view)
            found = [
                *(self._image_faults(view, image, shape) if image is not None else ()),
                *self._mask_faults(view, shape, mask_names),
                *self._label_faults(view),
                *_object_faults(view, expected.is_ours),
            ]
            faults += [(kind, where + what) for kind, what in found]
        return Checked(key, faults, images, masks)

    def _image_faults(self, view: RecordView, data: bytes, shape: Shape) -> Iterator[Fault]:
        is_unnamed_raw = not shape.image_format and _pixel_bytes(shape) == len(data)  # of the schema `plain`
        if is_unnamed_raw or shape.image_format in ("raw", "tensor"):
            yield from _pixel_faults(data, shape)
        else:
            try:
                colorspace = _text(view, "image/colorspace")
                yield from _encoded_faults(data, shape, colorspace, self._expected.pillow_at)
            except BadInput as error:
                yield UNDECODABLE, _reason(error)
        digest = _text(view, "image/key/sha256")
        if digest and self._expected.is_ours and hashlib.sha256(data).hexdigest() != digest:
            yield WRONG_DIGEST, "image/key/sha256 is another image's"

    def _mask_faults(self, view: RecordView, shape: Shape, names: Sequence[str]) -> Iterator[Fault]:
        for name in names:
            classes = (0, 1) if name == _OBJECT_MASK else self._classes if _MASKS[name] else None
            for data in _values(view, name):
                yield from _mask_faults(data, shape, classes, name == "mask_raw")

    def _label_faults(self, view: RecordView) -> Iterator[Fault]:
        """Ids without a class, and names of another class."""
        names = self._expected.labels
        for name, texts in self._labels:
            ids = _feature(view, name).numbers
            for number in ids:
                if number not in names:
                    yield UNKNOWN_CLASS, f"{name} is {number}"
            # If there is a synset, it is the class name, and the text is a description.
            text_name = next((one for one in texts if one in view.features), None)
            if text_name is None:
                continue
            found = _texts(view, text_name)
            if len(found) != len(ids):
                yield UNEVEN, f"{len(ids)} {name} and {len(found)} {text_name}"
            for number, text in zip(ids, found, strict=False):
                wanted = names.get(number, text) if isinstance(number, int) else text
                if text != wanted:
                    yield WRONG_TEXT, f"{text_name} is {text!r}; class {number} is {wanted!r}"

    def _renamed(self, items: Mapping[str, _T]) -> dict[str, _T]:
        return {self._expected.renames.get(name, name): item for name, item in items.items()}


def _feature(view: RecordView, name: str) -> Feature:
    return view.features.get(name, NO_FEATURE)


def _values(view: RecordView, name: str) -> list[bytes]:
    return [view.record[start:stop] for start, stop in _feature(view, name).spans]


def _texts(view: RecordView, name: str) -> list[str]:
    """The values of a feature; `RecordView.texts` refuses those that are not UTF-8."""
    return [value.decode("utf-8", "replace") for value in _values(view, name)]


def _text(view: RecordView, name: str) -> str:
    return (*_texts(view, name)[:1], "")[0]


def _shape(view: RecordView) -> Shape:
    """As `RecordView.shape`, which ignores texts that are not UTF-8; here they are faults."""
    shape = view.shape()
    dtype = _text(view, "image/dtype") or _text(view, "dtype") or shape.dtype
    channels = shape.channels
    if channels is not None and channels > 4 and "image/channels" not in view.features:
        channels = None  # other programs store bits of a pixel in `image/depth`
    image_format = _text(view, "image/format").lower()
    return shape._replace(channels=channels, image_format=image_format, dtype=dtype.lower())


def _image(view: RecordView, is_ours: bool) -> bytes | None:
    for name in OUR_IMAGE_KEYS if is_ours else IMAGE_KEYS:
        if len(_feature(view, name).spans) == 1:
            (data,) = _values(view, name)
            if name in OUR_IMAGE_KEYS or _looks_encoded(data):
                return data
    return None


def _looks_encoded(data: bytes) -> bool:
    return data.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8")) or data[8:12] == b"WEBP"


def _spec_faults(
    features: Mapping[str, Feature], lists: Mapping[str, Sequence[Feature]], expected: Expected
) -> Iterator[Fault]:
    """Features and feature lists that differ from the manifest."""
    specs = expected.features or {}
    for noun, found, wanted in (("", features, specs), ("the feature list ", lists, expected.lists)):
        for name in sorted(wanted.keys() - found.keys()):
            yield WRONG_FEATURES, f"{noun}{name} is missing"
        for name in sorted(found.keys() - wanted.keys()):
            yield WRONG_FEATURES, f"{noun}{name} is not in the manifest"
    for name, spec in specs.items():
        if name in features:
            yield from _feature_faults(name, features[name], spec)
    for name in sorted(expected.lists.keys() & lists.keys()):
        for at, feature in enumerate(lists[name]):
            for kind, what in _feature_faults(name, feature, expected.lists[name]):
                yield kind, f"step {at}: {what}"


def _feature_faults(name: str, feature: Feature, spec: FeatureSpec) -> Iterator[Fault]:
    if feature.kind != _KINDS[spec.dtype]:
        yield WRONG_FEATURES, f"{name} is a list of {feature.kind or 'nothing'}, not of {spec.dtype}"
    elif spec.shape != (None,):
        fixed = math.prod(size for size in spec.shape if size is not None)
        count = len(feature)
        fits = count == fixed if None not in spec.shape else not (fixed and count % fixed)
        if not fits:
            yield WRONG_FEATURES, f"{name} has {count:,} values; its shape is {list(spec.shape)}"


def _pixel_bytes(shape: Shape) -> int | None:
    """Bytes of the pixels of an image; None if its record does not say its shape."""
    height, width, channels = shape.height or 0, shape.width or 0, shape.channels or 0
    if min(height, width, channels) < 1:
        return None
    return height * width * channels * _ITEM_BYTES.get(shape.dtype, 1)


def _pixel_faults(data: bytes, shape: Shape) -> Iterator[Fault]:
    size, sides = _pixel_bytes(shape), shape[:3]
    shown = "x".join("?" if side is None else str(side) for side in sides)
    if size is None or shape.dtype not in _ITEM_BYTES:
        yield UNDECODABLE, f"pixels of unknown shape or dtype: {shown} {shape.dtype}"
        return
    if shape.image_format != "tensor":
        if len(data) != size:
            yield WRONG_SHAPE, f"{len(data):,} bytes for {shown} pixels of {shape.dtype}"
        return
    wanted = np.dtype(shape.dtype).newbyteorder("<")
    content = data[len(data) - size :] if size <= len(data) else b""
    if (
        not content
        or tensor_bytes(np.frombuffer(content, wanted).reshape([side or 0 for side in sides])) != data
    ):
        yield WRONG_SHAPE, f"no TensorProto of {shown} pixels of {wanted.name}"


def _encoded_faults(
    data: bytes, shape: Shape, colorspace: str, pillow_at: Collection[int]
) -> Iterator[Fault]:
    """The faults of an encoded image.

    Pillow decodes the JPEGs that simplejpeg may have encoded, though it hides the warnings of libjpeg.
    simplejpeg decodes all others, and a warning is a fault.

    Raises:
        BadInput: it cannot be decoded.
    """
    image = opened(data)
    if image.kind != _ALIASES.get(shape.image_format, shape.image_format or image.kind):
        yield WRONG_FORMAT, f"its bytes are {image.kind.upper()}, and its format is {shape.image_format!r}"
    is_jpeg = image.kind == "jpeg"
    if is_jpeg and pillow_at and estimated_quality(data, jpeg_header.read_header(data)) in pillow_at:
        height, width = _size_by_pillow(data)
    else:
        if not is_jpeg:  # decoding a JPEG finds all damage
            image.check()
        height, width = image.decode().pixels.shape[:2]
    if (shape.height or height, shape.width or width) != (height, width):
        yield WRONG_SHAPE, f"{width}x{height} pixels; the record says {shape.width}x{shape.height}"
    if image.kept is None:
        yield UNDECODABLE, f"TensorFlow does not decode this {image.kind.upper()}"
        return
    if shape.channels not in (None, image.kept.channels):
        yield WRONG_SHAPE, f"{image.kept.channels} channels; the record says {shape.channels}"
    if colorspace not in ("", image.kept.colorspace):
        yield WRONG_FORMAT, f"its colours are {image.kept.colorspace}; the record says {colorspace}"


def _size_by_pillow(data: bytes) -> tuple[int, int]:
    """Height and width of a JPEG that Pillow decodes completely.

    Only luma is computed, at full size, in two thirds of the time of colours. Chroma is still unpacked, so
    damage is found.
    """
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
            image.draft("L", image.size)
            image.load()
            return image.height, image.width
    except DECODER_ERRORS as error:
        raise named(error) from error


def _mask_faults(
    data: bytes, shape: Shape, classes: Collection[int] | None, is_raw: bool = False
) -> Iterator[Fault]:
    """The faults of a mask.

    Args:
        data: a PNG, or a byte a pixel.
        shape: of the image.
        classes: ids that its pixels may have, besides 255; None for any.
        is_raw: whether it is a byte a pixel.
    """
    height, width = shape.height, shape.width
    is_sized = height is not None and width is not None
    if is_raw:
        if is_sized and len(data) != (height or 0) * (width or 0):
            yield BAD_MASK, f"{len(data):,} bytes for an image of {width}x{height}"
        pixels = np.frombuffer(data, np.uint8)
    else:
        try:
            pixels = decode_mask(data)
        except BadInput as error:
            yield BAD_MASK, _reason(error)
            return
        if is_sized and pixels.shape != (height, width):
            yield BAD_MASK, f"{pixels.shape[1]}x{pixels.shape[0]} pixels, on an image of {width}x{height}"
    if classes is None:
        return
    found = np.flatnonzero(np.bincount(pixels.ravel(), minlength=1))
    unknown = [int(one) for one in found if int(one) != IGNORE and int(one) not in classes]
    if unknown:
        ids = ", ".join(map(str, unknown[:10])) + (", …" if len(unknown) > 10 else "")
        yield UNKNOWN_CLASS, f"pixels of the mask are {ids}"


def _reason(error: BadInput) -> str:
    return f"{error.reason}: {error.detail}" if error.detail else error.reason


def _object_faults(view: RecordView, is_ours: bool) -> Iterator[Fault]:
    """Wrong boxes, and lists that have not one value for each object."""
    if not any(name.startswith(_OBJECT) for name in view.features):
        return
    for prefix in (f"{_OBJECT}bbox", f"{_OBJECT}part/bbox"):
        yield from _box_faults(view, prefix)
    count = len(_feature(view, f"{_OBJECT}bbox/xmin"))
    for name, feature in sorted(view.features.items()):
        rest = name.removeprefix(_OBJECT)
        of_objects = rest != name and ("/" not in rest or rest.startswith("class/") or rest == "bbox/label")
        if of_objects and len(feature) not in (count, count if is_ours else 0):
            yield UNEVEN, f"{count} boxes and {len(feature)} {name}"
    points = {len(_feature(view, f"{_OBJECT}keypoint/{name}").numbers) for name in ("x", "y", "visibility")}
    if len(points) > 1 or (count and max(points) % count) or (not count and max(points)):
        yield UNEVEN, f"{count} boxes and {', '.join(map(str, sorted(points)))} values of key points"
    parts = _feature(view, f"{_OBJECT}part/object").numbers
    if any(not 0 <= number < count for number in parts):
        yield UNEVEN, f"a part of a missing object, of {count}"


def _box_faults(view: RecordView, prefix: str) -> Iterator[Fault]:
    sides = [_feature(view, f"{prefix}/{side}").numbers for side in _SIDES]
    if len(set(map(len, sides))) > 1:
        counts = ", ".join(f"{len(side)} {name}" for side, name in zip(sides, _SIDES, strict=True))
        yield UNEVEN, f"{prefix} has {counts}"
        return
    for at, (xmin, xmax, ymin, ymax) in enumerate(zip(*sides, strict=True)):
        if not (0 <= xmin <= xmax <= 1 and 0 <= ymin <= ymax <= 1):
            what = f"{prefix} {at}: x {xmin:g} to {xmax:g}, y {ymin:g} to {ymax:g}; each must be in [0, 1]"
            yield BAD_BOX, what
