"""Turns a JPEG upright by its EXIF orientation, re-encoded with minimal loss."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from recordmill.transforms.images.exif import Array, is_transposed, turned
from recordmill.transforms.images.icc import profile_of
from recordmill.transforms.images.jpeg import decode_components
from recordmill.transforms.images.jpeg_header import JpegHeader, quantisation_tables
from recordmill.transforms.images.reasons import NOT_SUPPORTED, undecodable

# Zigzag order (T.81, figure A.6), in which files have the values: the natural index of each.
_ZIGZAG = tuple(
    row * 8 + column
    for row, column in sorted(
        ((r, c) for r in range(8) for c in range(8)),
        key=lambda at: (sum(at), at[0] if sum(at) % 2 else at[1]),
    )
)
_SUBSAMPLINGS = {(1, 1): "4:4:4", (2, 1): "4:2:2", (2, 2): "4:2:0"}


def turned_jpeg(data: bytes, header: JpegHeader) -> bytes:
    """`data` upright, re-encoded with its own quantisation tables; no EXIF left, the colour profile kept.

    Tables are transposed if height and width are exchanged. Subsampling is the source's if possible: a
    transposed 4:2:2 would be 4:4:0, which the encoder does not write. It becomes 4:4:4, as do rarer kinds:
    this costs some bytes, while 4:2:0 would halve the colour resolution again.

    Raises:
        BadInput: truncated or damaged.
    """
    pixels = turned(decode_components(data, header), header.orientation)
    image = _pillow_image(pixels, header)
    transposed = is_transposed(header.orientation)
    tables = quantisation_tables(data)
    try:
        qtables = [_natural(tables[component[3]], transposed) for component in header.components]
    except KeyError as error:
        detail = (
            f"quantisation table {error} is not defined before the first scan: re-save it, or --exif=ignore"
        )
        raise undecodable(NOT_SUPPORTED, detail) from error
    while len(qtables) > 1 and qtables[-1] == qtables[-2]:
        qtables.pop()  # the last table applies to all further components
    return _encode(image, qtables, _subsampling(header, transposed), header, profile_of(data, "jpeg"))


def _pillow_image(pixels: Array, header: JpegHeader) -> Image.Image:
    if len(header.components) == 1:
        return Image.fromarray(pixels[:, :, 0], "L")
    if len(header.components) == 3:
        return Image.fromarray(pixels, "RGB")
    # Pillow's CMYK has 255 as full ink.
    return Image.fromarray(255 - pixels if header.adobe is not None else pixels, "CMYK")


def _natural(table: list[int], transposed: bool) -> list[int]:
    """A table in natural order, which Pillow expects."""
    natural = np.zeros(64, np.int64)
    natural[list(_ZIGZAG)] = table
    square = natural.reshape(8, 8)
    return [int(value) for value in (square.T if transposed else square).ravel()]


def _subsampling(header: JpegHeader, transposed: bool) -> str:
    first, *others = ((h, v) for _, h, v, _ in header.components)
    if len(header.components) != 3 or header.stores_rgb or any(factors != (1, 1) for factors in others):
        return "4:4:4"
    if transposed:
        first = (first[1], first[0])
    return _SUBSAMPLINGS.get(first, "4:4:4")


def _encode(
    image: Image.Image, qtables: list[list[int]], subsampling: str, header: JpegHeader, profile: bytes | None
) -> bytes:
    def save(progressive: bool, optimize: bool) -> bytes:
        out = io.BytesIO()
        image.save(
            out,
            "JPEG",
            qtables=qtables,
            subsampling=subsampling,
            progressive=progressive,
            optimize=optimize,
            keep_rgb=header.stores_rgb,
            icc_profile=profile,
        )
        return out.getvalue()

    try:
        return save(progressive=header.process in (0xC2, 0xCA), optimize=True)
    except OSError:
        # Both need a buffer for the result. Pillow guesses its size; noise at quality 100 exceeds it.
        return save(progressive=False, optimize=False)
