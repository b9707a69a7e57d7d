"""Metadata put into a file that has none.

JPEG with EXIF (CIPA DC-008) and XMP (part 3); PNG as in ISO/IEC 15948; WebP as in RFC 9649.
"""

from __future__ import annotations

from recordmill.transforms.images import png, webp_chunks
from recordmill.transforms.images.exif import EXIF_MARK
from recordmill.transforms.images.jpeg_header import APP1, COM, written_segment
from recordmill.transforms.images.metadata import PNG_COMMENT, PNG_XMP, XMP_MARK, Metadata

_LONGEST_PAYLOAD = 0xFFFF - 2


def with_metadata(data: bytes, image_format: str, metadata: Metadata) -> bytes:
    """A file that holds no metadata, with `metadata`.

    Left out is what a format has no room for: in JPEG, EXIF or XMP of 64 KB; in WebP, comments.

    Args:
        data: a whole file.
        image_format: `jpeg`, `png` or `webp`.
        metadata: what to put in.
    """
    if metadata == Metadata():
        return data
    if image_format == "webp":
        return webp_chunks.written(webp_chunks.chunks(data), metadata.exif, metadata.xmp)
    parts = _jpeg_segments(metadata) if image_format == "jpeg" else _png_chunks(metadata)
    position = _behind_jfif(data) if image_format == "jpeg" else next(png.chunks(data))[2]
    return b"".join((data[:position], *parts, data[position:]))


def _behind_jfif(data: bytes) -> int:
    """JFIF comes first (T.871, 10.1)."""
    if data[2:4] == b"\xff\xe0" and data[6:11] == b"JFIF\0":
        return 4 + int.from_bytes(data[4:6], "big")
    return 2


def _jpeg_segments(metadata: Metadata) -> list[bytes]:
    payloads = []
    for prefix, block in ((EXIF_MARK, metadata.exif), (XMP_MARK, metadata.xmp)):
        if block is not None and len(prefix) + len(block) <= _LONGEST_PAYLOAD:
            payloads.append((APP1, prefix + block))
    comment = metadata.comment or b""
    for start in range(0, len(comment), _LONGEST_PAYLOAD):
        payloads.append((COM, comment[start : start + _LONGEST_PAYLOAD]))
    return [written_segment(marker, payload) for marker, payload in payloads]


def _png_chunks(metadata: Metadata) -> list[bytes]:
    chunks = []
    if metadata.exif is not None:
        chunks.append((b"eXIf", metadata.exif))
    if metadata.xmp is not None:
        chunks.append((b"iTXt", PNG_XMP + b"\0\0\0\0\0" + metadata.xmp))
    if metadata.comment is not None:
        text = metadata.comment.replace(b"\0", b"")
        try:
            text.decode("utf-8")
        except ValueError:
            chunks.append((b"tEXt", PNG_COMMENT + b"\0" + text))  # Latin-1, the only other there is
        else:
            chunks.append((b"iTXt", PNG_COMMENT + b"\0\0\0\0\0" + text))
    return [png.written_chunk(kind, payload) for kind, payload in chunks]
