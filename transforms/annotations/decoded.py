"""Images of masks, decoded to ids or colours: their pixels as stored, without profile or transparency."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.mask import decode_mask
from recordmill.transforms.images.opened import image_kind, opened
from recordmill.transforms.images.reasons import NOT_SUPPORTED, undecodable
from recordmill.transforms.records import BadInput, ImageRef

Read = Callable[[ImageRef], bytes]

_LOSSLESS = ("png", "bmp", "gif")


def read_ids(ref: ImageRef, read: Read) -> Array:
    """The values of a mask, uint8 or uint16 (height, width).

    Raises:
        BadInput: it cannot be read, or has several channels.
    """
    data = read(ref)
    try:
        if ref.pixels is None:
            return decode_mask(data)
        pixels = opened(data, ref.pixels).decode().pixels
        if pixels.shape[2] != 1:
            raise undecodable(NOT_SUPPORTED, f"pixels of {pixels.shape[2]} channels; a mask has one")
        return pixels[:, :, 0]
    except BadInput as error:
        raise _of_mask(ref, error) from error


def read_colors(ref: ImageRef, read: Read, with_gray: bool = True) -> Array:
    """The colours of a mask, 0xRRGGBB as uint32 (height, width); grey values too `with_gray`.

    Raises:
        BadInput: it cannot be read, or is not in colour.
    """
    data = read(ref)
    channels = (3, 4, 1) if with_gray else (3, 4)
    try:
        pixels = _colors(data) if ref.pixels is None else opened(data, ref.pixels).decode().pixels
        if pixels.dtype != np.uint8 or pixels.shape[2] not in channels:
            raise undecodable(NOT_SUPPORTED, f"a mask in colours has {channels[0]} channels of 8 bits")
    except BadInput as error:
        raise _of_mask(ref, error) from error
    wide = pixels.astype(np.uint32)
    red, green, blue = (wide[:, :, channel % wide.shape[2]] for channel in range(3))
    codes: Array = red << 16 | green << 8 | blue
    return codes


def _colors(data: bytes) -> Array:
    kind = image_kind(data) if data else ""
    image = opened(data)
    if kind not in _LOSSLESS:
        detail = f"a mask in {kind.upper()}, which need not keep every colour: save it as a PNG"
        raise undecodable(NOT_SUPPORTED, detail)
    image.check()
    picture = image.decode()
    if picture.frames > 1:
        raise undecodable(NOT_SUPPORTED, "a mask of several frames")
    return picture.expanded()


def _of_mask(ref: ImageRef, error: BadInput) -> BadInput:
    """The error of a mask, so that it is not taken for one of the image."""
    name = ref.uri.rpartition("/")[2]
    detail = f"{name}: {error.detail}" if error.detail else name
    return BadInput("annotations", f"mask {error.reason}", detail)
