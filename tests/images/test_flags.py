"""Every flag about images has its effect, read back with TensorFlow and Pillow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from benchmarks.drawings import draw
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image
from recordmill.transforms.records import BadInput, Geometry, StoredImage
from tests.images.drawn import (
    Array,
    deep_png,
    encoded,
    gradient,
    psnr,
    tensorflow_pixels,
    with_orientation,
)
from tests.lazy import skimage_metrics

PHOTO = np.asarray(draw("circle", seed=3, width=120, height=90, noise=4))
FINE = encoded(PHOTO, "JPEG", quality=98, subsampling="4:4:4")
COARSE = encoded(PHOTO, "JPEG", quality=60)
PNG_FILE = encoded(PHOTO, "PNG")
HALF = np.dstack([PHOTO, np.tile(np.arange(120, dtype=np.uint8) * 2, (90, 1))])
HALF_FILE = encoded(HALF, "PNG")


def stored(data: bytes, **flags: Any) -> StoredImage:
    """What is stored, after TensorFlow has confirmed what is said of it."""
    image = store_image(data, ImagePolicy(**flags))
    if image.image_format in ("raw", "tensor"):
        return image
    shape = (image.height, image.width, image.channels)
    assert tensorflow_pixels(image.data, image.dtype).shape == shape
    return image


def subsampling(data: bytes) -> tuple[int, int]:
    """Of a JPEG: how often the luma is sampled for each sample of chroma, across and down."""
    with Image.open(io.BytesIO(data)) as image:
        first, *others = image.layer
    assert all(layer[1:3] == (1, 1) for layer in others)
    return first[1], first[2]


def tables(data: bytes) -> list[list[int]]:
    with Image.open(io.BytesIO(data)) as image:
        return list(image.quantization.values())


def ssim(one: Array, other: Array) -> float:
    gray = [np.asarray(Image.fromarray(pixels).convert("L")) for pixels in (one, other)]
    options = {"data_range": 255, "gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    return float(skimage_metrics.structural_similarity(*gray, **options))


@pytest.mark.parametrize(("flag", "factors"), [("420", (2, 2)), ("422", (2, 1)), ("444", (1, 1))])
def test_subsampling(flag: str, factors: tuple[int, int]) -> None:
    assert subsampling(stored(PNG_FILE, image_format="jpeg", subsampling=flag).data) == factors
    assert (
        subsampling(stored(PNG_FILE, image_format="jpeg", target_ssim=0.9, subsampling=flag).data) == factors
    )
    assert subsampling(stored(FINE, max_side=60, subsampling=flag).data) == factors


def test_jpeg_quality_is_that_of_libjpeg() -> None:
    for quality in (30, 85):
        image = stored(PNG_FILE, image_format="jpeg", jpeg_quality=quality)
        assert tables(image.data) == tables(encoded(PHOTO, "JPEG", quality=quality))
        resized = stored(FINE, max_side=60, jpeg_quality=quality)
        assert tables(resized.data) == tables(image.data)


def test_smaller_leaves_alone_what_would_not_shrink_or_is_coarse_already() -> None:
    flags = {"image_format": "jpeg", "jpeg_quality": 60}
    assert stored(FINE, **flags).actions == ("reencoded",)
    kept = stored(COARSE, **flags)
    assert (kept.data, kept.actions) == (COARSE, ("kept", "coarse_enough"))
    assert stored(COARSE, image_format="jpeg", jpeg_quality=40).actions == ("reencoded",)
    dots = encoded(np.zeros((1, 1, 3), np.uint8), "PNG")
    assert stored(dots, image_format="jpeg").actions == ("kept", "not_smaller")
    assert stored(dots, image_format="jpeg", reencode="needed").actions == ("transcoded",)


def test_needed_touches_other_formats_only() -> None:
    flags = {"image_format": "jpeg", "jpeg_quality": 50, "reencode": "needed"}
    assert (stored(FINE, **flags).data, stored(FINE, **flags).actions) == (FINE, ("kept",))
    assert stored(PNG_FILE, **flags).actions == ("transcoded",)
    webp = encoded(PHOTO, "WEBP")
    assert stored(webp, image_format="webp", reencode="needed").data == webp
    turned = encoded(PHOTO, "JPEG", quality=98, exif=with_orientation(6))
    assert tables(stored(turned, **flags).data) == [
        np.reshape(t, (8, 8)).T.ravel().tolist() for t in tables(turned)
    ]


def test_always_reencodes_all() -> None:
    flags = {"image_format": "jpeg", "jpeg_quality": 95, "reencode": "always"}
    grown = stored(COARSE, **flags)
    assert grown.actions == ("reencoded",)
    assert len(grown.data) > len(COARSE)


def test_geometry_and_colour_are_obeyed_even_where_bytes_grow() -> None:
    tiny = encoded(gradient(40, 60), "JPEG", quality=5)
    for flags in ({"size": (400, 600)}, {"color": "gray"}):
        for image_format in ("keep", "jpeg"):
            image = stored(tiny, image_format=image_format, **flags)
            assert image.actions[0] == "reencoded"
    gray = stored(tiny, color="gray")
    assert (gray.channels, gray.colorspace, gray.actions) == (1, "Grayscale", ("reencoded", "recolored"))


@pytest.mark.parametrize(
    ("flags", "size"),
    [
        ({"max_side": 60}, (45, 60)),
        ({"max_side": 120}, (90, 120)),
        ({"max_side": 1000}, (90, 120)),
        ({"short_side": 60}, (60, 80)),
        ({"short_side": 91}, (90, 120)),
        ({"size": (50, 50)}, (50, 50)),
        ({"size": (200, 100), "fit": "pad"}, (200, 100)),
        ({"size": (200, 100), "fit": "crop"}, (200, 100)),
    ],
)
@pytest.mark.parametrize("image_format", ["keep", "jpeg", "png", "webp", "raw", "tensor"])
@pytest.mark.parametrize("source", ["jpeg", "png"])
def test_sizes(source: str, image_format: str, flags: dict[str, Any], size: tuple[int, int]) -> None:
    data = FINE if source == "jpeg" else PNG_FILE
    image = stored(data, image_format=image_format, **flags)
    assert (image.height, image.width) == size
    same = size == PHOTO.shape[:2]
    assert ("resized" in image.actions) == (not same)
    if same:
        assert image.geometry is None
        assert image.data == stored(data, image_format=image_format).data
    else:
        assert image.geometry is not None
        assert (image.geometry.height, image.geometry.width) == size


def test_pixels_of_a_resized_image() -> None:
    for data in (FINE, PNG_FILE):
        image = stored(data, image_format="png", short_side=45)
        expected = np.asarray(Image.open(io.BytesIO(data)).resize((60, 45), Image.Resampling.LANCZOS))
        assert psnr(tensorflow_pixels(image.data), expected) > 36
        assert image.geometry == Geometry(1, 90, 120, 45, 60, 0, 0, 45, 60)


def test_a_turned_image_is_resized_upright() -> None:
    data = encoded(PHOTO, "JPEG", quality=98, exif=with_orientation(6))
    image = stored(data, image_format="png", size=(60, 30), fit="pad", background=(0, 255, 0))
    assert image.actions == ("transcoded", "rotated", "resized")
    assert image.geometry == Geometry(6, 120, 90, 40, 30, 10, 0, 60, 30)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).resize((30, 40), Image.Resampling.LANCZOS)
    expected = Image.new("RGB", (30, 60), (0, 255, 0))
    expected.paste(upright, (0, 10))
    pixels = tensorflow_pixels(image.data)
    assert psnr(pixels, np.asarray(expected)) > 34
    assert (pixels[:10] == (0, 255, 0)).all()
    ignored = stored(data, size=(60, 30), exif="ignore")
    assert ignored.geometry == Geometry(1, 90, 120, 60, 30, 0, 0, 60, 30)


def test_the_geometry_of_an_image_that_is_only_turned() -> None:
    for flags in ({}, {"image_format": "jpeg"}, {"image_format": "png"}, {"image_format": "raw"}):
        image = stored(encoded(PHOTO, "JPEG", quality=98, exif=with_orientation(8)), **flags)
        assert image.geometry == Geometry(8, 120, 90, 120, 90, 0, 0, 120, 90)


@pytest.mark.parametrize("background", [(255, 255, 255), (10, 20, 30)])
@pytest.mark.parametrize("image_format", ["keep", "jpeg", "png", "webp", "raw", "tensor"])
def test_flatten_lays_on_the_background(image_format: str, background: tuple[int, int, int]) -> None:
    image = stored(HALF_FILE, image_format=image_format, alpha="flatten", background=background)
    assert "flattened" in image.actions
    assert (image.channels, image.colorspace) == (3, "RGB")
    alpha = HALF[:, :, 3:].astype(float) / 255
    expected = HALF[:, :, :3] * alpha + np.array(background) * (1 - alpha)
    if image_format in ("jpeg", "webp"):
        assert psnr(tensorflow_pixels(image.data), expected) > 33
    elif image_format in ("keep", "png"):
        assert np.abs(tensorflow_pixels(image.data) - expected).max() <= 0.5 + 1e-9
    elif image_format == "raw":
        assert np.abs(np.frombuffer(image.data, np.uint8).reshape(PHOTO.shape) - expected).max() <= 0.5 + 1e-9


@pytest.mark.parametrize("image_format", ["keep", "jpeg", "png", "webp", "raw"])
def test_alpha_fail_names_the_remedy(image_format: str) -> None:
    with pytest.raises(BadInput) as failed:
        store_image(HALF_FILE, ImagePolicy(image_format=image_format, alpha="fail"))
    assert (failed.value.stage, failed.value.reason) == ("encode", "transparent")
    assert "--alpha=flatten" in failed.value.detail


@pytest.mark.parametrize("alpha", ["keep", "flatten", "fail"])
def test_opaque_alpha_counts_as_none(alpha: str) -> None:
    opaque = encoded(np.dstack([PHOTO, np.full((90, 120), 255, np.uint8)]), "PNG")
    kept = stored(opaque, alpha=alpha)
    assert (kept.data, kept.actions) == (opaque, ("kept",))
    jpeg = stored(opaque, image_format="jpeg", alpha=alpha)
    assert (jpeg.actions, jpeg.flattened_bytes) == (("transcoded",), None)
    small = stored(opaque, max_side=60, alpha=alpha)
    assert small.channels == 3


def test_opaque_alpha_goes_where_colours_are_named() -> None:
    opaque = encoded(np.dstack([PHOTO, np.full((90, 120), 255, np.uint8)]), "PNG")
    rgb = stored(opaque, color="rgb")
    assert (rgb.image_format, rgb.channels, rgb.actions) == ("png", 3, ("transcoded", "recolored"))
    np.testing.assert_array_equal(tensorflow_pixels(rgb.data), PHOTO)
    assert stored(opaque, color="gray").channels == 1
    assert stored(HALF_FILE, color="rgb").data == HALF_FILE
    assert stored(HALF_FILE, color="gray").colorspace == "GrayscaleAlpha"


@pytest.mark.parametrize("image_format", ["keep", "jpeg", "webp"])
def test_one_transparent_colour(image_format: str) -> None:
    data = encoded(PHOTO, "PNG", transparency=tuple(int(value) for value in PHOTO[0, 0]))
    kept = stored(data, image_format=image_format)
    if image_format == "webp":
        assert kept.channels == 4
    else:
        assert kept.data == data
    assert ("alpha_kept" in kept.actions) == (image_format != "keep")
    flat = stored(data, image_format=image_format, alpha="flatten", background=(0, 0, 0))
    assert "flattened" in flat.actions
    assert tensorflow_pixels(flat.data)[0, 0].max() < 60


@pytest.mark.parametrize("quality", [90, 91, 95, 96])
@pytest.mark.parametrize("channels", [1, 3])
def test_jpegs_are_as_good_as_pillows(quality: int, channels: int) -> None:
    pixels = PHOTO[:, :, :channels]
    image = store_image(pixels.tobytes(), ImagePolicy("jpeg", quality), pixels.shape)
    expected = encoded(pixels, "JPEG", quality=quality)
    assert tables(image.data) == tables(expected)
    loss = psnr(tensorflow_pixels(expected), pixels) - psnr(tensorflow_pixels(image.data), pixels)
    assert loss < (0.3 if quality == 90 else 0.01)


def test_kept_alpha_tells_what_flattening_would_save() -> None:
    for image_format in ("jpeg", "webp"):
        image = stored(HALF_FILE, image_format=image_format)
        assert "alpha_kept" in image.actions
        assert image.channels == 4
        flat = stored(HALF_FILE, image_format=image_format, alpha="flatten", reencode="always")
        assert image.flattened_bytes == len(flat.data)


def test_webp() -> None:
    image = stored(PNG_FILE, image_format="webp", jpeg_quality=80)
    assert (image.image_format, image.actions) == ("webp", ("transcoded",))
    expected = encoded(PHOTO, "WEBP", quality=80)
    np.testing.assert_array_equal(tensorflow_pixels(image.data), tensorflow_pixels(expected))
    gray = stored(encoded(PHOTO[:, :, 0], "PNG"), image_format="webp")
    assert gray.channels == 3
    transparent = tensorflow_pixels(stored(HALF_FILE, image_format="webp").data)
    np.testing.assert_array_equal(transparent[:, :, 3], HALF[:, :, 3])


@pytest.mark.parametrize("image_format", ["keep", "jpeg", "png", "raw"])
def test_color(image_format: str) -> None:
    gray = stored(PNG_FILE, image_format=image_format, color="gray")
    assert (gray.channels, gray.colorspace) == (1, "Grayscale")
    if image_format in ("keep", "png"):
        luma = PHOTO @ np.array([0.299, 0.587, 0.114])
        assert np.abs(tensorflow_pixels(gray.data)[:, :, 0] - luma).max() <= 0.51
    rgb = stored(encoded(PHOTO[:, :, 0], "PNG"), image_format=image_format, color="rgb")
    assert (rgb.channels, rgb.colorspace) == (3, "RGB")
    assert stored(PNG_FILE, color="rgb").actions == ("kept",)
    assert stored(encoded(PHOTO[:, :, 0], "PNG"), color="gray").actions == ("kept",)


def test_cmyk_becomes_rgb_where_asked_for() -> None:
    for kind in ("keep", "jpeg", "png"):
        data = encoded(Image.fromarray(PHOTO).convert("CMYK"), "JPEG", quality=98)
        image = stored(data, image_format=kind, color="rgb")
        assert (image.image_format, image.colorspace) == ("png" if kind == "png" else "jpeg", "RGB")
        assert "recolored" in image.actions
        assert psnr(tensorflow_pixels(image.data), PHOTO) > 28


def test_target_ssim() -> None:
    for target in (0.95, 0.99):
        image = stored(PNG_FILE, image_format="jpeg", target_ssim=target)
        assert image.jpeg_quality is not None
        assert tables(image.data) == tables(encoded(PHOTO, "JPEG", quality=image.jpeg_quality))
        assert ssim(tensorflow_pixels(image.data), PHOTO) >= target - 0.002
        lower = encoded(PHOTO, "JPEG", quality=image.jpeg_quality - 2)
        assert ssim(tensorflow_pixels(lower), PHOTO) < target + 0.002
    impossible = stored(PNG_FILE, image_format="jpeg", target_ssim=1.0)
    assert (impossible.data, impossible.actions) == (PNG_FILE, ("kept", "ssim_missed"))
    assert impossible.jpeg_quality == 0
    small = stored(PNG_FILE, image_format="jpeg", target_ssim=1.0, max_side=60)
    assert (small.image_format, small.actions) == ("png", ("transcoded", "resized", "ssim_missed"))


def test_optimize_changes_no_pixel() -> None:
    plain_png = encoded(PHOTO, "PNG", compress_level=1)
    modes = ("lossless", "lossless-progressive")
    for data, mode in ((plain_png, modes[0]), (plain_png, modes[1]), (FINE, modes[1])):
        image = stored(data, optimize=mode)
        assert image.actions == ("kept", "optimized")
        assert len(image.data) < len(data)
        np.testing.assert_array_equal(tensorflow_pixels(image.data), tensorflow_pixels(data))
    encoded_anew = stored(PNG_FILE, image_format="jpeg", optimize="lossless-progressive")
    assert encoded_anew.actions == ("transcoded", "optimized")
    plain = stored(PNG_FILE, image_format="jpeg")
    np.testing.assert_array_equal(tensorflow_pixels(encoded_anew.data), tensorflow_pixels(plain.data))
    kept = stored(FINE, optimize="lossless")
    assert (kept.data, kept.actions) == (FINE, ("kept",))
    with Image.open(io.BytesIO(stored(FINE, optimize="lossless-progressive").data)) as image:
        assert "progressive" in image.info


def secret_exif() -> Image.Exif:
    exif = with_orientation(1)
    exif[0x010E] = "a secret place"
    return exif


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_metadata(kind: str) -> None:
    data = encoded(PHOTO, kind, exif=secret_exif(), **({"quality": 98} if kind == "JPEG" else {}))
    assert b"a secret place" in data
    assert stored(data).data == data
    stripped = stored(data, metadata="strip")
    assert stripped.actions == ("kept", "stripped")
    assert b"secret" not in stripped.data
    np.testing.assert_array_equal(tensorflow_pixels(stripped.data), tensorflow_pixels(data))
    for image_format in ("jpeg", "png", "webp"):
        flags = {"image_format": image_format, "max_side": 60}
        assert b"secret" not in stored(data, **flags).data


@pytest.mark.parametrize("metadata", ["auto", "strip"])
def test_smaller_counts_the_metadata(metadata: str) -> None:
    """A JPEG of noise that quality 90 makes a little smaller, with more comment than that saves."""
    data = encoded(PHOTO, "JPEG", quality=92, comment=b"x" * 5000)
    bare = encoded(PHOTO, "JPEG", quality=92)
    least = min(len(stored(data, metadata=metadata).data), len(data))
    image = stored(data, image_format="jpeg", metadata=metadata, jpeg_quality=91)
    assert len(image.data) <= least
    assert len(stored(bare, image_format="jpeg", jpeg_quality=91).data) <= len(bare)


def test_a_turned_jpeg_reaches_its_target_too() -> None:
    for quality in (60, 75):
        data = encoded(PHOTO, "JPEG", quality=quality, exif=with_orientation(6))
        image = stored(data, image_format="jpeg", target_ssim=0.98)
        assert image.jpeg_quality
        upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
        assert ssim(tensorflow_pixels(image.data), upright) >= 0.98 - 1e-4


@pytest.mark.parametrize("image_format", ["jpeg", "png", "webp"])
def test_what_is_not_turned_says_how_it_lies(image_format: str) -> None:
    data = encoded(PHOTO, "JPEG", quality=98, exif=with_orientation(6))
    for metadata in ("auto", "strip"):
        image = stored(
            data,
            image_format=image_format,
            exif="ignore",
            metadata=metadata,
            reencode="always" if image_format != "png" else "smaller",
        )
        with Image.open(io.BytesIO(image.data)) as found:
            assert (found.size, found.getexif()[0x0112]) == ((120, 90), 6)


def test_sixteen_bits_stay_sixteen_when_resized_or_gray() -> None:
    deep = np.random.default_rng(1).integers(0, 65536, (40, 60, 3), dtype=np.uint16)
    for flags in ({"max_side": 30}, {"color": "gray"}):
        image = stored(deep_png(deep), **flags)
        assert (image.image_format, image.dtype) == ("png", "uint16")
        assert len(np.unique(tensorflow_pixels(image.data, "uint16") % 257)) > 100


def test_pixels_of_a_container_follow_the_policy() -> None:
    pixels = np.ascontiguousarray(PHOTO[:, :, 0])
    image = store_image(pixels.tobytes(), ImagePolicy(max_side=60, color="rgb"), (90, 120, 1))
    assert (image.image_format, image.height, image.width, image.channels) == ("png", 45, 60, 3)
    assert image.actions == ("transcoded", "recolored", "resized")
    raw = store_image(pixels.tobytes(), ImagePolicy("raw"), (90, 120, 1))
    assert (raw.data, raw.actions) == (pixels.tobytes(), ("kept",))
