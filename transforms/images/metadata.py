"""Metadata: cut out of a file without touching a pixel, read, made to fit another size, and put in again.

JPEG as in ITU-T T.81, with JFIF (T.871), EXIF (CIPA DC-008) and XMP (part 3); PNG as in ISO/IEC 15948; WebP
as in RFC 9649; GIF as in GIF89a. EXIF is held as a bare TIFF structure, without `Exif\\0\\0`.
"""

from __future__ import annotations

import dataclasses
import io
import re
import struct
import zlib
from collections.abc import Iterator

from PIL import Image

from transforms.images.jpeg_header import ALONE, APP0, APP14, SOS, segments
from transforms.images.pillow import DECODER_ERRORS
from transforms.images.reasons import CORRUPT, TRUNCATED, undecodable

_APP1, _APP15, _COM, _EOI, _SOI = 0xE1, 0xEF, 0xFE, 0xD9, 0xD8
_LONGEST_PAYLOAD = 0xFFFF - 2
_ICC, _EXIF, _XMP = b"ICC_PROFILE\0", b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"
# A marker behind entropy-coded data: neither a stuffed zero nor a restart.
_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
_FILLED_MARKER = re.compile(rb"\xff+[\x01-\xcf\xd8-\xfe]")  # slow to search for

_SIGNATURE_SIZE = 8
_PNG_XMP, _PNG_COMMENT = b"XML:com.adobe.xmp", b"Comment"
# Ancillary chunks that say how pixels look; mDCv and cLLi are how drafts spelt them.
_PNG_KEPT = frozenset(b"tRNS gAMA cHRM sRGB iCCP sBIT bKGD pHYs cICP mDCV mDCv cLLI cLLi sPLT hIST".split())
_TEXT_LIMIT = 1 << 24

_WEBP_KEPT = frozenset((b"VP8X", b"ICCP", b"ANIM", b"ANMF", b"ALPH", b"VP8 ", b"VP8L"))
_WEBP_XMP, _WEBP_EXIF, _WEBP_ALPHA = 4, 8, 16

_GIF_KEPT = (b"\xf9", b"\xff\x0bNETSCAPE", b"\xff\x0bICCRGBG1")

_PILLOW_FORMATS = {"tiff": "TIFF", "avif": "AVIF", "gif": "GIF", "jpeg2000": "JPEG2000"}
# What a TIFF says of the picture, not of how the file holds it (TIFF 6.0; EXIF 2.32, table 4).
_TIFF_DESCRIBES = frozenset((0x10E, 0x10F, 0x110, 0x112, 0x11A, 0x11B, 0x128, 0x131, 0x132, 0x13B, 0x13C))
_EXIF_IFD, _GPS_IFD, _COPYRIGHT = 0x8769, 0x8825, 0x8298

_WIDTH, _HEIGHT, _ORIENTATION, _PIXEL_X, _PIXEL_Y = 0x100, 0x101, 0x112, 0xA002, 0xA003
_THUMBNAILS = ((0x201, 0x202), (0x111, 0x117))  # tags of offset and length: JPEG, uncompressed
_XMP_THUMBNAILS = re.compile(rb"<(x[am]p:Thumbnails)\b.*?</\1\s*>", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class Metadata:
    """What a file says beside its pixels; None where it says nothing.

    Attributes:
        exif: a TIFF structure, from its byte order mark on.
        xmp: the XMP packet; of a JPEG the main one, without extended XMP.
        comment: text, in whatever encoding the file has it.
    """

    exif: bytes | None = None
    xmp: bytes | None = None
    comment: bytes | None = None


def stripped(data: bytes, image_format: str, orientation: int = 1) -> bytes:
    """`data` without EXIF, XMP, IPTC, comments, thumbnails, second pictures and unknown blocks.

    What decides about pixels stays byte for byte: image data, colour profile, gamma, density, JFIF, Adobe.
    Whether a file is whole is to be checked on the result: of damaged image data, libwebp reads on into the
    chunk behind it, which may be gone.

    Args:
        data: a whole file.
        image_format: as `StoredImage` has it.
        orientation: EXIF; where it is not 1, a block that holds nothing else is put back.

    Returns:
        `data` itself where there is nothing to cut.

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
        # Bytes between segments go too: the rest of a block whose length is wrong may lie there.
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
    result = with_metadata(b"".join(parts), "jpeg", Metadata(_orientation_alone(orientation)))
    return data if result == data else result


def _bare_segment(data: bytes, marker: int, start: int, end: int) -> bytes:
    """What stays of a segment: all, nothing, or what is fixed of it."""
    size = end - start
    if marker == APP0 and size >= 14 and data.startswith(b"JFIF\0", start):
        return b"\xff\xe0\0\x10" + data[start : start + 12] + b"\0\0"  # the last two: no thumbnail
    if marker == APP14 and size >= 12 and data.startswith(b"Adobe", start):
        return b"\xff\xee\0\x0e" + data[start : start + 12]
    icc = marker == 0xE2 and data.startswith(_ICC, start)
    if not icc and (marker == _COM or APP0 <= marker <= _APP15):
        return b""
    return data[start - (2 if marker in ALONE else 4) : end]


def _cuts_behind(data: bytes, position: int) -> Iterator[tuple[int, int]]:
    """What to cut behind the header of the first scan: segments between scans, all behind the end marker.

    Where a scan is damaged, nothing more is cut: the decoder may take what follows for image data.
    """
    while found := _MARKER.search(data, position):
        start = found.end() + 2
        marker = data[start - 3]
        if marker == _EOI:
            if found.end() < len(data):
                yield found.end(), len(data)
            return
        if marker in ALONE:
            position = found.end()
            continue
        position = found.end() + int.from_bytes(data[found.end() : start], "big")
        if marker == _SOI or not start <= position <= len(data):
            return
        if not _bare_segment(data, marker, start, position):
            if not _FILLED_MARKER.match(data, position):
                return
            yield found.start(), position


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """(type, start, end) of a PNG's chunks, from the length through the checksum."""
    position, kind = _SIGNATURE_SIZE, b""
    while kind != b"IEND":
        end = position + 12 + int.from_bytes(data[position : position + 4], "big")
        if end > len(data):
            raise undecodable(TRUNCATED, "the PNG ends before its IEND chunk")
        kind = data[position + 4 : position + 8]
        yield kind, position, end
        position = end


def _stripped_png(data: bytes, orientation: int) -> bytes:
    parts, begin, end = [], 0, 0
    for kind, start, end in _chunks(data):
        if kind[0] & 0x20 and kind not in _PNG_KEPT:
            parts.append(data[begin:start])
            begin = end
    if not parts and end == len(data) and orientation == 1:
        return data
    parts.append(data[begin:end])
    result = with_metadata(b"".join(parts), "png", Metadata(_orientation_alone(orientation)))
    return data if result == data else result


def _riff_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """(name, payload) of a WebP's chunks."""
    limit = min(len(data), 8 + int.from_bytes(data[4:8], "little"))
    position, found = 12, []
    while position + 8 <= limit:
        name, size = (
            data[position : position + 4],
            int.from_bytes(data[position + 4 : position + 8], "little"),
        )
        start, position = position + 8, position + 8 + size + size % 2
        if start + size > limit:
            if name in _WEBP_KEPT:
                raise undecodable(TRUNCATED, "the WebP ends within a chunk")
            break
        found.append((name, data[start : start + size]))
    return found


def _stripped_webp(data: bytes, orientation: int) -> bytes:
    kept = [(name, payload) for name, payload in _riff_chunks(data) if name in _WEBP_KEPT]
    result = _webp(kept, _orientation_alone(orientation), None)
    return data if result == data else result


def _webp(chunks: list[tuple[bytes, bytes]], exif: bytes | None, xmp: bytes | None) -> bytes:
    """A WebP of chunks that hold no metadata, and of these."""
    added = [(name, block) for name, block in ((b"EXIF", exif), (b"XMP ", xmp)) if block is not None]
    if not chunks:
        raise undecodable(CORRUPT, "the WebP holds no image")
    name, head = chunks[0]
    if name != b"VP8X" and added:
        head = _extended_head(name, head)
        chunks = [(b"VP8X", head), *chunks]
    if chunks[0][0] == b"VP8X" and head:
        flags = head[0] & ~(_WEBP_EXIF | _WEBP_XMP)
        flags |= _WEBP_EXIF * (exif is not None) | _WEBP_XMP * (xmp is not None)
        chunks = [(b"VP8X", bytes([flags]) + head[1:]), *chunks[1:]]
    body = b"".join(
        name + struct.pack("<I", len(payload)) + payload + b"\0" * (len(payload) % 2)
        for name, payload in (*chunks, *added)
    )
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


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
    flags = struct.pack("<I", _WEBP_ALPHA * alpha)
    return flags + width.to_bytes(3, "little") + height.to_bytes(3, "little")


def _stripped_gif(data: bytes) -> bytes:
    parts, begin, position = [], 0, 13 + _palette_size(data[10:11])
    while data[position : position + 1] in (b"\x21", b"\x2c"):
        start, extension = position, data[position] == 0x21
        position += 2 if extension else 11 + _palette_size(data[position + 9 : position + 10])
        while position < len(data) and data[position]:
            position += 1 + data[position]
        position += 1
        # The control block of a plain text stays: decoders that skip the text heed it for the next image.
        if extension and position <= len(data) and not data.startswith(_GIF_KEPT, start + 1):
            parts.append(data[begin:start])
            begin = position
    end = position + 1 if data[position : position + 1] == b"\x3b" else len(data)
    if not parts and end == len(data):
        return data
    return b"".join((*parts, data[begin:end]))


def _palette_size(flags: bytes) -> int:
    return 3 * (2 << (flags[0] & 7)) if flags and flags[0] & 0x80 else 0


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
        chunks = dict(_riff_chunks(data))
        return _metadata(chunks.get(b"EXIF"), chunks.get(b"XMP "), None)
    return _of_pillow(data, kind) if kind in _PILLOW_FORMATS else Metadata()


def _metadata(exif: bytes | None, xmp: bytes | None, comment: bytes | None) -> Metadata:
    return Metadata((exif or b"").removeprefix(_EXIF) or None, xmp or None, comment or None)


def _of_jpeg(data: bytes) -> Metadata:
    exif, xmp, comments = b"", b"", []
    for marker, start, end in segments(data):
        if marker == _APP1 and not exif and data.startswith(_EXIF, start):
            exif = data[start:end]
        elif marker == _APP1 and not xmp and data.startswith(_XMP, start):
            xmp = data[start + len(_XMP) : end]
        elif marker == _COM:
            comments.append(data[start:end])
    return _metadata(exif, xmp, b"\n".join(comments))


def _of_png(data: bytes) -> Metadata:
    exif = b""
    texts: dict[bytes, bytes] = {}
    for kind, start, end in _chunks(data):
        payload = data[start + 8 : end - 4]
        if kind == b"eXIf":
            exif = exif or payload
        elif kind in (b"tEXt", b"zTXt", b"iTXt"):
            name, _, rest = payload.partition(b"\0")
            texts.setdefault(name, _text(kind, rest))
    for name in (b"Raw profile type exif", b"Raw profile type APP1"):
        if not exif and name in texts:
            exif = _raw_profile(texts[name])
    return _metadata(exif, texts.get(_PNG_XMP), texts.get(_PNG_COMMENT))


def _text(kind: bytes, rest: bytes) -> bytes:
    """The text behind a text chunk's keyword; empty where it is damaged or beyond all measure."""
    if kind == b"tEXt":
        return rest
    packed = kind == b"zTXt" or rest[:1] == b"\1"
    text = rest[1:] if kind == b"zTXt" else b"".join(rest[2:].split(b"\0", 2)[2:])
    if not packed:
        return text
    try:
        inflate = zlib.decompressobj()
        text = inflate.decompress(text, _TEXT_LIMIT)
    except zlib.error:
        return b""
    return text if inflate.eof else b""


def _raw_profile(text: bytes) -> bytes:
    """A block as ImageMagick writes it into text: a name, a length and hexadecimal lines."""
    try:
        block = bytes.fromhex(b"".join(text.split()[2:]).decode("ascii"))
    except ValueError:
        return b""
    return b"" if block.startswith(_XMP) else block


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
        if tag in _TIFF_DESCRIBES or tag == _COPYRIGHT:
            described[tag] = value
    for tag in (_EXIF_IFD, _GPS_IFD):
        if tag in exif:
            described[tag] = dict(exif.get_ifd(tag))
    return described.tobytes() if len(described) else b""


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
        return _webp(_riff_chunks(data), metadata.exif, metadata.xmp)
    parts = _jpeg_segments(metadata) if image_format == "jpeg" else _png_chunks(metadata)
    position = _behind_jfif(data) if image_format == "jpeg" else next(_chunks(data))[2]
    return b"".join((data[:position], *parts, data[position:]))


def _behind_jfif(data: bytes) -> int:
    """JFIF comes first (T.871, 10.1)."""
    if data[2:4] == b"\xff\xe0" and data[6:11] == b"JFIF\0":
        return 4 + int.from_bytes(data[4:6], "big")
    return 2


def _jpeg_segments(metadata: Metadata) -> list[bytes]:
    payloads = []
    for prefix, block in ((_EXIF, metadata.exif), (_XMP, metadata.xmp)):
        if block is not None and len(prefix) + len(block) <= _LONGEST_PAYLOAD:
            payloads.append((_APP1, prefix + block))
    comment = metadata.comment or b""
    for start in range(0, len(comment), _LONGEST_PAYLOAD):
        payloads.append((_COM, comment[start : start + _LONGEST_PAYLOAD]))
    return [struct.pack(">BBH", 0xFF, marker, 2 + len(load)) + load for marker, load in payloads]


def _png_chunks(metadata: Metadata) -> list[bytes]:
    chunks = []
    if metadata.exif is not None:
        chunks.append((b"eXIf", metadata.exif))
    if metadata.xmp is not None:
        chunks.append((b"iTXt", _PNG_XMP + b"\0\0\0\0\0" + metadata.xmp))
    if metadata.comment is not None:
        text = metadata.comment.replace(b"\0", b"")
        try:
            text.decode("utf-8")
        except ValueError:
            chunks.append((b"tEXt", _PNG_COMMENT + b"\0" + text))  # Latin-1, the only other there is
        else:
            chunks.append((b"iTXt", _PNG_COMMENT + b"\0\0\0\0\0" + text))
    return [
        struct.pack(">I", len(load)) + kind + load + struct.pack(">I", zlib.crc32(kind + load))
        for kind, load in chunks
    ]


def upright(metadata: Metadata, height: int, width: int) -> Metadata:
    """`metadata` for the same picture turned upright or resized: orientation 1, its size, no thumbnail.

    Damaged EXIF is dropped. All else stays where it is, since maker notes hold offsets.

    Args:
        metadata: of the source.
        height: pixels of the result.
        width: pixels of the result.
    """
    exif, xmp = metadata.exif, metadata.xmp
    if exif is not None:
        exif = _upright_exif(exif, height, width)
    if xmp is not None:
        xmp = _upright_xmp(xmp, height, width)
    return Metadata(exif, xmp, metadata.comment)


def _upright_exif(exif: bytes, height: int, width: int) -> bytes | None:
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None:
        return None
    block = bytearray(exif)
    try:
        (first,) = struct.unpack_from(order + "I", block, 4)
        entries = _entries(block, order, first)
        directories = [(first, first + 6 + 12 * len(entries))]
        _put(block, order, entries, {_ORIENTATION: 1, _WIDTH: width, _HEIGHT: height})
        for at in (at for tag, at in entries if tag == _EXIF_IFD):
            (inner,) = struct.unpack_from(order + "I", block, at + 8)
            _put(block, order, _entries(block, order, inner), {_PIXEL_X: width, _PIXEL_Y: height})
            directories.append((inner, inner + 6 + 12 * len(_entries(block, order, inner))))
        link = directories[0][1] - 4
        (second,) = struct.unpack_from(order + "I", block, link)
        struct.pack_into(order + "I", block, link, 0)
        if second:
            _blank_thumbnail(block, order, second, directories)
    except (struct.error, ValueError):
        return None
    return bytes(block)


def _entries(block: bytearray, order: str, start: int) -> list[tuple[int, int]]:
    """(tag, offset) of a directory's entries; struct.error where it is cut off."""
    (count,) = struct.unpack_from(order + "H", block, start)
    struct.unpack_from(f"{12 * count}x", block, start + 2)
    offsets = range(start + 2, start + 2 + 12 * count, 12)
    return [(struct.unpack_from(order + "H", block, at)[0], at) for at in offsets]


def _put(block: bytearray, order: str, entries: list[tuple[int, int]], values: dict[int, int]) -> None:
    for tag, at in entries:
        if tag in values:
            layout, kind = ("HHIHxx", 3) if values[tag] < 1 << 16 else ("HHII", 4)
            struct.pack_into(order + layout, block, at, tag, kind, 1, values[tag])


def _blank_thumbnail(block: bytearray, order: str, second: int, directories: list[tuple[int, int]]) -> None:
    """Zeroes the thumbnail, and cuts it off where it comes last; ValueError where it overlaps a directory."""
    entries = dict(_entries(block, order, second))
    for tags in _THUMBNAILS:
        if not all(tag in entries for tag in tags):
            continue
        start, size = (_value(block, order, entries[tag]) for tag in tags)
        end = min(start + size, len(block))
        if any(start < stop and begin < end for begin, stop in directories):
            raise ValueError("a thumbnail within a directory")
        block[start:end] = bytes(max(0, end - start))
        if start < end and not any(block[end:]) and second < start:
            del block[start:]


def _value(block: bytearray, order: str, at: int) -> int:
    """A SHORT or LONG."""
    (kind,) = struct.unpack_from(order + "H", block, at + 2)
    value: int = struct.unpack_from(order + ("H" if kind == 3 else "I"), block, at + 8)[0]
    return value


def _upright_xmp(xmp: bytes, height: int, width: int) -> bytes:
    values = {
        b"tiff:Orientation": 1,
        b"tiff:ImageWidth": width,
        b"tiff:ImageLength": height,
        b"exif:PixelXDimension": width,
        b"exif:PixelYDimension": height,
    }
    for name, value in values.items():
        xmp = re.sub(rb"(\b%s(?:\s*=\s*[\"']|\s*>\s*))\d+" % name, rb"\g<1>%d" % value, xmp)
    return _XMP_THUMBNAILS.sub(b"", xmp)
