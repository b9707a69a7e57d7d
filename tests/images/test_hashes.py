"""Hashes of decoded images: equal for equal pixels, whatever the file; none where nothing is decoded."""

import io

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.images.hashes import hash_of, hash_of_picture
from recordmill.transforms.images.picture import Picture
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image

PIXELS = np.random.default_rng(3).integers(0, 256, (24, 40, 3), np.uint8)
_ORIENTATION = 0x112


def encoded(pixels: np.ndarray, image_format: str, orientation: int = 1) -> bytes:
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, image_format, **({"exif": exif} if orientation > 1 else {}))
    return buffer.getvalue()


DECODING = (
    ImagePolicy("png"),
    ImagePolicy("jpeg", reencode="always"),
    ImagePolicy("raw"),
    ImagePolicy(max_side=16),
    ImagePolicy("jpeg", reencode="smaller"),
)


@pytest.mark.parametrize("policy", DECODING, ids=repr)
def test_equal_pixels_have_equal_hashes(policy: ImagePolicy) -> None:
    files = [encoded(PIXELS, image_format) for image_format in ("BMP", "TIFF", "PPM")]
    found = {store_image(data, policy).decoded_hash for data in files}
    found.add(store_image(PIXELS.tobytes(), policy, PIXELS.shape).decoded_hash)
    # The camera was held on its side.
    found.add(store_image(encoded(np.rot90(PIXELS), "PNG", orientation=6), policy).decoded_hash)
    (only,) = found
    assert only == hash_of_picture(Picture(PIXELS))
    others = (PIXELS[::-1], PIXELS[:, ::-1], PIXELS[:-1], np.rot90(PIXELS), PIXELS ^ 1)
    assert only not in {store_image(encoded(other, "BMP"), policy).decoded_hash for other in others}


@pytest.mark.parametrize("policy", [*DECODING, ImagePolicy(), ImagePolicy(validate="header")], ids=repr)
@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF"])
def test_equal_bytes_are_decoded_alike(policy: ImagePolicy, image_format: str) -> None:
    data = encoded(PIXELS, image_format)
    one, other = (store_image(bytes(bytearray(data)), policy) for _ in range(2))
    assert one == other
    if one.actions == ("kept",) and policy.image_format == "keep":
        assert one.decoded_hash == b""
    assert hash_of(data) == hash_of(bytes(bytearray(data))) != hash_of(data + b"\0")


def test_shape_and_type_are_hashed() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    one = hash_of_picture(Picture(pixels))
    assert len(one) == len(hash_of(b"")) == 16
    assert hash_of_picture(Picture(np.asfortranarray(pixels))) == one
    different = (
        Picture(pixels.reshape(4, 2, 3)),
        Picture(pixels.reshape(2, 12, 1)),
        Picture(pixels.reshape(2, 12).view(np.uint16).reshape(2, 2, 3)),
        Picture(pixels[::-1]),
    )
    assert len({one, *map(hash_of_picture, different)}) == 5


def test_a_palette_is_not_hashed() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    palette, indices = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
    one = Picture(indices.astype(np.uint8).reshape(2, 4, 1), palette.tobytes())
    other = Picture(7 - one.pixels, palette[::-1].tobytes())
    assert hash_of_picture(one) == hash_of_picture(other) == hash_of_picture(Picture(pixels))
    transparent = Picture(one.pixels, one.palette, palette_alpha=b"\0")
    assert hash_of_picture(transparent) != hash_of_picture(one)
