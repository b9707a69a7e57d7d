"""Members of ZIP archives: what ties a range of the archive to the bytes that were packed into it.

The format is PKWARE's APPNOTE.TXT, sections 4.3.7 and 4.4. The sizes and the checksum are those of the
central directory: a local header may leave them out.
"""

from __future__ import annotations

import re
import struct
import zlib

from recordmill.transforms.records import BadInput

LARGEST = 1 << 30
"""Bytes of the largest image that is read: a file, a range or a member."""

STORED, DEFLATED = 0, 8
LOCAL_HEADER = struct.Struct("<4s5H3I2H")
"""Signature, version, flags, method, time, date, checksum, packed size, size, lengths of name and extra."""

_SIGNATURE = b"PK\x03\x04"
_WRAPPING = re.compile(r"zip:(\d+):(\d+):(\d+)")


def wrapping_of(packed: int, size: int, crc: int) -> str:
    return f"zip:{packed}:{size}:{crc}"


def check_size(size: int, place: str) -> None:
    """Raises BadInput, stage `load`, `too large`, where an image has more bytes than are read."""
    if size > LARGEST:
        raise BadInput("load", "too large", f"{place} has {size} bytes; up to {LARGEST} are read")


def data_offset(header: bytes) -> int:
    """Bytes from the start of a local header to the data. Raises ValueError if it is no local header."""
    if len(header) < LOCAL_HEADER.size or not header.startswith(_SIGNATURE):
        raise ValueError("there is no local header")
    fields = LOCAL_HEADER.unpack_from(header)
    return LOCAL_HEADER.size + int(fields[-2]) + int(fields[-1])


def unwrapped(data: bytes, wrapping: str) -> bytes:
    """The bytes of a member; `data` begins with its local header, and may go on behind it.

    Raises:
        BadInput: stage `load`; `damaged archive member`, `member too large` or `empty file`.
    """
    known = _WRAPPING.fullmatch(wrapping)
    if known is None:
        raise ValueError(f"ImageRef.wrapping is {wrapping!r}; it may be zip:PACKED:SIZE:CRC")
    packed, size, crc = map(int, known.groups())
    if size > LARGEST:
        raise BadInput("load", "member too large", f"{size} bytes; up to {LARGEST} are read")
    if not size:
        raise BadInput("load", "empty file", "the member of the archive has no bytes")
    try:
        content = _unpacked(data, packed, size)
    except (ValueError, zlib.error) as error:
        raise BadInput("load", "damaged archive member", str(error)) from error
    if zlib.crc32(content) != crc:
        raise BadInput("load", "damaged archive member", "its checksum does not match")
    return content


def _unpacked(data: bytes, packed: int, size: int) -> bytes:
    """The bytes that were packed. Raises ValueError or zlib.error where they are not what they should be."""
    start = data_offset(data)
    method = LOCAL_HEADER.unpack_from(data)[3]
    body = data[start : start + packed]
    if len(body) < packed:
        raise ValueError(f"{len(body)} of {packed} bytes are there")
    if method == STORED:
        content = body
    elif method == DEFLATED:
        content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(body, size + 1)
    else:
        raise ValueError(f"its compression method is {method}")
    if len(content) != size:
        found = "more" if len(content) > size else str(len(content))
        raise ValueError(f"it has {found} bytes, and the archive's directory says {size}")
    return content
