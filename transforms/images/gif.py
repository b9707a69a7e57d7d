"""GIF: which ones TensorFlow decodes to the picture that is meant (GIF89a specification)."""

from __future__ import annotations

import dataclasses

from transforms.images.encoded import Encoded
from transforms.images.picture import Picture
from transforms.images.raster import decode_raster
from transforms.images.reasons import CORRUPT, TRUNCATED, check_pixels, undecodable
from transforms.records import StoredImage

_IMAGE, _EXTENSION, _TRAILER, _CONTROL = 0x2C, 0x21, 0x3B, 0xF9


@dataclasses.dataclass(frozen=True, slots=True)
class GifHeader:
    """A GIF's structure.

    Attributes:
        height: of the canvas.
        width: of the canvas.
        frames: how many there are.
        covered: whether the first frame is the whole canvas.
        transparent: whether a colour is declared transparent.
        colors: entries of the first frame's palette.
        closed: whether the trailer is there.
    """

    height: int
    width: int
    frames: int
    covered: bool
    transparent: bool
    colors: int
    closed: bool


def open_gif(data: bytes) -> Encoded:
    """Reads the block structure.

    A still GIF is kept where its frame covers the canvas and every pixel is opaque: TensorFlow decodes GIFs
    to three channels, and leaves black what no frame covers.

    Raises:
        BadInput: damaged before the end of the first frame, or too many pixels.
    """
    header = read_header(data)

    def decode() -> Picture:
        return dataclasses.replace(decode_raster(data, "gif"), frames=header.frames)

    def check() -> None:
        picture = decode()
        if picture.palette and int(picture.pixels.max()) >= header.colors:
            raise undecodable(CORRUPT, "the GIF uses colours beyond its palette")

    plain = header.frames == 1 and header.covered and header.closed and header.colors > 0
    if plain and header.transparent:
        picture = decode()
        plain = not picture.palette_alpha and picture.pixels.shape[2] in (1, 3)
    kept = (
        StoredImage(data, "gif", header.height, header.width, 3, "uint8", "RGB", ("kept",)) if plain else None
    )
    return Encoded("gif", data, kept, 1, check, decode)


def read_header(data: bytes) -> GifHeader:
    """Walks the blocks; stops without complaint where they end after the first frame.

    Raises:
        BadInput: damaged before the end of the first frame, or too many pixels.
    """
    if len(data) < 13:
        raise undecodable(TRUNCATED, "the GIF ends within its header")
    width, height = (int.from_bytes(data[i : i + 2], "little") for i in (6, 8))
    check_pixels(width, height)
    shared = _palette_size(data[10])
    position = 13 + 3 * shared
    frames, covered, transparent, colors = 0, False, False, 0
    while position < len(data) and data[position] != _TRAILER:
        introducer, start = data[position], position + 1
        if introducer == _EXTENSION:
            if data[start : start + 1] == bytes([_CONTROL]) and frames == 0:
                transparent = transparent or bool(data[start + 2 : start + 3] > b"" and data[start + 2] & 1)
            position = _skip_blocks(data, start + 1)
        elif introducer == _IMAGE and start + 9 <= len(data):
            box = tuple(int.from_bytes(data[i : i + 2], "little") for i in range(start, start + 8, 2))
            own = _palette_size(data[start + 8])
            if frames == 0:
                covered, colors = box == (0, 0, width, height), own or shared
            position = _skip_blocks(data, start + 10 + 3 * own)
        else:
            raise undecodable(CORRUPT if start + 9 <= len(data) else TRUNCATED, "the GIF has a damaged block")
        if position > len(data):
            if frames == 0:
                raise undecodable(TRUNCATED, "the GIF ends within its first frame")
            break
        frames += introducer == _IMAGE
    if frames == 0:
        raise undecodable(TRUNCATED, "the GIF holds no frame")
    return GifHeader(height, width, frames, covered, transparent, colors, position < len(data))


def _palette_size(flags: int) -> int:
    return 2 << (flags & 7) if flags & 0x80 else 0


def _skip_blocks(data: bytes, position: int) -> int:
    """The offset behind a chain of data sub-blocks; beyond the end of `data` where it is cut off."""
    while position < len(data):
        size = data[position]
        position += 1 + size
        if size == 0:
            return position
    return len(data) + 1
