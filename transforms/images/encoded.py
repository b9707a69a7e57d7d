"""An encoded image whose header has been read: what its bytes would be stored as, and how to decode them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from transforms.images.picture import Picture
from transforms.records import StoredImage


@dataclasses.dataclass(frozen=True, slots=True)
class Encoded:
    """An image before its pixels are decoded.

    Attributes:
        kind: as `sniff.image_kind` tells it.
        kept: this image stored by its own bytes; None where tf.io.decode_image does not decode them, or
            not to the right picture.
        orientation: EXIF, 1 to 8.
        check: decodes all of it, and raises BadInput where it is damaged.
        decode: the pixels; raises BadInput where they are damaged.
    """

    kind: str
    kept: StoredImage | None
    orientation: int
    check: Callable[[], object]
    decode: Callable[[], Picture]
