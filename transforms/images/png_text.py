"""Text in a PNG (ISO/IEC 15948, 11.3.4), and EXIF that ImageMagick writes into it as hexadecimal digits."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable

from recordmill.transforms.images.exif import EXIF_MARK

_KINDS = frozenset((b"tEXt", b"zTXt", b"iTXt"))
_LONGEST_NAME = 80  # its zero included
RAW_EXIF = frozenset((b"Raw profile type exif", b"Raw profile type APP1"))
_LIMIT = 1 << 22


def read_texts(chunks: Iterable[tuple[bytes, bytes]], names: Collection[bytes]) -> dict[bytes, bytes]:
    """The first text of each keyword that is wanted; no other is inflated.

    A text is empty if it is damaged, or longer than 4 MiB once inflated.

    Args:
        chunks: (type, payload) of each chunk.
        names: keywords.
    """
    texts: dict[bytes, bytes] = {}
    for kind, payload in chunks:
        if kind in _KINDS:
            name, _, rest = payload[:_LONGEST_NAME].partition(b"\0")
            if name in names and name not in texts:
                texts[name] = _text(kind, payload[len(name) + 1 :])
    return texts


def _text(kind: bytes, rest: bytes) -> bytes:
    """The text in what follows the keyword of a chunk."""
    if kind == b"tEXt":
        return rest
    packed = kind == b"zTXt" or rest[:1] == b"\1"
    text = rest[1:] if kind == b"zTXt" else b"".join(rest[2:].split(b"\0", 2)[2:])
    return _inflated(text) if packed else text


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
