"""Resizing against bicubic weights in numpy; scaled JPEG decodes against full ones."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.images import jpeg
from recordmill.transforms.images.exif import turned
from recordmill.transforms.images.geometry import plan_geometry
from recordmill.transforms.images.jpeg_header import JpegHeader, read_header
from recordmill.transforms.images.policy import FITS, ImagePolicy
from recordmill.transforms.images.resize import resized
from recordmill.transforms.records import BadInput, Geometry
from tests.images.drawn import Array, encoded, psnr, rare_jpeg
from tests.lazy import skimage_metrics

CORPUS = os.environ.get("RECORDMILL_CORPUS", "")
RED, WHITE = (200, 30, 20), (255, 255, 255)


def weights(side: int, scaled: int) -> Array:
    """(scaled, side): Keys' cubic with a = -0.5, stretched by the scale where that shrinks."""
    scale = side / scaled
    stretch = max(1.0, scale)
    centres = (np.arange(scaled) + 0.5) * scale
    x = abs(np.arange(side) + 0.5 - centres[:, None]) / stretch
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    values = np.where(x < 1, near, np.where(x < 2, far, 0))
    return values / values.sum(axis=1, keepdims=True)


def expected(pixels: Array, geometry: Geometry) -> Array:
    """The scaled picture, all of it, in float64."""
    across = np.einsum(
        "xw,hwc->hxc", weights(pixels.shape[1], geometry.scaled_width), pixels.astype(np.float64)
    )
    return np.einsum("yh,hxc->yxc", weights(pixels.shape[0], geometry.scaled_height), across)


def noise(height: int, width: int, channels: int, dtype: str) -> Array:
    top = np.iinfo(dtype).max
    return np.random.default_rng(3).integers(top // 4, 3 * top // 4, (height, width, channels)).astype(dtype)


def scene(height: int, width: int) -> Array:
    """Shapes, edges and fine waves in all directions."""
    rows, columns = np.mgrid[:height, :width].astype(np.float64)
    waves = [
        40 * np.sin(np.hypot(rows - height * k / 3, columns - 90) ** 1.5 / (90 + 30 * k)) for k in range(3)
    ]
    discs = 60.0 * (np.hypot(rows % 61 - 30, columns % 83 - 41) < 25)
    return np.stack([100 + discs + wave for wave in waves], axis=2).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("size", [(16, 16), (9, 31), (70, 64)], ids=str)
def test_pixels_are_the_filters(size: tuple[int, int], fit: str, channels: int, dtype: str) -> None:
    pixels = noise(41, 54, channels, dtype)
    g = plan_geometry(41, 54, 1, ImagePolicy(size=size, fit=fit))
    result = resized(pixels, g, WHITE)
    assert (result.shape, result.dtype) == ((*size, channels), pixels.dtype)
    frame = np.full((*size, channels), np.iinfo(dtype).max, np.float64)
    whole = expected(pixels, g)
    top, left = max(0, -g.top), max(0, -g.left)
    part = whole[top : top + size[0], left : left + size[1]]
    top, left = max(0, g.top), max(0, g.left)
    frame[top : top + part.shape[0], left : left + part.shape[1]] = part
    # For 8 bits Pillow rounds after the first pass too, and the second one's weights add up to 1.25 at most.
    most = 0.5 + 0.5 * 1.25 if dtype == "uint8" else 0.6  # a crop begins at a float32
    assert abs(result - frame.clip(0, np.iinfo(dtype).max)).max() <= most


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("fit", FITS)
def test_one_colour_stays_that_colour(fit: str, channels: int, dtype: str) -> None:
    top = np.iinfo(dtype).max
    color = np.array([[top // 3, top], [top // 3, top // 5, 7, top]][channels > 2][:channels], dtype)
    pixels = np.tile(color, (37, 53, 1))
    g = plan_geometry(37, 53, 1, ImagePolicy(size=(20, 10), fit=fit))
    np.testing.assert_array_equal(
        resized(pixels, g, (top // 3 % 256,) * 3 if channels < 3 else (0, 0, 0))[9:11], pixels[:2, :10]
    )


def test_sixteen_bits_keep_their_depth() -> None:
    ramp = np.tile(np.arange(0, 64000, 100, dtype=np.uint16), (8, 1))[:, :, None]
    g = plan_geometry(8, 640, 1, ImagePolicy(size=(8, 160)))
    middle = resized(ramp, g, WHITE)[0, 4:-4, 0].astype(np.int64)
    # Each pixel is the mean of the four that it covers, which is exact for a ramp.
    np.testing.assert_array_equal(middle, np.arange(160)[4:-4] * 400 + 150)


def test_nothing_aliases() -> None:
    rows, columns = np.mgrid[:120, :120]
    checks = ((rows + columns) % 2 * 255).astype(np.uint8)[:, :, None]
    result = resized(checks, plan_geometry(120, 120, 1, ImagePolicy(max_side=30)), WHITE)
    assert abs(result[2:-2, 2:-2].astype(int) - 127).max() <= 3


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("side", [13, 90])
def test_hidden_colours_do_not_bleed(side: int, dtype: str) -> None:
    top = np.iinfo(dtype).max
    pixels = np.zeros((40, 40, 4), dtype)
    pixels[:, :17] = (top, 0, 0, 0)  # red that nobody sees
    pixels[:, 17:] = (0, 0, top, top)
    result = resized(pixels, plan_geometry(40, 40, 1, ImagePolicy(size=(side, side))), WHITE)
    seen = result[result[:, :, 3] > top // 50]
    assert len(seen) > side * side // 2 and (result[:, :, 3] < top // 50).any()
    assert seen[:, 0].max() == 0
    assert seen[:, 2].min() >= top * 0.99
    assert np.median(result[:, round(17 * side / 40), 3]) > 0


def test_padding() -> None:
    g = plan_geometry(4, 8, 1, ImagePolicy(size=(8, 8), fit="pad"))
    gray = np.full((4, 8, 1), 90, np.uint8)
    shades = resized(gray, g, (12, 12, 12))
    assert shades.shape == (8, 8, 1)
    np.testing.assert_array_equal(shades[:, 0, 0], [12, 12, 90, 90, 90, 90, 12, 12])
    colored = resized(gray, g, RED)
    assert colored.shape == (8, 8, 3)
    np.testing.assert_array_equal(colored[[0, 7], 5], [RED, RED])
    np.testing.assert_array_equal(colored[2, 5], [90, 90, 90])
    clear = resized(np.zeros((4, 8, 4), np.uint8), g, RED)
    np.testing.assert_array_equal(clear[[0, 7], 5], [(*RED, 255)] * 2)
    np.testing.assert_array_equal(clear[2:6], 0)
    both = resized(np.full((4, 8, 2), 90, np.uint16), g, RED)
    np.testing.assert_array_equal(both[1, 1], [257 * value for value in (*RED, 255)])
    np.testing.assert_array_equal(both[3, 3], [90, 90, 90, 90])
    assert resized(np.full((4, 8, 2), 90, np.uint8), g, WHITE).shape == (8, 8, 2)


def test_a_grey_picture_that_needs_no_padding_stays_grey() -> None:
    g = plan_geometry(4, 8, 1, ImagePolicy(size=(2, 4), fit="pad"))
    assert resized(np.full((4, 8, 1), 90, np.uint8), g, RED).shape == (2, 4, 1)


def test_cropping_alone_moves_no_value() -> None:
    pixels = noise(10, 21, 3, "uint8")
    g = plan_geometry(10, 21, 1, ImagePolicy(size=(10, 10), fit="crop"))
    result = resized(pixels, g, WHITE)
    np.testing.assert_array_equal(result, pixels[:, 5:15])
    assert result.flags.c_contiguous


def test_what_is_cropped_away_is_not_computed() -> None:
    # All of it would be 500 by 25,000,000 pixels.
    g = plan_geometry(1, 50_000, 1, ImagePolicy(size=(500, 500), fit="crop"))
    assert g.scaled_width == 25_000_000
    assert resized(np.full((1, 50_000, 3), 77, np.uint8), g, WHITE).max() == 77


def test_pixels_of_another_picture_are_a_mistake() -> None:
    g = plan_geometry(40, 30, 1, ImagePolicy(max_side=10))
    with pytest.raises(ValueError, match="40x31 are no decode of 40x30"):
        resized(np.zeros((40, 31, 3), np.uint8), g, WHITE)


def opened(data: bytes) -> tuple[bytes, JpegHeader]:
    return data, read_header(data)


@pytest.mark.parametrize(
    ("size", "shape"),
    [
        ((400, 600), (401, 603)),
        ((134, 201), (401, 603)),  # 3 times smaller, but for a pixel
        ((133, 201), (301, 453)),  # 6/8
        ((60, 100), (151, 227)),  # 3/8
        ((60, 101), (301, 453)),  # the width decides
        ((44, 66), (101, 151)),  # 2/8
        ((20, 30), (51, 76)),  # 1/8
        ((1, 1), (51, 76)),
    ],
)
def test_the_scale_of_a_decode(size: tuple[int, int], shape: tuple[int, int]) -> None:
    data, header = opened(encoded(scene(401, 603), "JPEG", quality=90))
    assert jpeg.decode_scaled(data, header, *size).shape == (*shape, 3)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("short_side", [100, 50, 33, 16])
def test_a_scaled_decode_is_as_good_as_a_full_one(short_side: int, orientation: int) -> None:
    data, header = opened(encoded(scene(301, 419), "JPEG", quality=92))
    g = plan_geometry(301, 419, orientation, ImagePolicy(short_side=short_side))
    size = (g.scaled_height, g.scaled_width) if orientation < 5 else (g.scaled_width, g.scaled_height)
    small = jpeg.decode_scaled(data, header, *size)
    assert small.shape[0] < 301
    one = resized(turned(small, orientation), g, WHITE)
    other = resized(turned(jpeg.decode(data, header), orientation), g, WHITE)
    assert one.shape == other.shape
    assert skimage_metrics.structural_similarity(one, other, channel_axis=2) > 0.99
    assert psnr(one, other) > 38


def test_a_crop_of_a_scaled_decode_lies_where_it_should() -> None:
    data, header = opened(encoded(scene(301, 419), "JPEG", quality=92))
    for orientation in range(1, 9):
        g = plan_geometry(301, 419, orientation, ImagePolicy(size=(70, 50), fit="crop"))
        size = (g.scaled_height, g.scaled_width) if orientation < 5 else (g.scaled_width, g.scaled_height)
        small = jpeg.decode_scaled(data, header, *size)
        assert small.shape[0] < 301
        one = resized(turned(small, orientation), g, WHITE)
        other = resized(turned(jpeg.decode(data, header), orientation), g, WHITE)
        assert one.shape == (70, 50, 3)
        assert skimage_metrics.structural_similarity(one, other, channel_axis=2) > 0.99


def test_other_kinds_of_jpeg() -> None:
    gray, header = opened(encoded(scene(160, 240)[:, :, 0], "JPEG"))
    assert jpeg.decode_scaled(gray, header, 20, 30).shape == (60, 90, 1)
    progressive, header = opened(encoded(scene(160, 240), "JPEG", progressive=True))
    assert jpeg.decode_scaled(progressive, header, 20, 30).shape == (60, 90, 3)
    cmyk, header = opened(encoded(Image.fromarray(scene(160, 240)).convert("CMYK"), "JPEG", quality=95))
    small = jpeg.decode_scaled(cmyk, header, 20, 30)
    np.testing.assert_array_equal(small, jpeg.decode(cmyk, header))  # means of inks are not those of colours


@pytest.mark.parametrize("name", ["arithmetic", "lossless_gray", "ycck", "sampling_441"])
def test_rare_processes(name: str) -> None:
    data, header = opened(rare_jpeg(name))
    full = jpeg.decode(data, header)
    small = jpeg.decode_scaled(data, header, 2, 2)
    assert small.shape[2] == full.shape[2]
    g = plan_geometry(header.height, header.width, 1, ImagePolicy(size=(2, 2)))
    assert abs(resized(small, g, WHITE).astype(int) - resized(full, g, WHITE)).max() <= 10


def test_a_scaled_decode_misses_no_damage() -> None:
    data, header = opened(encoded(scene(48, 64), "JPEG", restart_marker_rows=1))
    outcomes = set()
    for position in range(header.scan + 14, len(data) - 2, 3):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        verdicts = [verdict(bytes(damaged), header, size) for size in ((48, 64), (4, 4))]
        assert verdicts[0] == verdicts[1], position
        outcomes.add(verdicts[0])
    assert outcomes >= {"", "corrupt"}
    cut = data[: len(data) * 2 // 3] + b"\xff\xd9"
    assert verdict(cut, header, (4, 4)) in ("corrupt", "truncated")


def verdict(data: bytes, header: JpegHeader, size: tuple[int, int]) -> str:
    try:
        jpeg.decode_scaled(data, header, *size)
    except BadInput as error:
        return error.reason
    return ""


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS, reason="RECORDMILL_CORPUS names no folder of real inputs")
@pytest.mark.parametrize("short_side", [pytest.param(128, marks=pytest.mark.slow), 48])
def test_scaled_decodes_of_photographs(short_side: int) -> None:
    paths = sorted((Path(CORPUS) / "coco64" / "images").rglob("*.jpg"))
    assert paths
    for path in paths:
        data, header = opened(path.read_bytes())
        g = plan_geometry(header.height, header.width, 1, ImagePolicy(short_side=short_side))
        small = resized(jpeg.decode_scaled(data, header, g.scaled_height, g.scaled_width), g, WHITE)
        full = resized(jpeg.decode(data, header), g, WHITE)
        assert skimage_metrics.structural_similarity(small, full, channel_axis=2) > 0.99, path
