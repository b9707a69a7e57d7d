"""ICC profiles: reading them from files, and converting colours to sRGB (ICC.1:2022).

Conversion is relative colorimetric with black point compensation: colours within sRGB do not change, white
stays white and black stays black, and shadows darker than sRGB's are not clipped.
"""

from __future__ import annotations

import functools
import io
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from recordmill.transforms.images import png, webp
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.icc_matrix import matrix_conversion
from recordmill.transforms.images.jpeg_header import APP2, ICC_MARK, segments
from recordmill.transforms.images.pillow import DECODER_ERRORS
from recordmill.transforms.records import BadInput

if TYPE_CHECKING:
    from PIL.ImageCms import ImageCmsProfile, ImageCmsTransform

_WEBP_PIXELS = (b"VP8 ", b"VP8L", b"ANMF", b"ALPH")
_PILLOW_FORMATS = {"avif": "AVIF", "tiff": "TIFF"}
# The largest common profiles, of presses, have 3 MB; a file may claim any size.
_MAX_PROFILE = 1 << 24
_HEADER = 128
# Input, display, output, colour space: the classes that describe the colours of an image.
_CLASSES = frozenset((b"scnr", b"mntr", b"prtr", b"spac"))
_SPACES = {"L": b"GRAY", "RGB": b"RGB ", "CMYK": b"CMYK"}
_GRAYS = np.arange(256, dtype=np.uint8)[None, :, None]


def profile_of(data: bytes, kind: str) -> bytes | None:
    """The profile that a file of an `image_kind` embeds; None if it has none, or its container is damaged."""
    try:
        if kind in _PROFILES:
            return _PROFILES[kind](data)
    except (BadInput, zlib.error):
        return None
    return _pillow_profile(data, kind) if kind in _PILLOW_FORMATS else None


def to_srgb(pixels: Array, profile: bytes, cmyk: bool = False) -> Array | None:
    """Pixels converted from their profile's colours to sRGB.

    Args:
        pixels: uint8 (height, width, 1 to 4); alpha stays as it is.
        profile: the ICC profile of the pixels.
        cmyk: whether four channels are inks (255 is full ink), not RGBA.

    Returns:
        The same channels, or RGB for inks. None if the profile is sRGB in effect (no colour changes by more
        than one level), damaged, or of another colour space than the pixels.
    """
    channels = pixels.shape[2]
    if cmyk:
        transform = _transform(profile, "CMYK") if channels == 4 else None
        return None if transform is None else transform(pixels)
    if channels <= 2:
        table = _gray_table(profile)
        if table is None:
            return None
        return np.concatenate([table[pixels[:, :, :1]], pixels[:, :, 1:]], axis=2)
    transform = _transform(profile, "RGB")
    if transform is None:
        return None
    colors = transform(pixels[:, :, :3])
    return colors if channels == 3 else np.concatenate([colors, pixels[:, :, 3:]], axis=2)


def png_with_profile(data: bytes, profile: bytes) -> bytes:
    """A sound PNG with an embedded profile, which replaces its previous iCCP or sRGB chunk.

    A profile of another colour space is not embedded: readers would ignore it.
    """
    gray = data[25] in (png.GRAY, png.GRAY_ALPHA)
    if profile[16:20] != _SPACES["L" if gray else "RGB"]:
        return data
    chunk = png.written_chunk(b"iCCP", b"ICC profile\0\0" + zlib.compress(profile))
    # Before any palette and pixels (PNG, 5.6): directly after IHDR, the first chunk.
    chunks = png.read_header(data).chunks
    others = (data[start:end] for kind, start, end in chunks[1:] if kind not in (b"iCCP", b"sRGB"))
    return b"".join((data[: chunks[0][2]], chunk, *others))


def _jpeg_profile(data: bytes) -> bytes | None:
    """From APP2 segments, each with a number, their count, and a part of the profile (ICC.1, B.4)."""
    parts: dict[int, bytes] = {}
    count = 0
    for marker, start, end in segments(data):
        if marker != APP2 or end - start < 14 or not data.startswith(ICC_MARK, start):
            continue
        number, claimed = data[start + 12], data[start + 13]
        if number in parts or not 1 <= number <= claimed or claimed != (count or claimed):
            return None
        count = claimed
        parts[number] = data[start + 14 : end]
    return b"".join(parts[number] for number in sorted(parts)) if 0 < len(parts) == count else None


def _png_profile(data: bytes) -> bytes | None:
    """From an iCCP chunk, which comes before the palette and the pixels (PNG, 11.3.2.3)."""
    for kind, start, end in png.chunks(data):
        if kind == b"iCCP":
            return _inflated(data[start + 4 : end])
        if kind in (b"PLTE", b"IDAT"):
            return None
    return None


def _inflated(chunk: bytes) -> bytes | None:
    """The profile in an iCCP chunk from its type through its checksum: a name, a zero, the method, zlib."""
    name, _, packed = chunk[4:-4].partition(b"\0")
    if (
        zlib.crc32(chunk[:-4]).to_bytes(4, "big") != chunk[-4:]
        or not 1 <= len(name) < 80
        or packed[:1] != b"\0"
    ):
        return None
    inflate = zlib.decompressobj()
    profile = inflate.decompress(packed[1:], _MAX_PROFILE)
    return profile if inflate.eof else None


def _webp_profile(data: bytes) -> bytes | None:
    """From the ICCP chunk of an extended WebP, which comes before the pixels (RFC 9649, 2.7)."""
    for name, payload in webp.chunks(data):
        if name == b"ICCP":
            return payload
        if name in _WEBP_PIXELS:
            return None
    return None


def _pillow_profile(data: bytes, kind: str) -> bytes | None:
    """From TIFF's tag 34675 or AVIF's colr box, as Pillow reads them."""
    try:
        with Image.open(io.BytesIO(data), formats=(_PILLOW_FORMATS[kind],)) as image:
            profile = image.info.get("icc_profile")
    except DECODER_ERRORS:
        return None
    return profile if isinstance(profile, bytes) and profile else None


_PROFILES = {"jpeg": _jpeg_profile, "png": _png_profile, "webp": _webp_profile}


@functools.lru_cache(maxsize=16)
def _transform(profile: bytes, mode: str) -> Callable[[Array], Array] | None:
    """Converts 8-bit pixels to sRGB; None if there is nothing to convert.

    littleCMS converts them, or a faster function that agrees with it.
    """
    built = _built(profile, mode)
    if built is None:
        return None
    transform = functools.partial(_applied, built)
    if mode != "RGB":
        return transform
    levels = np.linspace(0, 255, 16).astype(np.uint8)
    cube = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(64, 64, 3)
    expected = transform(cube)
    if _is_near(expected, cube):
        return None
    faster = matrix_conversion(profile, _srgb().tobytes())
    return faster if faster is not None and _is_near(faster(cube), expected) else transform


@functools.lru_cache(maxsize=16)
def _gray_table(profile: bytes) -> Array | None:
    """The sRGB grey for each of the profile's 256 greys; None if there is nothing to convert."""
    transform = _built(profile, "L")
    if transform is None:
        return None
    # Neutral, apart from rounding; green has most of the lightness.
    table = _applied(transform, _GRAYS)[0, :, 1]
    return None if _is_near(table, _GRAYS[0, :, 0]) else table


def _built(profile: bytes, mode: str) -> ImageCmsTransform | None:
    """A conversion to sRGB; None unless the profile is complete and of the mode's colour space."""
    if not _HEADER < len(profile) <= _MAX_PROFILE or int.from_bytes(profile[:4], "big") > len(profile):
        return None
    if profile[36:40] != b"acsp" or profile[12:16] not in _CLASSES or profile[16:20] != _SPACES[mode]:
        return None
    from PIL import ImageCms

    # The finer grid halves the error of profiles that are tables, for 30 ms (RGB) to 150 ms (CMYK) once each.
    flags = ImageCms.Flags.BLACKPOINTCOMPENSATION | ImageCms.Flags.HIGHRESPRECALC
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        return ImageCms.ImageCmsTransform(
            source,
            _srgb(),
            mode,
            "RGB",
            ImageCms.Intent.RELATIVE_COLORIMETRIC,
            flags=flags,
        )
    except (*DECODER_ERRORS, ImageCms.PyCMSError):
        return None


def _srgb() -> ImageCmsProfile:
    from PIL import ImageCms

    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))


def _applied(transform: ImageCmsTransform, pixels: Array) -> Array:
    """RGB of pixels in the transform's mode."""
    flat = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
    converted: Array = np.asarray(transform.apply(Image.fromarray(flat, transform.input_mode)))
    return converted


def _is_near(one: Array, other: Array) -> bool:
    return bool(np.abs(one.astype(np.int16) - other).max() <= 1)
