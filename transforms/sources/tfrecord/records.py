"""Reads one TFRecord, an Example or a SequenceExample, as an ImageRecord.

Features have the names of our schemas, those of the TF Object Detection API, or other common ones.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from recordmill.transforms.examples.wire import (
    NOT_AN_EXAMPLE,
    Feature,
    Span,
    read_example,
    read_feature_lists,
    read_tensor,
)
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Box,
    ClassNames,
    FeatureValue,
    ImageRecord,
    ImageRef,
    MaskImage,
    Scalar,
    Steps,
)

Pixels = tuple[int, int, int]
Refer = Callable[[Span, Pixels | None], ImageRef]
_Labels = tuple[str | int, ...]
_T = TypeVar("_T")

OUR_IMAGE_KEYS = ("image/encoded", "image_raw")
IMAGE_KEYS = (*OUR_IMAGE_KEYS, "image", "img", "image/raw", "image_bytes", "encoded", "jpeg", "png")
LABEL_KEYS = ("image/class/label", "label", "labels", "class")
TEXT, SYNSET = "image/class/text", "image/class/synset"
FILENAME, SOURCE_ID = "image/filename", "image/source_id"
SIDES = ("xmin", "ymin", "xmax", "ymax")
BOX_KEYS = tuple(f"image/object/bbox/{side}" for side in SIDES)
PIXELS_UNKNOWN = "image of no known format"

_SEQUENCE_KEY = "sequence/key"
_CAPTIONS = ("image/caption", "image/captions")
_MASKS = {
    "image/segmentation/class/encoded": "class",
    "mask_raw": "class",
    "image/panoptic/instance/encoded": "instance",
    "image/panoptic/category/encoded": "class",  # equals the class mask, if there is one
}
MASK_KEYS = frozenset(_MASKS)
_OBJECT = "image/object/"
_OBJECT_LABELS = ("image/object/class/label", "image/object/bbox/label")
_OBJECT_TEXTS = "image/object/class/text"
_OBJECT_MASK = "image/object/mask"
_KEYPOINT = "image/object/keypoint/"
# The writer sets these for every record with an image.
_SIZES = ("height", "width", "channels", "depth", "dtype", "jpeg_quality")
_FORMATS = ("segmentation/class/format", "panoptic/category/format", "panoptic/instance/format", "format")
_OTHERS = (*_SIZES, *_FORMATS, "colorspace", "key/sha256")
_WRITTEN_ANEW = frozenset((*_SIZES, *(f"image/{name}" for name in _OTHERS)))
_VISIBLE = 2
_FARTHEST = 10.0  # sides of boxes are shares of width and height; larger numbers must be pixels
_NOT_UINT8 = "pixels are not uint8"
_REMEDY = "--input_features OLD=image/height,… tells what features are the shape, or the image"
_UNEVEN = "lists of different lengths"
_NO_FEATURE = Feature(None)

_ENCODED = re.compile(
    rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|GIF8|II\*\0|MM\0\*|\0\0\0\x0c(?:jP  |JXL )|\xff\x4f\xff\x51|8BPS|DDS "
    rb"|qoif|\x76\x2f\x31\x01|#\?RADIANCE|.{4}ftyp|RIFF.{4}WEBP",
    re.DOTALL,
)
_PERHAPS_ENCODED = re.compile(rb"BM|\0\0\x01\0|\xff\x0a|P[1-7]")  # so short that pixels may begin with it
_PIXEL_FORMATS = ("raw", "tensor")
_DTYPE_BYTES = {"uint16": 2, "int16": 2, "float16": 2, "float64": 8, "int64": 8}  # of others 4
_TENSOR_DTYPES = {1: "float32", 2: "float64", 3: "int32", 4: "uint8", 9: "int64", 17: "uint16"}
_MOST_BYTES_OF_HEADER = 64  # of a TensorProto, before its content


class Shape(NamedTuple):
    """The shape and format of an image by other features of its record; None or empty where absent."""

    height: int | None = None
    width: int | None = None
    channels: int | None = None
    image_format: str = ""
    dtype: str = "uint8"

    def pixels(self, length: int) -> Pixels | None:
        """The shape of so many bytes of pixels; None where they do not fit."""
        if self.height is None or self.width is None or min(self.height, self.width) < 1:
            return None
        for channels in (self.channels,) if self.channels else (1, 3, 4):
            if length == self.height * self.width * channels and 1 <= channels <= 4:
                return self.height, self.width, channels
        return None


def is_encoded(start: bytes) -> bool:
    """Whether an image file starts like this."""
    return _ENCODED.match(start) is not None


def image_within(record: bytes, span: Span, shape: Shape) -> tuple[Span, Pixels | None]:
    """The range of an image's bytes, and their shape where they are raw pixels.

    Raises:
        BadInput: stage `manifest`, `image of no known format` or `pixels are not uint8`.
    """
    start = record[span.start : min(span.start + 16, span.stop)]
    length = span.stop - span.start
    if shape.image_format not in _PIXEL_FORMATS and is_encoded(start):
        return span, None
    if shape.image_format != "tensor":
        count, rest = divmod(length, 1 if shape.dtype == "uint8" else _DTYPE_BYTES.get(shape.dtype, 4))
        pixels = None if rest else shape.pixels(count)
        if pixels is not None and shape.dtype != "uint8":
            raise BadInput("manifest", _NOT_UINT8, f"they are {shape.dtype}; write them as uint8, or as PNG")
        if pixels is not None:
            return span, pixels
    tensor = _tensor(record, span)
    if tensor is not None:
        return tensor
    named = shape.image_format and shape.image_format not in _PIXEL_FORMATS
    if named or (shape.image_format == "" and _PERHAPS_ENCODED.match(start)):
        return span, None  # decoding shows whether it is one
    given = ", ".join(f"{name} {value}" for name, value in shape._asdict().items() if value)
    detail = f"{length} bytes, which begin with {start[:8].hex(' ')}; told of it: {given}"
    raise BadInput("manifest", PIXELS_UNKNOWN, detail)


def _tensor(record: bytes, span: Span) -> tuple[Span, Pixels] | None:
    try:
        data_type, sizes, content = read_tensor(record, span)
    except BadInput:
        return None
    length = content.stop - content.start
    if not 2 <= len(sizes) <= 3 or not length or span.stop - span.start - length > _MOST_BYTES_OF_HEADER:
        return None
    dtype = _TENSOR_DTYPES.get(data_type, f"of the type {data_type}")
    if dtype != "uint8":
        raise BadInput("manifest", _NOT_UINT8, f"the tensor is {dtype}; write it as uint8, or as PNG")
    height, width, channels = (*sizes, 1)[:3]
    fits = length == math.prod((height, width, channels)) and 1 <= channels <= 4
    return (content, (height, width, channels)) if fits else None


def _refer_to_record(span: Span, pixels: Pixels | None) -> ImageRef:
    return ImageRef("", span.start, span.stop - span.start, pixels)


@dataclasses.dataclass(slots=True)
class Fields:
    """The features of one record, or of one step of a sequence; those that were not asked for are free.

    `refer` makes the reference of an image file, or raw pixels of a shape, in a range of the record.
    """

    record: bytes
    features: Mapping[str, Feature]
    lists: Mapping[str, list[Feature]] = dataclasses.field(default_factory=dict)
    refer: Refer = _refer_to_record
    _used: set[str] = dataclasses.field(default_factory=set)

    def take(self, name: str) -> Feature:
        """A feature that is not free; one without values where there is none."""
        self._used.add(name)
        return self.features.get(name, _NO_FEATURE)

    def integers(self, name: str) -> tuple[int, ...]:
        """The values of a list of int64; none where it is of another kind."""
        return tuple(number for number in self.take(name).numbers if isinstance(number, int))

    def texts(self, name: str) -> tuple[str, ...]:
        """The values of a list of bytes, as text. Raises BadInput where one is not UTF-8."""
        spans = self.take(name).spans
        try:
            return tuple(self.record[start:stop].decode() for start, stop in spans)
        except UnicodeDecodeError as error:
            raise BadInput("manifest", "text is not UTF-8", f"the feature {name!r}") from error

    def text(self, name: str) -> str:
        """The first value of a list of bytes; empty where there is none."""
        return (*self.texts(name), "")[0]

    def scalar(self, span: Span) -> str | bytes:
        """Bytes, as text where they are UTF-8."""
        data = self.record[span.start : span.stop]
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data

    def values(self, feature: Feature) -> tuple[Scalar, ...]:
        """The values of a feature."""
        return tuple(map(self.scalar, feature.spans)) if feature.kind == "bytes" else feature.numbers

    def free_names(self, has_image: bool) -> list[str]:
        """The names of the features that were not asked for."""
        names = self.features.keys() - self._used - (_WRITTEN_ANEW if has_image else frozenset())
        return sorted(name for name in names if self.features[name].kind is not None)

    def shape(self, default: Shape = Shape()) -> Shape:  # noqa: B008 (immutable)
        """The shape of the image; `default` has what this record or step does not."""
        return Shape(
            self._first_integer(default.height, "image/height", "height"),
            self._first_integer(default.width, "image/width", "width"),
            self._first_integer(default.channels, "image/channels", "image/depth", "channels", "depth"),
            self._first_text(default.image_format, "image/format"),
            self._first_text(default.dtype, "image/dtype", "dtype"),
        )

    def _first_integer(self, default: int | None, *names: str) -> int | None:
        firsts = (self.features.get(name, _NO_FEATURE).numbers[:1] for name in names)
        return next((int(one) for first in firsts for one in first if float(one).is_integer()), default)

    def _first_text(self, default: str, *names: str) -> str:
        firsts = (self.features.get(name, _NO_FEATURE).spans[:1] for name in names)
        texts = (self.scalar(span) for first in firsts for span in first)
        return next((text.lower() for text in texts if isinstance(text, str)), "") or default


def read_fields(record: bytes, renames: Mapping[str, str], refer: Refer = _refer_to_record) -> Fields:
    """The features of a record under our names; `renames` has our name by the stored one.

    Raises:
        BadInput: stage `manifest`: it is no Example, has no feature, or one name is to have two.
    """
    features, lists = read_example(record), read_feature_lists(record)
    if not features and not lists:
        raise BadInput("manifest", NOT_AN_EXAMPLE, f"its {len(record)} bytes hold no feature")
    return Fields(record, _renamed(features, renames), _renamed(lists, renames), refer)


def _renamed(features: dict[str, _T], renames: Mapping[str, str]) -> dict[str, _T]:
    renamed: dict[str, _T] = {}
    for name, feature in features.items():
        new = renames.get(name, name)
        if new in renamed:
            detail = f"--input_features makes {name!r} or another {new!r}; rename what has that name too"
            raise BadInput("manifest", "two features of one name", detail)
        renamed[new] = feature
    return renamed


def read_record(
    fields: Fields,
    origin: str,
    split: str | None = None,
    is_ours: bool = True,
    include: Collection[str] = (),
) -> tuple[ImageRecord, ClassNames]:
    """The record that features describe, and the names of the classes that it contains.

    Args:
        origin: the key of a record that has none of its own; `is_ours` allows `image/filename` as one.
        include: those of `masks`, `keypoints` and `captions` that are read.

    Raises:
        BadInput: it cannot be used.
    """
    name_key = _SEQUENCE_KEY if fields.lists else FILENAME
    filename = fields.text(name_key)
    key = (is_ours and filename) or origin
    shape = fields.shape()
    names: dict[int, str] = {}
    texts: dict[str, str] = {}
    image, masks, steps = None, {}, None
    objects: tuple[AnnotatedObject, ...] = ()
    captions: tuple[str, ...] = ()
    if fields.lists:
        labels = _labels(fields, names, texts)
        steps = _steps(fields, shape, names, texts)
    else:
        image, masks = _image(fields, shape), _masks(fields, shape)
        labels = _labels(fields, names, texts)
        objects = _objects(fields, labels, names, include)
        captions = tuple(caption for name in _CAPTIONS for caption in fields.texts(name))
    source_ids = [str(one) for one in fields.values(fields.take(SOURCE_ID)) if not isinstance(one, bytes)]
    for name in _CAPTIONS:
        fields.take(name)
    free: dict[str, FeatureValue] = {}
    for name in fields.free_names(bool(image or (steps and steps.frames))):
        values = fields.values(fields.features[name])
        free[name] = values[0] if len(values) == 1 else values
    if filename not in ("", key):
        free["source_filename"] = filename
    size = (shape.height or 0, shape.width or 0)
    annotations = Annotations(
        labels=labels,
        features=free,
        objects=objects,
        captions=captions if "captions" in include else (),
        masks=masks,
        size=size if (objects or masks) and min(size) > 0 else None,
        relative=bool(objects),
        source_id="".join(one for one in source_ids[:1] if one != key),
        steps=steps,
    )
    stored = (image.length or 0) if image else 0
    record = ImageRecord(key, image, split, annotations, origin, stored)
    return record, ClassNames(names, texts, optional=True)


def _steps(context: Fields, shape: Shape, names: dict[int, str], texts: dict[str, str]) -> Steps:
    steps = []
    for at in range(max(map(len, context.lists.values()))):
        features = {name: values[at] for name, values in context.lists.items() if at < len(values)}
        steps.append(Fields(context.record, features, refer=context.refer))
    images = [_image(step, step.shape(shape)) for step in steps]
    frames = tuple(image for image in images if image is not None)
    if 0 < len(frames) < len(images):
        detail = f"{len(images)} steps, of which {len(frames)} have an image"
        raise BadInput("manifest", "step without an image", detail)
    labels = tuple(_labels(step, names, texts) for step in steps)
    lists: dict[str, tuple[FeatureValue, ...]] = {}
    free = {name for step in steps for name in step.free_names(bool(frames))}
    for name in sorted(free - {LABEL_KEYS[0]}):
        values = [context.values(feature) for feature in context.lists[name]]
        single = all(len(value) == 1 for value in values)
        lists[name] = tuple(value[0] if single else value for value in values)
    return Steps(frames, labels if any(labels) else (), lists)


def _image(fields: Fields, shape: Shape) -> ImageRef | None:
    fault: BadInput | None = None
    for name in IMAGE_KEYS:
        spans = fields.features.get(name, _NO_FEATURE).spans
        if len(spans) != 1:
            continue
        if spans[0].start == spans[0].stop:
            fault = fault or BadInput("manifest", "empty image", f"the feature {name!r} has no bytes")
            continue
        try:
            found, pixels = image_within(fields.record, spans[0], shape)
        except BadInput as error:
            # text under another name than these is a path or a caption, and a free feature
            if fault is None and (name in OUR_IMAGE_KEYS or not _is_text(fields.scalar(spans[0]))):
                detail = f"the feature {name!r}: {error.detail}"
                if error.reason == PIXELS_UNKNOWN:
                    detail += f"; features: {', '.join(sorted(fields.features))}; {_REMEDY}"
                fault = BadInput(error.stage, error.reason, detail)
            continue
        fields.take(name)
        return fields.refer(found, pixels)
    if fault is not None:
        raise fault
    return None


def _is_text(value: str | bytes) -> bool:
    return isinstance(value, str) and all(letter.isprintable() or letter in "\t\n\r" for letter in value)


def _masks(fields: Fields, shape: Shape) -> dict[str, MaskImage]:
    found: dict[str, MaskImage] = {}
    for name, kind in _MASKS.items():
        spans = fields.take(name).spans
        if len(spans) != 1 or spans[0].start == spans[0].stop:
            continue
        start, stop = spans[0]
        pixels = None
        if not is_encoded(fields.record[start : min(stop, start + 16)]):
            if not (shape.height and shape.width and stop - start == shape.height * shape.width):
                size = f"the feature {name!r} has {stop - start} bytes"
                detail = f"{size}; a PNG is read, or height x width bytes"
                raise BadInput("annotations", "mask of no known format", detail)
            pixels = (shape.height, shape.width, 1)
        found.setdefault(kind, MaskImage(fields.refer(spans[0], pixels)))
    return found


def _labels(fields: Fields, names: dict[int, str], texts: dict[str, str]) -> _Labels:
    """The labels of a record or step; adds class names by id and display texts by synset."""
    found, synsets = fields.texts(TEXT), fields.texts(SYNSET)
    features = {name: fields.features.get(name, _NO_FEATURE) for name in LABEL_KEYS}
    for name in (name for name, feature in features.items() if not feature):
        fields.take(name)
    name = next((name for name, feature in features.items() if feature and feature.kind != "float"), "")
    ids = fields.integers(name) if name else ()
    if name and not ids:
        found = fields.texts(name)
    codes = synsets if len(synsets) == len(found) and all(synsets) else ()
    texts.update((code, text) for code, text in zip(codes, found, strict=False) if text not in ("", code))
    if not ids:
        return tuple(text for text in codes or found if text)
    names.update(_names_by_id(ids, codes or found))
    return ids


def _names_by_id(ids: Sequence[int], texts: Sequence[str]) -> dict[int, str]:
    """Names by id, where there is one text for each. Raises BadInput if one id has two names."""
    names: dict[int, str] = {}
    for number, text in zip(ids, texts, strict=True) if len(ids) == len(texts) else ():
        if text and number >= 0 and names.setdefault(number, text) != text:
            detail = f"{number}: {names[number]!r} and {text!r}"
            raise BadInput("annotations", "a class has two names", detail)
    return names


def _objects(
    fields: Fields, labels: _Labels, names: dict[int, str], include: Collection[str]
) -> tuple[AnnotatedObject, ...]:
    """The objects; a single label of the image is also theirs. Adds class names by id that `names` lacks."""
    if not any(name.startswith(_OBJECT) for name in fields.features):
        return ()
    boxes = _boxes(fields)
    count = len(boxes)
    texts = fields.texts(_OBJECT_TEXTS)
    ids, others = map(fields.integers, _OBJECT_LABELS)
    ids = ids or others
    _check_count(count, ids, "labels of objects")
    _check_count(count, texts, "class/text of objects")
    classes: _Labels = ids or (texts if all(texts) else ()) or (labels * count if len(labels) == 1 else ())
    if len(classes) != count:
        detail = f"there is neither {_OBJECT_LABELS[0]} nor {_OBJECT_TEXTS}"
        raise BadInput("annotations", "object without a class", detail)
    names.update({**_names_by_id(ids, texts), **names})
    spans = fields.take(_OBJECT_MASK).spans
    masks: list[ImageRef | None] = [None] * count
    if "masks" in include and spans:
        _check_count(count, spans, _OBJECT_MASK)
        masks = [fields.refer(span, None) if span.stop > span.start else None for span in spans]
    keypoints = _keypoints(fields, count, "keypoints" in include)
    objects = zip(classes, boxes, masks, keypoints, _attributes(fields, count), strict=True)
    return tuple(
        AnnotatedObject(label, box, mask, points, attributes=values)
        for label, box, mask, points, values in objects
    )


def _check_count(boxes: int, values: Sequence[object], name: str) -> None:
    if len(values) not in (0, boxes):
        raise BadInput("annotations", _UNEVEN, f"{boxes} boxes and {len(values)} {name}")


def _boxes(fields: Fields) -> list[Box]:
    sides = [fields.take(key).numbers for key in BOX_KEYS]
    if len(set(map(len, sides))) > 1:
        lengths = ", ".join(f"{len(side)} {key}" for side, key in zip(sides, SIDES, strict=True))
        raise BadInput("annotations", _UNEVEN, f"image/object/bbox has {lengths}")
    boxes = [Box(*map(float, box)) for box in zip(*sides, strict=True)]
    for box in boxes:
        if any(math.isfinite(side) and abs(side) > _FARTHEST for side in box):
            detail = f"{tuple(box)}; boxes of TFRecords are shares of width and height, 0 to 1"
            raise BadInput("annotations", "box in pixels", detail)
    return boxes


def _keypoints(fields: Fields, count: int, included: bool) -> list[tuple[tuple[float, float, int], ...]]:
    x, y, seen = (fields.take(f"{_KEYPOINT}{name}").numbers for name in ("x", "y", "visibility"))
    for name in fields.features:
        if name.startswith(_KEYPOINT):
            fields.take(name)
    if not included or not count or not x:
        return [()] * count
    if len(x) != len(y) or len(seen) not in (0, len(x)) or len(x) % count:
        detail = f"{count} boxes, and {len(x)} x, {len(y)} y and {len(seen)} visibility of keypoints"
        raise BadInput("annotations", _UNEVEN, detail)
    if not all(map(math.isfinite, seen)):
        raise BadInput("annotations", "visibility of a keypoint is not a number", f"{seen}"[:100])
    points = list(zip(map(float, x), map(float, y), map(int, seen or [_VISIBLE] * len(x)), strict=True))
    each = len(x) // count
    return [tuple(points[at * each : (at + 1) * each]) for at in range(count)]


def _attributes(fields: Fields, count: int) -> list[dict[str, Any]]:
    """Other lists of one value an object, by name."""
    attributes: list[dict[str, Any]] = [{} for _ in range(count)]
    for key in fields.free_names(False):
        if not key.startswith(_OBJECT):
            continue
        values, name = fields.values(fields.features[key]), key[len(_OBJECT) :]
        if len(values) not in (0, count) and "/" in name:
            continue  # a list of something else is a free feature
        _check_count(count, values, key)
        fields.take(key)
        for attribute, value in zip(attributes, values, strict=False):
            attribute[name] = value
    return attributes
