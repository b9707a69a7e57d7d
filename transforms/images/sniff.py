"""Detects the format of an image by its first bytes, never by its name."""

from __future__ import annotations

import re

from recordmill.transforms.images.reasons import CORRUPT, NOT_SUPPORTED, undecodable

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"BM", "bmp"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"II+\0", "tiff"),
    (b"MM\0+", "tiff"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "jpeg2000"),
    (b"\xff\x4f\xff\x51", "jpeg2000"),
    (b"qoif", "qoi"),
    (b"\x01\xda", "sgi"),
    (b"\xff\x0a", "jxl"),
    (b"\0\0\0\x0cJXL ", "jxl"),
    (b"8BPS", "psd"),
    (b"%PDF", "pdf"),
    (b"%!PS", "eps"),
    (b"<svg", "svg"),
)
_PNM = re.compile(rb"P[1-6][\s#]")
_PCX = re.compile(rb"\x0a[\x00\x02-\x05][\x00\x01][\x01\x02\x04\x08]")
_HEIC_BRANDS = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))

_REMEDIES = {
    "heic": "HEIC cannot be decoded here: convert it first, for example with `heif-convert in.heic out.png`",
    "jxl": "JPEG XL cannot be decoded here: convert it first, for example with `djxl in.jxl out.png`",
    "psd": "a Photoshop document: export it as PNG first",
    "pdf": "a PDF document: export its pages as PNG first",
    "eps": "a PostScript document: export it as PNG first",
    "svg": "a vector drawing: render it as PNG first",
}


def image_kind(data: bytes) -> str:
    """The format of `data`.

    Returns:
        `jpeg`, `png`, `gif`, `bmp`, `webp`, `tiff`, `avif`, `jpeg2000`, `pnm`, `pcx`, `qoi`, `sgi`, or `tga`
        for everything else: TGA has no signature, so only its decoder can recognise it.

    Raises:
        BadInput: a known but unsupported format, with the remedy; or a PNG with a broken signature.
    """
    kind = _by_signature(data)
    if kind in _REMEDIES:
        raise undecodable(NOT_SUPPORTED, _REMEDIES[kind])
    if kind == "tga" and b"IHDR" in data[:20]:
        raise undecodable(CORRUPT, "the PNG signature is damaged, as by a transfer in text mode")
    return kind


def _by_signature(data: bytes) -> str:
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "webp"
    if data[4:8] == b"ftyp":
        return _by_brand(data)
    if _PNM.match(data):
        return "pnm"
    if _PCX.match(data):
        return "pcx"
    return "tga"


def _by_brand(data: bytes) -> str:
    """AVIF or HEIC, by the brands of an ISO base media file (ISO/IEC 14496-12, `ftyp`)."""
    size = min(int.from_bytes(data[:4], "big"), 256)
    brands = {data[i : i + 4] for i in (8, *range(16, size, 4))}
    if brands & {b"avif", b"avis"}:
        return "avif"
    return "heic" if brands & _HEIC_BRANDS else "tga"
