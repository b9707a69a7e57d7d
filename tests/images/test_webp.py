"""WebP: kept where the decoder that TensorFlow calls sees what the animation decoder sees."""

from __future__ import annotations

import numpy as np
from PIL import Image

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image
from tests.images.drawn import encoded, gradient, tensorflow_pixels


def test_alpha_that_the_header_denies_is_made_anew() -> None:
    pixels = gradient(channels=4)
    data = encoded(Image.fromarray(pixels, "RGBA"), "WEBP")
    assert (data[12:16], data[20] & 16) == (b"VP8X", 16)
    denied = data[:20] + bytes((data[20] & ~16,)) + data[21:]
    kept = store_image(data, ImagePolicy())
    assert (kept.actions, kept.channels) == (("kept",), 4)
    image = store_image(denied, ImagePolicy())
    assert (image.image_format, image.actions) == ("png", ("transcoded",))
    found = tensorflow_pixels(image.data)
    assert found.shape == (image.height, image.width, image.channels)
    np.testing.assert_array_equal(found[:, :, :3], tensorflow_pixels(data)[:, :, :3])
