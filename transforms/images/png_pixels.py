"""Decodes and encodes PNG pixels, also with 16-bit colour, which Pillow has no mode for (ISO/IEC 15948)."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image, ImageFile

from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.picture import Picture
from recordmill.transforms.images.pillow import DECODER_ERRORS, named
from recordmill.transforms.images.png import (
    GRAY,
    GRAY_ALPHA,
    PALETTE,
    RGB,
    RGBA,
    SAMPLES,
    SIGNATURE,
    PngHeader,
    written_chunk,
)


def decode(data: bytes, header: PngHeader) -> Picture:
    """The pixels: palettes as indices and palette, 16 bits unchanged, transparency as alpha.

    Raises:
        BadInput: truncated or damaged.
    """
    essential = _essential(data, header)
    try:
        pixels = _pixels(essential, header)
    except DECODER_ERRORS as error:
        raise named(error) from error
    if header.color == PALETTE:
        kind, start, end = next(chunk for chunk in header.chunks if chunk[0] == b"PLTE")
        return Picture(pixels, palette=data[start + 8 : end - 4], palette_alpha=header.transparency)
    if header.transparency:
        pixels = _with_key(pixels, header)
    return Picture(pixels)


def _essential(data: bytes, header: PngHeader) -> bytes:
    """`data` without text, profiles and animation, so that only damaged pixels can fail the decoder."""
    kept = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
    return SIGNATURE + b"".join(data[start:end] for kind, start, end in header.chunks if kind in kept)


def _pixels(essential: bytes, header: PngHeader) -> Array:
    with Image.open(io.BytesIO(essential), formats=("PNG",)) as image:
        if header.depth == 16 and header.color != GRAY:
            return _deep_pixels(essential, image, header.color)
        pixels = np.asarray(image.convert("L") if image.mode == "1" else image)
    if header.depth == 16:
        pixels = pixels.astype(np.uint16)
    return pixels.reshape(header.height, header.width, SAMPLES[header.color])


def _deep_pixels(essential: bytes, image: ImageFile.ImageFile, color: int) -> Array:
    """16 bits a sample: Pillow unpacks the high bytes and the low ones, each in its own pass."""
    if color == GRAY_ALPHA:
        # Two 16-bit samples are the four bytes of an RGBA pixel.
        image.tile = [tile._replace(args="RGBA") for tile in image.tile]
        return np.asarray(image).view(">u2").astype(np.uint16)
    high: Array = np.asarray(image).astype(np.uint16)
    mode = image.mode
    with Image.open(io.BytesIO(essential), formats=("PNG",)) as again:
        again.tile = [tile._replace(args=f"{mode};16L") for tile in again.tile]
        low = np.asarray(again)
    both: Array = high << 8 | low
    return both


def _with_key(pixels: Array, header: PngHeader) -> Array:
    """Pixels with an alpha channel: 0 for the colour that tRNS names."""
    key = np.frombuffer(header.transparency, ">u2").astype(np.uint16)
    if header.depth < 8:
        key = key * (255 // ((1 << header.depth) - 1))
    opaque = np.iinfo(pixels.dtype).max
    alpha = np.where((pixels == key).all(axis=2, keepdims=True), 0, opaque).astype(pixels.dtype)
    return np.concatenate([pixels, alpha], axis=2)


def encode_deep(pixels: Array) -> bytes:
    """A PNG of uint16 pixels; every row has the Paeth filter."""
    height, width, channels = pixels.shape
    step = 2 * channels
    rows = np.zeros((height + 1, step + width * step), np.uint8)
    rows[1:, step:] = pixels.astype(">u2").reshape(height, -1).view(np.uint8)
    here, left = rows[1:, step:], rows[1:, :-step]
    above, corner = rows[:-1, step:], rows[:-1, :-step]
    filtered = np.full((height, 1 + width * step), 4, np.uint8)
    filtered[:, 1:] = here - _paeth(left, above, corner)
    color = {1: GRAY, 2: GRAY_ALPHA, 3: RGB, 4: RGBA}[channels]
    return encoded_rows(filtered.tobytes(), height, width, 16, color, level=6)


def encoded_rows(rows: bytes, height: int, width: int, depth: int, color: int, level: int) -> bytes:
    """A PNG of filtered rows, each after the byte that names its filter; compressed at a level of zlib."""
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, level)), (b"IEND", b""))
    return SIGNATURE + b"".join(written_chunk(kind, payload) for kind, payload in parts)


def _paeth(left: Array, above: Array, corner: Array) -> Array:
    a, b, c = (part.astype(np.int16) for part in (left, above, corner))
    to_left, to_above, to_corner = abs(b - c), abs(a - c), abs(a + b - 2 * c)
    nearest = np.where(to_above <= to_corner, above, corner)
    return np.where((to_left <= to_above) & (to_left <= to_corner), left, nearest)
