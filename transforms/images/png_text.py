"""Text in a PNG (ISO/IEC 15948, 11.3.4), and EXIF that ImageMagick writes into it as hexadecimal digits."""

from __future__ import annotations

import zlib

from transforms.images.exif import EXIF_MARK

KINDS = frozenset((b"tEXt", b"zTXt", b"iTXt"))
RAW_EXIF = (b"Raw profile type exif", b"Raw profile type APP1")
_LIMIT = 1 << 24


def read_text(kind: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """A text chunk's keyword and text; the text is empty where it is damaged or beyond all measure.

    Args:
        kind: one of KINDS.
        payload: of the chunk.
    """
    name, _, rest = payload.partition(b"\0")
    if kind == b"tEXt":
        return name, rest
    packed = kind == b"zTXt" or rest[:1] == b"\1"
    text = rest[1:] if kind == b"zTXt" else b"".join(rest[2:].split(b"\0", 2)[2:])
    return name, _inflated(text) if packed else text


def _inflated(packed: bytes) -> bytes:
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(packed, _LIMIT)
    except zlib.error:
        return b""
    return text if inflate.eof else b""


def raw_exif(text: bytes) -> bytes:
    """EXIF in a text whose keyword is in RAW_EXIF: a name, a length and hexadecimal lines.

    Returns:
        A TIFF structure, maybe behind `Exif\\0\\0`; empty where the text is damaged or holds something else.
    """
    try:
        block = bytes.fromhex(b"".join(text.split(None, 2)[2:]).decode("ascii"))
    except ValueError:
        return b""
    return block if block.removeprefix(EXIF_MARK).startswith((b"II", b"MM")) else b""
