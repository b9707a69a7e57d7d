"""Formats that Pillow decodes: those that TensorFlow does not read, and BMP, of which it reads some kinds.

Of BMP see DecodeBmpV2 in tensorflow/core/kernels/image/decode_image_op.cc.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import re
import struct
import sys
from typing import Any

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from recordmill.transforms.images.exif import Array, read_orientation, turned
from recordmill.transforms.images.picture import OpenedImage, Picture
from recordmill.transforms.images.pillow import DECODER_ERRORS, named
from recordmill.transforms.images.reasons import (
    NOT_AN_IMAGE,
    NOT_SUPPORTED,
    TRUNCATED,
    check_pixels,
    undecodable,
)
from recordmill.transforms.images.webp import chunks
from recordmill.transforms.records import BadInput, StoredImage

# Names of formats in Pillow that are not those of `image_kind` in capitals.
_FORMATS = {"pnm": "PPM"}
_TIFF_ORIENTATION, _TIFF_BITS = 274, 258
_UNDO = {6: 8, 8: 6}
# Conversions of modes without loss, or (CMYK, YCbCr) the only one without a profile.
_CONVERSIONS = {
    "1": "L",
    "PA": "RGBA",
    "La": "LA",
    "RGBa": "RGBA",
    "RGBX": "RGB",
    "CMYK": "RGB",
    "YCbCr": "RGB",
}
_COPIED_AT_ONCE = 1 << 24
_NATIVE = "L" if sys.byteorder == "little" else "B"


def open_raster(data: bytes, kind: str) -> OpenedImage:
    """Opens an image that is always decoded, because TensorFlow does not read its format.

    Raises:
        BadInput: not an image, damaged, too many pixels, or of a kind that nothing here decodes.
    """
    with _opened(data, kind) as image:
        orientation = _orientation(image)
        pixels = image.width * image.height
    decode = functools.partial(decode_raster, data, kind)
    return OpenedImage(kind, data, None, orientation, decode, decode, pixels)


def open_webp(data: bytes) -> OpenedImage:
    """Opens a WebP. A still one is kept, unless its header denies its alpha: decoders differ about that.

    Raises:
        BadInput: damaged, or too many pixels.
    """
    with _opened(data, "webp") as image:
        orientation = _orientation(image)
        colorspace = image.mode
        width, height = image.size
    moving = data[12:16] == b"VP8X" and bool(data[20] & 2)
    denied = data[12:16] == b"VP8X" and not data[20] & 16 and any(name == b"ALPH" for name, _ in chunks(data))
    kept = None
    if not (moving or denied):
        kept = StoredImage(data, "webp", height, width, len(colorspace), "uint8", colorspace, ("kept",))
    decode = functools.partial(decode_raster, data, "webp")
    return OpenedImage("webp", data, kept, orientation, decode, decode, height * width)


def decode_raster(data: bytes, kind: str) -> Picture:
    """The first frame, in the orientation of the file.

    Raises:
        BadInput: not an image, damaged, too many pixels, or more than 16 bits a sample.
    """
    try:
        with _opened(data, kind) as image:
            frames = _count_frames(image)
            orientation = _orientation(image) if kind == "tiff" else 1
            picture = _deep_tiff(data, image) if kind == "tiff" else None
            if kind == "bmp" and _is_misread(image, data):
                picture = _indexed_bmp(data)
            if picture is None:
                picture = _shallow(image, data, kind)
    except DECODER_ERRORS as error:
        if kind == "tga":
            raise undecodable(NOT_AN_IMAGE, "no known image format begins like this") from error
        raise _truncated_webp(data) or named(error) from error
    # Pillow turns a TIFF while loading it; --exif decides that here.
    pixels = turned(picture.pixels, _UNDO.get(orientation, orientation))
    return dataclasses.replace(picture, pixels=pixels, frames=frames)


def _opened(data: bytes, kind: str) -> ImageFile.ImageFile:
    try:
        image = Image.open(io.BytesIO(data), formats=(_FORMATS.get(kind, kind.upper()),))
    except UnidentifiedImageError as error:
        if kind == "tga":
            raise undecodable(NOT_AN_IMAGE, "no known image format begins like this") from error
        raise _truncated_webp(data) or named(ValueError(f"its {kind} header cannot be read")) from error
    except DECODER_ERRORS as error:
        raise _truncated_webp(data) or named(error) from error
    check_pixels(*image.size)
    if kind == "gif":
        # In one block: after an early end of the codes, Pillow would continue with the next block.
        image.decodermaxblock = len(data)
    return image


def _truncated_webp(data: bytes) -> BadInput | None:
    """The error of a RIFF file that is shorter than its header claims; libwebp does not report it."""
    size = 8 + int.from_bytes(data[4:8], "little")
    if data[:4] != b"RIFF" or len(data) >= size:
        return None
    return undecodable(TRUNCATED, f"the WebP has {len(data):,} of {size:,} bytes")


def _orientation(image: Image.Image) -> int:
    if image.format == "TIFF":
        value = image.getexif().get(_TIFF_ORIENTATION, 1)
        return value if isinstance(value, int) and 1 <= value <= 8 else 1
    block = image.info.get("exif")
    return read_orientation(block) if isinstance(block, bytes) else 1


def _count_frames(image: Image.Image) -> int:
    """The number of frames or pages; 1 if those after the first are damaged, because they are not used."""
    try:
        return int(getattr(image, "n_frames", 1))
    except DECODER_ERRORS:
        return 1
    finally:
        image.seek(0)


def _deep_tiff(data: bytes, image: ImageFile.ImageFile) -> Picture | None:
    """A TIFF of 16 bits in RGB or RGBA, else None: Pillow unpacks high bytes, then low bytes."""
    rawmode = _rawmode(image)
    if image.mode not in ("RGB", "RGBA") or rawmode[:-1] != f"{image.mode};16":
        return None
    order = _NATIVE if rawmode.endswith("N") else rawmode[-1]
    opposite = f"{rawmode[:-1]}{'B' if order == 'L' else 'L'}"
    high = np.asarray(image)
    with _opened(data, "tiff") as again:
        again.tile = [tile._replace(args=_with_rawmode(tile.args, opposite)) for tile in again.tile]
        low = np.asarray(again)
    return Picture(high.astype(np.uint16) << 8 | low)


def with_colored_palette(data: bytes) -> bytes:
    """The BMP with a palette that is not grey: Pillow reads indices into a grey one as samples.

    Raises:
        BadInput: truncated.
    """
    if len(data) < 30:
        raise undecodable(TRUNCATED, "the BMP ends within its header")
    bits, start = _bmp_palette(data)
    if bits > 8 or start + 3 > len(data):
        return data
    return data[:start] + b"\1\2\3" + data[start + 3 :]


def _bmp_palette(data: bytes) -> tuple[int, int]:
    """Bits a pixel of a BMP, and where its palette starts."""
    (size,) = struct.unpack_from("<I", data, 14)
    (bits,) = struct.unpack_from("<H", data, 28 if size >= 40 else 24)
    return bits, 14 + size


def _is_misread(image: Image.Image, data: bytes) -> bool:
    """Whether Pillow has read the indices of a BMP as samples of another number of bits."""
    return image.mode in ("1", "L") and _bmp_palette(data)[0] != (1 if image.mode == "1" else 8)


def _indexed_bmp(data: bytes) -> Picture:
    with _opened(with_colored_palette(data), "bmp") as image:
        picture = _shallow(image, data, "bmp")
    _, start = _bmp_palette(data)
    return dataclasses.replace(picture, palette=data[start : start + 3][::-1] + picture.palette[3:])


def _rawmode(image: ImageFile.ImageFile) -> str:
    args = image.tile[0].args if image.tile else None
    return str(args[0]) if isinstance(args, tuple) and args else ""


def _with_rawmode(args: tuple[Any, ...] | str | None, rawmode: str) -> tuple[Any, ...]:
    return (rawmode, *args[1:]) if isinstance(args, tuple) else (rawmode,)


def _shallow(image: Image.Image, data: bytes, kind: str) -> Picture:
    narrowed = _bits(image, data, kind) > 8 and not image.mode.startswith("I")
    image.load()
    _refuse_wide(image, kind)
    transparency = image.info.get("transparency")
    mode = _CONVERSIONS.get(image.mode, image.mode)
    if mode != image.mode:
        image = image.convert(mode)
    pixels = _pixels(image)
    if image.mode.startswith("I"):
        pixels = pixels.astype(np.uint16)
    pixels = pixels.reshape(image.height, image.width, -1)
    if image.mode == "P":
        palette = image.getpalette("RGB") or []
        alpha = _palette_alpha(image, transparency)
        return Picture(pixels, bytes(palette), alpha if _is_used(alpha, pixels) else b"")
    if transparency is not None and image.mode in ("L", "RGB"):
        pixels = _with_key(pixels, transparency)
    return Picture(pixels, narrowed=narrowed)


def _pixels(image: Image.Image) -> Array:
    """The pixels of an image. A very large image is copied in strips, without a second copy."""
    if image.width * image.height <= _COPIED_AT_ONCE:
        return np.asarray(image)
    tops = range(0, image.height, max(_COPIED_AT_ONCE // image.width, 1))
    pixels: Array | None = None
    for top in tops:
        strip = np.asarray(image.crop((0, top, image.width, min(top + tops.step, image.height))))
        if pixels is None:
            pixels = np.empty((image.height, *strip.shape[1:]), strip.dtype)
        pixels[top : top + len(strip)] = strip
    assert pixels is not None
    return pixels


def _refuse_wide(image: Image.Image, kind: str) -> None:
    """Refuses samples that neither 8 nor 16 bits can hold."""
    # Pillow reads a 16-bit PGM in mode I too.
    supported = image.mode in ("L", "P", "RGB", "RGBA", "LA", *_CONVERSIONS) or image.mode.startswith("I;16")
    if not supported and not (image.mode == "I" and kind == "pnm"):
        detail = (
            f"mode {image.mode}, which is 32 bits, floating point or Lab: convert it to 8 or 16 bits first"
        )
        raise undecodable(NOT_SUPPORTED, detail)


def _palette_alpha(image: Image.Image, transparency: Any) -> bytes:
    if isinstance(transparency, bytes):
        return transparency
    if isinstance(transparency, int):
        return b"\xff" * transparency + b"\0"
    if image.palette is not None and image.palette.mode == "RGBA":
        return bytes((image.getpalette("RGBA") or [])[3::4])
    return b""


def _is_used(alpha: bytes, pixels: Array) -> bool:
    """Whether a pixel has an index that is not opaque."""
    return any(value != 255 and bool((pixels == index).any()) for index, value in enumerate(alpha))


def _with_key(pixels: Array, key: Any) -> Array:
    alpha = np.where((pixels == np.array(key)).all(axis=2, keepdims=True), 0, 255).astype(np.uint8)
    return np.concatenate([pixels, alpha], axis=2) if (alpha == 0).any() else pixels


def _bits(image: Image.Image, data: bytes, kind: str) -> int:
    """Bits per sample of the source, for formats that may have more than 8; else 8."""
    if kind == "tiff":
        bits: Any = getattr(image, "tag_v2", {}).get(_TIFF_BITS, (8,))
        return max(bits) if isinstance(bits, tuple) and bits else 8
    if kind == "pnm":
        found = re.match(rb"P[2356]\s(?:\s|#[^\n]*\n)*\d+(?:\s|#[^\n]*\n)+\d+(?:\s|#[^\n]*\n)+(\d+)", data)
        return int(found[1]).bit_length() if found else 8
    if kind == "jpeg2000":  # The code stream's SIZ segment (ISO/IEC 15444-1, A.5.1).
        start = data.find(b"\xff\x4f\xff\x51")
        return (data[start + 42] & 0x7F) + 1 if 0 <= start < len(data) - 42 else 8
    if kind == "avif":  # high_bitdepth in the AV1 codec configuration.
        start = data.find(b"av1C")
        return 10 if 0 <= start < len(data) - 6 and data[start + 6] & 0x40 else 8
    return 8


_GRAYS = b"".join(bytes((i, i, i)) for i in range(256))


def open_bmp(data: bytes) -> OpenedImage:
    """Reads the header.

    A BMP is kept if it is uncompressed, has 24 bits, or 8 bits and a palette of the greys 0 to 255, and its
    size is exactly that of header and rows. TensorFlow reads palette indices as greys, compressed data as
    uncompressed, and the unused fourth byte of 32 bits as alpha.

    Raises:
        BadInput: truncated, or too many pixels.
    """
    if len(data) < 30:
        raise undecodable(TRUNCATED, "the BMP ends within its header")
    channels = _channels(data)
    kept = None
    width, height = _size(data)
    if channels:
        check_pixels(width, abs(height))
        start = int.from_bytes(data[10:14], "little")
        if len(data) == start + (channels * width + 3) // 4 * 4 * abs(height):
            colorspace = "RGB" if channels == 3 else "Grayscale"
            kept = StoredImage(data, "bmp", abs(height), width, channels, "uint8", colorspace, ("kept",))
    decode = functools.partial(decode_raster, data, "bmp")
    return OpenedImage("bmp", data, kept, 1, decode, decode, abs(width * height))


def _size(data: bytes) -> tuple[int, int]:
    """Width and height; the height is negative if the rows begin at the top."""
    (size,) = struct.unpack_from("<I", data, 14)
    width, height = struct.unpack_from("<HH" if size == 12 else "<ii", data, 18)
    return width, height


def _channels(data: bytes) -> int:
    """3 or 1 for a BMP that TensorFlow reads correctly, else 0."""
    (size,) = struct.unpack_from("<I", data, 14)
    if size < 40 or len(data) < 14 + size:
        return 0
    bits, compression = struct.unpack_from("<HI", data, 28)
    if compression != 0:
        return 0
    if bits == 24:
        return 3
    start = int.from_bytes(data[10:14], "little")
    palette = data[14 + size : start]
    grey = (
        len(palette) == 1024
        and int.from_bytes(data[46:50], "little") in (0, 256)
        and b"".join(palette[i : i + 3] for i in range(0, 1024, 4)) == _GRAYS
    )
    return 1 if bits == 8 and grey else 0
