"""JPEG: what the header walk sees, what damage is never missed, and turning at little loss."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.images import jpeg
from recordmill.transforms.images.jpeg_header import read_header
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image
from recordmill.transforms.records import BadInput
from tests.conftest import Figure
from tests.images.drawn import Array, encoded, gradient, psnr, rare_jpeg, tensorflow_pixels, with_orientation
from tests.lazy import tf

KEEP, HEADER = ImagePolicy(), ImagePolicy(validate="header")


def scene(height: int = 96, width: int = 128) -> Array:
    """Soft shapes: what a photograph is to JPEG."""
    rows, columns = np.mgrid[:height, :width]
    planes = [128 + 90 * np.sin(rows / 9 + k) * np.cos(columns / (11 + 3 * k)) for k in range(3)]
    return np.stack(planes, axis=2).astype(np.uint8)


def reason(data: bytes, policy: ImagePolicy = KEEP) -> str:
    with pytest.raises(BadInput) as caught:
        store_image(data, policy)
    assert caught.value.stage == "decode"
    return caught.value.reason


@pytest.mark.parametrize("orientation", range(1, 9))
def test_header(orientation: int) -> None:
    data = encoded(scene(), "JPEG", subsampling="4:2:2", exif=with_orientation(orientation))
    header = read_header(data)
    assert (header.height, header.width, header.process) == (96, 128, 0xC0)
    assert (header.orientation, header.colorspace, header.storable) == (orientation, "RGB", True)
    assert [c[1:3] for c in header.components] == [(2, 1), (1, 1), (1, 1)]


@pytest.mark.parametrize("policy", [KEEP, HEADER], ids=lambda policy: policy.validate)
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_rows": 1}], ids=str)
def test_every_truncation_is_seen(options: dict[str, int], policy: ImagePolicy) -> None:
    data = encoded(scene(32, 32), "JPEG", **options)
    for length in range(3, len(data) - 1):
        assert reason(data[:length], policy) == "truncated", length


def test_truncation_with_an_end_marker_is_seen_by_decoding() -> None:
    data = encoded(scene(), "JPEG")
    cut = data[: len(data) // 2] + b"\xff\xd9"
    assert store_image(cut, HEADER).actions == ("kept",)
    assert reason(cut) in ("truncated", "corrupt")


def test_a_flipped_bit_that_tensorflow_rejects_is_never_kept(figure: Figure) -> None:
    data = encoded(scene(32, 48), "JPEG", restart_marker_rows=1)
    figure("bits", len(data) - 2)
    refused = 0
    for position in range(2, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        try:
            image = store_image(bytes(damaged), KEEP)
        except BadInput:
            refused += 1
        else:
            assert tensorflow_pixels(image.data).shape == (image.height, image.width, image.channels)
    assert refused > len(data) // 20


def test_trailing_bytes_are_no_damage() -> None:
    data = encoded(scene(), "JPEG") + b"\0" * 100_000
    assert store_image(data, KEEP).data == data
    assert store_image(data, HEADER).data == data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xff\xd8\xff\xd9", "truncated"),
        (b"\xff\xd8\xff\xd9" + bytes(10), "corrupt"),
        (b"\xff\xd8\xff\xe0\x00\x01" + bytes(10), "corrupt"),
        (b"\xff\xd8\xff\xe0\xff\xff" + bytes(10), "truncated"),
        (rare_jpeg("twelve_bits"), "not supported"),
    ],
)
def test_odd_headers(data: bytes, expected: str) -> None:
    assert reason(data) == reason(data, HEADER) == expected


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (slice(5, 9), b"\xff\xff\xff\xff", "too many pixels"),
        (slice(5, 7), b"\0\0", "not supported"),  # the height comes behind the scan
        (slice(7, 9), b"\0\0", "corrupt"),
        (slice(1, 2), b"\xc5", "not supported"),  # hierarchical
        (slice(11, 12), b"\x50", "corrupt"),  # sampling 5x0
    ],
)
def test_odd_frames(field: slice, value: bytes, expected: str) -> None:
    data = bytearray(encoded(scene(), "JPEG"))
    start = data.index(b"\xff\xc0")
    data[start + field.start : start + field.stop] = value
    assert reason(bytes(data)) == reason(bytes(data), HEADER) == expected


@pytest.mark.parametrize("name", ["ycck", "adobe", "plain"])
def test_cmyk_has_tensorflows_colours(name: str) -> None:
    """With the Adobe marker 255 is no ink, without it full ink; TensorFlow knows both."""
    data = (
        rare_jpeg("ycck")
        if name == "ycck"
        else encoded(Image.fromarray(scene()).convert("CMYK"), "JPEG", quality=95)
    )
    if name == "plain":
        start = data.index(b"\xff\xee")
        data = data[:start] + data[start + 2 + int.from_bytes(data[start + 2 : start + 4], "big") :]
    image = store_image(data, KEEP)
    assert (image.data, image.colorspace, image.channels) == (data, "CMYK", 3)
    expected = tensorflow_pixels(data)
    raw = store_image(data, ImagePolicy("raw"))
    assert raw.data == expected.tobytes()
    if name == "adobe":
        assert psnr(expected, scene()) > 30


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"keep_rgb": True}], ids=str)
def test_turned_with_its_own_tables(orientation: int, options: dict[str, bool]) -> None:
    data = encoded(scene(), "JPEG", quality=80, exif=with_orientation(orientation), optimize=True, **options)
    image = store_image(data, KEEP)
    with Image.open(io.BytesIO(data)) as source, Image.open(io.BytesIO(image.data)) as turned:
        expected = np.asarray(source.transpose(transposition(orientation)))
        assert not turned.getexif()
        assert turned.info.get("progressive") == source.info.get("progressive")
        before, after = tables(source), tables(turned)
        if orientation >= 5:
            before = [np.reshape(table, (8, 8)).T.ravel().tolist() for table in before]
        assert after == before
    assert sampling(image.data) == sampling(data)
    got = tensorflow_pixels(image.data)
    assert got.shape == expected.shape == (image.height, image.width, 3)
    assert psnr(got, expected) > 38
    assert len(image.data) < 1.05 * len(data)


def tables(image: Any) -> list[list[int]]:
    """Quantisation tables, as Pillow reads them."""
    return [list(table) for table in image.quantization.values()]


def sampling(data: bytes) -> list[tuple[int, ...]]:
    return [component[1:3] for component in read_header(data).components]


def transposition(orientation: int) -> Image.Transpose:
    names = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }
    return names[orientation]


@pytest.mark.parametrize(
    ("subsampling", "orientation", "expected"),
    [("4:4:4", 6, (1, 1)), ("4:2:0", 6, (2, 2)), ("4:2:2", 3, (2, 1)), ("4:2:2", 6, (1, 1))],
)
def test_subsampling_of_a_turned_jpeg(subsampling: str, orientation: int, expected: tuple[int, int]) -> None:
    data = encoded(scene(), "JPEG", subsampling=subsampling, exif=with_orientation(orientation))
    header = read_header(store_image(data, KEEP).data)
    assert header.components[0][1:3] == expected


def test_turned_grey_cmyk_and_noise() -> None:
    exif = with_orientation(8)
    for pixels in (scene()[:, :, 0], np.asarray(Image.fromarray(scene()).convert("CMYK"))):
        mode = "CMYK" if pixels.ndim == 3 else "L"
        data = encoded(Image.fromarray(pixels, mode), "JPEG", quality=90, exif=exif)
        image = store_image(data, KEEP)
        assert image.colorspace == ("CMYK" if mode == "CMYK" else "Grayscale")
        assert psnr(tensorflow_pixels(image.data), np.rot90(tensorflow_pixels(data))) > 38
    noise = np.random.default_rng(0).integers(0, 256, (200, 300, 3), dtype=np.uint8)
    data = encoded(noise, "JPEG", quality=100, subsampling=0, exif=exif)
    assert store_image(data, KEEP).height == 300


def test_a_damaged_colour_profile_of_a_turned_jpeg_is_left_out() -> None:
    data = encoded(gradient(24, 32, 3), "JPEG", exif=with_orientation(6))
    damaged = data[:2] + b"\xff\xe2\0\x0eICC_PROFILE\0" + data[2:]  # neither a number nor a part
    stored = store_image(damaged, ImagePolicy())
    assert (stored.height, stored.width, stored.actions) == (32, 24, ("reencoded", "rotated"))
    with Image.open(io.BytesIO(stored.data)) as image:
        assert "icc_profile" not in image.info
    assert tensorflow_pixels(stored.data).shape == (32, 24, 3)


def test_the_colour_profile_of_a_turned_jpeg_stays() -> None:
    data = encoded(scene(), "JPEG", icc_profile=b"a profile" * 20, exif=with_orientation(3))
    with Image.open(io.BytesIO(store_image(data, KEEP).data)) as image:
        assert image.info["icc_profile"] == b"a profile" * 20


def test_odd_subsampling_that_simplejpeg_does_not_know() -> None:
    """One chroma component of full width and one of half: legal, and decoded by TensorFlow."""
    data = bytearray(encoded(gradient(32, 32), "JPEG", subsampling="4:4:4"))
    data[data.index(b"\xff\xc0") + 17] = 0x21
    assert store_image(bytes(data), KEEP).data == data
    raw = store_image(bytes(data), ImagePolicy("raw"))
    assert raw.data == tensorflow_pixels(bytes(data)).tobytes()


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_raw_pixels_are_tensorflows_accurate_decode(subsampling: str) -> None:
    data = encoded(scene(95, 127), "JPEG", subsampling=subsampling)
    expected = tf.io.decode_jpeg(data, dct_method="INTEGER_ACCURATE").numpy()
    assert store_image(data, ImagePolicy("raw")).data == expected.tobytes()


def test_jpeg_mode_is_simplejpegs_own_output() -> None:
    import simplejpeg

    data = encoded(scene(), "JPEG", quality=98)
    expected = simplejpeg.encode_jpeg(simplejpeg.decode_jpeg(data), 85, "RGB", "420")
    image = store_image(data, ImagePolicy("jpeg", 85))
    assert (image.data, image.actions) == (expected, ("reencoded",))


@pytest.mark.parametrize("inverted", [True, False])
def test_each_ink_is_darkened_by_black(inverted: bool) -> None:
    color, black = np.mgrid[:256, :256].astype(np.uint8)
    rgb = jpeg.cmyk_to_rgb(np.stack((color, 255 - color, black, black), -1), inverted)
    light, least = (color, black) if inverted else (255 - color, 255 - black)
    expected = [value.astype(int) * least // 255 for value in (light, 255 - light, least)]
    assert rgb.dtype == np.uint8
    assert np.array_equal(rgb, np.stack(expected, -1))
