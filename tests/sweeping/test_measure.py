"""One image at each setting: against TensorFlow's decoders, scikit-image's SSIM and plain numpy."""

import math

import numpy as np
import pytest
from PIL import Image

from benchmarks.drawings import draw
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.similarity import Original
from recordmill.transforms.images.store import store_image
from recordmill.transforms.records import BadInput, Failure, StoredImage
from recordmill.transforms.sweeping.measure import Measure, measured
from recordmill.transforms.sweeping.results import Setting
from recordmill.transforms.sweeping.settings import SweepConfig, settings
from tests.images.drawn import Array, deep_png, encoded, gradient, psnr, tensorflow_pixels, with_orientation
from tests.lazy import skimage_metrics

RED = (200, 30, 10)
ROWS = settings(SweepConfig(qualities=(80,), targets=(0.9,), background=RED))
SEEN = SweepConfig(background=RED).seen


def photo(seed: int = 1, width: int = 90, height: int = 70) -> Image.Image:
    return draw("circle", seed, width, height)


def see_through(seed: int = 2) -> Array:
    """RGBA whose alpha falls from left to right, over colours that are not the background's."""
    pixels = np.asarray(photo(seed))
    alpha = np.broadcast_to(np.linspace(0, 255, pixels.shape[1]).astype(np.uint8), pixels.shape[:2])
    return np.dstack([pixels, alpha])


def on_background(pixels: Array) -> Array:
    """Composited in floating point."""
    if pixels.shape[2] == 3:
        return pixels
    alpha = pixels[:, :, 3:].astype(np.float64) / 255
    blended = pixels[:, :, :3] * alpha + np.array(RED) * (1 - alpha)
    return np.floor(blended + 0.5).astype(np.uint8)


def gray(pixels: Array) -> Array:
    return np.asarray(Image.fromarray(pixels).convert("L"))


def by_name(data: bytes, rows: tuple[Setting, ...] = ROWS) -> dict[str, Measure]:
    found = measured(Original(data), rows, SEEN, lambda stored: len(stored.data) + 100)
    assert all(isinstance(one, Measure) for one in found), found
    return {row.name: one for row, one in zip(rows, found, strict=True) if isinstance(one, Measure)}


@pytest.mark.parametrize(
    "data",
    [encoded(photo(), "JPEG", quality=97, subsampling=0), encoded(see_through(), "PNG")],
    ids=["jpeg", "png"],
)
def test_each_row_against_other_decoders_and_another_ssim(data: bytes) -> None:
    source = on_background(tensorflow_pixels(data))
    for row in ROWS:
        one = by_name(data)[row.name]
        stored = store_image(data, row.policy)
        assert (one.image_bytes, one.tfrecord_bytes) == (len(stored.data), len(stored.data) + 100)
        assert one.jpeg_quality == stored.jpeg_quality
        pixels = tensorflow_pixels(stored.data) if stored.image_format != "raw" else raw(stored)
        pixels = on_background(pixels)
        assert one.similarity is not None
        if np.array_equal(pixels, source):
            assert one.similarity.identical and one.similarity.ssim == 1 and math.isinf(one.similarity.psnr)
            continue
        expected = skimage_metrics.structural_similarity(
            gray(source),
            gray(pixels),
            data_range=255,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
        )
        assert not one.similarity.identical
        assert one.similarity.ssim == pytest.approx(expected, abs=2e-3)
        assert one.similarity.psnr == pytest.approx(psnr(source, pixels), abs=0.1)


def raw(stored: StoredImage) -> Array:
    return np.frombuffer(stored.data, stored.dtype).reshape(stored.height, stored.width, stored.channels)


def test_lossless_rows_are_identical_and_lossy_ones_are_not() -> None:
    for data in (encoded(photo(), "JPEG", quality=97), encoded(see_through(), "PNG")):
        found = by_name(data)
        likenesses = {name: one.similarity for name, one in found.items()}
        identical = {name for name, one in likenesses.items() if one is not None and one.identical}
        lossless = {row.name for row in ROWS if row.group in ("pixels", "files", "lossless")}
        kept = {row.name for row in ROWS if row.group.startswith("png to jpeg")}
        assert identical == (lossless | kept if data[:2] == b"\xff\xd8" else lossless)


def test_a_picture_that_is_turned_is_compared_upright() -> None:
    data = encoded(photo(), "JPEG", quality=95, exif=with_orientation(6))
    found = by_name(data)
    assert found["raw pixels"].image_bytes == 90 * 70 * 3
    assert found["raw pixels"].similarity is not None and found["raw pixels"].similarity.identical
    again = found["re-encoded, q80"].similarity
    assert again is not None and 0.8 < again.ssim < 1


def test_sixteen_bits_are_kept_or_lost() -> None:
    data = deep_png(gradient(40, 50, 3, "uint16"))
    found = by_name(data)
    assert found["raw pixels"].image_bytes == 40 * 50 * 3 * 2
    kept, cut = found["raw pixels"].similarity, found["re-encoded, q80"].similarity
    assert kept is not None and kept.identical
    assert cut is not None and not cut.identical and cut.ssim > 0.8


def test_sixteen_bits_that_become_eight_are_not_the_source() -> None:
    flat = np.full((24, 24, 1), 0x8080 + 40, np.uint16)
    found = by_name(deep_png(flat))["re-encoded, q80"].similarity
    assert found is not None
    assert (found.ssim, found.psnr, found.identical) == (1, math.inf, False)


def test_grey_that_becomes_three_channels_is_compared() -> None:
    data = encoded(gray(np.asarray(photo())), "PNG")
    found = by_name(data)["WebP, q80"].similarity
    assert found is not None and 0.8 < found.ssim < 1 and 25 < found.psnr < 50


def test_raw_pixels_of_a_container() -> None:
    pixels = np.asarray(photo())
    rows = (Setting("raw", "pixels", None, ImagePolicy("raw")), ROWS[-1])
    kept, lossy = measured(Original(pixels.tobytes(), pixels.shape), rows, SEEN, lambda stored: 0)
    assert isinstance(kept, Measure) and isinstance(lossy, Measure)
    assert kept.image_bytes == pixels.size and kept.similarity is not None and kept.similarity.identical
    assert lossy.similarity is not None and 0.9 <= lossy.similarity.ssim < 1


def test_another_size_is_not_compared() -> None:
    rows = (Setting("small", "re-encoded", 90, ImagePolicy(max_side=32)),)
    (one,) = measured(Original(encoded(photo(), "PNG")), rows, SEEN, lambda stored: 0)
    assert isinstance(one, Measure) and one.similarity is None and one.image_bytes > 0


def test_what_a_setting_refuses_is_a_failure_of_that_setting_alone() -> None:
    rows = settings(SweepConfig(qualities=(80,), targets=(), alpha="fail"))
    found = measured(Original(encoded(see_through(), "PNG")), rows, SEEN, lambda stored: 0)
    refused = {row.group for row, one in zip(rows, found, strict=True) if isinstance(one, Failure)}
    assert refused == {row.group for row in rows} - {"pixels", "files", "lossless"}
    assert {(one.stage, one.reason) for one in found if isinstance(one, Failure)} == {
        ("encode", "transparent")
    }


def test_a_damaged_image_fails_as_a_whole() -> None:
    with pytest.raises(BadInput, match="truncated"):
        measured(Original(encoded(photo(), "JPEG")[:-300]), ROWS, SEEN, lambda stored: 0)
