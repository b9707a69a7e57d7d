"""Opens an image of any format, detected by its first bytes and never by its name: reads its header."""

from __future__ import annotations

import dataclasses
import functools
import re

import numpy as np

from recordmill.transforms.images import jpeg, jpeg_header, png
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.gif import open_gif
from recordmill.transforms.images.picture import COLORSPACES, OpenedImage, Picture
from recordmill.transforms.images.raster import open_bmp, open_raster, open_webp
from recordmill.transforms.images.reasons import (
    CORRUPT,
    EMPTY,
    NOT_SUPPORTED,
    WRONG_LENGTH,
    check_pixels,
    undecodable,
)
from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import StoredImage


@internal_errors("decode")
def opened(data: bytes, shape: tuple[int, int, int] | None = None) -> OpenedImage:
    """Reads the header of an image file. With a `shape`, the data are raw pixels.

    Args:
        data: the file; or uint8 pixels, row by row.
        shape: height, width and channels of raw pixels.

    Raises:
        BadInput: stage `decode`, with the reason and the remedy.
    """
    if shape is not None:
        return _opened_pixels(data, shape)
    if not data:
        raise undecodable(EMPTY)
    kind = image_kind(data)
    return _OPENERS[kind](data) if kind in _OPENERS else open_raster(data, kind)


def _opened_pixels(pixels: bytes, shape: tuple[int, int, int]) -> OpenedImage:
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
    return OpenedImage("pixels", pixels, None, 1, lambda: None, lambda: picture, height * width)


def opened_array(pixels: Array, source: OpenedImage, exif: str, profile: bytes | None) -> OpenedImage:
    """Pixels that were made from those of `source`, as an image of its family.

    Args:
        pixels: uint8 or uint16 (height, width, 1 to 4), upright unless `exif` is `ignore`.
        source: the image that they were made from.
        exif: one of `EXIF_POLICIES`.
        profile: the ICC profile of the pixels.

    Raises:
        BadInput: there are too many pixels.
    """
    height, width, channels = pixels.shape
    check_pixels(width, height, channels)
    picture = Picture(np.ascontiguousarray(pixels))
    return OpenedImage(
        source.kind,
        b"",
        None,
        source.orientation if exif == "ignore" else 1,
        lambda: None,
        lambda: picture,
        height * width,
        profile=profile,
        family=source.family,
    )


def _open_jpeg(data: bytes) -> OpenedImage:
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

    return OpenedImage(
        "jpeg",
        data,
        kept,
        header.orientation,
        functools.partial(jpeg.check_image_data, data, header),
        lambda: Picture(jpeg.decode(data, header)),
        header.height * header.width,
        lambda *size, **how: Picture(jpeg.decode_scaled(data, header, *size, **how)),
        inks if len(header.components) == 4 else None,
        family="png" if kept is None else "jpeg",
    )


def _open_png(data: bytes) -> OpenedImage:
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
        return dataclasses.replace(png.decode(data, header), frames=frames)

    return OpenedImage(
        "png",
        data,
        kept,
        header.orientation,
        functools.partial(png.check_image_data, data, header),
        decode,
        header.height * header.width,
    )


_OPENERS = {"jpeg": _open_jpeg, "png": _open_png, "gif": open_gif, "bmp": open_bmp, "webp": open_webp}

_MAGIC = {
    "jpeg": (b"\xff\xd8\xff",),
    "png": (b"\x89PNG\r\n\x1a\n",),
    "gif": (b"GIF87a", b"GIF89a"),
    "bmp": (b"BM",),
    "tiff": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    "jpeg2000": (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"),
    "qoi": (b"qoif",),
    "sgi": (b"\x01\xda",),
    "jxl": (b"\xff\x0a", b"\0\0\0\x0cJXL "),
    "psd": (b"8BPS",),
    "pdf": (b"%PDF",),
    "eps": (b"%!PS",),
    "svg": (b"<svg",),
}
_PNM = re.compile(rb"P[1-6][\s#]")
_PCX = re.compile(rb"\x0a[\x00\x02-\x05][\x00\x01][\x01\x02\x04\x08]")
_HEIC_BRANDS = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))

_REMEDIES = {
    "heic": "HEIC cannot be decoded here: convert it first, for example with `heif-convert in.heic out.png`",
    "jxl": "JPEG XL cannot be decoded here: convert it first, for example with `djxl in.jxl out.png`",
    "psd": "a Photoshop document: export it as PNG first",
    "pdf": "a PDF document: export its pages as PNG first",
    "eps": "a PostScript document: export it as PNG first",
    "svg": "a vector drawing: render it as PNG first",
}


def image_kind(data: bytes) -> str:
    """The format of `data`.

    Returns:
        `jpeg`, `png`, `gif`, `bmp`, `webp`, `tiff`, `avif`, `jpeg2000`, `pnm`, `pcx`, `qoi`, `sgi`, or `tga`
        for everything else: TGA has no signature, so only its decoder can recognise it.

    Raises:
        BadInput: an unsupported format, with the remedy; or a PNG with a broken signature.
    """
    kind = _by_signature(data)
    if kind in _REMEDIES:
        raise undecodable(NOT_SUPPORTED, _REMEDIES[kind])
    if kind == "tga" and b"IHDR" in data[:20]:
        raise undecodable(CORRUPT, "the PNG signature is damaged, as by a transfer in text mode")
    return kind


def _by_signature(data: bytes) -> str:
    for kind, magic in _MAGIC.items():
        if data.startswith(magic):
            return kind
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "webp"
    if data[4:8] == b"ftyp":
        return _by_brand(data)
    if _PNM.match(data):
        return "pnm"
    if _PCX.match(data):
        return "pcx"
    return "tga"


def _by_brand(data: bytes) -> str:
    """AVIF or HEIC, by the brands of an ISO base media file (ISO/IEC 14496-12, `ftyp`)."""
    size = min(int.from_bytes(data[:4], "big"), 256)
    brands = {data[i : i + 4] for i in (8, *range(16, size, 4))}
    if brands & {b"avif", b"avis"}:
        return "avif"
    return "heic" if brands & _HEIC_BRANDS else "tga"
