"""Features of one TFRecord by the keys of our schemas and the usual foreign ones: image, masks, labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from recordmill.transforms.records import BadInput, FeatureValue, ImageRef, MaskImage, Scalar
from recordmill.transforms.sources.tfrecord.images import (
    PIXELS_UNKNOWN,
    Pixels,
    Shape,
    image_within,
    is_encoded,
)
from recordmill.transforms.sources.tfrecord.wire import Feature, Span

IMAGE_KEYS = (
    "image/encoded",
    "image_raw",
    "image",
    "img",
    "image/raw",
    "image_bytes",
    "encoded",
    "jpeg",
    "png",
)
LABEL_KEYS = ("image/class/label", "label", "labels", "class")
TEXT, SYNSET = "image/class/text", "image/class/synset"
FILENAME, SOURCE_ID = "image/filename", "image/source_id"
CAPTIONS = ("image/caption", "image/captions")
UNEVEN = "lists of different lengths"

_ALWAYS_IMAGES = ("image/encoded", "image_raw")
_CLASS_MASK, _RAW_MASK = "image/segmentation/class/encoded", "mask_raw"
_MASKS = {
    "class": (_CLASS_MASK, _RAW_MASK),
    "instance": ("image/panoptic/instance/encoded",),
    "panoptic category": ("image/panoptic/category/encoded",),
}
MASK_KEYS = frozenset(key for keys in _MASKS.values() for key in keys)
# Written anew for every record with an image.
_KEYS_WRITTEN_ANEW = """
    image/height image/width image/channels image/depth image/colorspace image/format image/dtype
    image/key/sha256 image/jpeg_quality image/segmentation/class/format image/panoptic/category/format
    image/panoptic/instance/format height width depth channels dtype jpeg_quality
"""
_WRITTEN_ANEW = frozenset(_KEYS_WRITTEN_ANEW.split())

Refer = Callable[[Span, "Pixels | None"], ImageRef]
"""Makes a reference of a range of the record, which holds raw pixels of that shape or an image file."""


class Fields:
    """The features of one record, or of one step of a sequence; those that were not asked for are free.

    Args:
        record: bytes.
        features: of it, under our names.
        refer: makes references of ranges.
    """

    def __init__(self, record: bytes, features: Mapping[str, Feature], refer: Refer) -> None:
        self.record = record
        self.features = features
        self.refer = refer
        self._used: set[str] = set()

    def use(self, names: Iterable[str]) -> None:
        """Marks features as no free ones."""
        self._used.update(names)

    def take(self, name: str) -> Feature:
        """A feature that is no free one; one without values where there is none."""
        self._used.add(name)
        return self.features.get(name, _NOTHING)

    def numbers(self, name: str) -> tuple[int | float, ...]:
        """The values of a list of numbers."""
        return self.take(name).numbers

    def integers(self, name: str) -> tuple[int, ...]:
        """The values of a list of int64; none where it is of another kind."""
        return tuple(number for number in self.take(name).numbers if isinstance(number, int))

    def texts(self, name: str) -> tuple[str, ...]:
        """The values of a list of bytes, as text. Raises BadInput where one is not UTF-8."""
        found = tuple(self.scalar(span) for span in self.take(name).spans)
        texts = tuple(text for text in found if isinstance(text, str))
        if len(texts) < len(found):
            raise BadInput("manifest", "text is not UTF-8", f"the feature {name!r}")
        return texts

    def text(self, name: str) -> str:
        """The one value of a list of bytes; empty where there is none."""
        return (*self.texts(name), "")[0]

    def scalar(self, span: Span) -> str | bytes:
        """Bytes, as text where they are any."""
        data = self.record[span.start : span.stop]
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data

    def values(self, feature: Feature) -> tuple[Scalar, ...]:
        """The values of a feature."""
        return tuple(map(self.scalar, feature.spans)) if feature.kind == "bytes" else feature.numbers

    def free(self, has_image: bool) -> dict[str, FeatureValue]:
        """The features that are left: one value as itself, several as a tuple; absent ones left out."""
        used = self._used | _WRITTEN_ANEW if has_image else self._used
        found: dict[str, FeatureValue] = {}
        for name, feature in sorted(self.features.items()):
            if name not in used and feature.kind is not None:
                values = self.values(feature)
                found[name] = values[0] if len(values) == 1 else values
        return found

    def shape(self) -> Shape:
        """What is told of the image."""
        return Shape(
            self._first_integer("image/height", "height"),
            self._first_integer("image/width", "width"),
            self._first_integer("image/channels", "image/depth", "channels", "depth"),
            self._first_text("image/format").lower(),
            self._first_text("image/dtype", "dtype").lower() or "uint8",
        )

    def _first_integer(self, *names: str) -> int | None:
        for name in names:
            for number in self.features.get(name, _NOTHING).numbers[:1]:
                if number == int(number):
                    return int(number)
        return None

    def _first_text(self, *names: str) -> str:
        for name in names:
            for span in self.features.get(name, _NOTHING).spans[:1]:
                if isinstance(found := self.scalar(span), str):
                    return found
        return ""


_NOTHING = Feature(None)


def image_of(fields: Fields, shape: Shape) -> ImageRef | None:
    """The image of a record; None where it has none.

    Raises:
        BadInput: stage `manifest`, as `image_within`.
    """
    fault: BadInput | None = None
    for name in IMAGE_KEYS:
        feature = fields.features.get(name)
        if feature is None or len(feature.spans) != 1:
            continue
        span = feature.spans[0]
        if span.start == span.stop:
            fault = fault or BadInput("manifest", "empty image", f"the feature {name!r} has no bytes")
            continue
        try:
            found, pixels = image_within(fields.record, span, shape)
        except BadInput as error:
            # text under such a name is a path or a caption, and free as any other
            if name in _ALWAYS_IMAGES or not _is_text(fields.scalar(span)):
                fault = fault or _naming(error, name, fields)
            continue
        fields.use((name,))
        return fields.refer(found, pixels)
    if fault is not None:
        raise fault
    return None


def _is_text(value: str | bytes) -> bool:
    return isinstance(value, str) and all(letter.isprintable() or letter in "\t\n\r" for letter in value)


def _naming(error: BadInput, name: str, fields: Fields) -> BadInput:
    if error.reason != PIXELS_UNKNOWN:
        return BadInput(error.stage, error.reason, f"the feature {name!r}: {error.detail}")
    names = ", ".join(sorted(fields.features))
    remedy = "--input_features OLD=image/height,… tells what features are the shape, or the image"
    return BadInput(
        error.stage, error.reason, f"the feature {name!r}: {error.detail}; features: {names}; {remedy}"
    )


def masks_of(fields: Fields, shape: Shape) -> dict[str, MaskImage]:
    """The masks of a whole image, by what their pixels are.

    Raises:
        BadInput: stage `annotations`, `mask of no known format`.
    """
    found: dict[str, MaskImage] = {}
    for kind, names in _MASKS.items():
        for name in names:
            spans = fields.take(name).spans
            if len(spans) != 1 or spans[0].start == spans[0].stop:
                continue
            target = "class" if kind == "panoptic category" else kind
            # the classes of a panoptic mask are those of the class mask beside it
            found.setdefault(target, MaskImage(_mask(fields, name, spans[0], shape)))
    return found


def _mask(fields: Fields, name: str, span: Span, shape: Shape) -> ImageRef:
    length = span.stop - span.start
    if is_encoded(fields.record[span.start : min(span.stop, span.start + 16)]):
        return fields.refer(span, None)
    if shape.height and shape.width and length == shape.height * shape.width:
        return fields.refer(span, (shape.height, shape.width, 1))
    detail = f"the feature {name!r} has {length} bytes; a PNG is read, or height x width bytes"
    raise BadInput("annotations", "mask of no known format", detail)


def labels_of(fields: Fields) -> tuple[tuple[str | int, ...], dict[int, str], dict[str, str]]:
    """The labels of a whole image: ids where there are any, else text.

    Returns:
        The labels; names by id, as this record tells them; and texts by name where names are synsets.
    """
    texts, synsets = fields.texts(TEXT), fields.texts(SYNSET)
    ids: tuple[int, ...] = ()
    for name in LABEL_KEYS:
        feature = fields.features.get(name)
        if feature is None or not len(feature) or feature.kind == "float":
            continue
        if feature.kind == "int64":
            ids = fields.integers(name)
        else:
            texts = fields.texts(name)
        break
    fields.use(name for name in LABEL_KEYS if not len(fields.features.get(name, _NOTHING)))
    codes = synsets if len(synsets) == len(texts) and all(synsets) else ()
    names = codes or texts
    if not ids:
        return tuple(text for text in names if text), {}, dict(zip(codes, texts, strict=False))
    return ids, named(ids, names), {code: text for code, text in zip(codes, texts, strict=False) if text}


def named(ids: Sequence[int], texts: Sequence[str]) -> dict[int, str]:
    """Names by id, where there is one text for each.

    Raises:
        BadInput: stage `annotations`: one id has two names in one record.
    """
    names: dict[int, str] = {}
    if len(ids) != len(texts):
        return names
    for number, text in zip(ids, texts, strict=True):
        if text and number >= 0 and names.setdefault(number, text) != text:
            raise BadInput(
                "annotations", "a class has two names", f"{number}: {names[number]!r} and {text!r}"
            )
    return names
