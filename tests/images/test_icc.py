"""Colour profiles: found where files hold them; conversions to sRGB are those of the float mathematics."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, features

from recordmill.transforms.images import jpeg, jpeg_header
from recordmill.transforms.images.icc import png_with_profile, profile_of, to_srgb
from recordmill.transforms.images.icc_matrix import matrix_conversion
from tests.images.drawn import Array, chunk, deep_png, encoded, gradient, png_file, tensorflow_pixels

D50 = np.array([0.9642, 1.0, 0.8249])
D65 = (0.3127, 0.3290)
SRGB = ((0.64, 0.33), (0.30, 0.60), (0.15, 0.06))
DISPLAY_P3 = ((0.680, 0.320), (0.265, 0.690), (0.150, 0.060))
PROPHOTO = ((0.7347, 0.2653), (0.1596, 0.8404), (0.0366, 0.0001))
ADOBE_RGB = ((0.64, 0.33), (0.21, 0.71), (0.15, 0.06))
GAMMA = 563 / 256
BRADFORD = np.array([[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]])
# What full ink of each takes from L*, and adds to a* and b*: linear, so that no grid of a table matters.
INKS = np.array([[-22.0, -12.0, -16.0], [-24.0, 18.0, -4.0], [-10.0, -6.0, 20.0], [-44.0, 0.0, 0.0]])


def xyz(x: float, y: float) -> Array:
    return np.array([x / y, 1, (1 - x - y) / y])


def colorants(primaries: tuple[tuple[float, float], ...]) -> Array:
    """From linear RGB to XYZ under D50, of primaries under D65."""
    columns = np.stack([xyz(*primary) for primary in primaries], axis=1)
    white = xyz(*D65)
    columns = columns * np.linalg.solve(columns, white)
    adaptation = np.linalg.inv(BRADFORD) @ np.diag((BRADFORD @ D50) / (BRADFORD @ white)) @ BRADFORD
    return adaptation @ columns


def fixed(*numbers: float) -> bytes:
    return b"".join(struct.pack(">i", round(number * 65536)) for number in numbers)


def written(device: bytes, space: bytes, connection: bytes, tags: dict[bytes, bytes]) -> bytes:
    """A profile of version 2.4 (ICC.1:2001-04, clause 6)."""
    head = struct.pack(">4sI4s4s4s12x4s28x", b"\0" * 4, 0x02400000, device, space, connection, b"acsp")
    head += fixed(*D50) + bytes(48)
    table, body, start = struct.pack(">I", len(tags)), b"", 132 + 12 * len(tags)
    for signature, content in tags.items():
        table += struct.pack(">4sII", signature, start + len(body), len(content))
        body += content + bytes(-len(content) % 4)
    return struct.pack(">I", start + len(body)) + head + table + body


def shared_tags(description: bytes) -> dict[bytes, bytes]:
    text = b"desc\0\0\0\0" + struct.pack(">I", len(description) + 1) + description + bytes(79)
    return {b"desc": text, b"wtpt": b"XYZ \0\0\0\0" + fixed(*D50)}


def curve(gamma: float) -> bytes:
    return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256))


def parametric(kind: int, *numbers: float) -> bytes:
    """A parametricCurveType (ICC.1:2022, 10.18)."""
    return b"para\0\0\0\0" + struct.pack(">H2x", kind) + fixed(*numbers)


def sampled(gamma: float, count: int) -> bytes:
    values = np.rint(np.linspace(0, 1, count) ** gamma * 65535).astype(">u2")
    return b"curv\0\0\0\0" + struct.pack(">I", count) + values.tobytes()


def rgb_profile(
    primaries: tuple[tuple[float, float], ...], description: bytes = b"test", curves: tuple[bytes, ...] = ()
) -> bytes:
    tags = shared_tags(description)
    curves = curves or (curve(GAMMA),) * 3
    for name, column, tag in zip((b"r", b"g", b"b"), colorants(primaries).T, curves, strict=True):
        tags[name + b"XYZ"] = b"XYZ \0\0\0\0" + fixed(*column)
        tags[name + b"TRC"] = tag
    return written(b"mntr", b"RGB ", b"XYZ ", tags)


def gray_profile(gamma: float = 1.75) -> bytes:
    return written(b"mntr", b"GRAY", b"XYZ ", shared_tags(b"gray") | {b"kTRC": curve(gamma)})


def cmyk_profile(strength: float = 1.0) -> bytes:
    """A table of Lab at the corners of the ink space (lut16Type, 10.10 of ICC.1:2022)."""
    corners = np.stack(np.meshgrid(*[[0, 1]] * 4, indexing="ij"), axis=-1).reshape(16, 4)
    lab = lab_of(corners, strength)
    stored = np.rint(np.stack([lab[:, 0] * 652.8, (lab[:, 1] + 128) * 256, (lab[:, 2] + 128) * 256], axis=1))
    table = (
        b"mft2\0\0\0\0" + bytes((4, 3, 2, 0)) + fixed(1, 0, 0, 0, 1, 0, 0, 0, 1) + struct.pack(">HH", 2, 2)
    )
    straight = struct.pack(">HH", 0, 65535)
    table += straight * 4 + stored.astype(">u2").tobytes() + straight * 3
    return written(b"scnr", b"CMYK", b"Lab ", shared_tags(b"inks") | {b"A2B0": table, b"A2B1": table})


def lab_of(inks: Array, strength: float = 1.0) -> Array:
    result: Array = np.array([100.0, 0.0, 0.0]) + inks @ (INKS * strength)
    return result


def xyz_of(lab: Array) -> Array:
    """CIE 15, relative to D50."""
    lightness = (lab[..., 0] + 16) / 116
    ratios = np.stack([lightness + lab[..., 1] / 500, lightness, lightness - lab[..., 2] / 200], axis=-1)
    low = (ratios - 16 / 116) * 3 * (6 / 29) ** 2
    result: Array = np.where(ratios > 6 / 29, ratios**3, low) * D50
    return result


def srgb_of(colors: Array) -> Array:
    """sRGB levels (IEC 61966-2-1) of XYZ under D50."""
    linear = np.clip(colors @ np.linalg.inv(colorants(SRGB)).T, 0, 1)
    encoded_levels = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    result: Array = encoded_levels * 255
    return result


def cube(steps: int = 12) -> Array:
    levels = np.linspace(0, 255, steps).round().astype(np.uint8)
    return np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(steps, steps * steps, 3)


def converted(pixels: Array, profile: bytes, cmyk: bool = False) -> Array:
    result = to_srgb(pixels, profile, cmyk)
    assert result is not None
    assert result.dtype == np.uint8
    return result


@pytest.mark.parametrize("primaries", [DISPLAY_P3, ADOBE_RGB])
def test_rgb_is_converted_by_matrix_and_curve(primaries: tuple[tuple[float, float], ...]) -> None:
    pixels = cube()
    expected = srgb_of((pixels / 255) ** GAMMA @ colorants(primaries).T)
    assert np.abs(expected - pixels).max() > 30
    assert np.abs(converted(pixels, rgb_profile(primaries)) - expected).max() <= 1


def srgb_curve(levels: Array) -> Array:
    result: Array = np.where(levels >= 0.04045, ((levels + 0.055) / 1.055) ** 2.4, levels / 12.92)
    return result


@pytest.mark.parametrize("primaries", [DISPLAY_P3, PROPHOTO])
@pytest.mark.parametrize(
    ("curves", "linear"),
    [
        ((parametric(3, 2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045),) * 3, srgb_curve),
        ((parametric(0, 1.8),) * 3, lambda levels: levels**1.8),
        ((sampled(2.2, 1024), sampled(1.0, 2), parametric(0, 2.0)), lambda levels: levels ** [2.2, 1.0, 2.0]),
        ((b"curv" + bytes(8),) * 3, lambda levels: levels),
        ((parametric(1, 2.0, 1.0, 0.0),) * 3, lambda levels: levels**2),  # by littleCMS
    ],
)
def test_curves_of_all_kinds(
    primaries: tuple[tuple[float, float], ...], curves: tuple[bytes, ...], linear: Callable[[Array], Array]
) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (50, 70, 3), np.uint8)
    pixels[:25] //= 8  # dark
    profile = rgb_profile(primaries, curves=curves)
    expected = srgb_of(linear(pixels / 255) @ colorants(primaries).T)
    assert np.abs(converted(pixels, profile) - expected).max() <= 1
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert (matrix_conversion(profile, srgb) is None) == curves[0].startswith(parametric(1))


@pytest.mark.filterwarnings("error")
def test_a_curve_beyond_all_numbers_ends_at_white() -> None:
    steep = rgb_profile(ADOBE_RGB, curves=(parametric(3, 300.0, 300.0, 300.0, 0.0, 0.0),) * 3)
    conversion = matrix_conversion(steep, ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    assert conversion is not None
    assert conversion(cube(2)).min() == 255


def test_a_profile_with_a_table_is_converted_by_its_table() -> None:
    """The table makes everything grey; curves and matrix, which the profile has too, do not."""
    straight = struct.pack(">HH", 0, 65535)
    table = (
        b"mft2\0\0\0\0" + bytes((3, 3, 2, 0)) + fixed(1, 0, 0, 0, 1, 0, 0, 0, 1) + struct.pack(">HH", 2, 2)
    )
    corners = np.stack(np.meshgrid(*[[0, 1]] * 3, indexing="ij"), axis=-1).reshape(8, 3)
    grays = corners.mean(axis=1)[:, None] * D50 * 32768
    table += straight * 3 + np.rint(grays).astype(">u2").tobytes() + straight * 3
    plain = rgb_profile(ADOBE_RGB)
    (count,) = struct.unpack_from(">I", plain, 128)
    tags = {
        name: plain[start : start + size]
        for name, start, size in struct.iter_unpack(">4sII", plain[132 : 132 + 12 * count])
    }
    profile = written(b"mntr", b"RGB ", b"XYZ ", tags | {b"A2B0": table, b"A2B1": table})
    expected = srgb_of((cube() / 255).mean(axis=2, keepdims=True) * D50)
    assert np.abs(converted(cube(), profile) - expected).max() <= 2


def test_alpha_stays_and_hides_nothing_from_conversion() -> None:
    pixels = gradient(channels=4)
    colors = np.ascontiguousarray(pixels[:, :, :3])
    result = converted(pixels, rgb_profile(ADOBE_RGB))
    np.testing.assert_array_equal(result[:, :, 3], pixels[:, :, 3])
    np.testing.assert_array_equal(result[:, :, :3], converted(colors, rgb_profile(ADOBE_RGB)))


def test_gray_stays_gray() -> None:
    pixels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    expected = srgb_of((pixels / 255) ** 1.75 * D50)[:, :, 1:2]
    assert np.abs(expected - pixels).max() > 10
    result = converted(pixels, gray_profile())
    assert result.shape == pixels.shape
    assert np.abs(result - expected).max() <= 1
    both = np.concatenate([pixels, 255 - pixels], axis=2)
    np.testing.assert_array_equal(
        converted(both, gray_profile()), np.concatenate([result, 255 - pixels], axis=2)
    )


def test_inks_become_rgb() -> None:
    inks = np.random.default_rng(1).integers(0, 256, (40, 40, 4), np.uint8)
    inks[0, 0], inks[0, 1] = 0, 255
    expected = srgb_of(xyz_of(lab_of(inks / 255)))
    result = converted(inks, cmyk_profile(), cmyk=True)
    assert result.shape == (40, 40, 3)
    np.testing.assert_array_equal(result[0, :2], [[255] * 3, [0] * 3])
    assert np.abs(result - expected).max() <= 2


def test_the_darkest_ink_is_made_black() -> None:
    strength = 0.8  # which leaves L* at 20
    inks = np.random.default_rng(2).integers(0, 256, (40, 40, 4), np.uint8)
    inks[0, 0] = 255
    black = xyz_of(np.array([20.0, 0.0, 0.0]))
    colors = (xyz_of(lab_of(inks / 255, strength)) - black) / (D50 - black) * D50
    result = converted(inks, cmyk_profile(strength), cmyk=True)
    np.testing.assert_array_equal(result[0, 0], [0, 0, 0])
    assert np.abs(result - srgb_of(colors)).max() <= 2


@pytest.mark.parametrize("inverted", [True, False])
def test_a_jpeg_of_inks_is_converted_whether_inverted_or_not(inverted: bool) -> None:
    inks = np.zeros((16, 16, 4), np.uint8)
    inks[:8, :, 1], inks[8:, :, 3] = 200, 90
    profile = cmyk_profile()
    # Pillow inverts, and says so in an Adobe marker.
    image = Image.fromarray(inks if inverted else 255 - inks, "CMYK")
    data = encoded(image, "JPEG", quality=100, icc_profile=profile)
    if not inverted:
        start = data.index(b"\xff\xee\0\x0eAdobe")
        data = data[:start] + data[start + 16 :]
    header = jpeg_header.read_header(data)
    assert (header.adobe is not None) == inverted
    stored = jpeg.decode_components(data, header)
    full_is_255 = 255 - stored if header.adobe is not None else stored
    assert profile_of(data, "jpeg") == profile
    expected = srgb_of(xyz_of(lab_of(inks / 255)))
    assert np.abs(converted(full_is_255, profile, cmyk=True) - expected).max() <= 4


def test_profiles_that_are_srgb_change_nothing() -> None:
    built = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert to_srgb(cube(), built) is None
    assert to_srgb(gradient(channels=4), built) is None


def test_a_profile_is_judged_by_its_colors_not_by_its_name() -> None:
    assert to_srgb(cube(), rgb_profile(ADOBE_RGB, b"sRGB IEC61966-2.1")) is not None


@pytest.mark.parametrize(
    ("channels", "cmyk", "profile"),
    [
        (1, False, rgb_profile(ADOBE_RGB)),
        (3, False, gray_profile()),
        (4, False, cmyk_profile()),
        (4, True, rgb_profile(ADOBE_RGB)),
        (3, True, cmyk_profile()),
        (3, False, ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()),
        (3, False, ImageCms.ImageCmsProfile(ImageCms.createProfile("XYZ")).tobytes()),
        (3, False, rgb_profile(ADOBE_RGB).replace(b"mntr", b"link")),
        (3, False, rgb_profile(ADOBE_RGB).replace(b"acsp", b"pcsa")),
        (3, False, rgb_profile(ADOBE_RGB).replace(b"rXYZ", b"xXYZ")),
        (3, False, rgb_profile(ADOBE_RGB)[:-1]),
        (3, False, b""),
    ],
)
def test_profiles_that_do_not_fit_or_are_damaged_change_nothing(
    channels: int, cmyk: bool, profile: bytes
) -> None:
    assert to_srgb(gradient(channels=channels), profile, cmyk) is None


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_damage_to_a_profile_raises(data: st.DataObject) -> None:
    channels, profile = data.draw(
        st.sampled_from([(1, gray_profile()), (3, rgb_profile(DISPLAY_P3)), (4, cmyk_profile())])
    )
    damaged = bytearray(profile)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))
    result = to_srgb(gradient(8, 8, channels), bytes(damaged[:cut]), cmyk=channels == 4)
    assert result is None or (result.shape == (8, 8, min(channels, 3)) and result.dtype == np.uint8)


BIG = written(b"mntr", b"RGB ", b"XYZ ", shared_tags(b"big") | {b"data": bytes(range(251)) * 700})


def jpeg_parts(data: bytes) -> tuple[bytes, list[bytes], bytes]:
    """A JPEG before its APP2 segments, these, and what is behind them."""
    spans = [(start - 4, end) for marker, start, end in jpeg_header.segments(data) if marker == 0xE2]
    first, last = spans[0][0], spans[-1][1]
    return data[:first], [data[start:end] for start, end in spans], data[last:]


def test_a_jpegs_profile_is_put_together_in_order() -> None:
    data = encoded(gradient(), "JPEG", icc_profile=BIG)
    before, parts, behind = jpeg_parts(data)
    assert len(parts) == 3
    assert profile_of(data, "jpeg") == BIG
    assert profile_of(before + b"".join(reversed(parts)) + behind, "jpeg") == BIG
    other = b"\xff\xe2\0\x08MPF\0\0\0"
    assert profile_of(before + other + b"".join(parts) + behind, "jpeg") == BIG


@pytest.mark.parametrize("order", [(0, 1), (1, 2), (0, 1, 1), (0, 1, 2, 2), (0, 0, 1, 2), ()])
def test_a_jpegs_profile_with_a_part_missing_or_twice_is_none(order: tuple[int, ...]) -> None:
    before, parts, behind = jpeg_parts(encoded(gradient(), "JPEG", icc_profile=BIG))
    assert profile_of(before + b"".join(parts[i] for i in order) + behind, "jpeg") is None


@pytest.mark.parametrize(("position", "value"), [(16, 0), (16, 4), (17, 2), (17, 4), (17, 0)])
def test_a_jpegs_profile_with_a_wrong_number_is_none(position: int, value: int) -> None:
    before, parts, behind = jpeg_parts(encoded(gradient(), "JPEG", icc_profile=BIG))
    wrong = bytearray(parts[0])
    wrong[position] = value
    assert profile_of(before + bytes(wrong) + b"".join(parts[1:]) + behind, "jpeg") is None


def png_holding(*before: bytes) -> bytes:
    return png_file((4, 4, 8, 0, 0, 0, 0), b"\0\1\2\3\4" * 4, *before)


def test_a_pngs_profile() -> None:
    assert profile_of(encoded(gradient(), "PNG", icc_profile=BIG), "png") == BIG
    good = b"name\0\0" + zlib.compress(BIG)
    assert profile_of(png_holding(chunk(b"iCCP", good)), "png") == BIG
    wrong_sum = chunk(b"iCCP", good)[:-1] + b"\0"
    behind_palette = chunk(b"PLTE", bytes(3)) + chunk(b"iCCP", good)
    bomb = b"name\0\0" + zlib.compress(bytes((1 << 24) + 1))
    for bad in (
        wrong_sum,
        behind_palette,
        chunk(b"iCCP", good[:-1]),
        chunk(b"iCCP", b"name\0\1" + good[6:]),
        chunk(b"iCCP", b"name\0\0not zlib"),
        chunk(b"iCCP", b"name"),
        chunk(b"iCCP", bomb),
    ):
        assert profile_of(png_holding(bad), "png") is None


def test_a_webps_profile() -> None:
    for options in ({"lossless": True}, {"quality": 50}):
        data = encoded(gradient(channels=4), "WEBP", icc_profile=BIG, **options)
        assert profile_of(data, "webp") == BIG
        start = data.index(b"ICCP")
        odd = b"oddc" + struct.pack("<I", 3) + b"abc\0"
        assert profile_of(data[:start] + odd + data[start:], "webp") == BIG
        assert profile_of(data[:2000], "webp") is None
        pixels = data.index(b"VP8", start)
        assert profile_of(data[:start] + data[pixels:] + data[start:pixels], "webp") is None


@pytest.mark.parametrize("kind", ["tiff", "avif"])
def test_a_profile_that_pillow_reads(kind: str) -> None:
    if kind == "avif" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    assert profile_of(encoded(gradient(), kind.upper(), icc_profile=BIG), kind) == BIG


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "tiff", "gif", "bmp"])
def test_files_without_a_profile(kind: str) -> None:
    assert profile_of(encoded(gradient(), kind.upper()), kind) is None
    assert profile_of(bytes(range(48)), "pixels") is None


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_damage_to_a_file_raises(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["jpeg", "png", "webp", "tiff"]))
    file = bytearray(encoded(gradient(), kind.upper(), icc_profile=rgb_profile(ADOBE_RGB)))
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    found = profile_of(bytes(file[: data.draw(st.integers(0, len(file)))]), kind)
    assert found is None or isinstance(found, bytes)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_a_png_with_a_profile_has_the_same_pixels(channels: int, dtype: str) -> None:
    pixels = gradient(channels=channels, dtype=dtype)
    data = encoded(pixels, "PNG") if dtype == "uint8" else deep_png(pixels)
    profile = gray_profile() if channels <= 2 else rgb_profile(DISPLAY_P3)
    result = png_with_profile(data, profile)
    with Image.open(io.BytesIO(result)) as image:
        image.load()
        assert image.info["icc_profile"] == profile
    np.testing.assert_array_equal(tensorflow_pixels(result, dtype), pixels)
    assert profile_of(result, "png") == profile


def test_a_png_of_a_palette_gets_its_profile_before_it() -> None:
    image = Image.fromarray(gradient()).quantize(16)
    data = encoded(image, "PNG")
    profile = rgb_profile(ADOBE_RGB)
    result = png_with_profile(data, profile)
    assert result.index(b"iCCP") < result.index(b"PLTE")
    assert profile_of(result, "png") == profile
    np.testing.assert_array_equal(tensorflow_pixels(result), np.asarray(image.convert("RGB")))


def test_a_pngs_former_profile_is_replaced() -> None:
    profile = gray_profile()
    bare = png_holding()
    said = png_holding(chunk(b"sRGB", b"\0"), chunk(b"iCCP", b"old\0\0" + zlib.compress(gray_profile(2.0))))
    assert png_with_profile(said, profile) == png_with_profile(bare, profile)


def test_a_profile_of_other_colors_stays_out_of_a_png() -> None:
    gray, color = png_holding(), encoded(gradient(), "PNG")
    assert png_with_profile(gray, rgb_profile(ADOBE_RGB)) == gray
    assert png_with_profile(color, gray_profile()) == color
    assert png_with_profile(color, cmyk_profile()) == color
