"""JPEG: decoding that detects damage, encoding (ITU-T T.81), and turning upright with minimal loss."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image

from recordmill.transforms.images.exif import Array, is_transposed, turned
from recordmill.transforms.images.icc import profile_of
from recordmill.transforms.images.jpeg_header import (
    ALONE,
    APP0,
    APP14,
    LOSSLESS,
    PROGRESSIVE,
    SOS,
    JpegHeader,
    quantisation_tables,
    segments,
)
from recordmill.transforms.images.pillow import DECODER_ERRORS
from recordmill.transforms.images.reasons import CORRUPT, NOT_SUPPORTED, TRUNCATED, undecodable
from recordmill.transforms.records import BadInput

_decode: Callable[..., Array] = simplejpeg.decode_jpeg
_COLORS = {1: "GRAY", 3: "RGB", 4: "CMYK"}
# TurboJPEG, which simplejpeg calls, always uses a fast, less accurate DCT below 96. At 95 this costs half a
# decibel for the same bytes, at 90 a tenth. Pillow uses the accurate one, in 1.3 times the time.
_PRECISE = range(91, 96)
_NO_SUBSAMPLING = "Could not determine subsampling"
_LEFT_OVER = re.compile(r"(\d+) extraneous bytes before marker 0xd9")
# The header of a scan: one to four components, then first and last coefficient and bit positions.
_SCAN_HEADER = re.compile(
    rb"(\xff\xda\0(?:\x08\x01.{2}|\x0a\x02.{4}|\x0c\x03.{6}|\x0e\x04.{8})).{3}", re.DOTALL
)
_MARKER = re.compile(rb"\xff+([^\0\xff])")
# Scales for decoding, in eighths, and the smallest factor between the decoded and the target size that keeps
# SSIM 0.99 to a full decode on photographs with the finest stripes. 4/8 averages pairs of pixels, which loses
# detail that 3/8 keeps; 5/8 would need too large a margin; 7/8 is slower than a full decode.
_EIGHTHS = (1, 2, 3, 6)
_MARGIN = 2.25
_BAND = 16  # rows


def check_image_data(data: bytes, header: JpegHeader) -> None:
    """Decodes all of the entropy-coded data, at the smallest scale; every warning is an error.

    Raises:
        BadInput: truncated or damaged.
    """
    color = "CMYK" if len(header.components) == 4 else "GRAY"
    smallest = {"fastdct": True, "fastupsample": True, "min_height": 1, "min_width": 1, "min_factor": 8}
    _decode_strictly(data, header, color, smallest)


def decode(data: bytes, header: JpegHeader) -> Array:
    """The pixels, as tf.io.decode_jpeg(dct_method="INTEGER_ACCURATE") decodes them.

    Returns:
        uint8 (height, width, 1 or 3); CMYK becomes RGB.

    Raises:
        BadInput: truncated or damaged.
    """
    if len(header.components) == 4:
        return cmyk_to_rgb(decode_components(data, header), inverted=header.adobe is not None)
    return decode_components(data, header)


def decode_scaled(data: bytes, header: JpegHeader, height: int, width: int, is_draft: bool = False) -> Array:
    """As `decode`, but scaled down while decoding if that is accurate enough for a target size.

    Args:
        data: the file.
        header: of the file.
        height: of the target, in the file's orientation.
        width: likewise.
        is_draft: whether half of the accuracy is enough, and inks may be averaged.

    Returns:
        n eighths of the picture's height and width, rounded up.
    """
    margin = _MARGIN / 2 if is_draft else _MARGIN
    eighths = next((n for n in _EIGHTHS if _suffices(n, header, height, width, margin)), 8)
    components = len(header.components)
    # Inks must be converted to colours before they are averaged.
    if eighths == 8 or header.process == LOSSLESS or (components == 4 and not is_draft):
        return decode(data, header)
    scaled = {"min_height": -(-header.height * eighths // 8), "min_width": -(-header.width * eighths // 8)}
    pixels = _decode_strictly(data, header, _COLORS[components], scaled)
    return cmyk_to_rgb(pixels, header.adobe is not None) if components == 4 else pixels


def _suffices(eighths: int, header: JpegHeader, height: int, width: int, margin: float) -> bool:
    return header.height * eighths >= 8 * margin * height and header.width * eighths >= 8 * margin * width


def decode_components(data: bytes, header: JpegHeader) -> Array:
    """As `decode`, but four components stay as the file holds them (inverted CMYK under an Adobe marker)."""
    return _decode_strictly(data, header, _COLORS[len(header.components)], {})


def _decode_strictly(data: bytes, header: JpegHeader, color: str, options: dict[str, Any]) -> Array:
    """simplejpeg's pixels; a warning of libjpeg is an error, unless it is harmless.

    libjpeg reports its first warning only, so a harmless one may hide a later one. After a warning, a copy
    without the causes of harmless warnings must decode without any.
    """
    try:
        return _decode(data, color, **options)
    except ValueError as error:
        message = str(error)
    if _NO_SUBSAMPLING in message:
        return _decode_with_pillow(data, header)
    mended = _mended(data, header)
    if mended != data:
        try:
            return _decode(mended, color, **options)
        except ValueError as error:
            message = str(error)
    if _is_padding(message, mended[header.scan - len(data) :]):
        return _decode(mended, color, strict=False, **options)
    if header.process == LOSSLESS and "color conversion" in message:
        raise undecodable(NOT_SUPPORTED, "a lossless JPEG in YCbCr: convert it to PNG first")
    raise undecodable(TRUNCATED if "Premature end" in message else CORRUPT, message)


def _mended(data: bytes, header: JpegHeader) -> bytes:
    """`data` without the causes of libjpeg's harmless warnings.

    In the header these are stray bytes, and an unknown JFIF revision or Adobe colour transform (libjpeg uses
    the usual one); in sequential scans, parameters that the decoder ignores.
    """
    single = data[header.scan + 4] == len(header.components)
    if header.stray and not single and header.process not in PROGRESSIVE:
        return data  # The stray bytes may be the scan of a component, whose loss nothing else would show.
    parts = [data[:2]]
    for marker, start, end in segments(data):
        if marker == SOS:
            break
        payload = bytearray(data[start:end])
        if marker == APP0 and payload.startswith(b"JFIF\0") and len(payload) >= 14:
            payload[5] = 1
        elif marker == APP14 and payload.startswith(b"Adobe") and len(payload) >= 12 and payload[11] > 2:
            payload[11] = 2 if len(header.components) == 4 else 1
        parts += (data[start - (2 if marker in ALONE else 4) : start], bytes(payload))
    scans = data[header.scan :]
    if header.process not in PROGRESSIVE and header.process != LOSSLESS:
        scans = _SCAN_HEADER.sub(b"\\1\0\x3f\0", scans)
    return b"".join((*parts, scans))


def _is_padding(message: str, scans: bytes) -> bool:
    """Whether a warning is about zero bytes before the end marker: it is the last, so the data is sound.

    Other bytes there are damage: data that a decoder out of step did not read.
    """
    found = _LEFT_OVER.search(message)
    end = scans.find(b"\xff\xd9")
    if found is None or end < 0:
        return False
    count = int(found[1])
    return scans[:end].rstrip(b"\xff")[-count:] == bytes(count)


def _decode_with_pillow(data: bytes, header: JpegHeader) -> Array:
    """For subsampling that simplejpeg does not support.

    Pillow does not report libjpeg's warnings: a truncated scan, or a marker within it, is refused; a wrong
    bit is not detected.
    """
    if header.process not in PROGRESSIVE and data[header.scan + 4] == len(header.components):
        _check_restarts(
            data, header.scan + 2 + int.from_bytes(data[header.scan + 2 : header.scan + 4], "big")
        )
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
            pixels: Array = np.asarray(image)
    except DECODER_ERRORS as error:
        raise undecodable(TRUNCATED if "truncated" in str(error) else CORRUPT, str(error)) from error
    if len(header.components) == 4:
        return 255 - pixels  # Pillow reads all CMYK as inverted.
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def _check_restarts(data: bytes, position: int) -> None:
    """Refuses a single scan with any marker before the end except its restart markers in order."""
    due = 0xD0
    for found in _MARKER.finditer(data, position):
        marker = found[1][0]
        if marker == 0xD9:
            return
        if marker != due:
            raise undecodable(CORRUPT, f"a marker {marker:#x} within the scan of a JPEG")
        due = 0xD0 + (due - 0xCF) % 8


def cmyk_to_rgb(pixels: Array, inverted: bool) -> Array:
    """RGB of CMYK without a profile, as in TensorFlow (tensorflow/core/lib/jpeg/jpeg_mem.cc).

    Inverted inks, as under an Adobe marker, have 255 for no ink.
    """
    colors = np.empty((*pixels.shape[:2], 3), np.uint8)
    for top in range(0, len(pixels), _BAND):  # a band stays in the cache
        light = pixels[top : top + _BAND] if inverted else 255 - pixels[top : top + _BAND]
        black = light[:, :, 3].astype(np.uint16)
        for channel in range(3):
            colors[top : top + _BAND, :, channel] = light[:, :, channel] * black // 255
    return colors


def encode(pixels: Array, quality: int, subsampling: str = "420") -> bytes:
    """A baseline JPEG of uint8 pixels, grey or RGB; subsampling has no effect on grey.

    Raises:
        BadInput: larger than a JPEG may be.
    """
    height, width, channels = pixels.shape
    if max(height, width) > 65500:
        raise BadInput(
            "encode",
            NOT_SUPPORTED,
            f"{width}x{height} is too large for a JPEG: use --image_format=png or keep",
        )
    if quality in _PRECISE:
        out = io.BytesIO()
        image = Image.fromarray(pixels if channels == 3 else pixels[:, :, 0])
        image.save(out, "JPEG", quality=quality, subsampling=":".join(subsampling))
        return out.getvalue()
    if channels == 1:
        return bytes(simplejpeg.encode_jpeg(pixels, quality, "GRAY", "Gray"))
    return bytes(simplejpeg.encode_jpeg(pixels, quality, "RGB", subsampling))


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
    def save(**options: bool) -> bytes:
        out = io.BytesIO()
        image.save(out, "JPEG", qtables=qtables, subsampling=subsampling, icc_profile=profile, **options)
        return out.getvalue()

    rgb = header.stores_rgb
    try:
        return save(keep_rgb=rgb, progressive=header.process in PROGRESSIVE, optimize=True)
    except OSError:
        # Both need a buffer for the result. Pillow guesses its size; noise at quality 100 exceeds it.
        return save(keep_rgb=rgb)
