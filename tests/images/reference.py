"""What the image step promises, computed by other means than its own, slowly and in floating point.

Decoded by TensorFlow, or where it cannot by tifffile, by Pillow, or here; turned by Pillow's transpositions;
converted by littleCMS; composited, greyed (ITU-R BT.601) and resized (Keys' cubic, a = -0.5, stretched by
the scale) with whole matrices.
"""

from __future__ import annotations

import dataclasses
import io
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile
from PIL import Image, ImageCms, ImageSequence

from recordmill.transforms.images.policy import LOSSY, ImagePolicy
from recordmill.transforms.records import StoredImage
from tests.images.drawn import tensorflow_pixels
from tests.lazy import tf

Floats = npt.NDArray[np.float64]

# EXIF 2.32, tag 0x0112: what makes the picture upright.
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclasses.dataclass(frozen=True)
class Source:
    """A file's first picture as it is stored: not turned, its colours not converted.

    Attributes:
        kind: Pillow's name of the format.
        pixels: (height, width, 1 to 4), samples of 0 to 255, fractions where they have 16 bits.
        deep: whether the samples have more than 8 bits.
        orientation: EXIF, 1 to 8.
        moving: whether further frames or pages follow.
        profile: the ICC profile.
        inks: (height, width, 4) of CMYK, 255 the most.
    """

    kind: str
    pixels: Floats
    deep: bool
    orientation: int
    moving: bool
    profile: bytes | None
    inks: npt.NDArray[np.uint8] | None = None

    @property
    def see_through(self) -> bool:
        """Whether a pixel is not opaque."""
        return self.pixels.shape[2] in (2, 4) and bool((self.pixels[:, :, -1] < 255).any())

    @property
    def gray(self) -> bool:
        """Whether it has no colours."""
        return bool(self.pixels.shape[2] <= 2)


def source(data: bytes) -> Source:
    """A file as the libraries above decode it."""
    if _is_odd_png(data):
        pixels = _png(data)
        return Source(
            "PNG",
            pixels / (257 if pixels.dtype == np.uint16 else 1),
            pixels.dtype == np.uint16,
            1,
            False,
            None,
        )
    with Image.open(io.BytesIO(data)) as image:
        kind = {"MPO": "JPEG"}.get(image.format or "", image.format or "")
        moving = getattr(image, "n_frames", 1) > 1 and image.format != "MPO"
        profile = image.info.get("icc_profile")
        orientation = _orientation(image, kind)
        inks = np.asarray(image) if kind == "JPEG" and image.mode == "CMYK" else None
        pixels = _pixels(data, kind, image)
    deep = pixels.dtype == np.uint16
    return Source(kind, pixels / (257 if deep else 1), deep, orientation, moving, profile or None, inks)


def _is_odd_png(data: bytes) -> bool:
    """A PNG whose text Pillow refuses."""
    if not data.startswith(b"\x89PNG"):
        return False
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except (OSError, ValueError, SyntaxError):
        return True
    return False


def _orientation(image: Image.Image, kind: str) -> int:
    """From EXIF alone: an orientation that only XMP names is none."""
    if kind == "TIFF":
        return int(image.getexif().get(0x0112, 1))
    exif = Image.Exif()
    try:
        exif.load(image.info.get("exif", b"") or _raw_profile(image.info.get("Raw profile type exif", "")))
        value = exif.get(0x0112, 1)
    except (SyntaxError, struct.error, ValueError, OSError):
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _raw_profile(text: str) -> bytes:
    """EXIF as ImageMagick puts it into a PNG's text: a name, a length, and hexadecimal digits."""
    return bytes.fromhex("".join(text.split("\n")[3:]))


def _pixels(data: bytes, kind: str, image: Image.Image) -> npt.NDArray[Any]:
    if kind == "PNG":
        return _png(data)
    if kind in ("JPEG", "BMP"):
        return tensorflow_pixels(data)
    if kind == "WEBP" and getattr(image, "n_frames", 1) == 1:
        pixels: npt.NDArray[Any] = tf.io.decode_webp(data, channels=0).numpy()
        return pixels[0] if pixels.ndim == 4 else pixels
    if kind == "TIFF":
        try:
            with tifffile.TiffFile(io.BytesIO(data)) as file:
                if file.pages[0].photometric.name in ("RGB", "MINISBLACK"):
                    return _three_axes(file.pages[0].asarray())
        except (ValueError, tifffile.TiffFileError):
            pass
    if kind == "PPM":
        return _gray_map(data)
    first = next(iter(ImageSequence.Iterator(image)))
    if kind == "TIFF":  # Pillow turns TIFFs as it loads them.
        turn = {6: 8, 8: 6}.get(int(first.getexif().get(0x0112, 1)), int(first.getexif().get(0x0112, 1)))
        first.load()
        first = first.transpose(_UPRIGHT[turn]) if turn != 1 else first
    if first.mode in ("P", "PA", "1", "CMYK", "YCbCr"):
        clear = "transparency" in first.info
        first = first.convert({"1": "L"}.get(first.mode, "RGBA" if clear or first.mode == "PA" else "RGB"))
    return _three_axes(np.asarray(first))


def _three_axes(pixels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def _gray_map(data: bytes) -> npt.NDArray[Any]:
    """A binary PGM (netpbm, pgm.5), scaled to all of its bits."""
    fields: list[int] = []
    position = 2
    while len(fields) < 3:
        while data[position : position + 1].isspace():
            position += 1
        end = position
        if data[position : position + 1] == b"#":
            position = data.index(b"\n", position)
            continue
        while not data[end : end + 1].isspace():
            end += 1
        fields.append(int(data[position:end]))
        position = end
    width, height, top = fields
    count = width * height
    samples = np.frombuffer(data, ">u2" if top > 255 else "u1", count, position + 1).astype(np.float64)
    whole = 65535 if top > 255 else 255
    scaled = np.floor(samples * whole / top + 0.5)
    return scaled.astype(np.uint16 if top > 255 else np.uint8).reshape(height, width, 1)


def _png(data: bytes) -> npt.NDArray[Any]:
    """TensorFlow's pixels, with the single transparent colour (PNG, 11.3.2.1) that it leaves out."""
    depth, color = data[24], data[25]
    dtype = "uint16" if depth == 16 else "uint8"
    pixels: npt.NDArray[Any] = tf.io.decode_png(data, dtype=dtype).numpy()
    position = 8
    while color in (0, 2) and data[position + 4 : position + 8] != b"IDAT":
        (length,) = struct.unpack_from(">I", data, position)
        if data[position + 4 : position + 8] == b"tRNS":
            key = np.frombuffer(data[position + 8 : position + 8 + length], ">u2").astype(np.int64)
            key = key * (255 // ((1 << depth) - 1)) if depth < 8 else key
            hidden = (pixels[:, :, : len(key)] == key).all(axis=2, keepdims=True)
            top = np.iinfo(pixels.dtype).max
            alpha = np.where(hidden, 0, top).astype(pixels.dtype)
            return np.concatenate([pixels[:, :, : len(key)], alpha], axis=2)
        position += 12 + length
    return pixels


def upright(pixels: Floats, orientation: int) -> Floats:
    """Pixels turned as EXIF says, by Pillow."""
    if orientation == 1:
        return pixels
    planes = [
        np.asarray(Image.fromarray(pixels[:, :, i].astype(np.float32)).transpose(_UPRIGHT[orientation]))
        for i in range(pixels.shape[2])
    ]
    return np.stack(planes, axis=2).astype(np.float64)


def in_srgb(one: Source) -> Floats | None:
    """Its colours by its profile; None where there is none that is of use."""
    if one.profile is None:
        return None
    pixels = one.inks if one.inks is not None else np.rint(one.pixels).astype(np.uint8)
    colors = pixels if one.inks is not None or pixels.shape[2] in (1, 3) else pixels[:, :, :-1]
    mode = {1: "L", 3: "RGB", 4: "CMYK"}[colors.shape[2]]
    flat = np.ascontiguousarray(colors[:, :, 0] if mode == "L" else colors)
    try:
        converted = ImageCms.profileToProfile(
            Image.fromarray(flat, mode),
            ImageCms.ImageCmsProfile(io.BytesIO(one.profile)),
            ImageCms.createProfile("sRGB"),
            renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
            outputMode="RGB",
            flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
        )
    except ImageCms.PyCMSError:
        return None
    result = np.asarray(converted).astype(np.float64)
    if mode == "L":
        result = result[:, :, 1:2]
    return result if colors.shape is pixels.shape or one.inks is not None else _with_alpha(result, one)


def _with_alpha(colors: Floats, one: Source) -> Floats:
    return colors if one.pixels.shape[2] in (1, 3) else np.dstack([colors, one.pixels[:, :, -1]])


def painted(one: Source, policy: ImagePolicy, srgb: bool) -> Floats:
    """The picture that a policy asks for, were its format without loss.

    Args:
        one: the source.
        policy: how images are stored.
        srgb: whether colours are converted from the source's profile.

    Returns:
        (height, width, 1 to 4), 0 to 255, not rounded.
    """
    pixels = one.pixels
    if srgb and (converted := in_srgb(one)) is not None:
        pixels = converted
    if policy.exif == "apply":
        pixels = upright(pixels, one.orientation)
    if policy.alpha == "flatten" and pixels.shape[2] in (2, 4):
        pixels = composited(pixels, policy.background)
    if policy.color == "gray" and pixels.shape[2] > 2:
        luma = pixels[:, :, :3] @ np.array([0.299, 0.587, 0.114])
        pixels = np.concatenate([luma[:, :, None], pixels[:, :, 3:]], axis=2)
    if policy.color == "rgb" and pixels.shape[2] <= 2:
        pixels = _in_colors(pixels)
    return _sized(pixels, policy, one.deep and policy.image_format not in LOSSY)


def _in_colors(pixels: Floats) -> Floats:
    return pixels[:, :, [0, 0, 0, 1][: pixels.shape[2] + 2]]


def composited(pixels: Floats, background: tuple[int, int, int]) -> Floats:
    """Pixels over a background; without alpha."""
    if pixels.shape[2] in (1, 3):
        return pixels
    if pixels.shape[2] == 2 and len(set(background)) > 1:
        pixels = _in_colors(pixels)
    alpha = pixels[:, :, -1:] / 255
    beneath = np.array(background[: pixels.shape[2] - 1], np.float64)
    return pixels[:, :, :-1] * alpha + beneath * (1 - alpha)


def planned(height: int, width: int, policy: ImagePolicy) -> tuple[tuple[int, int], tuple[int, int]]:
    """(height, width) of the scaled picture, and of the stored image."""
    if policy.size is not None:
        ratios = [Fraction(policy.size[0], height), Fraction(policy.size[1], width)]
        if policy.fit == "stretch":
            return policy.size, policy.size
        ratio = min(ratios) if policy.fit == "pad" else max(ratios)
        return (_nearest(height * ratio), _nearest(width * ratio)), policy.size
    side, limit = max(height, width), policy.max_side
    if policy.short_side is not None:
        side, limit = min(height, width), policy.short_side
    if limit is None or side <= limit:
        return (height, width), (height, width)
    scaled = (_nearest(Fraction(height * limit, side)), _nearest(Fraction(width * limit, side)))
    return scaled, scaled


def _nearest(value: Fraction) -> int:
    return max(1, (value + Fraction(1, 2)).__floor__())


def _sized(pixels: Floats, policy: ImagePolicy, deep: bool) -> Floats:
    height, width = pixels.shape[:2]
    scaled, stored = planned(height, width, policy)
    if scaled != (height, width):
        pixels = resampled(pixels, *scaled, between=not deep)
    if scaled == stored:
        return pixels
    if policy.fit == "crop":
        top, left = ((have - want) // 2 for have, want in zip(scaled, stored, strict=True))
        return pixels[top : top + stored[0], left : left + stored[1]]
    if pixels.shape[2] <= 2 and len(set(policy.background)) > 1:
        pixels = _in_colors(pixels)
    colors = policy.background if pixels.shape[2] >= 3 else policy.background[:1]
    frame = np.empty((*stored, pixels.shape[2]))
    frame[:] = (*colors, 255)[: pixels.shape[2]]
    top, left = ((want - have) // 2 for have, want in zip(scaled, stored, strict=True))
    frame[top : top + scaled[0], left : left + scaled[1]] = pixels
    return frame


def resampled(pixels: Floats, height: int, width: int, between: bool) -> Floats:
    """Another size, colours counting by their alpha.

    Args:
        pixels: 0 to 255.
        height: of the result.
        width: of the result.
        between: whether what the filter overshoots is cut off after rows too, as 8 bits a sample do.
    """
    clear = pixels.shape[2] in (2, 4)
    if clear:
        weighed = pixels[:, :, :-1] * pixels[:, :, -1:] / 255
        pixels = np.concatenate([weighed, pixels[:, :, -1:]], axis=2)
    down, across = _weights(pixels.shape[0], height), _weights(pixels.shape[1], width)
    pixels = np.einsum("xk,rkc->rxc", across, pixels, optimize=True)
    pixels = np.clip(pixels, 0, 255) if between else pixels
    pixels = np.clip(np.einsum("yr,rxc->yxc", down, pixels, optimize=True), 0, 255)
    if clear:
        alpha = pixels[:, :, -1:]
        colors = np.divide(
            pixels[:, :, :-1] * 255, alpha, out=np.zeros_like(pixels[:, :, :-1]), where=alpha > 0
        )
        pixels = np.concatenate([np.minimum(colors, 255), alpha], axis=2)
    return pixels


def _weights(old: int, new: int) -> Floats:
    """Keys' cubic (a = -0.5) of each old sample in each new one; as wide as the scale where it shrinks."""
    scale = old / new
    centers = (np.arange(new) + 0.5) * scale
    x = np.abs(np.arange(old) + 0.5 - centers[:, None]) / max(scale, 1.0)
    near = 1.5 * x**3 - 2.5 * x**2 + 1
    far = -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    weights = np.where(x < 1, near, np.where(x < 2, far, 0))
    normed: Floats = weights / weights.sum(axis=1, keepdims=True)
    return normed


def stored_pixels(image: StoredImage) -> tuple[Floats, str]:
    """What a reader decodes, 0 to 255, and the samples' dtype; its shape is what the record says."""
    if image.image_format == "raw":
        pixels = np.frombuffer(image.data, np.dtype(image.dtype).newbyteorder("<"))
        pixels = pixels.reshape(image.height, image.width, image.channels)
    elif image.image_format == "tensor":
        pixels = tf.io.parse_tensor(image.data, image.dtype).numpy()
    else:
        pixels = tensorflow_pixels(image.data, image.dtype)
    assert pixels.shape == (image.height, image.width, image.channels)
    assert pixels.dtype == image.dtype
    return pixels / (257 if image.dtype == "uint16" else 1), pixels.dtype.name


def weighed(pixels: Floats) -> Floats:
    """RGB times alpha, and alpha: what two pictures are compared by that show the same."""
    if pixels.shape[2] <= 2:
        pixels = _in_colors(pixels)
    if pixels.shape[2] == 3:
        pixels = np.dstack([pixels, np.full(pixels.shape[:2], 255.0)])
    return np.concatenate([pixels[:, :, :3] * pixels[:, :, 3:] / 255, pixels[:, :, 3:]], axis=2)


def decibels(one: Floats, other: Floats) -> float:
    """Peak signal-to-noise ratio."""
    error = float(((one - other) ** 2).mean())
    return float("inf") if error == 0 else 10 * float(np.log10(255**2 / error))


def coarse_difference(one: Floats, other: Floats) -> float:
    """The largest difference of the means of up to 8x8 parts: a shift of place or of colour."""
    parts = [min(8, max(1, side // 16)) for side in one.shape[:2]]
    rows, columns = (np.arange(n) * side // n for n, side in zip(parts, one.shape[:2], strict=True))

    def means(pixels: Floats) -> Floats:
        sums = np.add.reduceat(np.add.reduceat(pixels, rows, axis=0), columns, axis=1)
        counts = np.add.reduceat(np.add.reduceat(np.ones(pixels.shape[:2]), rows, 0), columns, 1)
        means: Floats = sums / counts[:, :, None]
        return means

    return float(np.abs(means(one) - means(other)).max())
