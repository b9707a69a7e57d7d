"""A view of one TFRecord, an Example or a SequenceExample: its features by name, and its image.

Features have the names of our schemas, those of the TF Object Detection API, or other common ones.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeVar

from recordmill.transforms.examples.wire import (
    NOT_AN_EXAMPLE,
    Feature,
    Span,
    read_example,
    read_feature_lists,
    read_tensor,
)
from recordmill.transforms.records import BadInput, ImageRef, Scalar

Pixels = tuple[int, int, int]
"""Height, width and channels of raw pixels."""

Refer = Callable[[Span, Pixels | None], ImageRef]
"""Makes the reference of an image file, or of raw pixels, in a range of a record."""

_T = TypeVar("_T")

OUR_IMAGE_KEYS = ("image/encoded", "image_raw")
IMAGE_KEYS = (*OUR_IMAGE_KEYS, "image", "img", "image/raw", "image_bytes", "encoded", "jpeg", "png")
LABEL_KEYS = ("image/class/label", "label", "labels", "class")
TEXT, SYNSET = "image/class/text", "image/class/synset"
FILENAME, SOURCE_ID = "image/filename", "image/source_id"
SIDES = ("xmin", "ymin", "xmax", "ymax")
BOX_KEYS = tuple(f"image/object/bbox/{side}" for side in SIDES)
PIXELS_UNKNOWN = "image of no known format"
NO_FEATURE = Feature(None)

# The writer sets these for every record with an image.
_SIZES = ("height", "width", "channels", "depth", "dtype", "jpeg_quality")
_FORMATS = ("segmentation/class/format", "panoptic/category/format", "panoptic/instance/format", "format")
_OTHERS = (*_SIZES, *_FORMATS, "colorspace", "key/sha256")
_REWRITTEN = frozenset((*_SIZES, *(f"image/{name}" for name in _OTHERS)))
_NOT_UINT8 = "pixels are not uint8"

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
    """The shape and format of an image according to other features of its record; None or empty if absent."""

    height: int | None = None
    width: int | None = None
    channels: int | None = None
    image_format: str = ""
    dtype: str = "uint8"

    def pixels(self, length: int) -> Pixels | None:
        """The shape of pixels of `length` bytes; None if they do not fit."""
        if self.height is None or self.width is None or min(self.height, self.width) < 1:
            return None
        for channels in (self.channels,) if self.channels else (1, 3, 4):
            if length == self.height * self.width * channels and 1 <= channels <= 4:
                return self.height, self.width, channels
        return None


def is_encoded(start: bytes) -> bool:
    """Whether an image file starts like this."""
    return _ENCODED.match(start) is not None


class StoredForm(NamedTuple):
    """The form in which a record stores an image.

    Attributes:
        codec: `image` for a file, `raw` for pixels, `tensor` for a serialised TensorProto.
        span: of the file, or of the pixels.
        pixels: None for a file.
        dtype: of the pixels; `uint8` for a file.
    """

    codec: Literal["image", "raw", "tensor"]
    span: Span
    pixels: Pixels | None = None
    dtype: str = "uint8"


def stored_form(record: bytes, span: Span, shape: Shape) -> StoredForm:
    """The form of the image in a value.

    Raises:
        BadInput: stage `manifest`, `image of no known format`.
    """
    start = record[span.start : min(span.start + 16, span.stop)]
    length = span.stop - span.start
    if shape.image_format not in _PIXEL_FORMATS and is_encoded(start):
        return StoredForm("image", span)
    if shape.image_format != "tensor":
        count, rest = divmod(length, 1 if shape.dtype == "uint8" else _DTYPE_BYTES.get(shape.dtype, 4))
        if not rest and (pixels := shape.pixels(count)) is not None:
            return StoredForm("raw", span, pixels, shape.dtype)
    if (tensor := _tensor(record, span)) is not None:
        return tensor
    named = shape.image_format and shape.image_format not in _PIXEL_FORMATS
    if named or (shape.image_format == "" and _PERHAPS_ENCODED.match(start)):
        return StoredForm("image", span)  # decoding shows whether it is one
    given = ", ".join(f"{name} {value}" for name, value in shape._asdict().items() if value)
    detail = f"{length} bytes, which begin with {start[:8].hex(' ')}; told of it: {given}"
    raise BadInput("manifest", PIXELS_UNKNOWN, detail)


def image_within(record: bytes, span: Span, shape: Shape) -> tuple[Span, Pixels | None]:
    """The range of an image's bytes, and the shape of raw pixels.

    Raises:
        BadInput: stage `manifest`, `image of no known format` or `pixels are not uint8`.
    """
    form = stored_form(record, span, shape)
    if form.dtype != "uint8":
        they, them = ("the tensor is", "it") if form.codec == "tensor" else ("they are", "them")
        raise BadInput("manifest", _NOT_UINT8, f"{they} {form.dtype}; write {them} as uint8, or as PNG")
    return form.span, form.pixels


def _tensor(record: bytes, span: Span) -> StoredForm | None:
    try:
        data_type, sizes, content = read_tensor(record, span)
    except BadInput:
        return None
    length = content.stop - content.start
    if not 2 <= len(sizes) <= 3 or not length or span.stop - span.start - length > _MOST_BYTES_OF_HEADER:
        return None
    dtype = _TENSOR_DTYPES.get(data_type, f"of the type {data_type}")
    height, width, channels = (*sizes, 1)[:3]
    fits = length == math.prod((height, width, channels)) and 1 <= channels <= 4
    if dtype == "uint8" and not fits:
        return None
    return StoredForm("tensor", content, (height, width, channels), dtype)


def _refer_to_record(span: Span, pixels: Pixels | None) -> ImageRef:
    return ImageRef("", span.start, span.stop - span.start, pixels)


@dataclasses.dataclass(slots=True)
class RecordView:
    """One record, or one step of a sequence, under the names of our schemas.

    Attributes:
        record: the serialised message.
        features: of the record, of a step, or of the context of a sequence.
        lists: of a sequence, a feature for each step.
        refer: makes references of images.
    """

    record: bytes = dataclasses.field(repr=False)
    features: Mapping[str, Feature]
    lists: Mapping[str, list[Feature]] = dataclasses.field(default_factory=dict)
    refer: Refer = _refer_to_record
    _used: set[str] = dataclasses.field(default_factory=set)

    def steps(self) -> list[RecordView]:
        """The steps of a sequence, each with the features that it has."""
        return [
            RecordView(
                self.record,
                {name: values[at] for name, values in self.lists.items() if at < len(values)},
                refer=self.refer,
            )
            for at in range(max(map(len, self.lists.values()), default=0))
        ]

    def take(self, name: str) -> Feature:
        """A feature, which is then no longer free; one without values if it is absent."""
        self._used.add(name)
        return self.features.get(name, NO_FEATURE)

    def integers(self, name: str) -> tuple[int, ...]:
        """The values of a list of int64; none if it has another kind."""
        return tuple(number for number in self.take(name).numbers if isinstance(number, int))

    def texts(self, name: str) -> tuple[str, ...]:
        """The values of a list of bytes, as text. Raises BadInput if one is not UTF-8."""
        spans = self.take(name).spans
        try:
            return tuple(self.record[start:stop].decode() for start, stop in spans)
        except UnicodeDecodeError as error:
            raise BadInput("manifest", "text is not UTF-8", f"the feature {name!r}") from error

    def text(self, name: str) -> str:
        """The first value of a list of bytes; empty if there is none."""
        return (*self.texts(name), "")[0]

    def scalar(self, span: Span) -> str | bytes:
        """Bytes, as text if they are UTF-8."""
        data = self.record[span.start : span.stop]
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data

    def values(self, feature: Feature) -> tuple[Scalar, ...]:
        """The values of a feature."""
        return tuple(map(self.scalar, feature.spans)) if feature.kind == "bytes" else feature.numbers

    def free_names(self, has_image: bool) -> list[str]:
        """The names of the features that have not been taken."""
        names = self.features.keys() - self._used - (_REWRITTEN if has_image else frozenset())
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
        firsts = (self.features.get(name, NO_FEATURE).numbers[:1] for name in names)
        return next((int(one) for first in firsts for one in first if float(one).is_integer()), default)

    def _first_text(self, default: str, *names: str) -> str:
        firsts = (self.features.get(name, NO_FEATURE).spans[:1] for name in names)
        texts = (self.scalar(span) for first in firsts for span in first)
        return next((text.lower() for text in texts if isinstance(text, str)), "") or default


def read_view(record: bytes, renames: Mapping[str, str], refer: Refer = _refer_to_record) -> RecordView:
    """The view of a record; `renames` maps stored names to ours.

    Raises:
        BadInput: stage `manifest`: it is not an Example, has no feature, or two features get one name.
    """
    view = renamed_view(record, renames, refer)
    if not view.features and not view.lists:
        raise BadInput("manifest", NOT_AN_EXAMPLE, f"its {len(record)} bytes hold no feature")
    return view


def renamed_view(record: bytes, renames: Mapping[str, str], refer: Refer = _refer_to_record) -> RecordView:
    """As `read_view`, of a record that may have no feature."""
    features, lists = read_example(record), read_feature_lists(record)
    return RecordView(record, _renamed(features, renames), _renamed(lists, renames), refer)


def _renamed(features: dict[str, _T], renames: Mapping[str, str]) -> dict[str, _T]:
    renamed: dict[str, _T] = {}
    for name, feature in features.items():
        new = renames.get(name, name)
        if new in renamed:
            detail = f"--input_features makes {name!r} or another {new!r}; rename what has that name too"
            raise BadInput("manifest", "two features of one name", detail)
        renamed[new] = feature
    return renamed
