"""Lossless optimisation: fewer bytes for the very same picture, compared with the source each time."""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from recordmill.transforms.images import jpeg, jpeg_header, png, png_pixels
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.jpeg_huffman import huffman_optimised
from recordmill.transforms.records import BadInput

OPTIMIZED, DIFFERED = "optimized", "optimize_differed"

# Wherever these markers stand: between scans there are tables, too, and no scan's bits look like a marker.
_TABLES_AND_SCANS = re.compile(rb"\xff([\xc4\xda])(?=..)", re.DOTALL)
MOST_PIXELS = 50_000_000
"""Of larger images an optimiser takes minutes and gigabytes: they are left as they are."""

# What mozjpeg reads: arithmetic coding it does not.
_HUFFMAN = frozenset((0xC0, 0xC1, 0xC2))
# In fewer bytes than this, the headers of progressive scans may take more than the scans save.
_SMALL = 16_384
_PIXELS = (b"IHDR", b"PLTE", b"IDAT", b"IEND")


def optimised(data: bytes, image_format: str, mode: str) -> tuple[bytes, str | None]:
    """A finished JPEG or PNG in fewer bytes: the same pixels, and all else that the file says.

    Args:
        data: the file.
        image_format: `jpeg` or `png`; others are left as they are.
        mode: `lossless` gives a sequential JPEG better Huffman tables, which costs no time to decode;
            `lossless-progressive` makes JPEGs progressive. PNGs are compressed better in both.

    Returns:
        The smaller file and `optimized`; or `data` and None where nothing is gained; or `data` and
        `optimize_differed` where the optimiser failed, or changed what the file decodes to.

    Raises:
        BadInput: it is damaged.
    """
    if image_format == "jpeg":
        return _optimised_jpeg(data, progressive=mode == "lossless-progressive")
    if image_format == "png":
        return _optimised_png(data)
    return data, None


def _optimised_jpeg(data: bytes, progressive: bool) -> tuple[bytes, str | None]:
    header = jpeg_header.read_header(data)
    if header.height * header.width > MOST_PIXELS:
        return data, None
    # First of all, since mozjpeg ends the whole process over damage that it meets.
    before = jpeg.decode_components(data, header)
    if any(marker == jpeg_header.APP2 and content.startswith(b"MPF\0") for marker, content in _said(data)):
        return data, None  # It tells the offsets of further pictures in the file.
    if progressive and (header.process not in _HUFFMAN or _has_large_coefficients(data)):
        return data, None
    smaller = _progressive(data) if progressive else huffman_optimised(data, header)
    if smaller is None and progressive:
        return data, DIFFERED
    if progressive and len(data) < _SMALL:
        sequential = huffman_optimised(data, header)
        if sequential is not None and smaller is not None and len(sequential) <= len(smaller):
            smaller = sequential
    if smaller is None or len(smaller) >= len(data):
        return data, None
    return (smaller, OPTIMIZED) if _is_same_jpeg(data, header, before, smaller) else (data, DIFFERED)


def _has_large_coefficients(data: bytes) -> bool:
    """Whether the Huffman tables provide for more than 8-bit samples give: mozjpeg ends the process over it.

    Baseline has at most 11 bits for a DC difference and 10 for an AC coefficient (T.81, tables F.1 and F.2);
    the first scans of a progressive file leave out the lowest bits, and so have fewer.
    """
    most_bits, left_out = {0: 0, 1: 0}, 0
    for found in _TABLES_AND_SCANS.finditer(data):
        start = found.start() + 4
        end = start - 2 + int.from_bytes(data[start - 2 : start], "big")
        if found[1][0] == jpeg_header.SOS:
            left_out = max(left_out, data[end - 1] & 15 if end <= len(data) else 15)
            continue
        position = start
        while position + 17 <= end:
            kind, mask = data[position] >> 4 & 1, (15 if data[position] >> 4 else 255)
            after = position + 17 + sum(data[position + 1 : position + 17])
            most_bits[kind] = max(
                most_bits[kind], *(symbol & mask for symbol in data[position + 17 : after]), 0
            )
            position = after
    return most_bits[0] + left_out > 11 or most_bits[1] + left_out > 10


def _progressive(data: bytes) -> bytes | None:
    """What mozjpeg makes of it, under the source's own application segments and comments; None if it fails.

    mozjpeg would write a JFIF or an Adobe segment of its own, which may change how others take the colours.
    """
    from mozjpeg_lossless_optimization import COPY_MARKERS, optimize  # type: ignore[import-untyped]

    try:
        result: bytes = optimize(data, copy=COPY_MARKERS.NONE)
    except ValueError:
        return None
    own = b"".join(jpeg_header.written_segment(marker, content) for marker, content in _said(data))
    rest = b""
    position = 2
    for marker, start, end in jpeg_header.segments(result):
        if marker not in jpeg_header.WORDS:
            rest += result[start - 4 : end]
        position = end
    return result[:2] + own + rest + result[position:]


def _said(data: bytes) -> list[tuple[int, bytes]]:
    """The application segments and comments before the first scan: all but what the pixels are made of."""
    return [
        (marker, data[start:end])
        for marker, start, end in jpeg_header.segments(data)
        if marker in jpeg_header.WORDS
    ]


def _is_same_jpeg(data: bytes, header: jpeg_header.JpegHeader, before: Array, smaller: bytes) -> bool:
    """Whether both decode to the same, with the same header but for its process, and the same metadata."""
    try:
        found = jpeg_header.read_header(smaller)
        after = jpeg.decode_components(smaller, found)
    except BadInput:
        return False
    as_before = dataclasses.replace(found, process=header.process, scan=header.scan, stray=header.stray)
    return as_before == header and _said(smaller) == _said(data) and np.array_equal(before, after)


def _optimised_png(data: bytes) -> tuple[bytes, str | None]:
    header = png.read_header(data)
    if header.height * header.width > MOST_PIXELS:
        return data, None
    recoded = _recoded(data, header)
    if recoded is None:
        png_pixels.decode(data, header)
        return data, DIFFERED
    if len(recoded) >= len(data):
        return data, None
    return (recoded, OPTIMIZED) if _is_same_png(data, header, recoded) else (data, DIFFERED)


def _recoded(data: bytes, header: png.PngHeader) -> bytes | None:
    """oxipng's pixel data among the source's own chunks; None if it fails.

    oxipng sees no other chunk: a damaged one would fail it, and what a chunk says is to stay.
    """
    import oxipng

    essential = [(kind, data[start:end]) for kind, start, end in header.chunks if kind in _PIXELS]
    try:
        result = oxipng.optimize_from_memory(
            png.SIGNATURE + b"".join(content for _, content in essential),
            level=2,
            bit_depth_reduction=False,
            color_type_reduction=False,
            palette_reduction=False,
            grayscale_reduction=False,
            interlace=None,  # as it is; without this word, none
        )
        found = png.read_header(result)
    except (oxipng.PngError, BadInput):
        return None
    # In true colour a palette is a mere hint, which oxipng drops.
    deciding = (b"IHDR", b"PLTE") if header.color == png.PALETTE else (b"IHDR",)
    if [result[start:end] for kind, start, end in found.chunks if kind in deciding] != [
        content for kind, content in essential if kind in deciding
    ]:
        return None
    kinds = [kind for kind, _, _ in header.chunks]
    first, count = kinds.index(b"IDAT"), kinds.count(b"IDAT")
    pixels = b"".join(result[start:end] for kind, start, end in found.chunks if kind == b"IDAT")
    return data[: header.chunks[first][1]] + pixels + data[header.chunks[first + count - 1][2] :]


def _is_same_png(data: bytes, header: png.PngHeader, recoded: bytes) -> bool:
    """Whether both decode to the same samples or indices, and all chunks but the pixels' are the same."""
    before = png_pixels.decode(data, header)
    try:
        found = png.read_header(recoded)
        png.check_whole(recoded, found)
        after = png_pixels.decode(recoded, found)
    except BadInput:
        return False
    return (
        _other_chunks(data, header) == _other_chunks(recoded, found)
        and before.pixels.dtype == after.pixels.dtype
        and np.array_equal(before.pixels, after.pixels)
    )


def _other_chunks(data: bytes, header: png.PngHeader) -> list[bytes]:
    return [data[start:end] for kind, start, end in header.chunks if kind != b"IDAT"]
