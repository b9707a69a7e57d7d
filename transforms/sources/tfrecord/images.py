"""Images in features of TFRecords: files, raw pixels, or tensors, told apart by what they hold."""

from __future__ import annotations

import math
from typing import NamedTuple

from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.tfrecord.wire import Span, fields, varint

Pixels = tuple[int, int, int]

PIXELS_UNKNOWN = "image of no known format"
DTYPE_UNREAD = "pixels are not uint8"

_MAGIC = (
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"GIF8",
    b"II*\0",
    b"MM\0*",
    b"\0\0\0\x0cjP  ",
    b"\xff\x4f\xff\x51",
    b"\0\0\0\x0cJXL ",
    b"8BPS",
    b"DDS ",
    b"qoif",
    b"\x76\x2f\x31\x01",
    b"#?RADIANCE",
)
# So short that pixels may begin with them.
_SHORT_MAGIC = (b"BM", b"\0\0\1\0", b"\xff\x0a", *(b"P%d" % number for number in range(1, 8)))
_PIXEL_FORMATS = ("raw", "tensor")
_TENSOR_DTYPES = {1: "float32", 2: "float64", 3: "int32", 4: "uint8", 9: "int64", 17: "uint16"}
_DT_UINT8 = 4
_MOST_BYTES_OF_HEADER = 64  # of a TensorProto, before its content


class Shape(NamedTuple):
    """What the features beside an image tell of it.

    Attributes:
        height: None, as the others, where it is not told.
        width: pixels.
        channels: values a pixel.
        image_format: in lower case; may be empty.
        dtype: of pixels; `uint8` where it is not told.
    """

    height: int | None
    width: int | None
    channels: int | None
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
    if start.startswith(_MAGIC):
        return True
    return start[4:8] == b"ftyp" or (start[:4] == b"RIFF" and start[8:12] == b"WEBP")


def image_within(record: bytes, span: Span, shape: Shape) -> tuple[Span, Pixels | None]:
    """Where the bytes of an image lie, and their shape where they are raw pixels.

    Raises:
        BadInput: stage `manifest`, `image of no known format` or `pixels are not uint8`.
    """
    start = record[span.start : min(span.start + 16, span.stop)]
    if shape.image_format not in _PIXEL_FORMATS and is_encoded(start):
        return span, None
    if shape.image_format != "tensor":
        found = _raw(span, shape)
        if found is not None:
            return span, found
    tensor = _tensor(record, span)
    if tensor is not None:
        return tensor
    named = shape.image_format and shape.image_format not in _PIXEL_FORMATS
    if named or (shape.image_format == "" and start.startswith(_SHORT_MAGIC)):
        return span, None  # decoding it tells what it is
    told = ", ".join(f"{name} {value}" for name, value in zip(Shape._fields, shape, strict=True) if value)
    detail = f"{span.stop - span.start} bytes, which begin with {start[:8].hex(' ')}; told of it: {told}"
    raise BadInput("manifest", PIXELS_UNKNOWN, detail)


def _raw(span: Span, shape: Shape) -> Pixels | None:
    """The shape of raw pixels; None where these bytes are not known to be any."""
    length = span.stop - span.start
    if shape.dtype == "uint8":
        return shape.pixels(length)
    size = {"uint16": 2, "int16": 2, "float16": 2, "float64": 8, "int64": 8}.get(shape.dtype, 4)
    if length % size == 0 and shape.pixels(length // size) is not None:
        raise BadInput("manifest", DTYPE_UNREAD, f"they are {shape.dtype}; write them as uint8, or as PNG")
    return None


def _tensor(record: bytes, span: Span) -> tuple[Span, Pixels] | None:
    """The pixels of a serialised TensorProto; None where it is none.

    Source of the format: tensorflow/core/framework/{tensor,tensor_shape}.proto.
    """
    dtype, sizes, content = 0, [], Span(0, 0)
    try:
        for number, wire_type, value in fields(record, span):
            if (number, wire_type) == (1, 0):
                dtype = varint(record, value)
            elif (number, wire_type) == (2, 2):
                sizes = _tensor_shape(record, value)
            elif (number, wire_type) == (4, 2):
                content = value
    except BadInput:
        return None
    length = content.stop - content.start
    if not 2 <= len(sizes) <= 3 or not length or span.stop - span.start - length > _MOST_BYTES_OF_HEADER:
        return None
    if dtype != _DT_UINT8:
        told = _TENSOR_DTYPES.get(dtype, f"of the type {dtype}")
        raise BadInput("manifest", DTYPE_UNREAD, f"the tensor is {told}; write it as uint8, or as PNG")
    height, width, channels = (*sizes, 1)[:3]
    if length != math.prod((height, width, channels)) or not 1 <= channels <= 4:
        return None
    return content, (height, width, channels)


def _tensor_shape(record: bytes, span: Span) -> list[int]:
    sizes = []
    for number, wire_type, dimension in fields(record, span):
        if (number, wire_type) == (2, 2):
            size = 0
            for inner, inner_type, value in fields(record, dimension):
                if (inner, inner_type) == (1, 0):
                    size = varint(record, value)
            sizes.append(size)
    return sizes
