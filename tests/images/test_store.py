"""Each kind of input has one outcome for each way of storing it, and TensorFlow reads them all."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image
from recordmill.transforms.records import BadInput, StoredImage
from tests.images.drawn import (
    Array,
    chunk,
    deep_png,
    encoded,
    gradient,
    rare_jpeg,
    tensorflow_pixels,
    with_orientation,
)
from tests.lazy import tf

KEEP, JPEG, PNG, RAW, TENSOR = (
    ImagePolicy(image_format=name) for name in ("keep", "jpeg", "png", "raw", "tensor")
)
RGBA = gradient(channels=4)
GRAY = gradient(channels=1)
INDICES = (np.arange(24 * 32) % 5).astype(np.uint8).reshape(24, 32, 1)


def palette_image(transparent: bool = False) -> Image.Image:
    image = Image.fromarray(INDICES[:, :, 0], "P")
    image.putpalette(bytes(range(60, 75)))
    if transparent:
        image.info["transparency"] = bytes([255, 0, 128, 255, 255])
    return image


def noisy(height: int = 24, width: int = 32) -> Array:
    return np.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=np.uint8)


def frames(kind: str) -> bytes:
    pictures = [Image.fromarray(gradient()), Image.fromarray(255 - gradient())]
    return encoded(pictures[0], kind, save_all=True, append_images=pictures[1:])


def stored(data: bytes, policy: ImagePolicy) -> StoredImage:
    """What is stored, after TensorFlow has confirmed what is said of it."""
    image = store_image(data, policy)
    shape = (image.height, image.width, image.channels)
    if image.image_format == "raw":
        assert len(image.data) == int(np.prod(shape)) * np.dtype(image.dtype).itemsize
    elif image.image_format == "tensor":
        assert tf.io.parse_tensor(image.data, image.dtype).shape == shape
    else:
        assert tensorflow_pixels(image.data, image.dtype).shape == shape
    return image


Build = Callable[[], bytes]
CASES: dict[str, tuple[Build, str, str, str, str]] = {
    # input: (bytes, keep, jpeg, png, raw and tensor), each "format colorspace actions"
    "jpeg": (
        lambda: encoded(noisy(48, 64), "JPEG", quality=99),
        "jpeg RGB kept",
        "jpeg RGB reencoded",
        "png RGB transcoded",
        "RGB decoded",
    ),
    "jpeg, grey": (
        lambda: encoded(noisy(48, 64)[:, :, 0], "JPEG", quality=99),
        "jpeg Grayscale kept",
        "jpeg Grayscale reencoded",
        "png Grayscale transcoded",
        "Grayscale decoded",
    ),
    "jpeg, small already": (
        lambda: encoded(gradient(), "JPEG", quality=20),
        "jpeg RGB kept",
        "jpeg RGB kept coarse_enough",
        "png RGB transcoded",
        "RGB decoded",
    ),
    "jpeg, cmyk": (
        lambda: encoded(Image.fromarray(noisy(48, 64)).convert("CMYK"), "JPEG", quality=99),
        "jpeg CMYK kept",
        "jpeg RGB reencoded",
        "png RGB transcoded",
        "RGB decoded",
    ),
    "jpeg, turned": (
        lambda: encoded(noisy(48, 64), "JPEG", quality=99, exif=with_orientation(6)),
        "jpeg RGB reencoded rotated",
        "jpeg RGB reencoded rotated",
        "png RGB transcoded rotated",
        "RGB decoded rotated",
    ),
    "jpeg, turned and small": (
        lambda: encoded(noisy(), "JPEG", quality=30, exif=with_orientation(6)),
        "jpeg RGB reencoded rotated",
        "jpeg RGB reencoded rotated coarse_enough",
        "png RGB transcoded rotated",
        "RGB decoded rotated",
    ),
    "jpeg, arithmetic": (
        lambda: rare_jpeg("arithmetic"),
        "jpeg RGB kept",
        "jpeg RGB kept coarse_enough",
        "png RGB transcoded",
        "RGB decoded",
    ),
    "jpeg, lossless": (
        lambda: rare_jpeg("lossless"),
        "png RGB transcoded",
        "jpeg RGB reencoded",
        "png RGB transcoded",
        "RGB decoded",
    ),
    "jpeg, lossless grey": (
        lambda: rare_jpeg("lossless_gray"),
        "png Grayscale transcoded",
        "jpeg Grayscale reencoded",
        "png Grayscale transcoded",
        "Grayscale decoded",
    ),
    "mpo": (
        lambda: frames("MPO"),
        "jpeg RGB kept",
        "jpeg RGB kept coarse_enough",
        "png RGB transcoded",
        "RGB decoded",
    ),
    "png": (
        lambda: encoded(noisy(48, 64), "PNG"),
        "png RGB kept",
        "jpeg RGB transcoded",
        "png RGB kept",
        "RGB decoded",
    ),
    "png, tiny": (
        lambda: encoded(gradient(1, 2), "PNG"),
        "png RGB kept",
        "png RGB kept not_smaller",
        "png RGB kept",
        "RGB decoded",
    ),
    "png, transparent": (
        lambda: encoded(RGBA, "PNG"),
        "png RGBA kept",
        "png RGBA kept alpha_kept",
        "png RGBA kept",
        "RGBA decoded",
    ),
    "png, opaque alpha": (
        lambda: encoded(np.dstack([noisy(48, 64), np.full((48, 64), 255, np.uint8)]), "PNG"),
        "png RGBA kept",
        "jpeg RGB transcoded",
        "png RGBA kept",
        "RGBA decoded",
    ),
    "png, palette": (
        lambda: encoded(palette_image(), "PNG"),
        "png RGB kept",
        "png RGB kept not_smaller",
        "png RGB kept",
        "RGB decoded",
    ),
    "png, transparent palette": (
        lambda: encoded(palette_image(True), "PNG"),
        "png RGBA kept",
        "png RGBA kept alpha_kept",
        "png RGBA kept",
        "RGBA decoded",
    ),
    "png, two greys": (
        lambda: encoded(Image.fromarray(GRAY[:, :, 0]).convert("1"), "PNG"),
        "png Grayscale kept",
        "png Grayscale kept not_smaller",
        "png Grayscale kept",
        "Grayscale decoded",
    ),
    "png, 16 bits": (
        lambda: deep_png(np.random.default_rng(1).integers(0, 65536, (48, 64, 3), dtype=np.uint16)),
        "png RGB kept",
        "jpeg RGB transcoded",
        "png RGB kept",
        "RGB decoded",
    ),
    "png, turned": (
        lambda: encoded(noisy(48, 64), "PNG", exif=with_orientation(8)),
        "png RGB transcoded rotated",
        "jpeg RGB transcoded rotated",
        "png RGB transcoded rotated",
        "RGB decoded rotated",
    ),
    "apng": (
        lambda: frames("PNG"),
        "png RGB transcoded first_frame",
        "png RGB transcoded first_frame not_smaller",
        "png RGB transcoded first_frame",
        "RGB decoded first_frame",
    ),
    "gif": (
        lambda: encoded(palette_image(), "GIF"),
        "gif RGB kept",
        "gif RGB kept not_smaller",
        "png RGB transcoded",
        "RGB decoded",
    ),
    "gif, transparent": (
        lambda: encoded(palette_image(), "GIF", transparency=2),
        "png RGBA transcoded",
        "png RGBA transcoded alpha_kept",
        "png RGBA transcoded",
        "RGBA decoded",
    ),
    "gif, animated": (
        lambda: frames("GIF"),
        "png RGB transcoded first_frame",
        "jpeg RGB transcoded first_frame",
        "png RGB transcoded first_frame",
        "RGB decoded first_frame",
    ),
    "bmp": (
        lambda: encoded(noisy(48, 64), "BMP"),
        "bmp RGB kept",
        "jpeg RGB transcoded",
        "png RGB transcoded",
        "RGB decoded",
    ),
    "bmp, grey": (
        lambda: encoded(GRAY, "BMP"),
        "bmp Grayscale kept",
        "jpeg Grayscale transcoded",
        "png Grayscale transcoded",
        "Grayscale decoded",
    ),
    "bmp, palette": (
        lambda: encoded(palette_image(), "BMP"),
        "png RGB transcoded",
        "jpeg RGB transcoded",
        "png RGB transcoded",
        "RGB decoded",
    ),
    "webp": (
        lambda: encoded(noisy(48, 64), "WEBP", lossless=True),
        "webp RGB kept",
        "jpeg RGB transcoded",
        "png RGB transcoded",
        "RGB decoded",
    ),
    "webp, transparent": (
        lambda: encoded(RGBA, "WEBP", lossless=True, exact=True),
        "webp RGBA kept",
        "webp RGBA kept alpha_kept",
        "png RGBA transcoded",
        "RGBA decoded",
    ),
    "webp, animated": (
        lambda: frames("WEBP"),
        "png RGB transcoded first_frame",
        "jpeg RGB transcoded first_frame",
        "png RGB transcoded first_frame",
        "RGB decoded first_frame",
    ),
    "tiff": (
        lambda: encoded(noisy(48, 64), "TIFF"),
        "png RGB transcoded",
        "jpeg RGB transcoded",
        "png RGB transcoded",
        "RGB decoded",
    ),
    "tiff, pages": (
        lambda: frames("TIFF"),
        "png RGB transcoded first_frame",
        "jpeg RGB transcoded first_frame",
        "png RGB transcoded first_frame",
        "RGB decoded first_frame",
    ),
    "avif": (
        lambda: encoded(noisy(48, 64), "AVIF"),
        "png RGB transcoded",
        "jpeg RGB transcoded",
        "png RGB transcoded",
        "RGB decoded",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_outcomes(name: str) -> None:
    build, *expected, decoded = CASES[name]
    data = build()
    for policy, outcome in zip((KEEP, JPEG, PNG), expected, strict=True):
        image = stored(data, policy)
        got = f"{image.image_format} {image.colorspace} {' '.join(image.actions)}"
        assert got == outcome, policy.image_format
        if image.actions[0] == "kept":
            assert image.data == data
        assert store_image(data, policy) == image
    for policy in (RAW, TENSOR):
        image = stored(data, policy)
        assert f"{image.image_format} {image.colorspace} {' '.join(image.actions)}" == (
            f"{policy.image_format} {decoded}"
        )


LOSSLESS = [
    ("PNG", gradient()),
    ("PNG", RGBA),
    ("PNG", gradient(channels=2)),
    ("TIFF", RGBA),
    ("TIFF", GRAY),
    ("BMP", gradient()),
    ("TGA", gradient(channels=2)),
    ("PPM", gradient()),
    ("PCX", gradient()),
    ("SGI", RGBA),
    ("QOI", RGBA),
    ("WEBP", RGBA),
    ("JPEG2000", gradient()),
]


@pytest.mark.parametrize(("kind", "pixels"), LOSSLESS)
@pytest.mark.parametrize("policy", [KEEP, PNG, RAW], ids=lambda policy: policy.image_format)
def test_no_pixel_changes(kind: str, pixels: Array, policy: ImagePolicy) -> None:
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    image = stored(encoded(pixels, kind, **options), policy)
    assert (
        image.data == pixels.tobytes()
        if policy is RAW
        else np.array_equal(tensorflow_pixels(image.data), pixels)
    )


@pytest.mark.parametrize(
    ("kind", "transparent"), [("TIFF", False), ("BMP", False), ("GIF", False), ("GIF", True)]
)
def test_palette_indices_survive_transcoding(kind: str, transparent: bool) -> None:
    options = {"transparency": 2} if transparent else {}
    image = store_image(encoded(palette_image(), kind, **options), PNG)
    with Image.open(io.BytesIO(image.data)) as read:
        assert read.mode == "P"
        np.testing.assert_array_equal(np.asarray(read), INDICES[:, :, 0])
    colors = np.arange(60, 75, dtype=np.uint8).reshape(5, 3)[INDICES[:, :, 0]]
    got = tensorflow_pixels(image.data)
    np.testing.assert_array_equal(got[:, :, :3], colors)
    if transparent:
        np.testing.assert_array_equal(got[:, :, 3], np.where(INDICES[:, :, 0] == 2, 0, 255))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_sixteen_bits(channels: int) -> None:
    pixels = np.random.default_rng(3).integers(0, 65536, (9, 7, channels), dtype=np.uint16)
    data = deep_png(pixels)
    np.testing.assert_array_equal(tensorflow_pixels(store_image(data, KEEP).data, "uint16"), pixels)
    raw = stored(data, RAW)
    assert (raw.dtype, raw.data) == ("uint16", pixels.astype("<u2").tobytes())
    np.testing.assert_array_equal(tf.io.parse_tensor(stored(data, TENSOR).data, "uint16").numpy(), pixels)
    turned = deep_png(pixels, chunk(b"eXIf", exif_block(3)))
    image = stored(turned, KEEP)
    np.testing.assert_array_equal(tensorflow_pixels(image.data, "uint16"), pixels[::-1, ::-1])


def exif_block(orientation: int) -> bytes:
    return with_orientation(orientation).tobytes().removeprefix(b"Exif\0\0")


@pytest.mark.parametrize("order", ["<", ">"])
def test_sixteen_bit_rgb_tiff_keeps_every_bit(order: str) -> None:
    pixels = np.random.default_rng(4).integers(0, 65536, (6, 5, 3), dtype=np.uint16)
    data = rgb_tiff(pixels, order)
    image = stored(data, KEEP)
    assert (image.dtype, image.actions) == ("uint16", ("transcoded",))
    np.testing.assert_array_equal(tensorflow_pixels(image.data, "uint16"), pixels)


def rgb_tiff(pixels: Array, order: str) -> bytes:
    """An uncompressed 16-bit RGB TIFF 6.0 of one strip."""
    height, width, _ = pixels.shape
    body = pixels.astype(f"{order}u2").tobytes()
    tags = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, 3, 8),
        (259, 3, 1, 1),
        (262, 3, 1, 2),
        (273, 4, 1, 14),
        (277, 3, 1, 3),
        (278, 4, 1, height),
        (279, 4, 1, len(body)),
    ]
    directory = struct.pack(f"{order}H", len(tags))
    for tag, kind, count, value in tags:
        packed = (
            struct.pack(f"{order}HH", value, 0)
            if kind == 3 and count == 1
            else struct.pack(f"{order}I", value)
        )
        directory += struct.pack(f"{order}HHI", tag, kind, count) + packed
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 14 + len(body))
    return head + struct.pack(f"{order}HHH", 16, 16, 16) + body + directory + struct.pack(f"{order}I", 0)


def test_sixteen_bits_are_scaled_for_jpeg_not_clipped() -> None:
    low_bits = np.random.default_rng(5).integers(0, 100, (64, 64, 1))
    pixels = (np.linspace(0, 65400, 64).astype(int)[None, :, None] + low_bits).astype(np.uint16)
    image = stored(deep_png(pixels), ImagePolicy("jpeg", 100))
    assert (image.image_format, image.dtype) == ("jpeg", "uint8")
    expected = np.rint(pixels / 257.0)
    assert np.abs(tensorflow_pixels(image.data).astype(int) - expected).max() <= 2


def test_alpha_is_never_turned_black() -> None:
    clear = np.dstack([noisy(48, 64), np.zeros((48, 64), np.uint8)])
    for kind in ("PNG", "TIFF", "WEBP"):
        options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
        image = stored(encoded(clear, kind, **options), JPEG)
        assert image.image_format == ("webp" if kind == "WEBP" else "png")
        assert image.actions[-1] == "alpha_kept"
        np.testing.assert_array_equal(tensorflow_pixels(image.data), clear)


def test_exif_ignored_turns_nothing() -> None:
    policy = ImagePolicy(exif="ignore")
    data = encoded(noisy(), "JPEG", exif=with_orientation(6))
    assert store_image(data, policy).data == data
    tiff = encoded(noisy(), "TIFF", tiffinfo={274: 6})
    np.testing.assert_array_equal(tensorflow_pixels(store_image(tiff, policy).data), noisy())
    upright = store_image(tiff, KEEP)
    assert upright.actions == ("transcoded", "rotated")
    np.testing.assert_array_equal(tensorflow_pixels(upright.data), np.rot90(noisy(), -1))


def test_quality_has_an_effect() -> None:
    data = encoded(noisy(48, 64), "JPEG", quality=99)
    sizes = [len(store_image(data, ImagePolicy("jpeg", quality)).data) for quality in (40, 75, 95)]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 3


def test_the_name_tells_nothing_the_bytes_do() -> None:
    assert store_image(encoded(noisy(), "PNG"), KEEP).image_format == "png"


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_pixels(channels: int) -> None:
    pixels = gradient(channels=channels)
    for policy in (KEEP, PNG):
        image = store_image(pixels.tobytes(), policy, (24, 32, channels))
        assert (image.image_format, image.actions) == ("png", ("transcoded",))
        np.testing.assert_array_equal(tensorflow_pixels(image.data), pixels)
    raw = store_image(pixels.tobytes(), RAW, (24, 32, channels))
    assert (raw.data, raw.actions, raw.channels) == (pixels.tobytes(), ("kept",), channels)
    tensor = store_image(pixels.tobytes(), TENSOR, (24, 32, channels))
    assert tensor.data == tf.io.serialize_tensor(pixels).numpy()
    jpeg = store_image(pixels.tobytes(), JPEG, (24, 32, channels))
    assert jpeg.image_format == ("png" if channels in (2, 4) else "jpeg")
    assert jpeg.actions == (("transcoded", "alpha_kept") if channels in (2, 4) else ("transcoded",))


@pytest.mark.parametrize(
    ("data", "shape", "reason"),
    [
        (b"123", (2, 2, 1), "wrong number of bytes"),
        (b"12345", (1, 1, 5), "not supported"),
        (b"", (0, 1, 1), "not supported"),
        (b"", (50_000, 50_000, 1), "too many pixels"),
    ],
)
def test_pixels_refused(data: bytes, shape: tuple[int, int, int], reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        store_image(data, KEEP, shape)
    assert (caught.value.stage, caught.value.reason) == ("decode", reason)


def test_too_large_for_jpeg() -> None:
    with pytest.raises(BadInput) as caught:
        store_image(bytes(65501), JPEG, (65501, 1, 1))
    assert (caught.value.stage, caught.value.reason) == ("encode", "not supported")
    assert "--image_format" in caught.value.detail


@pytest.mark.parametrize("policy", [KEEP, PNG, JPEG, RAW])
def test_longer_sides_than_a_png_may_have_are_refused_by_the_header(policy: ImagePolicy) -> None:
    tiff = io.BytesIO()
    Image.new("L", (1_000_001, 1)).save(tiff, "TIFF")
    for data in (b"P5 1000001 1 255\n" + bytes(1_000_001), tiff.getvalue()):
        with pytest.raises(BadInput) as caught:
            store_image(data, policy)
        assert (caught.value.stage, caught.value.reason) == ("decode", "too many pixels")
        assert "at most 1,000,000 a side" in caught.value.detail
    with pytest.raises(BadInput, match="too many pixels"):
        store_image(bytes(1_000_001), policy, (1, 1_000_001, 1))


@pytest.mark.parametrize(
    ("bits", "colors"), [(4, [(i, i, i) for i in range(16)]), (8, [(0, 0, 0), (255,) * 3])]
)
def test_indices_of_a_bmp_with_a_grey_palette(bits: int, colors: list[tuple[int, int, int]]) -> None:
    indices = np.arange(8 * 8).reshape(8, 8) % len(colors)
    rows = indices[::-1].astype(np.uint8)
    packed = rows if bits == 8 else rows[:, ::2] << 4 | rows[:, 1::2]
    palette = b"".join(bytes((*color, 0)) for color in colors)
    start = 54 + len(palette)
    head = b"BM" + struct.pack("<IHHI", start + packed.size, 0, 0, start)
    head += struct.pack("<IiiHHIIiiII", 40, 8, 8, 1, bits, 0, packed.size, 0, 0, len(colors), 0)
    image = stored(head + palette + packed.tobytes(), KEEP)
    assert image.actions == ("transcoded",)
    np.testing.assert_array_equal(tensorflow_pixels(image.data), np.array(colors, np.uint8)[indices])


def test_a_bmp_that_declares_fewer_greys_than_it_has_is_not_kept() -> None:
    data = encoded(gradient()[:, :, 0], "BMP")
    assert store_image(data, KEEP).actions == ("kept",)
    fewer = data[:46] + struct.pack("<I", 2) + data[50:]
    image = store_image(fewer, KEEP)
    assert (image.image_format, image.actions) == ("png", ("transcoded",))
    assert tensorflow_pixels(image.data).shape == (image.height, image.width, image.channels)
