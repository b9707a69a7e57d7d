"""The similarity of a stored image to its source, both as displayed: upright, in sRGB, on a background."""

from __future__ import annotations

import dataclasses
import math
import time

import msgspec
import numpy as np

from recordmill.transforms.images import compare
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.opened import opened
from recordmill.transforms.images.picture import OpenedImage, Picture, encode_png
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.render import render
from recordmill.transforms.images.store import store_image
from recordmill.transforms.records import StoredImage


@dataclasses.dataclass(frozen=True, slots=True)
class Displayed:
    """An image as it is displayed.

    Attributes:
        pixels: uint8, grey or RGB: upright, in sRGB, on the background.
        dtype: of the original pixels.
    """

    pixels: Array
    dtype: str


@dataclasses.dataclass(frozen=True, slots=True)
class Similarity:
    """The similarity of a stored image to its source.

    Attributes:
        ssim: of luma.
        psnr: dB over all channels; infinite if no pixel differs.
        identical: whether every pixel equals the source's.
    """

    ssim: float
    psnr: float
    identical: bool


def displayed_image(image: OpenedImage, orientation: int, policy: ImagePolicy) -> Displayed:
    """The pixels of an image that are compared, under a policy with a lossy format and flattened alpha.

    Raises:
        BadInput: it cannot be decoded.
    """
    picture = image.decode()
    work = render(msgspec.structs.replace(image, decode=lambda: picture), orientation, policy)
    return Displayed(work.picture.pixels, picture.pixels.dtype.name)


def similarity(source: Displayed, stored: Displayed) -> Similarity | None:
    """The similarity of two images; None if their sizes differ."""
    one, other = source.pixels, stored.pixels
    if one.shape[:2] != other.shape[:2]:
        return None
    if one.shape[2] != other.shape[2]:  # greys are three equal channels
        one, other = (np.broadcast_to(pixels, (*pixels.shape[:2], 3)) for pixels in (one, other))
    if np.array_equal(one, other):
        return Similarity(1.0, math.inf, source.dtype == stored.dtype)
    ssim = compare.ssim(compare.luma(source.pixels), compare.luma(stored.pixels))
    return Similarity(ssim, compare.psnr(one, other), identical=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Original:
    """An image of the source: a file, or pixels of (height, width, channels)."""

    data: bytes
    shape: tuple[int, int, int] | None = None

    def stored(self, policy: ImagePolicy) -> StoredImage:
        """The image of a record."""
        return store_image(self.data, policy, self.shape)

    def opened(self) -> OpenedImage:
        """Opens it: reads its header."""
        return opened(self.data, self.shape)


def displayed_source(image: OpenedImage, policy: ImagePolicy) -> Displayed:
    """The source as it is compared, upright if the policy applies EXIF.

    Raises:
        BadInput: it cannot be decoded.
    """
    return displayed_image(image, image.orientation if policy.exif == "apply" else 1, policy)


def displayed_stored(stored: StoredImage, policy: ImagePolicy) -> tuple[Displayed, float]:
    """A stored image as it is compared, and the seconds that its decoding takes.

    Its EXIF orientation is not applied: readers of records do not apply it.
    """
    start = time.process_time()
    image = opened_as_stored(stored)
    picture = image.decode()
    seconds = time.process_time() - start
    return displayed_image(msgspec.structs.replace(image, decode=lambda: picture), 1, policy), seconds


def opened_as_stored(stored: StoredImage) -> OpenedImage:
    """A stored image, to be decoded."""
    if stored.image_format != "raw":
        return opened(stored.data)
    return OpenedImage(
        "pixels",
        stored.data,
        None,
        1,
        lambda: None,
        lambda: Picture(_pixels(stored)),
        stored.height * stored.width,
    )


def _pixels(stored: StoredImage) -> Array:
    """Pixels as tf.io.decode_raw gives them: a copy."""
    dtype = np.dtype(stored.dtype).newbyteorder("<")
    flat = np.frombuffer(stored.data, dtype).astype(stored.dtype)
    return flat.reshape(stored.height, stored.width, stored.channels)


CROP_SIDE = 160
"""Pixels of the longest side of a crop."""

Box = tuple[int, int, int, int]


def most_changed(one: Array, other: Array, side: int) -> Box:
    """Top, left, height and width of the window in which two pictures differ most; the first of equals.

    Args:
        one: uint8 (height, width).
        other: of the same size.
        side: the longest that the window has.
    """
    height, width = min(side, one.shape[0]), min(side, one.shape[1])
    # Column sums of the rows in the window, moved down row by row: memory does not grow with the picture.
    columns = np.zeros(one.shape[1], np.int64)
    best, top, left = -1, 0, 0
    for row in range(one.shape[0]):
        columns += np.abs(one[row].astype(np.int16) - other[row])
        if row >= height:
            columns -= np.abs(one[row - height].astype(np.int16) - other[row - height])
        if row >= height - 1:
            sums = np.concatenate(([0], np.cumsum(columns)))
            windows = sums[width:] - sums[:-width]
            column = int(windows.argmax())
            if windows[column] > best:
                best, top, left = int(windows[column]), row - height + 1, column
    return top, left, height, width


def cut(policy: Displayed, box: Box) -> bytes:
    """A part of a picture, as a PNG."""
    top, left, height, width = box
    return encode_png(np.ascontiguousarray(policy.pixels[top : top + height, left : left + width]))
