"""Masks whose pixel values are class ids: values are never changed or interpolated."""

from __future__ import annotations

import dataclasses
import io

import msgspec
import numpy as np
from PIL import Image

from recordmill.transforms.images import png
from recordmill.transforms.images.exif import Array, turned
from recordmill.transforms.images.geometry import file_size
from recordmill.transforms.images.gif import open_gif
from recordmill.transforms.images.opened import image_kind
from recordmill.transforms.images.picture import Picture
from recordmill.transforms.images.raster import decode_raster, with_colored_palette
from recordmill.transforms.images.reasons import EMPTY, NOT_SUPPORTED, undecodable
from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import BadInput, Geometry

WRONG_SIZE = "mask of another size than its image"

# TIFF 6.0 and its technical notes: tags, and the lossy compressions: JPEG, old and new, JPEG 2000, WebP.
_BITS, _COMPRESSION = 258, 259
_LOSSY = frozenset((6, 7, 33003, 33005, 34712, 50001))
# In a PNG: behind the signature, the length and name of IHDR, width and height.
_DEPTH_OFFSET = 24
_REMEDY = "save the class ids as a PNG, one channel or a palette"


def moved_mask(geometry: Geometry, pixels: Array, fill: int) -> Array:
    """Transforms a mask of the file into one of the stored image, by nearest neighbour.

    Args:
        geometry: of the stored image.
        pixels: uint8 or uint16 (height, width) or (height, width, 1), in the file's orientation.
        fill: the class id of padding.

    Raises:
        BadInput: the mask is not of the image's size.
    """
    if not 0 <= fill <= np.iinfo(pixels.dtype).max:
        raise ValueError(f"fill is {fill}, which {pixels.dtype} does not hold")
    size = file_size(geometry)
    if pixels.shape[:2] != size:
        height, width = pixels.shape[:2]
        detail = f"{width}x{height} on an image of {size[1]}x{size[0]}, before it is turned by its EXIF"
        raise BadInput("encode", WRONG_SIZE, detail)
    top, left = max(0, geometry.top), max(0, geometry.left)
    rows = _nearest(geometry.upright_height, geometry.scaled_height, -geometry.top, geometry.height)
    columns = _nearest(geometry.upright_width, geometry.scaled_width, -geometry.left, geometry.width)
    # One axis after the other: a quarter of the time of both at once.
    part = turned(pixels, geometry.orientation).take(rows, axis=0).take(columns, axis=1)
    if part.shape[:2] == (geometry.height, geometry.width):
        return part
    frame = np.full((geometry.height, geometry.width, *pixels.shape[2:]), fill, pixels.dtype)
    frame[top : top + len(rows), left : left + len(columns)] = part
    return frame


def _nearest(side: int, scaled: int, start: int, count: int) -> Array:
    """The source pixel under the centre of each of `count` pixels from `start` on the scaled picture."""
    at = np.arange(max(0, start), min(scaled, start + count), dtype=np.int64)
    indices: Array = (2 * at + 1) * side // (2 * scaled)
    return indices


def encode_mask(pixels: Array) -> bytes:
    """A grey PNG whose samples are the class ids: uint8 or uint16 (height, width) or (height, width, 1)."""
    height, width = pixels.shape[:2]
    depth = 8 * pixels.itemsize
    samples = np.ascontiguousarray(pixels, f">u{pixels.itemsize}").reshape(height, width)
    # Rows without a filter: for class ids a third smaller than with the filters for photographs.
    rows = np.zeros((height, 1 + width * pixels.itemsize), np.uint8)
    rows[:, 1:] = samples.view(np.uint8)
    # Level 8 is within 3 % of level 9, in less than half its time.
    return png.encoded_rows(rows.tobytes(), height, width, depth, png.GRAY, level=8)


def encoded_dtype(mask: bytes) -> str:
    """The type of the ids in a PNG of `encode_mask`."""
    return f"uint{mask[_DEPTH_OFFSET]}"


def pixel_counts(ids: Array) -> dict[int, int]:
    """The number of pixels of each class id that occurs in a mask."""
    counts = np.bincount(ids.ravel())
    return {int(one): int(counts[one]) for one in np.flatnonzero(counts)}


@internal_errors("decode")
def decode_mask(data: bytes) -> Array:
    """The class ids in a PNG, GIF, BMP or TIFF: palette indices, or the stored grey samples.

    uint8 or uint16 (height, width). Samples of 1, 2 or 4 bits are not scaled to 0 to 255; transparency and
    EXIF orientation are ignored.

    Raises:
        BadInput: damaged; in colour; of several frames; or of a format that may change values.
    """
    if not data:
        raise undecodable(EMPTY)
    kind = image_kind(data)
    if kind == "png":
        picture = _png(data)
    elif kind == "gif":
        picture = _gif(data)
    elif kind == "bmp":
        picture = decode_raster(with_colored_palette(data), kind)
    elif kind == "tiff":
        picture = _tiff(data)
    else:
        if kind == "tga":
            decode_raster(data, kind)  # raises if it is not an image
        loses = " loses class ids when it is saved" if kind in ("jpeg", "webp") else " is not read as a mask"
        raise undecodable(NOT_SUPPORTED, f"a mask in {kind.upper()}, which{loses}: {_REMEDY}")
    if picture.pixels.shape[2] != 1:
        raise undecodable(NOT_SUPPORTED, f"a mask in colour or with an alpha channel: {_REMEDY}")
    if picture.frames > 1:
        raise undecodable(NOT_SUPPORTED, f"a mask of several frames or pages: {_REMEDY}")
    return np.ascontiguousarray(picture.pixels[:, :, 0])


def _png(data: bytes) -> Picture:
    header = png.read_header(data)
    png.check_image_data(data, header)
    opaque = msgspec.structs.replace(header, transparency=b"") if header.color == png.GRAY else header
    picture = png.decode(data, opaque)
    pixels = _as_stored(picture.pixels, header.depth) if header.color == png.GRAY else picture.pixels
    return Picture(pixels, frames=2 if header.animated else 1)


def _gif(data: bytes) -> Picture:
    image = open_gif(data)
    image.check()
    picture = image.decode()
    # A second channel is the transparency of one colour.
    return dataclasses.replace(picture, pixels=picture.pixels[:, :, :1])


def _tiff(data: bytes) -> Picture:
    picture = decode_raster(data, "tiff")
    with Image.open(io.BytesIO(data), formats=("TIFF",)) as image:
        tags = dict(getattr(image, "tag_v2", {}))
    if tags.get(_COMPRESSION, 1) in _LOSSY:
        raise undecodable(NOT_SUPPORTED, f"a mask in a TIFF whose compression loses class ids: {_REMEDY}")
    if picture.palette or picture.pixels.shape[2] != 1:
        return picture
    return dataclasses.replace(picture, pixels=_as_stored(picture.pixels, max(tags.get(_BITS, (1,)))))


def _as_stored(pixels: Array, bits: int) -> Array:
    """The stored values of grey samples of less than 8 bits, which decoders scale to 0 to 255."""
    return pixels // (255 // ((1 << bits) - 1)) if bits < 8 else pixels
