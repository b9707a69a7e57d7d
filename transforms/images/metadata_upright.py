"""Metadata made to fit a picture that was turned upright or resized (EXIF 2.32; XMP, part 1)."""

from __future__ import annotations

import re
import struct

from recordmill.transforms.images.metadata import Metadata

_EXIF_IFD = 0x8769
_WIDTH, _HEIGHT, _ORIENTATION, _PIXEL_X, _PIXEL_Y = 0x100, 0x101, 0x112, 0xA002, 0xA003
_THUMBNAILS = ((0x201, 0x202), (0x111, 0x117))  # tags of offset and length: JPEG, uncompressed
_XMP_THUMBNAILS = re.compile(rb"<(x[am]p:Thumbnails)\b.*?</\1\s*>", re.DOTALL)


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
