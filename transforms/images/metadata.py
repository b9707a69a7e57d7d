"""Metadata of a file: EXIF, XMP and a comment, read from where each format holds them.

JPEG with EXIF (CIPA DC-008) and XMP (part 3); PNG as in ISO/IEC 15948; WebP as in RFC 9649.
"""

from __future__ import annotations

import dataclasses
import io

from PIL import Image

from recordmill.transforms.images import png, png_text, webp_chunks
from recordmill.transforms.images.exif import EXIF_MARK
from recordmill.transforms.images.jpeg_header import APP1, COM, segments
from recordmill.transforms.images.pillow import DECODER_ERRORS

XMP_MARK = b"http://ns.adobe.com/xap/1.0/\0"
PNG_XMP, PNG_COMMENT = b"XML:com.adobe.xmp", b"Comment"

_PILLOW_FORMATS = {"tiff": "TIFF", "avif": "AVIF", "gif": "GIF", "jpeg2000": "JPEG2000"}
# What a TIFF says of the picture, not of how the file holds it (TIFF 6.0; EXIF 2.32, table 4).
_COPYRIGHT = 0x8298
_TIFF_DESCRIBES = frozenset(
    (0x10E, 0x10F, 0x110, 0x112, 0x11A, 0x11B, 0x128, 0x131, 0x132, 0x13B, 0x13C, _COPYRIGHT)
)
_EXIF_IFD, _GPS_IFD = 0x8769, 0x8825


@dataclasses.dataclass(frozen=True, slots=True)
class Metadata:
    """What a file says beside its pixels; None where it says nothing.

    Attributes:
        exif: a TIFF structure, from its byte order mark on: without `Exif\\0\\0`.
        xmp: the XMP packet; of a JPEG the main one, without extended XMP.
        comment: text, in whatever encoding the file has it.
    """

    exif: bytes | None = None
    xmp: bytes | None = None
    comment: bytes | None = None


def metadata_of(data: bytes, kind: str) -> Metadata:
    """What a file says beside its pixels.

    Args:
        data: a whole file.
        kind: as `sniff.image_kind` tells it.

    Raises:
        BadInput: the file is damaged where the reader of its header would refuse it too.
    """
    if kind == "jpeg":
        return _of_jpeg(data)
    if kind == "png":
        return _of_png(data)
    if kind == "webp":
        chunks = dict(webp_chunks.chunks(data))
        return _metadata(chunks.get(b"EXIF"), chunks.get(b"XMP "), None)
    return _of_pillow(data, kind) if kind in _PILLOW_FORMATS else Metadata()


def _metadata(exif: bytes | None, xmp: bytes | None, comment: bytes | None) -> Metadata:
    return Metadata((exif or b"").removeprefix(EXIF_MARK) or None, xmp or None, comment or None)


def _of_jpeg(data: bytes) -> Metadata:
    exif, xmp, comments = b"", b"", []
    for marker, start, end in segments(data):
        if marker == APP1 and not exif and data.startswith(EXIF_MARK, start):
            exif = data[start:end]
        elif marker == APP1 and not xmp and data.startswith(XMP_MARK, start):
            xmp = data[start + len(XMP_MARK) : end]
        elif marker == COM:
            comments.append(data[start:end])
    return _metadata(exif, xmp, b"\n".join(comments))


def _of_png(data: bytes) -> Metadata:
    chunks = [(kind, data[start + 8 : end - 4]) for kind, start, end in png.chunks(data) if kind != b"IDAT"]
    exif = next((payload for kind, payload in chunks if kind == b"eXIf" and payload), b"")
    texts = png_text.read_texts(chunks, png_text.RAW_EXIF | {PNG_XMP, PNG_COMMENT})
    for name in sorted(png_text.RAW_EXIF, reverse=True):
        if not exif and name in texts:
            exif = png_text.raw_exif(texts[name])
    return _metadata(exif, texts.get(PNG_XMP), texts.get(PNG_COMMENT))


def _of_pillow(data: bytes, kind: str) -> Metadata:
    try:
        with Image.open(io.BytesIO(data), formats=(_PILLOW_FORMATS[kind],)) as image:
            found = [image.info.get(name) for name in ("exif", "xmp", "comment")]
            if kind == "tiff":
                found[0] = _tiff_exif(image.getexif())
    except DECODER_ERRORS:
        return Metadata()
    return _metadata(*(block if isinstance(block, bytes) else None for block in found))


def _tiff_exif(exif: Image.Exif) -> bytes:
    """EXIF of a TIFF, whose own directory is where it lies."""
    described = Image.Exif()
    for tag, value in exif.items():
        if tag in _TIFF_DESCRIBES:
            described[tag] = value
    for tag in (_EXIF_IFD, _GPS_IFD):
        if tag in exif:
            described[tag] = dict(exif.get_ifd(tag))
    return described.tobytes() if len(described) else b""
