"""WebP: its chunks, and lossy encoding (RFC 9649)."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator

from PIL import Image

from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.reasons import CORRUPT, NOT_SUPPORTED, TRUNCATED, undecodable
from recordmill.transforms.records import BadInput

# The chunks of a picture; all others are metadata or unknown.
PICTURE = frozenset((b"VP8X", b"ICCP", b"ANIM", b"ANMF", b"ALPH", b"VP8 ", b"VP8L"))
_XMP, _EXIF, _ALPHA = 4, 8, 16
_LONGEST_SIDE = 16_383
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(name, payload) of each chunk.

    Raises:
        BadInput: it ends within a chunk of its picture; other truncated chunks are ignored.
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


def written(picture: Iterable[tuple[bytes, bytes]], exif: bytes | None) -> bytes:
    """A WebP of the chunks of a picture, with EXIF.

    Args:
        picture: (name, payload) of chunks that hold no metadata.
        exif: a TIFF structure, or None.

    Raises:
        BadInput: there is no chunk, or the image data lacks the size that a file with EXIF states.
    """
    body = list(picture)
    if not body:
        raise undecodable(CORRUPT, "the WebP holds no image")
    name, head = body[0]
    if name != b"VP8X" and exif is not None:
        name, head = b"VP8X", _extended_head(name, head)
        body.insert(0, (name, head))
    if name == b"VP8X" and head:
        flags = head[0] & ~(_EXIF | _XMP) | _EXIF * (exif is not None)
        body[0] = (name, bytes([flags]) + head[1:])
    if exif is not None:
        body.append((b"EXIF", exif))
    parts = b"".join(
        name + struct.pack("<I", len(payload)) + payload + b"\0" * (len(payload) % 2)
        for name, payload in body
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


def encode(pixels: Array, quality: int) -> bytes:
    """A lossy WebP with chroma at 4:2:0 and lossless alpha; grey becomes RGB.

    The quality, 1 to 100, is on libwebp's scale, which differs from JPEG's.

    Raises:
        BadInput: larger than a WebP may be.
    """
    height, width, channels = pixels.shape
    if max(height, width) > _LONGEST_SIDE:
        detail = f"{width}x{height} is too large for a WebP: use --image_format=png or keep, or --max_side"
        raise BadInput("encode", NOT_SUPPORTED, detail)
    image = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels, _MODES[channels])
    out = io.BytesIO()
    image.convert("RGBA" if channels in (2, 4) else "RGB").save(out, "WEBP", quality=quality)
    return out.getvalue()
