"""Verifies stored images and masks: decoded whole, and of the shape that their record tells."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Collection, Iterator

import numpy as np
from PIL import Image

from recordmill.transforms.images import jpeg_header
from recordmill.transforms.images.jpeg_quality import estimated_quality
from recordmill.transforms.images.mask import decode_mask
from recordmill.transforms.images.opened import opened
from recordmill.transforms.images.pillow import DECODER_ERRORS, named
from recordmill.transforms.images.tensor import tensor_bytes
from recordmill.transforms.records import IGNORE, BadInput

UNDECODABLE, WRONG_SHAPE = "image that cannot be decoded", "image of another shape"
WRONG_FORMAT = "image of another format"
BAD_MASK, UNKNOWN_CLASS = "mask that does not fit", "class id without a label"

_ITEM_BYTES = {"uint8": 1, "uint16": 2}
_ALIASES = {"jpg": "jpeg"}


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """What a record says of its image; None and empty where it says nothing.

    Attributes:
        height: pixels.
        width: pixels.
        channels: as TensorFlow decodes it.
        image_format: in lower case; `raw` and `tensor` are pixels.
        dtype: of pixels.
        colorspace: of the stored bytes.
    """

    height: int | None = None
    width: int | None = None
    channels: int | None = None
    image_format: str = ""
    dtype: str = ""
    colorspace: str = ""


Fault = tuple[str, str]
"""Kind, and particulars."""


def image_faults(data: bytes, told: Told, pillow_at: Collection[int]) -> Iterator[Fault]:
    """What is wrong with a stored image.

    Args:
        data: as it is stored.
        told: of it.
        pillow_at: qualities at which simplejpeg has encoded JPEGs of the dataset: Pillow decodes those,
            though it keeps libjpeg's warnings to itself. All others simplejpeg decodes, and a warning is a
            fault.
    """
    if _is_pixels(data, told):
        yield from _pixel_faults(data, told)
        return
    try:
        yield from _decoded_faults(data, told, pillow_at)
    except BadInput as error:
        yield UNDECODABLE, f"{error.reason}: {error.detail}" if error.detail else error.reason


def _is_pixels(data: bytes, told: Told) -> bool:
    if told.image_format:
        return told.image_format in ("raw", "tensor")
    # the schema `plain` names no format
    return _pixel_bytes(told) == len(data)


def _pixel_bytes(told: Told) -> int | None:
    height, width, channels = told.height or 0, told.width or 0, told.channels or 0
    if min(height, width, channels) < 1:
        return None
    return height * width * channels * _ITEM_BYTES.get(told.dtype or "uint8", 1)


def _pixel_faults(data: bytes, told: Told) -> Iterator[Fault]:
    size = _pixel_bytes(told)
    if size is None or told.dtype not in ("", *_ITEM_BYTES):
        yield UNDECODABLE, f"pixels whose shape and dtype are not told: {_shape(told)} {told.dtype}"
        return
    if told.image_format != "tensor":
        if len(data) != size:
            yield WRONG_SHAPE, f"{len(data):,} bytes for {_shape(told)} pixels of {told.dtype or 'uint8'}"
        return
    shape = (told.height or 0, told.width or 0, told.channels or 0)
    wanted = np.dtype(told.dtype or "uint8").newbyteorder("<")
    content = data[len(data) - size :] if size <= len(data) else b""
    if not content or tensor_bytes(np.frombuffer(content, wanted).reshape(shape)) != data:
        yield WRONG_SHAPE, f"no TensorProto of {_shape(told)} pixels of {wanted.name}"


def _shape(told: Told) -> str:
    return "x".join("?" if side is None else str(side) for side in (told.height, told.width, told.channels))


def _decoded_faults(data: bytes, told: Told, pillow_at: Collection[int]) -> Iterator[Fault]:
    """Of an encoded image. Raises BadInput where it cannot be decoded."""
    image = opened(data)
    if image.kind != _ALIASES.get(told.image_format, told.image_format or image.kind):
        yield WRONG_FORMAT, f"its bytes are {image.kind.upper()}, and its format is {told.image_format!r}"
    if image.kind == "jpeg" and _is_encoded_at(data, pillow_at):
        height, width = _with_pillow(data)
    else:
        if image.kind != "jpeg":  # whose decoding tells of any damage
            image.check()
        height, width = image.decode().pixels.shape[:2]
    if (told.height or height, told.width or width) != (height, width):
        yield WRONG_SHAPE, f"{width}x{height} pixels; the record says {told.width}x{told.height}"
    if image.kept is None:
        yield UNDECODABLE, f"TensorFlow does not decode this {image.kind.upper()}"
        return
    if told.channels not in (None, image.kept.channels):
        yield WRONG_SHAPE, f"{image.kept.channels} channels; the record says {told.channels}"
    if told.colorspace not in ("", image.kept.colorspace):
        yield WRONG_FORMAT, f"its colours are {image.kept.colorspace}; the record says {told.colorspace}"


def _is_encoded_at(data: bytes, qualities: Collection[int]) -> bool:
    """Whether a JPEG has the tables of one of some qualities."""
    return bool(qualities) and estimated_quality(data, jpeg_header.read_header(data)) in qualities


def _with_pillow(data: bytes) -> tuple[int, int]:
    """Height and width of a JPEG that Pillow reads whole.

    Of its pixels the luma alone is made, at full size, in two thirds of the time that colours take: chroma is
    unpacked as well, which is where damage shows.
    """
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
            image.draft("L", image.size)
            image.load()
            return image.height, image.width
    except DECODER_ERRORS as error:
        raise named(error) from error


def mask_faults(data: bytes, told: Told, classes: Collection[int] | None, raw: bool) -> Iterator[Fault]:
    """What is wrong with a mask of a whole image.

    Args:
        data: a PNG, or a byte a pixel.
        told: of the image.
        classes: ids that its pixels may have beside 255; None where any will do.
        raw: whether it is a byte a pixel.
    """
    size = (told.height, told.width)
    if raw:
        if None not in size and len(data) != math.prod(side or 0 for side in size):
            yield BAD_MASK, f"{len(data):,} bytes for an image of {told.width}x{told.height}"
        pixels = np.frombuffer(data, np.uint8)
    else:
        try:
            pixels = decode_mask(data)
        except BadInput as error:
            yield BAD_MASK, f"{error.reason}: {error.detail}" if error.detail else error.reason
            return
        if None not in size and pixels.shape != size:
            height, width = pixels.shape
            yield BAD_MASK, f"{width}x{height} pixels, on an image of {told.width}x{told.height}"
    if classes is None:
        return
    found = np.flatnonzero(np.bincount(pixels.ravel(), minlength=1))
    unknown = [int(one) for one in found if int(one) != IGNORE and int(one) not in classes]
    if unknown:
        ids = ", ".join(map(str, unknown[:10])) + (", …" if len(unknown) > 10 else "")
        yield UNKNOWN_CLASS, f"pixels of the mask are {ids}"
