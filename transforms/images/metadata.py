"""Removes the metadata of a file without changing a pixel.

JPEG as in ITU-T T.81, with JFIF (T.871); PNG as in ISO/IEC 15948; WebP as in RFC 9649; GIF as in GIF89a.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from recordmill.transforms.images import gif, png, webp
from recordmill.transforms.images.exif import EXIF_MARK
from recordmill.transforms.images.jpeg_header import (
    ALONE,
    APP0,
    APP1,
    APP2,
    APP14,
    EOI,
    ICC_MARK,
    SOI,
    SOS,
    WORDS,
    segments,
    written_segment,
)
from recordmill.transforms.images.reasons import TRUNCATED, undecodable

# A marker behind entropy-coded data: neither a stuffed zero nor a restart.
_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
_FILLED_MARKER = re.compile(rb"\xff+[\x01-\xcf\xd8-\xfe]")  # slow to search for
# Ancillary chunks that pixels depend on; drafts of the standard spelt two of them mDCv and cLLi.
_PNG_KEPT = frozenset(b"tRNS gAMA cHRM sRGB iCCP sBIT bKGD pHYs cICP mDCV mDCv cLLI cLLi sPLT hIST".split())
# Graphic control, and the application blocks for loops and colour profiles.
_GIF_KEPT = (b"\xf9", b"\xff\x0bNETSCAPE", b"\xff\x0bICCRGBG1")
_ORIENTATION = 0x112


def stripped(data: bytes, image_format: str, orientation: int = 1) -> bytes:
    """`data` without EXIF, XMP, IPTC, comments, thumbnails, second pictures and unknown blocks.

    Everything that pixels depend on stays byte for byte: image data, colour profile, gamma, density, JFIF,
    Adobe. Check the result for damage, not `data`: libwebp reads damaged image data on into the next chunk,
    which may have been removed. If the orientation is not 1, an EXIF block with it alone is added.

    Returns:
        `data` itself if there is nothing to remove.

    Raises:
        BadInput: the file is damaged where the reader of its header would refuse it too.
    """
    if image_format == "jpeg":
        return _stripped_jpeg(data, orientation)
    if image_format == "png":
        return _stripped_png(data, orientation)
    if image_format == "webp":
        return _stripped_webp(data, orientation)
    return _stripped_gif(data) if image_format == "gif" else data


def _orientation_alone(orientation: int) -> bytes | None:
    if orientation == 1:
        return None
    return b"II*\0\x08\0\0\0\x01\0" + struct.pack("<HHIHHI", _ORIENTATION, 3, 1, orientation, 0, 0)


def _stripped_jpeg(data: bytes, orientation: int) -> bytes:
    parts, position, marker, changed = [data[:2]], 2, 0, orientation != 1
    for marker, start, end in segments(data):
        bare = _bare_segment(data, marker, start, end)
        # Bytes between segments are removed too: they may be the rest of a block whose length is wrong.
        changed = changed or bare != data[position:end]
        parts.append(bare)
        position = end
    if marker != SOS:
        raise undecodable(TRUNCATED, "the JPEG ends within its header")
    for begin, end in _cuts_behind(data, position):
        changed = True
        parts.append(data[position:begin])
        position = end
    if not changed:
        return data
    parts.append(data[position:])
    result = b"".join(parts)
    if exif := _orientation_alone(orientation):
        # A JFIF segment comes first (T.871, 10.1).
        start = 4 + int.from_bytes(result[4:6], "big") if result[6:11] == b"JFIF\0" else 2
        result = result[:start] + written_segment(APP1, EXIF_MARK + exif) + result[start:]
    return data if result == data else result


def _bare_segment(data: bytes, marker: int, start: int, end: int) -> bytes:
    """A segment without metadata: all of it, its fixed fields, or nothing."""
    size = end - start
    if marker == APP0 and size >= 14 and data.startswith(b"JFIF\0", start):
        return written_segment(APP0, data[start : start + 12] + b"\0\0")  # the last two: no thumbnail
    if marker == APP14 and size >= 12 and data.startswith(b"Adobe", start):
        return written_segment(APP14, data[start : start + 12])
    icc = marker == APP2 and data.startswith(ICC_MARK, start)
    if marker in WORDS and not icc:
        return b""
    return data[start - (2 if marker in ALONE else 4) : end]


def _cuts_behind(data: bytes, position: int) -> Iterator[tuple[int, int]]:
    """The ranges to remove after the first scan's header: segments between scans, all after the end marker.

    After a damaged scan nothing is removed: the decoder may read what follows as image data.
    """
    while found := _MARKER.search(data, position):
        start = found.end() + 2
        marker = data[start - 3]
        if marker == EOI:
            if found.end() < len(data):
                yield found.end(), len(data)
            return
        if marker in ALONE:
            position = found.end()
            continue
        position = found.end() + int.from_bytes(data[found.end() : start], "big")
        if marker == SOI or not start <= position <= len(data):
            return
        if not _bare_segment(data, marker, start, position):
            if not _FILLED_MARKER.match(data, position):
                return
            yield found.start(), position


def _stripped_png(data: bytes, orientation: int) -> bytes:
    parts, begin, end = [], 0, 0
    for kind, start, end in png.chunks(data):
        if kind[0] & 0x20 and kind not in _PNG_KEPT:
            parts.append(data[begin:start])
            begin = end
    if not parts and end == len(data) and orientation == 1:
        return data
    parts.append(data[begin:end])
    result = b"".join(parts)
    if exif := _orientation_alone(orientation):
        start = next(png.chunks(result))[2]
        result = result[:start] + png.written_chunk(b"eXIf", exif) + result[start:]
    return data if result == data else result


def _stripped_webp(data: bytes, orientation: int) -> bytes:
    picture = [chunk for chunk in webp.chunks(data) if chunk[0] in webp.PICTURE]
    result = webp.written(picture, _orientation_alone(orientation))
    return data if result == data else result


def _stripped_gif(data: bytes) -> bytes:
    parts, begin, position = [], 0, gif.first_block(data)
    for start, end in gif.blocks(data):
        position = end
        # The control block of a plain text stays: decoders that skip the text apply it to the next image.
        extension = data[start] == gif.EXTENSION
        if extension and end <= len(data) and not data.startswith(_GIF_KEPT, start + 1):
            parts.append(data[begin:start])
            begin = end
    end = position + 1 if data[position : position + 1] == bytes([gif.TRAILER]) else len(data)
    if not parts and end == len(data):
        return data
    return b"".join((*parts, data[begin:end]))
