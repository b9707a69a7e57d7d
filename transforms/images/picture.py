"""Opened image files, and decoded pixels with the properties that a change of format must keep."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from PIL import Image

from recordmill.transforms.images.exif import Array, turned
from recordmill.transforms.records import StoredImage

COLORSPACES = {1: "Grayscale", 2: "GrayscaleAlpha", 3: "RGB", 4: "RGBA"}


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """Pixels in memory.

    Attributes:
        pixels: uint8 or uint16 (height, width, 1 to 4): grey, grey and alpha, RGB, RGBA; or palette indices.
        palette: RGB bytes of each index; empty if the pixels are colours.
        palette_alpha: alpha of the first indices; the others are opaque.
        narrowed: whether the source has more bits a sample than these pixels.
        frames: number of frames or pages of the source; this is the first.
    """

    pixels: Array
    palette: bytes = b""
    palette_alpha: bytes = b""
    narrowed: bool = False
    frames: int = 1

    def upright(self, orientation: int) -> Picture:
        """This picture, turned by an EXIF orientation."""
        return dataclasses.replace(self, pixels=turned(self.pixels, orientation))

    def expanded(self) -> Array:
        """The colours: palette indices become RGB, or RGBA if the palette has alpha."""
        if not self.palette:
            return self.pixels
        table = np.zeros((256, 3), np.uint8)
        colors = np.frombuffer(self.palette, np.uint8).reshape(-1, 3)
        table[: len(colors)] = colors
        if self.palette_alpha:
            alpha = np.full((256, 1), 255, np.uint8)
            alpha[: len(self.palette_alpha), 0] = np.frombuffer(self.palette_alpha, np.uint8)
            table = np.concatenate([table, alpha], axis=1)
        return table.take(self.pixels[:, :, 0], axis=0)


def split_alpha(pixels: Array) -> tuple[Array, bool]:
    """Pixels without their alpha channel, and whether any was not opaque."""
    channels = pixels.shape[2]
    if channels in (1, 3):
        return pixels, False
    opaque = np.iinfo(pixels.dtype).max
    return np.ascontiguousarray(pixels[:, :, :-1]), bool((pixels[:, :, -1] != opaque).any())


def to_eight_bits(pixels: Array) -> Array:
    """16-bit pixels scaled to 8 bits, rounded to the nearest."""
    if pixels.dtype != np.uint16:
        return pixels
    return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)


def encode_png(pixels: Array, palette: bytes = b"", palette_alpha: bytes = b"") -> bytes:
    """A PNG of 8-bit pixels, or of palette indices; the arguments are as in `Picture`."""
    channels = pixels.shape[2]
    options: dict[str, Any] = {}
    if palette:
        image = Image.fromarray(pixels[:, :, 0], "P")
        image.putpalette(palette)
        if palette_alpha:
            options["transparency"] = palette_alpha
    elif channels == 1:
        image = Image.fromarray(pixels[:, :, 0], "L")
    else:
        image = Image.fromarray(pixels, {2: "LA", 3: "RGB", 4: "RGBA"}[channels])
    # Within 1.5 % of the usual level 6, in two thirds of its time.
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=4, **options)
    return out.getvalue()


class OpenedImage(msgspec.Struct, frozen=True):
    """An image before its pixels are decoded.

    Attributes:
        kind: as `image_kind` returns it; `pixels` for raw pixels.
        data: the file.
        kept: the record's image if the file is stored unchanged; None if tf.io.decode_image does not decode
            it correctly.
        orientation: EXIF, 1 to 8.
        check: decodes all of it; raises BadInput if it is damaged.
        decode: returns the pixels; raises BadInput if they are damaged.
        pixels: height times width, from the header.
        decode_scaled: scales down while decoding, to at least the given height and width, in the file's
            orientation, as `jpeg.decode_scaled`; None if the format cannot.
        inks: uint8 (height, width, 4) of CMYK, 255 is full ink; None if the image is not in CMYK.
        profile: the ICC profile of pixels without a file; None if it is sRGB, unknown, or in the file.
        family: `jpeg` or `png`: the format of its changed pixels with --image_format=keep.
    """

    kind: str
    data: bytes
    kept: StoredImage | None
    orientation: int
    check: Callable[[], object]
    decode: Callable[[], Picture]
    pixels: int
    decode_scaled: Callable[..., Picture] | None = None
    inks: Callable[[], npt.NDArray[np.uint8]] | None = None
    profile: bytes | None = None
    family: str = "png"
