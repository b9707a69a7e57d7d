"""JPEG: reads the segments before the first scan, which takes microseconds (ITU-T T.81, annex B)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from recordmill.transforms.images.exif import EXIF_MARK, read_orientation
from recordmill.transforms.images.reasons import CORRUPT, NOT_SUPPORTED, TRUNCATED, check_pixels, undecodable

APP0, APP1, APP2, APP14, COM = 0xE0, 0xE1, 0xE2, 0xEE, 0xFE
SOI, EOI, SOS = 0xD8, 0xD9, 0xDA
# Application segments and comments: no coefficient depends on them.
WORDS = frozenset((*range(APP0, APP0 + 16), COM))
ICC_MARK = b"ICC_PROFILE\0"
PROGRESSIVE = frozenset((0xC2, 0xCA))
LOSSLESS = 0xC3
# Markers without a length and a payload.
ALONE = frozenset((0x01, *range(0xD0, 0xD8)))
_SOF = frozenset((*range(0xC0, 0xD0),)) - {0xC4, 0xC8, 0xCC}
_DQT = 0xDB
# Baseline, extended and progressive, Huffman or arithmetic coding: what TensorFlow's libjpeg-turbo decodes.
_TENSORFLOW_PROCESSES = frozenset((0xC0, 0xC1, 0xC2, 0xC9, 0xCA))


class JpegHeader(msgspec.Struct, frozen=True):
    """The header: all segments before the first scan.

    Attributes:
        process: the SOF marker, 0xC0 to 0xCF.
        components: (id, horizontal sampling, vertical sampling, quantisation table) of each.
        jfif: whether there is a JFIF marker.
        adobe: the colour transform of the Adobe marker; None if there is no such marker.
        orientation: EXIF, 1 to 8.
        scan: offset of the first scan's marker.
        stray: whether there are bytes between the segments that belong to none.
    """

    height: int
    width: int
    process: int
    components: tuple[tuple[int, int, int, int], ...]
    jfif: bool
    adobe: int | None
    orientation: int
    scan: int
    stray: bool

    @property
    def storable(self) -> bool:
        """Whether tf.io.decode_image decodes such a JPEG."""
        return self.process in _TENSORFLOW_PROCESSES

    @property
    def colorspace(self) -> str:
        """`Grayscale`, `RGB` or `CMYK`."""
        return {1: "Grayscale", 3: "RGB", 4: "CMYK"}[len(self.components)]

    @property
    def stores_rgb(self) -> bool:
        """Whether the three components are RGB, not YCbCr: libjpeg's rule (default_decompress_parms)."""
        if len(self.components) != 3 or self.jfif:
            return False
        if self.adobe is not None:
            return self.adobe == 0
        return [c[0] for c in self.components] == [0x52, 0x47, 0x42]


def read_header(data: bytes) -> JpegHeader:
    """Reads the segments up to the first scan, and searches for the end marker after it.

    Raises:
        BadInput: truncated or damaged, too many pixels, or of an unsupported kind.
    """
    frame: tuple[int, int, int] | None = None
    jfif, stray, adobe, orientation, expected = False, False, None, 1, 2
    for marker, start, end in segments(data):
        stray = stray or start != expected + (2 if marker in ALONE else 4)
        expected = end
        if marker == APP0:
            jfif = jfif or data.startswith(b"JFIF\0", start)
        elif marker == APP1 and orientation == 1 and data.startswith(EXIF_MARK, start):
            orientation = read_orientation(data[start:end])
        elif marker == APP14 and end - start >= 12 and data.startswith(b"Adobe", start):
            adobe = data[start + 11]
        elif marker in _SOF:
            if frame is not None:
                raise undecodable(CORRUPT, "two frame headers in one JPEG")
            frame = (marker, start, end)
        elif marker == SOS:
            if frame is None:
                raise undecodable(CORRUPT, "a JPEG scan before any frame header")
            if data.rfind(b"\xff\xd9", end) < 0:
                raise undecodable(TRUNCATED, "the JPEG has no end marker")
            height, width, components = _read_frame(data, *frame)
            return JpegHeader(height, width, frame[0], components, jfif, adobe, orientation, start - 4, stray)
    raise undecodable(TRUNCATED, "the JPEG ends within its header")


def segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(marker, start, end) of each segment's payload, through the first SOS."""
    position, size = 2, len(data)
    while True:
        position = data.find(b"\xff", position)
        while position >= 0 and position + 1 < size and data[position + 1] == 0xFF:
            position += 1
        if position < 0 or position + 4 > size:
            return
        marker = data[position + 1]
        if marker == 0:
            position += 2
        elif marker in ALONE:
            position += 2
            yield marker, position, position
        elif marker in (EOI, SOI):
            raise undecodable(CORRUPT, "the JPEG ends or starts anew before its first scan")
        else:
            length = data[position + 2] << 8 | data[position + 3]
            end = position + 2 + length
            if length < 2:
                raise undecodable(CORRUPT, f"JPEG marker {marker:#x} has length {length}")
            if end > size:
                return
            yield marker, position + 4, end
            if marker == SOS:
                return
            position = end


def written_segment(marker: int, payload: bytes) -> bytes:
    """A segment from its marker through its payload, of at most 65,533 bytes."""
    return struct.pack(">BBH", 0xFF, marker, 2 + len(payload)) + payload


def _read_frame(
    data: bytes, marker: int, start: int, end: int
) -> tuple[int, int, tuple[tuple[int, int, int, int], ...]]:
    """Height, width and components of a frame header (T.81, B.2.2), checked."""
    payload = data[start:end]
    if len(payload) < 6 or len(payload) != 6 + 3 * payload[5]:
        raise undecodable(CORRUPT, "the JPEG's frame header has the wrong length")
    precision, count = payload[0], payload[5]
    height, width = payload[1] << 8 | payload[2], payload[3] << 8 | payload[4]
    if marker not in _TENSORFLOW_PROCESSES and marker != LOSSLESS:
        raise undecodable(NOT_SUPPORTED, f"JPEG process {marker:#x} (hierarchical or lossless arithmetic)")
    if precision != 8:
        raise undecodable(NOT_SUPPORTED, f"a JPEG of {precision} bits a sample: convert it to 8 bits first")
    if height == 0:
        raise undecodable(NOT_SUPPORTED, "a JPEG that tells its height after the scan: re-save it first")
    if count not in (1, 3, 4):
        raise undecodable(NOT_SUPPORTED, f"a JPEG of {count} components; 1, 3 or 4 are decoded")
    check_pixels(width, height, count)
    parts = [
        (payload[i], payload[i + 1] >> 4, payload[i + 1] & 15, payload[i + 2])
        for i in range(6, len(payload), 3)
    ]
    if any(not (1 <= h <= 4 and 1 <= v <= 4) for _, h, v, _ in parts):
        raise undecodable(CORRUPT, "a JPEG sampling factor is not 1 to 4")
    return height, width, tuple(parts)


def quantisation_tables(data: bytes) -> dict[int, list[int]]:
    """The tables defined before the first scan: 64 values each, in zigzag order (T.81, B.2.4.1).

    Raises:
        BadInput: a table is truncated.
    """
    tables: dict[int, list[int]] = {}
    for marker, start, end in segments(data):
        position = start if marker == _DQT else end
        while position < end:
            wide, number = data[position] >> 4, data[position] & 15
            first, position = position + 1, position + (129 if wide else 65)
            if position > end:
                raise undecodable(CORRUPT, "a quantisation table of the JPEG is cut off")
            values = data[first:position]
            tables[number] = list(struct.unpack(">64H", values)) if wide else list(values)
    return tables
