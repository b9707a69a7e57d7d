"""Damage to images that knows their structure: blocks, chunks, lengths, checksums and code streams."""

from __future__ import annotations

import itertools
import random
import struct
import zlib
from collections.abc import Callable

from tests.fuzz.image_seeds import PNG_SIGNATURE, gif_codes, packed, png_file, sub_blocks

_NUMBERS = (
    0,
    1,
    2,
    3,
    127,
    128,
    255,
    256,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
)
_Parts = list[bytes]


def damaged(data: bytes, kind: str, others: list[bytes], rng: random.Random) -> bytes:
    """`data` with one to three kinds of damage.

    Args:
        data: an image.
        kind: its format.
        others: images of the same format, whose parts may be put in.
        rng: decides.
    """
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if rng.random() < 0.4 or kind not in _SPLITTERS:
            data = rng.choice(_BLIND)(data, rng)
        else:
            data = _restructured(data, kind, rng.choice(others), rng)
    return data


def _flipped(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        if out:
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _set(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    if out:
        out[rng.randrange(min(len(out), rng.choice((40, 120, 1 << 20))))] = rng.choice(
            (0, 1, 255, rng.randrange(256))
        )
    return bytes(out)


def _numbered(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(max(1, min(len(data), rng.choice((64, 1 << 20)))))
    size = rng.choice((1, 2, 4))
    value = (rng.choice(_NUMBERS) + rng.choice((0, 0, 1, -1))) % (1 << 8 * size)
    return data[:start] + value.to_bytes(size, rng.choice(("big", "little"))) + data[start + size :]


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _dropped(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.choice((1, 2, 4, 50)) :]


def _doubled(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    end = start + rng.choice((1, 2, 8, 60))
    return data[:end] + data[start:]


def _stuffed(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    junk = rng.choice((rng.randbytes(rng.choice((1, 2, 4, 30))), bytes(rng.choice((1, 3, 16))), b"\xff" * 3))
    return data[:start] + junk + data[start:]


def _ended(data: bytes, rng: random.Random) -> bytes:
    return data + rng.choice((b"\0", rng.randbytes(5), data[: rng.randrange(len(data) + 1)]))


_BLIND: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flipped,
    _flipped,
    _set,
    _numbered,
    _cut,
    _dropped,
    _doubled,
    _stuffed,
    _ended,
)


def _restructured(data: bytes, kind: str, other: bytes, rng: random.Random) -> bytes:
    """Parts dropped, doubled, swapped, damaged, or taken from another image; lengths and checksums hold."""
    split, join = _SPLITTERS[kind]
    parts = split(data)
    if not parts:
        return rng.choice(_BLIND)(data, rng)
    index = rng.randrange(len(parts))
    way = rng.randrange(8)
    if way == 0:
        del parts[index]
    elif way == 1:
        parts.insert(rng.randrange(len(parts) + 1), parts[index])
    elif way == 2:
        second = rng.randrange(len(parts))
        parts[index], parts[second] = parts[second], parts[index]
    elif way == 3 and (foreign := split(other)):
        parts.insert(index, rng.choice(foreign))
    elif way == 4:
        parts[index] = _special(kind, parts[index], rng)
    else:
        head = {"png": 4, "webp": 4}.get(kind, 0)
        parts[index] = parts[index][:head] + rng.choice(_BLIND)(parts[index][head:], rng)
    return join(parts)


def _special(kind: str, part: bytes, rng: random.Random) -> bytes:
    if kind == "png" and part[:4] == b"IDAT":
        return b"IDAT" + _repacked(part[4:], rng)
    if kind == "png":
        return rng.choice(_ODD_CHUNKS)
    if kind == "gif" and part[:1] == b",":
        return _recoded(part, rng)
    if kind == "gif":
        return rng.choice(
            (b"!\xfe\0\x02ab\0", b"!\xf9\x04\1\0\0\2\0", b"!\xf9\x05\1\0\0\2\0\0", b"!\xf9\0", b"\0", b";")
        )
    return rng.choice(_BLIND)(part, rng)


def _repacked(stream: bytes, rng: random.Random) -> bytes:
    """The zlib stream of a whole IDAT: other rows, another window, a wrong end."""
    unpack = zlib.decompressobj()
    try:
        rows = unpack.decompress(stream, 1 << 22)
    except zlib.error:
        rows = b"\0" * 64
    way = rng.randrange(8)
    if way == 0:
        rows = rng.choice(_BLIND)(rows, rng)
    elif way == 1:
        rows += bytes(rng.choice((1, 40, 9000)))
    elif way == 2:
        rows = rows[: -rng.choice((1, 2, 40))]
    wbits = rng.choice((9, 10, 12, 15))
    pack = zlib.compressobj(rng.choice((0, 1, 6, 9)), zlib.DEFLATED, wbits, 8, rng.choice((0, 2, 3, 4)))
    if way == 3:
        packed_rows = pack.compress(rows) + pack.flush(zlib.Z_SYNC_FLUSH)
    else:
        packed_rows = pack.compress(rows) + pack.flush()
    if way == 4:
        info = rng.randrange(8) << 4 | 8  # another window than it was packed with
        packed_rows = bytes((info, 31 - (info << 8) % 31)) + packed_rows[2:]
    elif way == 5:
        packed_rows = packed_rows[: -rng.randrange(1, 6)]
    elif way == 6:
        packed_rows = packed_rows[:-1] + bytes((packed_rows[-1] ^ 1,))
    return packed_rows + rng.choice((b"", b"", b"\0", rng.randbytes(9)))


def _recoded(block: bytes, rng: random.Random) -> bytes:
    """An image block of a GIF whose codes end early or late, lack their start or end, or mean too much."""
    size = 10 + (3 * (2 << (block[9] & 7)) if len(block) > 9 and block[9] & 0x80 else 0)
    width, height = struct.unpack_from("<2H", block, 5) if len(block) > 9 else (1, 1)
    bits = rng.choice((0, 1, 2, 2, 3, 5, 8, 9, 12))
    count = max(0, min(width * height, 40_000) + rng.choice((0, 0, 0, -1, 1, -5, 700)))
    top = min(1 << bits, rng.choice((2, 4, 256)))
    indices = bytes(i * i // 5 % top if rng.random() < 0.9 else 0 for i in range(min(count, 3000)))
    indices += bytes(count - len(indices))
    codes = gif_codes(indices, bits, rng.choice((0, 0, 30)), at_end=rng.random() < 0.7)
    way = rng.randrange(6)
    if way == 0:
        del codes[0]
    elif way == 1:
        place = rng.randrange(len(codes))
        codes[place] = (codes[place][0] + rng.choice((1, -1, 5)), codes[place][1])
    elif way == 2:
        codes.insert(rng.randrange(len(codes)), (1 << bits, codes[0][1]))
    chain = sub_blocks(packed(codes), rng.choice((255, 255, 1, 100)))
    if way == 3:
        chain = chain[:-1] + rng.choice((b"", b"\x05extra\0", b"\0\0"))
    return block[:size] + bytes((bits if way != 4 else rng.choice((0, 1, 8, 9, 11, 12, 13)),)) + chain


_ODD_CHUNKS = (
    b"tRNS\0\1",
    b"tRNS" + bytes(6),
    b"tRNS" + bytes(range(20)),
    b"PLTE" + bytes(range(9)),
    b"PLTE" + bytes(8),
    b"PLTE" + bytes(768),
    b"PLTE" + bytes(771),
    b"PLTE",
    b"IDAT",
    b"IDAT\0",
    b"IEND",
    b"IEND\0",
    b"acTL\0\0\0\1\0\0\0\0",
    b"fcTL" + bytes(26),
    b"teSt",
    b"tesT\0",
    b"TEST",
    b"te5T",
    b"iCCPx\0\0broken",
    b"zTXta\0\0broken",
    b"bKGD",
    b"hIST\0",
)


def _png_parts(data: bytes) -> _Parts:
    """Type and payload of each chunk, whatever their checksums; all IDATs as one, now and then."""
    parts, position = [], 8
    while position + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, position)
        parts.append(data[position + 4 : position + 8 + length])
        position += 12 + length
    merged = [part for part in parts if part[:4] != b"IDAT"]
    first = next((i for i, part in enumerate(parts) if part[:4] == b"IDAT"), None)
    if first is None or len(parts) % 2:
        return parts
    merged.insert(first, b"IDAT" + b"".join(part[4:] for part in parts if part[:4] == b"IDAT"))
    return merged


def _png_joined(parts: _Parts) -> bytes:
    return png_file(*((part[:4], part[4:]) for part in parts)) if parts else PNG_SIGNATURE


def _gif_parts(data: bytes) -> _Parts:
    """The head with its palette, then each block."""
    if len(data) < 13:
        return []
    position = 13 + (3 * (2 << (data[10] & 7)) if data[10] & 0x80 else 0)
    parts = [data[:position]]
    while position < len(data):
        end = position + 1
        if data[position] == 0x21:
            end = _chained(data, position + 2)
        elif data[position] == 0x2C and position + 10 < len(data):
            flags = data[position + 9]
            end = _chained(data, position + 11 + (3 * (2 << (flags & 7)) if flags & 0x80 else 0))
        parts.append(data[position:end])
        position = end
    return parts


def _chained(data: bytes, position: int) -> int:
    while position < len(data) and data[position]:
        position += 1 + data[position]
    return position + 1


def _webp_parts(data: bytes) -> _Parts:
    parts, position = [], 12
    while position + 8 <= len(data):
        (length,) = struct.unpack_from("<I", data, position + 4)
        parts.append(data[position : position + 4] + data[position + 8 : position + 8 + length])
        position += 8 + length + length % 2
    return parts


def _webp_joined(parts: _Parts) -> bytes:
    body = b"".join(
        part[:4] + struct.pack("<I", len(part) - 4) + part[4:] + b"\0" * (len(part) % 2)
        for part in parts
        if len(part) > 3
    )
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def _jpeg_parts(data: bytes) -> _Parts:
    """Each segment, those of scans with their data."""
    starts = [i for i in range(len(data) - 1) if data[i] == 0xFF and data[i + 1] not in (0, 0xFF)]
    return [data[start:end] for start, end in itertools.pairwise((*starts, len(data)))]


_SPLITTERS: dict[str, tuple[Callable[[bytes], _Parts], Callable[[_Parts], bytes]]] = {
    "png": (_png_parts, _png_joined),
    "gif": (_gif_parts, b"".join),
    "webp": (_webp_parts, _webp_joined),
    "jpeg": (_jpeg_parts, b"".join),
}
