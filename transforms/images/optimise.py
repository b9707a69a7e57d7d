"""Lossless optimisation: fewer bytes for the same pixels, which are compared for each image."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from recordmill.transforms.images import jpeg, jpeg_header, png
from recordmill.transforms.images.exif import Array
from recordmill.transforms.records import BadInput

OPTIMIZED, DIFFERED = "optimized", "optimize_differed"

# Tables may also lie between scans; entropy-coded bytes never look like a marker.
_TABLES_AND_SCANS = re.compile(rb"\xff([\xc4\xda])(?=..)", re.DOTALL)
MOST_PIXELS = 50_000_000
"""Larger images are left as they are: an optimiser would take minutes and gigabytes."""

# The processes that mozjpeg reads; arithmetic coding is not among them.
_HUFFMAN = frozenset((0xC0, 0xC1, 0xC2))
_PIXELS = (b"IHDR", b"PLTE", b"IDAT", b"IEND")


def optimised(data: bytes, image_format: str, mode: str) -> tuple[bytes, str | None]:
    """Makes an encoded JPEG or PNG smaller; its pixels and its metadata stay the same.

    The mode `lossless` compresses PNGs better; `lossless-progressive` also makes JPEGs progressive.

    Returns:
        The smaller file and `optimized`; or `data` and None where nothing is gained; or `data` and
        `optimize_differed` where the optimiser failed, or changed the decoded pixels.

    Raises:
        BadInput: it is damaged.
    """
    if image_format == "png":
        return _optimised_png(data)
    if image_format == "jpeg" and mode == "lossless-progressive":
        return _optimised_jpeg(data)
    return data, None


def _optimised_jpeg(data: bytes) -> tuple[bytes, str | None]:
    header = jpeg_header.read_header(data)
    if header.height * header.width > MOST_PIXELS:
        return data, None
    # First, since mozjpeg ends the process if it finds damage.
    before = jpeg.decode_components(data, header)
    if any(
        marker == jpeg_header.APP2 and content.startswith(b"MPF\0") for marker, content in _metadata(data)
    ):
        return data, None  # It holds the offsets of further pictures in the file.
    if header.process not in _HUFFMAN or _has_large_coefficients(data):
        return data, None
    smaller = _progressive(data)
    if smaller is not None and len(smaller) >= len(data):
        return data, None
    if smaller is None or not _is_same_jpeg(data, header, before, smaller):
        return data, DIFFERED
    return smaller, OPTIMIZED


def _has_large_coefficients(data: bytes) -> bool:
    """Whether the Huffman tables allow coefficients that are too large for 8-bit samples.

    mozjpeg ends the process if it finds such a coefficient.

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
    """The JPEG as mozjpeg rewrites it, with the source's application segments and comments; None if it fails.

    mozjpeg's own JFIF or Adobe segment is left out: it may change how other decoders read the colours.
    """
    from mozjpeg_lossless_optimization import COPY_MARKERS, optimize  # type: ignore[import-untyped]

    try:
        result: bytes = optimize(data, copy=COPY_MARKERS.NONE)
    except ValueError:
        return None
    own = b"".join(jpeg_header.written_segment(marker, content) for marker, content in _metadata(data))
    rest = b""
    position = 2
    for marker, start, end in jpeg_header.segments(result):
        if marker not in jpeg_header.WORDS:
            rest += result[start - 4 : end]
        position = end
    return result[:2] + own + rest + result[position:]


def _metadata(data: bytes) -> list[tuple[int, bytes]]:
    """The application segments and comments before the first scan."""
    return [
        (marker, data[start:end])
        for marker, start, end in jpeg_header.segments(data)
        if marker in jpeg_header.WORDS
    ]


def _is_same_jpeg(data: bytes, header: jpeg_header.JpegHeader, before: Array, smaller: bytes) -> bool:
    """Whether pixels, metadata and header (except for the process) are equal."""
    try:
        found = jpeg_header.read_header(smaller)
        after = jpeg.decode_components(smaller, found)
    except BadInput:
        return False
    as_before = msgspec.structs.replace(found, process=header.process, scan=header.scan, stray=header.stray)
    return as_before == header and _metadata(smaller) == _metadata(data) and np.array_equal(before, after)


def _optimised_png(data: bytes) -> tuple[bytes, str | None]:
    header = png.read_header(data)
    if header.height * header.width > MOST_PIXELS:
        return data, None
    recoded = _recoded(data, header)
    if recoded is None:
        png.decode(data, header)
        return data, DIFFERED
    if len(recoded) >= len(data):
        return data, None
    return (recoded, OPTIMIZED) if _is_same_png(data, header, recoded) else (data, DIFFERED)


def _recoded(data: bytes, header: png.PngHeader) -> bytes | None:
    """The source with oxipng's pixel data; None if it fails.

    oxipng gets no other chunks: it would refuse a damaged one, and they must not change.
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
            interlace=None,  # as in the source; by default oxipng removes interlacing
        )
        found = png.read_header(result)
    except (oxipng.PngError, BadInput):
        return None
    # With true colour a palette is only a hint, which oxipng drops.
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
    """Whether samples or palette indices, and all chunks but IDAT, are equal."""
    before = png.decode(data, header)
    try:
        found = png.read_header(recoded)
        png.check_image_data(recoded, found)
        after = png.decode(recoded, found)
    except BadInput:
        return False
    return (
        _other_chunks(data, header) == _other_chunks(recoded, found)
        and before.pixels.dtype == after.pixels.dtype
        and np.array_equal(before.pixels, after.pixels)
    )


def _other_chunks(data: bytes, header: png.PngHeader) -> list[bytes]:
    return [data[start:end] for kind, start, end in header.chunks if kind != b"IDAT"]
