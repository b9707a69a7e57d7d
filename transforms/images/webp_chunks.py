"""The chunks of a WebP: read, and written with metadata (RFC 9649, 2)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from recordmill.transforms.images.reasons import CORRUPT, TRUNCATED, undecodable

# What a picture is made of; all others are metadata, or nobody knows what.
PICTURE = frozenset((b"VP8X", b"ICCP", b"ANIM", b"ANMF", b"ALPH", b"VP8 ", b"VP8L"))
_XMP, _EXIF, _ALPHA = 4, 8, 16


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(name, payload) of each chunk.

    Raises:
        BadInput: it ends within a chunk of its picture; other chunks that are cut off are passed over.
    """
    limit = min(len(data), 8 + int.from_bytes(data[4:8], "little"))
    position = 12
    while position + 8 <= limit:
        name = data[position : position + 4]
        (size,) = struct.unpack_from("<I", data, position + 4)
        start, position = position + 8, position + 8 + size + size % 2
        if start + size > limit:
            if name in PICTURE:
                raise undecodable(TRUNCATED, "the WebP ends within a chunk")
            return
        yield name, data[start : start + size]


def written(picture: Iterable[tuple[bytes, bytes]], exif: bytes | None, xmp: bytes | None) -> bytes:
    """A WebP of the chunks of a picture, and of metadata.

    Args:
        picture: (name, payload) of chunks that hold no metadata.
        exif: a TIFF structure; None for none.
        xmp: the packet; None for none.

    Raises:
        BadInput: no chunk is there, or the header that metadata needs cannot be made of it.
    """
    body = list(picture)
    if not body:
        raise undecodable(CORRUPT, "the WebP holds no image")
    added = [(name, block) for name, block in ((b"EXIF", exif), (b"XMP ", xmp)) if block is not None]
    name, head = body[0]
    if name != b"VP8X" and added:
        name, head = b"VP8X", _extended_head(name, head)
        body.insert(0, (name, head))
    if name == b"VP8X" and head:
        flags = head[0] & ~(_EXIF | _XMP) | _EXIF * (exif is not None) | _XMP * (xmp is not None)
        body[0] = (name, bytes([flags]) + head[1:])
    parts = b"".join(
        name + struct.pack("<I", len(payload)) + payload + b"\0" * (len(payload) % 2)
        for name, payload in (*body, *added)
    )
    return b"RIFF" + struct.pack("<I", 4 + len(parts)) + b"WEBP" + parts


def _extended_head(name: bytes, payload: bytes) -> bytes:
    """The VP8X chunk for a lone image (RFC 6386, 9.1; RFC 9649, 3.4)."""
    if len(payload) < 10:
        raise undecodable(TRUNCATED, "the WebP ends within its header")
    if name == b"VP8L":
        bits = int.from_bytes(payload[1:5], "little")
        width, height, alpha = bits & 0x3FFF, bits >> 14 & 0x3FFF, bits >> 28 & 1
    else:
        width, height = (int.from_bytes(payload[i : i + 2], "little") & 0x3FFF for i in (6, 8))
        width, height, alpha = width - 1, height - 1, 0
    if width < 0 or height < 0:
        raise undecodable(CORRUPT, "the WebP has no pixels")
    flags = struct.pack("<I", _ALPHA * alpha)
    return flags + width.to_bytes(3, "little") + height.to_bytes(3, "little")
