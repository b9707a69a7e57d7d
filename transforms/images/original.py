"""An image of the source, and what is stored of it, as pixels that can be compared."""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from recordmill.transforms.images.encoded import Encoded
from recordmill.transforms.images.likeness import Seen, seen_image
from recordmill.transforms.images.opened import opened, opened_pixels
from recordmill.transforms.images.picture import Array, Picture
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image, store_pixels
from recordmill.transforms.records import StoredImage


@dataclasses.dataclass(frozen=True, slots=True)
class Original:
    """An image of the source: a file, or pixels of (height, width, channels)."""

    data: bytes
    shape: tuple[int, int, int] | None = None

    def stored(self, policy: ImagePolicy) -> StoredImage:
        """What a record stores of it."""
        if self.shape is None:
            return store_image(self.data, policy)
        return store_pixels(self.data, self.shape, policy)

    def opened(self) -> Encoded:
        """Its header."""
        return opened(self.data) if self.shape is None else opened_pixels(self.data, self.shape)


def seen_of(original: Original, seen: ImagePolicy) -> Seen:
    """The source as it is compared.

    Raises:
        BadInput: it cannot be decoded.
    """
    image = original.opened()
    return seen_image(image, image.orientation if seen.exif == "apply" else 1, seen)


def seen_as_stored(stored: StoredImage, seen: ImagePolicy) -> tuple[Seen, float]:
    """A stored image as it is compared, and the seconds that its decoding takes.

    Whatever it is turned by is done: readers of records do not turn.
    """
    start = time.process_time()
    image = opened_as_stored(stored)
    picture = image.decode()
    seconds = time.process_time() - start
    return seen_image(dataclasses.replace(image, decode=lambda: picture), 1, seen), seconds


def opened_as_stored(stored: StoredImage) -> Encoded:
    """A stored image, to be decoded."""
    if stored.image_format != "raw":
        return opened(stored.data)
    return Encoded(
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
