"""GIF: its blocks, and whether TensorFlow decodes it correctly (GIF89a specification)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from recordmill.transforms.images.picture import OpenedImage, Picture
from recordmill.transforms.images.raster import decode_raster
from recordmill.transforms.images.reasons import CORRUPT, TRUNCATED, check_pixels, undecodable
from recordmill.transforms.records import StoredImage

IMAGE, EXTENSION, TRAILER = 0x2C, 0x21, 0x3B
_CONTROL = 0xF9
# LZW code sizes: below, Pillow does not find the end of the codes; above, giflib reads nothing.
_BITS = range(2, 9)


@dataclasses.dataclass(frozen=True, slots=True)
class GifHeader:
    """A GIF's structure.

    Attributes:
        height: of the canvas; likewise width.
        covered: whether the first frame fills the canvas.
        transparent: whether a colour is declared transparent.
        colors: entries of the first frame's palette.
        closed: whether there is a trailer.
        orderly: whether all decoders read the extensions alike: giflib reads the bytes after an empty one as
            part of it, and uses the first of several control blocks, not the last.
        codes: (start, end) of the first frame's image data, from its code size through its last block.
    """

    height: int
    width: int
    frames: int
    covered: bool
    transparent: bool
    colors: int
    closed: bool
    orderly: bool
    codes: tuple[int, int]


def open_gif(data: bytes) -> OpenedImage:
    """Reads the block structure.

    A still GIF is kept if its frame fills the canvas and every pixel is opaque: TensorFlow decodes GIFs to
    three channels, and pixels outside the frame are black.

    Raises:
        BadInput: damaged before the end of the first frame, or too many pixels.
    """
    header = read_header(data)

    def decode() -> Picture:
        return dataclasses.replace(decode_raster(data, "gif"), frames=header.frames)

    def check() -> None:
        start, end = header.codes
        if data[start] not in _BITS:
            raise undecodable(CORRUPT, f"the GIF has codes for pixels of {data[start]} bits")
        # Without the bytes after the frame, which Pillow would read as further codes.
        picture = decode_raster(data[:end], "gif")
        if picture.palette and int(picture.pixels.max()) >= header.colors:
            raise undecodable(CORRUPT, "the GIF uses colours beyond its palette")

    plain = header.frames == 1 and header.covered and header.closed and header.colors > 0 and header.orderly
    if plain and header.transparent:
        picture = decode()
        plain = not picture.palette_alpha and picture.pixels.shape[2] in (1, 3)
    kept = (
        StoredImage(data, "gif", header.height, header.width, 3, "uint8", "RGB", ("kept",)) if plain else None
    )
    return OpenedImage("gif", data, kept, 1, check, decode, header.height * header.width)


def read_header(data: bytes) -> GifHeader:
    """Walks the blocks; it is no error if they end after the first frame.

    Raises:
        BadInput: damaged before the end of the first frame, or too many pixels.
    """
    if len(data) < 13:
        raise undecodable(TRUNCATED, "the GIF ends within its header")
    width, height = (int.from_bytes(data[i : i + 2], "little") for i in (6, 8))
    check_pixels(width, height)
    position = first_block(data)
    frames, covered, transparent, colors, codes = 0, False, False, 0, (0, 0)
    controls, empty = 0, False
    for start, end in blocks(data):
        position = end
        empty = empty or (data[start] == EXTENSION and data[start + 2 : start + 3] == b"\0")
        if frames == 0 and data[start] == IMAGE:
            codes = (start + 10 + 3 * _palette_size(data[start + 9]), end)
            box = tuple(int.from_bytes(data[i : i + 2], "little") for i in range(start + 1, start + 9, 2))
            covered = box == (0, 0, width, height)
            colors = _palette_size(data[start + 9]) or _palette_size(data[10])
        elif frames == 0 and data[start + 1 : start + 2] == bytes([_CONTROL]):
            controls += 1
            transparent = transparent or bool(data[start + 3 : start + 4] > b"" and data[start + 3] & 1)
        if end <= len(data):
            frames += data[start] == IMAGE
        elif frames == 0:
            raise undecodable(TRUNCATED, "the GIF ends within its first frame")
    closed = position < len(data)
    if closed and data[position] != TRAILER:
        reason = CORRUPT if position + 10 <= len(data) else TRUNCATED
        raise undecodable(reason, "the GIF has a damaged block")
    if frames == 0:
        raise undecodable(TRUNCATED, "the GIF holds no frame")
    orderly = not empty and controls <= 1
    return GifHeader(height, width, frames, covered, transparent, colors, closed, orderly, codes)


def first_block(data: bytes) -> int:
    """The offset of the first block, after the global palette."""
    return 13 + 3 * _palette_size(data[10])


def blocks(data: bytes) -> Iterator[tuple[int, int]]:
    """(start, end) of each block up to the trailer or to invalid bytes; a truncated one ends beyond `data`.

    A block is an extension, or an image with its descriptor, from its first byte through its last sub-block.
    """
    start = first_block(data)
    while start < len(data):
        if data[start] == EXTENSION:
            end = _skip_blocks(data, start + 2)
        elif data[start] == IMAGE and start + 10 <= len(data):
            end = _skip_blocks(data, start + 11 + 3 * _palette_size(data[start + 9]))
        else:
            return
        yield start, end
        start = end


def _palette_size(flags: int) -> int:
    return 2 << (flags & 7) if flags & 0x80 else 0


def _skip_blocks(data: bytes, position: int) -> int:
    """The offset after a chain of data sub-blocks; beyond the end of `data` if it is truncated."""
    while position < len(data):
        size = data[position]
        position += 1 + size
        if size == 0:
            return position
    return len(data) + 1
