"""PNG: its chunks, checks as strict as those of libpng, and its pixels (ISO/IEC 15948).

Pillow has no mode for 16-bit colour.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator

import msgspec
import numpy as np
from isal import isal_zlib
from PIL import Image, ImageFile

from recordmill.transforms.images.exif import EXIF_MARK, Array, read_orientation
from recordmill.transforms.images.picture import Picture
from recordmill.transforms.images.pillow import DECODER_ERRORS, named
from recordmill.transforms.images.reasons import CORRUPT, NOT_SUPPORTED, TRUNCATED, check_pixels, undecodable

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GRAY, RGB, PALETTE, GRAY_ALPHA, RGBA = 0, 2, 3, 4, 6
SAMPLES = {GRAY: 1, RGB: 3, PALETTE: 1, GRAY_ALPHA: 2, RGBA: 4}
_DEPTHS = {GRAY: (1, 2, 4, 8, 16), RGB: (8, 16), PALETTE: (1, 2, 4, 8), GRAY_ALPHA: (8, 16), RGBA: (8, 16)}
_COLORSPACES = {GRAY: "Grayscale", RGB: "RGB", PALETTE: "RGB", GRAY_ALPHA: "GrayscaleAlpha", RGBA: "RGBA"}
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_CRITICAL = frozenset((b"IHDR", b"PLTE", b"IDAT", b"IEND"))
_CHUNK_HEAD = struct.Struct(">I4s")
_CHUNK, _IHDR = _CHUNK_HEAD.unpack_from, struct.Struct(">IIBBBBB").unpack_from
_ANIMATION = frozenset((b"acTL", b"fcTL", b"fdAT"))
_WIDEST_WINDOW = 1 << 15
# Keywords of text in which ImageMagick stores EXIF as hexadecimal digits.
_RAW_EXIF = frozenset((b"Raw profile type exif", b"Raw profile type APP1"))
_LONGEST_KEYWORD = 80  # with its zero byte
_LONGEST_TEXT = 1 << 22
# Bytes inflated at a time, and the most bytes after the pixels that are checked.
_PIECE, _MOST_EXTRA = 1 << 13, 1 << 20
# Bytes of the largest block of a zlib stream that is not compressed (RFC 1951, 3.2.4), and the start of it.
_BLOCK = 0xFFFF
_BLOCK_START = struct.Struct("<BHH").pack
_MOST_UNCOMPRESSED = 1 << 28


class PngHeader(msgspec.Struct, frozen=True):
    """A PNG's structure; the checksum of every critical chunk is correct.

    Attributes:
        depth: bits a sample.
        color: the colour type, 0, 2, 3, 4 or 6.
        interlaced: Adam7.
        transparency: the tRNS chunk; empty if there is none.
        orientation: EXIF, 1 to 8.
        animated: APNG with more than one frame.
        chunks: (type, start, end) of every chunk, from its length through its checksum.
    """

    height: int
    width: int
    depth: int
    color: int
    interlaced: bool
    transparency: bytes
    orientation: int
    animated: bool
    chunks: tuple[tuple[bytes, int, int], ...]

    @property
    def channels(self) -> int:
        """The channels that tf.io.decode_image decodes."""
        if self.color == PALETTE:
            return 4 if self.transparency else 3
        return SAMPLES[self.color]

    @property
    def dtype(self) -> str:
        """Of the decoded pixels."""
        return "uint16" if self.depth == 16 else "uint8"

    @property
    def colorspace(self) -> str:
        """For a palette, that of its colours."""
        return "RGBA" if self.color == PALETTE and self.transparency else _COLORSPACES[self.color]


def read_header(data: bytes) -> PngHeader:
    """Walks all chunks.

    Raises:
        BadInput: truncated or damaged, too many pixels, or Apple's variant.
    """
    found = tuple(chunks(data))
    kinds, starts, ends = zip(*found, strict=True)
    if kinds[0] == b"CgBI":
        detail = "an iPhone-optimised PNG: turn it back first, with `pngcrush -revert-iphone-optimizations`"
        raise undecodable(NOT_SUPPORTED, detail)
    _check_order(kinds)
    if ends[0] - starts[0] != 25:
        raise undecodable(CORRUPT, "the PNG's IHDR chunk has the wrong length")
    width, height, depth, color, compression, filtering, interlace = _IHDR(data, 16)
    if depth not in _DEPTHS.get(color, ()) or compression or filtering or interlace > 1:
        raise undecodable(CORRUPT, f"a PNG of colour type {color} and {depth} bits, interlace {interlace}")
    check_pixels(width, height)
    palette = b""
    if b"PLTE" in kinds:
        at = kinds.index(b"PLTE")
        palette = data[starts[at] + 8 : ends[at] - 4]
    if color == PALETTE and (not palette or len(palette) % 3 or len(palette) > 768):
        raise undecodable(CORRUPT, "the PNG has no proper palette")
    if color in (RGB, RGBA) and b"PLTE" in kinds and not palette:
        raise undecodable(CORRUPT, "the PNG has an empty palette")
    transparency = b""
    if b"tRNS" in kinds:
        transparency = _transparency(data, found, color, min(len(palette) // 3, 1 << depth))
    animated = kinds.count(b"fcTL") > 1
    orientation = _orientation(data, found)
    return PngHeader(height, width, depth, color, bool(interlace), transparency, orientation, animated, found)


def chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """(type, start, end) of each chunk, from its length through its checksum.

    Raises:
        BadInput: truncated, or damaged; only the checksums of critical chunks are verified.
    """
    position, last = len(SIGNATURE), len(data) - 12
    while True:
        if position > last:
            raise undecodable(TRUNCATED, "the PNG ends before its IEND chunk")
        length, kind = _CHUNK(data, position)
        end = position + 12 + length
        if not kind.isalpha() or length > 0x7FFFFFFF:
            raise undecodable(CORRUPT, f"{kind!r} is no PNG chunk")
        if end > len(data):
            raise undecodable(TRUNCATED, f"the PNG ends within its {kind.decode('ascii')} chunk")
        if not kind[0] & 0x20 and not _is_sound(data, position, end):
            raise undecodable(CORRUPT, f"the checksum of its {kind.decode('ascii')} chunk is wrong")
        yield kind, position, end
        if kind == b"IEND":
            return
        position = end


def _check_order(kinds: tuple[bytes, ...]) -> None:
    if kinds[0] != b"IHDR" or kinds.count(b"IHDR") != 1:
        raise undecodable(CORRUPT, "the PNG does not start with its one IHDR chunk")
    unknown = [kind for kind in kinds if kind not in _CRITICAL and not kind[0] & 0x20]
    if unknown:
        raise undecodable(CORRUPT, f"the PNG has a critical chunk that no standard knows, {unknown[0]!r}")
    if b"IDAT" not in kinds:
        raise undecodable(CORRUPT, "the PNG has no IDAT chunk")
    first = kinds.index(b"IDAT")
    run = kinds[first : first + kinds.count(b"IDAT")]
    if run.count(b"IDAT") != len(run):
        raise undecodable(CORRUPT, "the PNG's IDAT chunks do not follow each other")
    if b"PLTE" in kinds[first:] or kinds.count(b"PLTE") > 1:
        raise undecodable(CORRUPT, "the PNG's PLTE chunk is not where it may be")


def _transparency(data: bytes, chunks: tuple[tuple[bytes, int, int], ...], color: int, colors: int) -> bytes:
    """The tRNS chunk that libpng uses: the first that is undamaged, in order and of the right length.

    `colors` is the number of palette entries that a pixel of this depth can address.
    """
    if color not in (GRAY, RGB, PALETTE):
        return b""
    placed = color != PALETTE
    for kind, start, end in chunks:
        if kind == b"IDAT":
            break
        placed = placed or kind == b"PLTE"
        if kind != b"tRNS" or not placed:
            continue
        content = data[start + 8 : end - 4]
        fits = 0 < len(content) <= colors if color == PALETTE else len(content) == 2 * SAMPLES[color]
        if fits and _is_sound(data, start, end):
            return content
    return b""


def _is_sound(data: bytes, start: int, end: int) -> bool:
    return isal_zlib.crc32(data[start + 4 : end - 4]) == int.from_bytes(data[end - 4 : end], "big")


def _orientation(data: bytes, chunks: tuple[tuple[bytes, int, int], ...]) -> int:
    """The EXIF orientation, from an eXIf chunk or from the first text with each keyword of _RAW_EXIF."""
    tried: set[bytes] = set()
    for kind, start, end in chunks:
        if kind == b"eXIf":
            return read_orientation(data[start + 8 : end - 4])
        if kind in (b"tEXt", b"zTXt") and data.startswith(b"Raw profile type ", start + 8):
            keyword = data[start + 8 : min(start + 8 + _LONGEST_KEYWORD, end - 4)].partition(b"\0")[0]
            if keyword not in _RAW_EXIF or keyword in tried:
                continue
            tried.add(keyword)
            text = data[start + 9 + len(keyword) : end - 4]
            if exif := _raw_exif(text if kind == b"tEXt" else _inflated(text[1:])):
                return read_orientation(exif)
    return 1


def _inflated(packed: bytes) -> bytes:
    """The text; empty if it is damaged, or longer than 4 MiB."""
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(packed, _LONGEST_TEXT)
    except zlib.error:
        return b""
    return text if inflate.eof else b""


def _raw_exif(text: bytes) -> bytes:
    """EXIF from a name, a length and hexadecimal lines; empty if the text is something else."""
    try:
        block = bytes.fromhex(b"".join(text.split(None, 2)[2:]).decode("ascii"))
    except ValueError:
        return b""
    return block if block.removeprefix(EXIF_MARK).startswith((b"II", b"MM")) else b""


def written_chunk(kind: bytes, payload: bytes) -> bytes:
    """A chunk from its length through its checksum."""
    return struct.pack(">I", len(payload)) + kind + payload + struct.pack(">I", zlib.crc32(kind + payload))


def without_animation(data: bytes, header: PngHeader) -> bytes:
    """The still image of an APNG, for decoders without animation."""
    return SIGNATURE + b"".join(
        data[start:end] for kind, start, end in header.chunks if kind not in _ANIMATION
    )


def stays_within_window(data: bytes, header: PngHeader) -> bool:
    """Whether the zlib stream refers back no further than the window that it declares, as libpng requires.

    It costs nothing if the window is the widest, or holds all pixels. Other damage is not detected.
    """
    idats = (start for kind, start, end in header.chunks if kind == b"IDAT" and end > start + 12)
    first = next(idats, None)
    window = 1 << 8 + (data[first + 8] >> 4 if first is not None else 7)
    if window >= _WIDEST_WINDOW or window >= _bytes_of(_rows(header)):
        return True
    rows = _rows(header)
    stream = _image_data(data, header)
    inflate = zlib.decompressobj(wbits=0)
    position, piece = 0, b""
    try:
        for size in (size for count, size in rows for _ in range(count)):
            left = size  # One row at a time, like libpng: a longer output would act as a window.
            while left and not inflate.eof and (piece or position < len(stream)):
                if not piece:
                    piece, position = stream[position : position + _PIECE], position + _PIECE
                left -= len(inflate.decompress(piece, left))
                piece = inflate.unconsumed_tail
    except zlib.error as error:
        return "too far back" not in str(error)
    return True


def check_image_data(data: bytes, header: PngHeader) -> None:
    """Inflates all pixels, and checks their number, every row's filter, and the end of the stream.

    Raises:
        BadInput: truncated or damaged.
    """
    rows = _rows(header)
    expected = _bytes_of(rows)
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(_image_data(data, header), expected)
        if len(raw) == expected and not inflate.eof:
            extra = inflate.decompress(inflate.unconsumed_tail, _MOST_EXTRA)
            if len(extra) == _MOST_EXTRA and not inflate.eof:
                raise undecodable(CORRUPT, "the PNG has many more pixels than its header says")
    except zlib.error as error:
        raise undecodable(CORRUPT, str(error)) from error
    if len(raw) < expected:
        raise undecodable(TRUNCATED, f"the PNG's pixels end after {len(raw):,} of {expected:,} bytes")
    if not inflate.eof:
        raise undecodable(TRUNCATED, "the PNG's compressed pixels have no end")
    position = 0
    for count, size in rows:
        end = position + count * size
        if count and max(raw[position:end:size]) > 4:
            raise undecodable(CORRUPT, "a row of the PNG has an unknown filter")
        position = end


def _image_data(data: bytes, header: PngHeader) -> bytes:
    return b"".join(data[start + 8 : end - 4] for kind, start, end in header.chunks if kind == b"IDAT")


def _rows(header: PngHeader) -> list[tuple[int, int]]:
    """(rows, bytes a row with its filter byte) of each pass."""
    bits = header.depth * SAMPLES[header.color]
    if not header.interlaced:
        return [(header.height, 1 + (header.width * bits + 7) // 8)]
    rows = []
    for left, top, across, down in _ADAM7:
        width, height = -(-(header.width - left) // across), -(-(header.height - top) // down)
        if width > 0 and height > 0:
            rows.append((height, 1 + (width * bits + 7) // 8))
    return rows


def _bytes_of(rows: list[tuple[int, int]]) -> int:
    """Bytes of the rows of all passes, inflated."""
    return sum(count * size for count, size in rows)


def decode(data: bytes, header: PngHeader) -> Picture:
    """The pixels: palettes as indices and palette, 16 bits unchanged, transparency as alpha.

    Raises:
        BadInput: truncated or damaged.
    """
    try:
        pixels = _pixels(io.BytesIO(_essential(data, header)), header)
    except DECODER_ERRORS as error:
        raise named(error) from error
    if header.color == PALETTE:
        kind, start, end = next(chunk for chunk in header.chunks if chunk[0] == b"PLTE")
        return Picture(pixels, palette=data[start + 8 : end - 4], palette_alpha=header.transparency)
    if header.transparency:
        pixels = _with_key(pixels, header)
    return Picture(pixels)


def _essential(data: bytes, header: PngHeader) -> bytes:
    """`data` without text, profiles and animation, so that only damaged pixels can fail the decoder."""

    def chunks_of(*kinds: bytes) -> list[bytes]:
        return [data[start:end] for kind, start, end in header.chunks if kind in kinds]

    image_data = _uncompressed(data, header) or chunks_of(b"IDAT")
    return b"".join((SIGNATURE, *chunks_of(b"IHDR", b"PLTE"), *image_data, *chunks_of(b"IEND")))


def _uncompressed(data: bytes, header: PngHeader) -> list[bytes | memoryview]:
    """The parts of an IDAT chunk whose pixels are not compressed; empty if they are damaged, or very many.

    ISA-L inflates up to three times as fast as the zlib of most systems, which Pillow uses. It compares the
    checksum of the pixels, but accepts a few codes that zlib does not.
    """
    size = _bytes_of(_rows(header))
    if size > _MOST_UNCOMPRESSED:
        return []
    stream, inflate = _image_data(data, header), isal_zlib.decompressobj()
    try:
        rows = memoryview(inflate.decompress(stream, size + 1))
    except isal_zlib.error:  # type: ignore[misc]  # its stub declares an instance
        return []
    if len(rows) != size or not inflate.eof or inflate.unused_data:
        return []
    blocks: list[bytes | memoryview] = []
    for start in range(0, size, _BLOCK):
        block = rows[start : start + _BLOCK]
        blocks += (_BLOCK_START(start + _BLOCK >= size, len(block), len(block) ^ 0xFFFF), block)
    blocks = [b"\x78\x01", *blocks, stream[-4:]]
    # Pillow does not read the checksum of an IDAT chunk.
    return [_CHUNK_HEAD.pack(sum(map(len, blocks)), b"IDAT"), *blocks, bytes(4)]


def _pixels(essential: io.BytesIO, header: PngHeader) -> Array:
    with Image.open(essential, formats=("PNG",)) as image:
        if header.depth == 16 and header.color != GRAY:
            return _deep_pixels(essential, image, header.color)
        image.load()
        essential.close()  # before the pixels are copied
        pixels = np.asarray(image.convert("L") if image.mode == "1" else image)
    if header.depth == 16:
        pixels = pixels.astype(np.uint16)
    return pixels.reshape(header.height, header.width, SAMPLES[header.color])


def _deep_pixels(essential: io.BytesIO, image: ImageFile.ImageFile, color: int) -> Array:
    """16 bits a sample: Pillow unpacks the high bytes and the low ones, each in its own pass."""
    if color == GRAY_ALPHA:
        # Two 16-bit samples are the four bytes of an RGBA pixel.
        image.tile = [tile._replace(args="RGBA") for tile in image.tile]
        return np.asarray(image).view(">u2").astype(np.uint16)
    high: Array = np.asarray(image).astype(np.uint16)
    mode = image.mode
    with Image.open(essential, formats=("PNG",)) as again:
        again.tile = [tile._replace(args=f"{mode};16L") for tile in again.tile]
        low = np.asarray(again)
    both: Array = high << 8 | low
    return both


def _with_key(pixels: Array, header: PngHeader) -> Array:
    """Pixels with an alpha channel: 0 for the colour that tRNS names."""
    key = np.frombuffer(header.transparency, ">u2").astype(np.uint16)
    if header.depth < 8:
        key = key * (255 // ((1 << header.depth) - 1))
    opaque = np.iinfo(pixels.dtype).max
    alpha = np.where((pixels == key).all(axis=2, keepdims=True), 0, opaque).astype(pixels.dtype)
    return np.concatenate([pixels, alpha], axis=2)


def encode_deep(pixels: Array) -> bytes:
    """A PNG of uint16 pixels; every row has the Paeth filter."""
    height, width, channels = pixels.shape
    step = 2 * channels
    rows = np.zeros((height + 1, step + width * step), np.uint8)
    rows[1:, step:] = pixels.astype(">u2").reshape(height, -1).view(np.uint8)
    here, left = rows[1:, step:], rows[1:, :-step]
    above, corner = rows[:-1, step:], rows[:-1, :-step]
    filtered = np.full((height, 1 + width * step), 4, np.uint8)
    filtered[:, 1:] = here - _paeth(left, above, corner)
    color = {1: GRAY, 2: GRAY_ALPHA, 3: RGB, 4: RGBA}[channels]
    return encoded_rows(filtered.tobytes(), height, width, 16, color, level=6)


def encoded_rows(rows: bytes, height: int, width: int, depth: int, color: int, level: int) -> bytes:
    """A PNG of filtered rows, each after the byte that names its filter; compressed at a level of zlib."""
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, level)), (b"IEND", b""))
    return SIGNATURE + b"".join(written_chunk(kind, payload) for kind, payload in parts)


def _paeth(left: Array, above: Array, corner: Array) -> Array:
    a, b, c = (part.astype(np.int16) for part in (left, above, corner))
    to_left, to_above, to_corner = abs(b - c), abs(a - c), abs(a + b - 2 * c)
    nearest = np.where(to_above <= to_corner, above, corner)
    return np.where((to_left <= to_above) & (to_left <= to_corner), left, nearest)
