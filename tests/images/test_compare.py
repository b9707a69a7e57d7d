"""Similarity: scikit-image's, and the paper's formula computed pixel by pixel."""

from __future__ import annotations

import math

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.images import compare
from tests.images.drawn import Array, gradient
from tests.lazy import skimage_metrics


def noise(*shape: int, seed: int = 1, dtype: str = "uint8") -> Array:
    """Every value as likely as any other."""
    top = int(np.iinfo(dtype).max) + 1
    return np.random.default_rng(seed).integers(0, top, shape).astype(dtype)


def scene(height: int, width: int, seed: int = 1) -> Array:
    """Flat, smooth, edged and noisy parts, as photographs have them: (height, width)."""
    image = gradient(height, width, 3)[:, :, 2].astype(np.int32)
    image[: height // 3, : width // 3] = 250
    image[height // 2 :, width // 2 :] += noise(height - height // 2, width - width // 2, seed=seed) // 4
    image[height // 4 : height // 2, width // 2 :: 9] = 3
    return np.clip(image, 0, 255).astype(np.uint8)


def jpeg_of(image: Array, quality: int) -> Array:
    data = simplejpeg.encode_jpeg(np.ascontiguousarray(image[:, :, None]), quality, "GRAY", "Gray")
    decoded: Array = simplejpeg.decode_jpeg(data, "GRAY")[:, :, 0]
    return decoded


def reference(one: Array, other: Array, **options: int) -> float:
    """scikit-image, as its documentation says for the settings of Wang et al."""
    return float(
        skimage_metrics.structural_similarity(
            one,
            other,
            data_range=255,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            **options,
        )
    )


def paper(one: Array, other: Array) -> float:
    """Equations 13 to 17 of Wang et al. (2004), window by window."""
    offsets = np.arange(-5, 6)
    window = np.exp(-(offsets[:, None] ** 2 + offsets[None, :] ** 2) / (2 * 1.5**2))
    window /= window.sum()
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    found = []
    for top in range(one.shape[0] - 10):
        for left in range(one.shape[1] - 10):
            x = one[top : top + 11, left : left + 11].astype(np.float64)
            y = other[top : top + 11, left : left + 11].astype(np.float64)
            mx, my = (window * x).sum(), (window * y).sum()
            vx, vy = (window * (x - mx) ** 2).sum(), (window * (y - my) ** 2).sum()
            covariance = (window * (x - mx) * (y - my)).sum()
            means = (2 * mx * my + c1) / (mx**2 + my**2 + c1)
            found.append(means * (2 * covariance + c2) / (vx + vy + c2))
    return sum(found) / len(found)


@pytest.mark.parametrize("quality", [5, 30, 75, 95, 100])
@pytest.mark.parametrize("shape", [(11, 11), (64, 48), (301, 203), (40, 3000)])
def test_a_jpeg_is_as_similar_as_scikit_image_finds_it(shape: tuple[int, int], quality: int) -> None:
    image = scene(*shape)
    decoded = jpeg_of(image, quality)
    expected = reference(image, decoded)
    assert compare.ssim(image, decoded) == pytest.approx(expected, abs=1e-6)
    assert compare.ssim(decoded, image) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (scene(17, 23), jpeg_of(scene(17, 23), 20)),
        (scene(30, 12), jpeg_of(scene(30, 12), 90)),
        (noise(14, 19, seed=1), noise(14, 19, seed=2)),
    ],
)
def test_it_is_what_the_paper_says(one: Array, other: Array) -> None:
    assert compare.ssim(one, other) == pytest.approx(paper(one, other), abs=1e-6)


@given(
    height=st.integers(11, 40),
    width=st.integers(11, 40),
    seed=st.integers(0, 1000),
    levels=st.tuples(st.integers(0, 255), st.integers(0, 255)),
    spread=st.sampled_from([0, 1, 8, 60, 255]),
)
@settings(max_examples=60, deadline=None)
def test_any_two_images_are_as_similar_as_scikit_image_finds_them(
    height: int, width: int, seed: int, levels: tuple[int, int], spread: int
) -> None:
    random = np.random.default_rng(seed)
    one, other = (
        np.clip(level + random.integers(-spread, spread + 1, (height, width)), 0, 255).astype(np.uint8)
        for level in levels
    )
    assert compare.ssim(one, other) == pytest.approx(reference(one, other), abs=2e-4)


@pytest.mark.parametrize(("first", "second"), [(0, 255), (251, 69), (255, 50), (128, 127)])
def test_flat_images_differ_by_their_means_alone(first: int, second: int) -> None:
    one, other = (np.full((33, 21), value, np.uint8) for value in (first, second))
    expected = (2 * first * second + 2.55**2) / (first**2 + second**2 + 2.55**2)
    assert compare.ssim(one, other) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (3, 3), (10, 11), (200, 7), (10, 10)])
def test_small_images_are_mirrored_at_their_edges(shape: tuple[int, int]) -> None:
    one, other = scene(*shape), noise(*shape)
    assert compare.ssim(one, one) == 1.0
    # A win_size of 1 has scikit-image take every pixel, under a Gaussian that its filter mirrors.
    assert compare.ssim(one, other) == pytest.approx(reference(one, other, win_size=1), abs=2e-4)


def test_a_pixel_is_as_similar_as_its_value() -> None:
    black, white = np.zeros((1, 1), np.uint8), np.full((1, 1), 255, np.uint8)
    assert compare.ssim(white, white) == 1.0
    assert compare.ssim(black, white) == pytest.approx(2.55**2 / (255**2 + 2.55**2), abs=1e-6)


def test_equal_images_have_a_similarity_of_one_and_negatives_one_below_zero() -> None:
    image = noise(300, 400)
    assert compare.ssim(image, image.copy()) == 1.0
    assert compare.ssim(image, 255 - image) < -0.9
    changed = image.copy()
    changed[-6:, -6:] = 255 - changed[-6:, -6:]  # the corner where the last band ends
    assert compare.ssim(image, changed) < 1


def test_rows_need_not_lie_side_by_side() -> None:
    pixels = noise(60, 80, 3)
    one, other = pixels[::2, :, 0], pixels[::2, :, 1]
    assert compare.ssim(one, other) == compare.ssim(one.copy(), other.copy())


def test_luma_is_the_formula_of_libjpeg() -> None:
    pixels = noise(128, 128, 3)
    red, green, blue = (pixels[:, :, i].astype(np.int64) for i in range(3))
    expected = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    np.testing.assert_array_equal(compare.luma(pixels), expected)


def test_luma_is_what_a_jpeg_holds() -> None:
    # Blocks of one colour each: their only coefficient is exact at quality 100, and so is Y.
    pixels = noise(40, 40, 3).repeat(8, axis=0).repeat(8, axis=1)
    data = simplejpeg.encode_jpeg(pixels, 100, "RGB", "444")
    np.testing.assert_array_equal(compare.luma(pixels), simplejpeg.decode_jpeg(data, "GRAY")[:, :, 0])


def test_luma_of_grey_is_itself() -> None:
    pixels = noise(5, 9, 1)
    np.testing.assert_array_equal(compare.luma(pixels), pixels[:, :, 0])
    np.testing.assert_array_equal(compare.luma(pixels.repeat(3, axis=2)), pixels[:, :, 0])


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (37, 501, 3), (300, 200, 4), (20, 30)])
def test_psnr_is_scikit_images(shape: tuple[int, ...], dtype: str) -> None:
    one, other = noise(*shape, seed=1, dtype=dtype), noise(*shape, seed=2, dtype=dtype)
    top = int(np.iinfo(dtype).max)
    expected = skimage_metrics.peak_signal_noise_ratio(one, other, data_range=top)
    assert compare.psnr(one, other) == pytest.approx(expected, rel=1e-12)


def test_psnr_of_one_wrong_value_and_of_none() -> None:
    image = noise(50, 40, 3, dtype="uint16")
    assert compare.psnr(image, image.copy()) == math.inf
    changed = image.copy()
    changed[49, 39, 2] ^= 1
    assert compare.psnr(image, changed) == pytest.approx(10 * math.log10(65535**2 * 6000), rel=1e-12)


@pytest.mark.parametrize("other", [np.zeros((12, 13), np.uint8), np.zeros((12, 12), np.uint16)])
def test_images_of_two_kinds_are_not_compared(other: Array) -> None:
    image = np.zeros((12, 12), np.uint8)
    with pytest.raises(ValueError, match="cannot be compared"):
        compare.ssim(image, other)
    with pytest.raises(ValueError, match="cannot be compared"):
        compare.psnr(image, other)


def test_similarity_is_of_eight_bits() -> None:
    image = np.zeros((12, 12), np.uint16)
    with pytest.raises(ValueError, match="cannot be compared"):
        compare.ssim(image, image)
