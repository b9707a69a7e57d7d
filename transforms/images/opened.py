"""Opens an image of any format: reads its header."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from recordmill.transforms.images import jpeg, jpeg_header, png, png_pixels
from recordmill.transforms.images.bmp import open_bmp
from recordmill.transforms.images.encoded import Encoded
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.gif import open_gif
from recordmill.transforms.images.picture import COLORSPACES, Picture
from recordmill.transforms.images.raster import open_raster, open_webp
from recordmill.transforms.images.reasons import EMPTY, NOT_SUPPORTED, WRONG_LENGTH, check_pixels, undecodable
from recordmill.transforms.images.sniff import image_kind
from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import StoredImage


@internal_errors("decode")
def opened(data: bytes) -> Encoded:
    """Reads the header of an image.

    Args:
        data: the file.

    Raises:
        BadInput: stage `decode`, with the reason and the remedy.
    """
    if not data:
        raise undecodable(EMPTY)
    kind = image_kind(data)
    if kind == "jpeg":
        return _open_jpeg(data)
    if kind == "png":
        return _open_png(data)
    if kind == "gif":
        return open_gif(data)
    if kind == "bmp":
        return open_bmp(data)
    if kind == "webp":
        return open_webp(data)
    return open_raster(data, kind)


def opened_pixels(pixels: bytes, shape: tuple[int, int, int]) -> Encoded:
    """Raw pixels as an image.

    Args:
        pixels: uint8, row by row.
        shape: height, width, channels (1 to 4).

    Raises:
        BadInput: the number of bytes is not the shape's, or there are too many pixels.
    """
    height, width, channels = shape
    if channels not in COLORSPACES or height < 1 or width < 1:
        raise undecodable(
            NOT_SUPPORTED, f"pixels of shape {height}x{width}x{channels}; 1 to 4 channels are stored"
        )
    check_pixels(width, height)
    if len(pixels) != height * width * channels:
        detail = f"{len(pixels):,} bytes for {height}x{width}x{channels} uint8 pixels"
        raise undecodable(WRONG_LENGTH, detail)
    picture = Picture(np.frombuffer(pixels, np.uint8).reshape(shape))
    return Encoded("pixels", pixels, None, 1, lambda: None, lambda: picture, height * width)


def _open_jpeg(data: bytes) -> Encoded:
    header = jpeg_header.read_header(data)
    kept = None
    if header.storable:
        channels = 1 if len(header.components) == 1 else 3
        kept = StoredImage(
            data, "jpeg", header.height, header.width, channels, "uint8", header.colorspace, ("kept",)
        )

    def inks() -> Array:
        components = jpeg.decode_components(data, header)
        return 255 - components if header.adobe is not None else components

    return Encoded(
        "jpeg",
        data,
        kept,
        header.orientation,
        functools.partial(jpeg.check_image_data, data, header),
        lambda: Picture(jpeg.decode(data, header)),
        header.height * header.width,
        lambda height, width: Picture(jpeg.decode_scaled(data, header, height, width)),
        inks if len(header.components) == 4 else None,
    )


def _open_png(data: bytes) -> Encoded:
    header = png.read_header(data)
    stored = data
    actions: tuple[str, ...] = ("kept",)
    if header.animated:
        stored, actions = png.without_animation(data, header), ("transcoded", "first_frame")
    kept = None
    if png.stays_within_window(data, header):
        shape = (header.height, header.width, header.channels)
        kept = StoredImage(stored, "png", *shape, header.dtype, header.colorspace, actions)
    frames = 2 if header.animated else 1

    def decode() -> Picture:
        if kept is None:
            png.check_image_data(data, header)
        return dataclasses.replace(png_pixels.decode(data, header), frames=frames)

    return Encoded(
        "png",
        data,
        kept,
        header.orientation,
        functools.partial(png.check_image_data, data, header),
        decode,
        header.height * header.width,
    )
