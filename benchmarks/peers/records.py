"""The records of the programs without TensorFlow, by the functions that recordmill itself uses.

Encoding makes the calls of the codecs that recordmill makes, with the same conversion of colours.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import simplejpeg
from PIL import Image

from benchmarks.peers.items import KEPT, QUALITY, Box, Item, Row, short_side
from recordmill.transforms.examples.features import Feature, build_example
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.icc import to_srgb
from recordmill.transforms.images.jpeg import cmyk_to_rgb
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image

_HEADER = ImagePolicy(validate="header")
_JPEG = b"\xff\xd8"
# The scales at which recordmill decodes a JPEG that is scaled down.
_EIGHTHS = (1, 2, 3, 6)
# The options with which recordmill checks the data of a JPEG, at the smallest scale.
_SMALLEST = {"fastdct": True, "fastupsample": True, "min_height": 1, "min_width": 1, "min_factor": 8}


def check(data: bytes) -> None:
    """Decodes an image to find damage."""
    if not data.startswith(_JPEG):
        Image.open(io.BytesIO(data)).load()
        return
    components = simplejpeg.decode_jpeg_header(data)[2]
    simplejpeg.decode_jpeg(data, "CMYK" if components in ("CMYK", "YCCK") else "GRAY", **_SMALLEST)


def recode(data: bytes, side: int) -> tuple[bytes, int, int]:
    """Decodes an image, converts it to sRGB, scales it down to a shorter side, and encodes it as JPEG.

    Args:
        data: a JPEG or PNG.
        side: the length of the shorter side in pixels; 0 to leave the size unchanged.

    Returns:
        The JPEG, its height and its width.
    """
    pixels, size = _decoded(data, side)
    if side and min(size) > side:
        height, width = scaled(size, side)
        image = Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])
        pixels = np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))
        pixels = np.ascontiguousarray(pixels.reshape(height, width, -1))
    gray = pixels.shape[2] == 1
    space, sampling = ("GRAY", "Gray") if gray else ("RGB", "420")
    return simplejpeg.encode_jpeg(pixels, QUALITY, space, sampling), pixels.shape[0], pixels.shape[1]


def scaled(size: tuple[int, ...], side: int) -> tuple[int, int]:
    """Height and width after scaling so that the shorter is `side`, rounded half up."""
    short = min(size)
    height, width = ((2 * length * side + short) // (2 * short) for length in size)
    return height, width


def _decoded(data: bytes, side: int) -> tuple[Array, tuple[int, int]]:
    """uint8 pixels in sRGB, (height, width, 1 or 3), and height and width of the file.

    A JPEG is decoded at no less than 2.25 times `side`.
    """
    with Image.open(io.BytesIO(data)) as image:  # reads the header only
        profile, mode, size = image.info.get("icc_profile"), image.mode, image.size
        if mode == "CMYK" or not data.startswith(_JPEG):
            pixels = np.asarray(image)
        else:
            options = {}
            eighths = next((n for n in _EIGHTHS if side and min(size) * n >= 18 * side), 8)
            if eighths < 8:
                options = {"min_height": -(-size[1] * eighths // 8), "min_width": -(-size[0] * eighths // 8)}
            space = "GRAY" if mode == "L" else "RGB"
            pixels = simplejpeg.decode_jpeg(data, space, **options)
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    converted = to_srgb(pixels, profile, cmyk=mode == "CMYK") if profile else None
    if converted is None and mode == "CMYK":
        converted = cmyk_to_rgb(pixels, inverted=False)
    return np.ascontiguousarray(pixels if converted is None else converted), size[::-1]


def image_example(item: Item, work: str) -> bytes:
    """The Example of an image; of kept images only the header is read."""
    data = Path(item.path).read_bytes()
    if work in KEPT:
        image = store_image(data, _HEADER)
        image_format, height, width = image.image_format, image.height, image.width
    else:
        (data, height, width), image_format = recode(data, short_side(work)), "jpeg"
    found = {
        "image/encoded": Feature("bytes_list", (data,)),
        "image/format": Feature("bytes_list", (image_format.encode(),)),
        "image/height": Feature("int64_list", (height,)),
        "image/width": Feature("int64_list", (width,)),
        "image/filename": Feature("bytes_list", (item.key.encode(),)),
        "image/key/sha256": Feature("bytes_list", (hashlib.sha256(data).hexdigest().encode(),)),
    }
    if item.boxes:
        return build_example(found | _box_features(item.boxes))
    found["image/class/label"] = Feature("int64_list", (item.label,))
    found["image/class/text"] = Feature("bytes_list", (item.class_name.encode(),))
    return build_example(found)


def _box_features(boxes: tuple[Box, ...]) -> dict[str, Feature]:
    edges = {
        f"image/object/bbox/{edge}": Feature("float_list", tuple(getattr(box, edge) for box in boxes))
        for edge in ("xmin", "ymin", "xmax", "ymax")
    }
    return edges | {
        "image/object/class/label": Feature("int64_list", tuple(box.label for box in boxes)),
        "image/object/class/text": Feature("bytes_list", tuple(box.class_name.encode() for box in boxes)),
    }


def row_example(row: Row) -> bytes:
    """The Example of a row."""
    return build_example(
        {
            "customer": Feature("int64_list", (row.customer,)),
            "score": Feature("float_list", (row.score,)),
            "city": Feature("bytes_list", (row.city.encode(),)),
            "note": Feature("bytes_list", (row.note.encode(),)),
        }
    )
