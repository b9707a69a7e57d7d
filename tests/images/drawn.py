"""Images drawn for the tests, and the decoder that judges what comes out: TensorFlow's."""

from __future__ import annotations

import io
import os
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tests.lazy import tf

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

Array = npt.NDArray[Any]

# The gradient in JPEG processes that Pillow does not write, made with libjpeg-turbo 3.0: name and hex a line.
_DATA = os.path.join(os.path.dirname(__file__), "rare_jpegs.txt")


def gradient(height: int = 24, width: int = 32, channels: int = 3, dtype: str = "uint8") -> Array:
    """Smooth, different in every channel and direction, and with a fourth channel that is nowhere opaque."""
    rows, columns = np.mgrid[:height, :width]
    top = np.iinfo(dtype).max
    planes = [
        rows * (top // height),
        columns * (top // width),
        (rows + columns) * (top // (height + width)),
        columns,
    ]
    return np.stack(planes[:channels], axis=2).astype(dtype)


def encoded(pixels: Array | Image.Image, kind: str, **options: Any) -> bytes:
    """`pixels` as a file, written by Pillow."""
    out = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(_without_lone_axis(pixels))
    image.save(out, kind, **options)
    return out.getvalue()


def _without_lone_axis(pixels: Array) -> Array:
    flat: Array = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    return flat


def with_orientation(orientation: int) -> Image.Exif:
    """EXIF that holds nothing but an orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def chunk(kind: bytes, payload: bytes) -> bytes:
    """A PNG chunk."""
    return struct.pack(">I", len(payload)) + kind + payload + struct.pack(">I", zlib.crc32(kind + payload))


def png_file(header: tuple[int, ...], rows: bytes, *before: bytes) -> bytes:
    """A PNG of its IHDR (width, height, depth, colour type, 0, 0, interlace), filtered rows, other chunks."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", *header))
    body = chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(before) + body


def deep_png(pixels: Array, *before: bytes) -> bytes:
    """A 16-bit PNG whose rows have no filter: written by other means than the tested encoder's."""
    height, width, channels = pixels.shape
    color = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    return png_file((width, height, 16, color, 0, 0, 0), rows, *before)


def rare_jpeg(name: str) -> bytes:
    """`arithmetic`, `lossless`, `lossless_gray`, `twelve_bits`, `ycck` or `sampling_441`."""
    with open(_DATA, encoding="ascii") as lines:
        found = dict(line.split() for line in lines)
    return bytes.fromhex(found[name])


def tensorflow_pixels(data: bytes, dtype: str = "uint8") -> Array:
    """What TensorFlow decodes, with the accurate DCT for JPEG."""
    if data.startswith(b"\xff\xd8"):
        pixels: Array = tf.io.decode_jpeg(data, dct_method="INTEGER_ACCURATE").numpy()
    else:
        pixels = tf.io.decode_image(data, dtype=dtype, expand_animations=False).numpy()
    return pixels


def psnr(one: Array, other: Array) -> float:
    """Peak signal-to-noise ratio of 8-bit pixels, in dB."""
    error = float(((one.astype(np.float64) - other) ** 2).mean())
    return float("inf") if error == 0 else 10 * float(np.log10(255**2 / error))
