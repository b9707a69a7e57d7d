"""Flattening, grey and RGB: every sample is the nearest integer to the exact value."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from recordmill.transforms.images.color import as_gray, as_rgb, flattened, parse_color
from tests.images.drawn import Array, encoded, gradient, tensorflow_pixels
from tests.lazy import tf

DTYPES = ("uint8", "uint16")
LUMA = (Fraction(299, 1000), Fraction(587, 1000), Fraction(114, 1000))


def noise(channels: int, dtype: str, height: int = 12, width: int = 16) -> Array:
    top = np.iinfo(dtype).max
    pixels = np.random.default_rng(channels).integers(0, top, (height, width, channels), dtype, endpoint=True)
    pixels[0, :4] = np.array([0, 1, top - 1, top], dtype)[:, None]
    return pixels


def composited(pixel: list[int], background: tuple[int, ...], top: int) -> list[int]:
    *colors, alpha = pixel
    if len(colors) == 1 and len(set(background)) > 1:
        colors *= 3
    cover = Fraction(alpha, top)
    exact = (
        value * cover + Fraction(level * top, 255) * (1 - cover)
        for value, level in zip(colors, background, strict=False)
    )
    return [int(value + Fraction(1, 2)) for value in exact]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [2, 4])
@pytest.mark.parametrize("background", [(255, 255, 255), (0, 0, 0), (127, 127, 127), (1, 128, 254)])
def test_flattened_is_the_nearest_to_the_exact_mixture(
    dtype: str, channels: int, background: tuple[int, int, int]
) -> None:
    pixels = noise(channels, dtype)
    before = pixels.copy()
    result = flattened(pixels, background)
    assert result.dtype == pixels.dtype
    top = int(np.iinfo(dtype).max)
    expected = [[composited(pixel, background, top) for pixel in row] for row in pixels.tolist()]
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(pixels, before)


def test_flattened_for_every_value_and_alpha_of_eight_bits() -> None:
    pixels = np.stack(np.meshgrid(np.arange(256), np.arange(256)), axis=2).astype(np.uint8)
    value, alpha = pixels.astype(np.float64).transpose(2, 0, 1)
    for level in (0, 77, 255):
        exact = (value * alpha + level * (255 - alpha)) / 255
        np.testing.assert_array_equal(flattened(pixels, (level,) * 3)[:, :, 0], np.rint(exact))


@pytest.mark.parametrize("dtype", DTYPES)
def test_flattened_at_either_end_is_the_picture_or_the_background(dtype: str) -> None:
    top = np.iinfo(dtype).max
    pixels = noise(4, dtype)
    pixels[:, :, 3] = top
    np.testing.assert_array_equal(flattened(pixels, (9, 8, 7)), pixels[:, :, :3])
    pixels[:, :, 3] = 0
    scale = int(top) // 255
    assert (flattened(pixels, (9, 8, 7)) == np.array([9, 8, 7]) * scale).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_gray_is_the_nearest_to_the_exact_luma(dtype: str) -> None:
    pixels = noise(4, dtype)
    result = as_gray(pixels)
    assert result.dtype == pixels.dtype
    expected = [
        [
            [int(sum(w * c for w, c in zip(LUMA, pixel[:3], strict=True)) + Fraction(1, 2)), pixel[3]]
            for pixel in row
        ]
        for row in pixels.tolist()
    ]
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(as_gray(pixels[:, :, :3]), result[:, :, :1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_gray_of_equal_samples_is_that_sample(dtype: str) -> None:
    gray = noise(1, dtype)
    np.testing.assert_array_equal(as_gray(as_rgb(gray)), gray)
    with_alpha = noise(2, dtype)
    np.testing.assert_array_equal(as_gray(as_rgb(with_alpha)), with_alpha)


def test_gray_is_the_luma_that_a_jpeg_stores() -> None:
    flat = np.zeros((8, 8, 3), np.uint8)
    for color in ((255, 0, 0), (0, 255, 0), (0, 0, 255), (12, 200, 90), (250, 251, 3)):
        flat[:] = color
        data = encoded(flat, "JPEG", quality=100)
        luma = tf.io.decode_jpeg(data, channels=1, dct_method="INTEGER_ACCURATE").numpy()
        np.testing.assert_array_equal(as_gray(flat), luma)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rgb_repeats_gray_and_keeps_alpha(dtype: str) -> None:
    pixels = noise(2, dtype)
    gray, alpha = pixels[:, :, :1], pixels[:, :, 1:]
    np.testing.assert_array_equal(as_rgb(gray), np.concatenate([gray, gray, gray], axis=2))
    np.testing.assert_array_equal(as_rgb(pixels), np.concatenate([gray, gray, gray, alpha], axis=2))
    assert as_rgb(pixels).dtype == pixels.dtype


@pytest.mark.parametrize("channels", [3, 4])
def test_what_is_rgb_or_gray_already_stays(channels: int) -> None:
    colors, gray = noise(channels, "uint8"), noise(channels - 2, "uint8")
    np.testing.assert_array_equal(as_rgb(colors), colors)
    np.testing.assert_array_equal(as_gray(gray), gray)


def test_a_flattened_png_is_one_that_is_opaque() -> None:
    pixels = gradient(channels=4)
    shown = tensorflow_pixels(encoded(flattened(pixels, (255, 255, 255)), "PNG"))
    assert shown.shape == (24, 32, 3)
    assert (shown >= pixels[:, :, :3]).all()


@pytest.mark.parametrize(
    ("text", "color"),
    [
        ("white", (255, 255, 255)),
        (" Black ", (0, 0, 0)),
        ("SlateGray", (112, 128, 144)),
        ("rebeccapurple", (102, 51, 153)),
        ("#fff", (255, 255, 255)),
        ("#1aF", (0x11, 0xAA, 0xFF)),
        ("#10a0FF", (16, 160, 255)),
    ],
)
def test_a_color_as_people_write_it(text: str, color: tuple[int, int, int]) -> None:
    assert parse_color(text) == color


@pytest.mark.parametrize(
    "text",
    ["", "whitish", "fff", "#ff", "#ffff", "#ffffff80", "#ggg", "rgb(1,2,3)", "hsl(0,0%,0%)", "transparent"],
)
def test_any_other_color_is_refused_with_what_it_may_be(text: str) -> None:
    with pytest.raises(ValueError, match="#rrggbb") as caught:
        parse_color(text)
    assert repr(text) in str(caught.value)
