"""Lossless optimisation: fewer bytes, the same picture, and nothing taken on trust."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib

import numpy as np
import oxipng
import pytest
import simplejpeg
from PIL import Image

from recordmill.transforms.images import jpeg_header, optimise
from recordmill.transforms.images.optimise import optimised
from recordmill.transforms.images.png import read_header
from recordmill.transforms.records import BadInput
from tests.images.drawn import (
    Array,
    chunk,
    encoded,
    gradient,
    png_file,
    rare_jpeg,
    tensorflow_pixels,
    with_orientation,
)

PROGRESSIVE = "lossless-progressive"
MODES = ("lossless", PROGRESSIVE)


def soft(height: int = 96, width: int = 128, channels: int = 3) -> Array:
    rows, columns = np.mgrid[:height, :width]
    planes = [128 + 90 * np.sin(rows / 9 + k) * np.cos(columns / (11 + 3 * k)) for k in range(channels)]
    return np.stack(planes, axis=2).astype(np.uint8)


def smaller(data: bytes, image_format: str, mode: str = PROGRESSIVE) -> bytes:
    """The optimised file, which TensorFlow decodes to the same."""
    result, action = optimised(data, image_format, mode)
    assert action == "optimized"
    assert len(result) < len(data)
    dtype = "uint16" if image_format == "png" and data[24] == 16 else "uint8"
    np.testing.assert_array_equal(tensorflow_pixels(result, dtype), tensorflow_pixels(data, dtype))
    return result


def stored_png(header: tuple[int, ...], rows: bytes, *before: bytes) -> bytes:
    """As `png_file`, not compressed at all."""
    data = png_file(header, b"", *before)
    return data[: data.index(b"IDAT") - 4] + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")


def one_pixel_off(pixels: Array) -> Array:
    changed = pixels.copy()
    changed[5, 7] ^= 255
    return changed


def test_a_jpeg_is_only_for_the_progressive_mode() -> None:
    data = encoded(soft(), "JPEG")
    for jpeg in (data, data[:-300]):
        assert optimised(jpeg, "jpeg", "lossless") == (jpeg, None)


@pytest.mark.parametrize("name", ["444", "422", "420", "440", "411", "gray", "cmyk", "plain cmyk", "rgb"])
def test_jpegs(name: str) -> None:
    if name.isdigit():
        data = simplejpeg.encode_jpeg(soft(), 90, "RGB", name)
    elif name == "gray":
        data = encoded(soft()[:, :, 0], "JPEG")
    elif name == "rgb":
        data = encoded(soft(), "JPEG", keep_rgb=True)
    else:
        data = encoded(Image.fromarray(soft()).convert("CMYK"), "JPEG")
        if name == "plain cmyk":  # without the Adobe segment, without which no ink is 0
            start = data.index(b"\xff\xee")
            data = data[:start] + data[start + 16 :]
    before = jpeg_header.read_header(data)
    found = jpeg_header.read_header(smaller(data, "jpeg"))
    assert found.process == 0xC2
    assert (found.jfif, found.adobe, found.components) == (before.jfif, before.adobe, before.components)


def test_a_jpegs_metadata_stays() -> None:
    profile = bytes(range(256)) * 300
    exif = with_orientation(6)
    data = encoded(soft(), "JPEG", exif=exif, icc_profile=profile, comment=b"who", dpi=(300, 200))
    result = smaller(data, "jpeg")
    with Image.open(io.BytesIO(data)) as before, Image.open(io.BytesIO(result)) as after:
        for name in ("icc_profile", "exif", "comment", "dpi", "jfif_version"):
            assert after.info[name] == before.info[name]
    assert jpeg_header.read_header(result).orientation == 6


def test_a_progressive_jpeg_gets_smaller() -> None:
    smaller(encoded(np.tile(soft(), (2, 2, 1)), "JPEG", progressive=True, quality=97), "jpeg")


def test_arithmetic_coding_stays() -> None:
    data = rare_jpeg("arithmetic")
    assert optimised(data, "jpeg", PROGRESSIVE) == (data, None)


def test_a_palette_beside_true_colours_stays() -> None:
    hint = chunk(b"PLTE", bytes(range(9)))
    data = stored_png((64, 64, 8, 2, 0, 0, 0), (b"\0" + bytes(range(192))) * 64, hint)
    assert hint in smaller(data, "png")


@pytest.mark.parametrize("mode", MODES)
def test_what_is_optimal_stays(mode: str) -> None:
    once = smaller(encoded(soft(), "JPEG"), "jpeg")
    assert optimised(once, "jpeg", mode) == (once, None)
    png = smaller(encoded(soft(), "PNG", compress_level=1), "png", mode)
    assert optimised(png, "png", mode) == (png, None)


def test_further_pictures_in_a_jpeg_are_left_where_they_are() -> None:
    data = encoded(soft(), "MPO", save_all=True, append_images=[Image.fromarray(soft())])
    assert optimised(data, "jpeg", PROGRESSIVE) == (data, None)


@pytest.mark.parametrize("image_format", ["gif", "bmp", "webp", "raw"])
def test_other_formats_are_left_as_they_are(image_format: str) -> None:
    assert optimised(b"any bytes", image_format, "lossless") == (b"any bytes", None)


def test_a_damaged_file_is_a_failure() -> None:
    jpeg = encoded(soft(), "JPEG")
    for data, kind in (
        (jpeg[:-300] + b"\xff\xd9", "jpeg"),
        (jpeg[:-300], "jpeg"),
        (png_file((9, 9, 8, 0, 0, 0, 0), bytes(89)), "png"),
        (png_file((9, 9, 8, 0, 0, 0, 0), b"\x07" * 90), "png"),
    ):
        with pytest.raises(BadInput):
            optimised(data, kind, PROGRESSIVE)


def test_palette_indices_stay() -> None:
    """Class ids in an order that a palette reduction would change; unused and doubled entries."""
    rows, columns = np.mgrid[:64, :64]
    classes = np.where((rows // 8 + columns // 8) % 3 == 0, 200, np.where(rows > columns, 7, 255))
    image = Image.fromarray(classes.astype(np.uint8), "P")
    image.putpalette([value for index in range(256) for value in (index // 2, 9, 255 - index // 2)])
    data = encoded(image, "PNG", compress_level=0, transparency=bytes(range(255, -1, -1)))
    result = smaller(data, "png")
    with Image.open(io.BytesIO(result)) as after:
        assert after.mode == "P"
        np.testing.assert_array_equal(np.asarray(after), classes)
        assert after.getpalette() == image.getpalette()
    header, source = read_header(result), read_header(data)
    assert (header.depth, header.color, header.transparency) == (8, 3, source.transparency)


@pytest.mark.parametrize("color", [0, 2, 4, 6])
def test_channels_and_depth_stay(color: int) -> None:
    """Grey in RGB, opaque alpha, 16 bits that 8 would hold: what a reduction would take."""
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[color]
    plain = np.repeat(gradient(40, 50, 1), channels, axis=2)
    if channels % 2 == 0:
        plain[:, :, -1] = 255
    rows = (b"\0" + row.astype(">u2").tobytes() for row in plain.astype(np.uint16) * 257)
    for data in (
        encoded(plain if channels != 2 else Image.fromarray(plain, "LA"), "PNG", compress_level=0),
        stored_png((50, 40, 16, color, 0, 0, 0), b"".join(rows)),
    ):
        header = read_header(data)
        found = read_header(smaller(data, "png"))
        assert (found.color, found.depth, found.dtype) == (color, header.depth, header.dtype)


def test_colours_under_transparency_stay() -> None:
    pixels = np.dstack([soft(), np.zeros((96, 128), np.uint8)])
    smaller(encoded(pixels, "PNG", compress_level=1), "png")


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_small_depths_stay(depth: int) -> None:
    row = np.random.default_rng(0).integers(0, 256, 8 * depth, dtype=np.uint8).tobytes()
    data = stored_png((64, 64, depth, 0, 0, 0, 0), (b"\0" + row) * 64)
    found = read_header(smaller(data, "png"))
    assert (found.depth, found.color) == (depth, 0)


def test_interlacing_stays() -> None:
    sizes = ((2, 2), (2, 2), (4, 2), (4, 4), (8, 4), (8, 8), (16, 8))  # (width, height) of 16x16's passes
    rows = b"".join((b"\0" + bytes(range(width))) * height for width, height in sizes)
    data = stored_png((16, 16, 8, 0, 0, 0, 1), rows)
    assert read_header(smaller(data, "png")).interlaced


def test_a_pngs_other_chunks_stay() -> None:
    """In their order, a damaged one and an unknown one among them; and the bytes behind the end."""
    before = [
        chunk(b"gAMA", struct.pack(">I", 45455)),
        chunk(b"iCCP", b"name\0\0" + zlib.compress(bytes(range(256)) * 8, 0)),
        chunk(b"eXIf", b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"),
        chunk(b"tEXt", b"Comment\0who"),
        chunk(b"prVt", b"one's own"),
        chunk(b"tIME", bytes(7))[:-4] + b"\0\0\0\0",
    ]
    data = stored_png((64, 64, 8, 0, 0, 0, 0), (b"\0" + bytes(range(64))) * 64, *before)
    data = data[: -len(chunk(b"IEND", b""))]
    tail = chunk(b"tEXt", b"Late\0text") + chunk(b"IEND", b"") + b"behind the end"
    result = smaller(data + tail, "png")
    assert result[: result.index(b"IDAT") - 4] == data[: data.index(b"IDAT") - 4]
    assert result.endswith(tail)
    assert read_header(result).orientation == 6


def test_a_changed_pixel_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    other = one_pixel_off(soft())
    jpeg = encoded(soft(), "JPEG", quality=90)
    wrong = encoded(other, "JPEG", quality=90, optimize=True)
    assert len(wrong) < len(jpeg)
    monkeypatch.setattr("mozjpeg_lossless_optimization.optimize", lambda data, copy: wrong)
    assert optimised(jpeg, "jpeg", PROGRESSIVE) == (jpeg, "optimize_differed")
    png = encoded(soft(), "PNG", compress_level=0)
    monkeypatch.setattr("oxipng.optimize_from_memory", lambda data, **options: encoded(other, "PNG"))
    assert optimised(png, "png", "lossless") == (png, "optimize_differed")


@pytest.mark.parametrize("damage", ["metadata", "end", "empty"])
def test_a_wrong_header_is_caught(monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    data = encoded(soft(), "JPEG", exif=with_orientation(6))
    bare = encoded(soft(), "JPEG", optimize=True)
    wrong = {"metadata": bare, "end": bare[:-2], "empty": b""}[damage]
    monkeypatch.setattr(optimise, "_progressive", lambda data: wrong)
    assert optimised(data, "jpeg", PROGRESSIVE) == (data, "optimize_differed")


def test_a_failing_optimiser_costs_no_image(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(data: bytes, **options: object) -> bytes:
        raise ValueError("no")

    def fail_png(data: bytes, **options: object) -> bytes:
        raise oxipng.PngError("no")

    monkeypatch.setattr("mozjpeg_lossless_optimization.optimize", fail)
    monkeypatch.setattr("oxipng.optimize_from_memory", fail_png)
    jpeg, png = encoded(soft(), "JPEG"), encoded(soft(), "PNG")
    assert optimised(jpeg, "jpeg", "lossless-progressive") == (jpeg, "optimize_differed")
    assert optimised(png, "png", "lossless") == (png, "optimize_differed")


def test_changed_palette_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    image = Image.fromarray(soft()[:, :, 0] // 64, "P")
    image.putpalette([0, 0, 0, 9, 9, 9, 80, 80, 80, 255, 0, 0])
    data = encoded(image, "PNG", compress_level=0)
    image.putpalette([0, 0, 0, 9, 9, 9, 80, 80, 80, 255, 0, 1])
    wrong = encoded(image, "PNG")
    monkeypatch.setattr("oxipng.optimize_from_memory", lambda data, **options: wrong)
    assert optimised(data, "png", "lossless") == (data, "optimize_differed")


def test_damage_that_would_end_the_process_is_a_failure() -> None:
    """mozjpeg calls exit() over a coefficient out of range, where other decoders go on."""
    data = bytearray(encoded(soft(), "JPEG", quality=95))
    start = len(data) // 2
    data[start : start + 400] = b"\x5a" * 400
    with pytest.raises(BadInput):
        optimised(bytes(data), "jpeg", "lossless-progressive")


def test_coefficients_that_would_end_the_process_are_left() -> None:
    """A DC difference of 12 bits: of no real picture, but any decoder takes it."""
    data = encoded(np.full((8, 8), 128, np.uint8), "JPEG", optimize=True)
    table = data.index(b"\xff\xc4") + 4
    assert data[table] == 0
    large = data[: table + 17] + b"\x0c" + data[table + 18 :]
    scan = large.index(b"\xff\xda") + 10
    large = large[:scan] + bytes((0x00, 0x00, 0x3F)) + b"\xff\xd9"  # DC code 0, 12 bits, then end of block
    assert optimised(large, "jpeg", "lossless-progressive") == (large, None)


def test_a_small_jpeg_that_would_grow_stays() -> None:
    data = encoded(soft(8, 8), "JPEG", optimize=True)
    assert optimised(data, "jpeg", PROGRESSIVE) == (data, None)


# Sound to libjpeg-turbo, and the end of a process that hands them to mozjpeg: tables behind the first scan,
# or bits left out by successive approximation, make coefficients too large for it.
FATAL = {
    "ac14": (
        "ffd8ffdb0043000101010101010101010101010101010101010101010101010101010101010101010101010101"
        "0101010101010101010101010101010101010101010101010101ffc2000b080008000801011100ffc400150000"
        "0200000000000000000000000000000003ffda00080101000000007fffc4001510000200000000000000000000"
        "00000000000effda0008010100013f007fff003fffd9"
    ),
    "ac10al4": (
        "ffd8ffdb0043000101010101010101010101010101010101010101010101010101010101010101010101010101"
        "0101010101010101010101010101010101010101010101010101ffc2000b080008000801011100ffc400150000"
        "0200000000000000000000000000000003ffda00080101000000007fffc4001510000200000000000000000000"
        "00000000000affda0008010100013f047ff3ffd9"
    ),
    "dc11al4": (
        "ffd8ffdb0043000101010101010101010101010101010101010101010101010101010101010101010101010101"
        "0101010101010101010101010101010101010101010101010101ffc2000b080008000801011100ffc400150000"
        "020000000000000000000000000000000bffda00080101000000047fff00ffc400151000020000000000000000"
        "0000000000000003ffda0008010100013f0079ffd9"
    ),
}


@pytest.mark.parametrize("name", FATAL)
def test_what_would_end_the_process_is_left_as_it_is(name: str) -> None:
    code = (
        "import sys; from recordmill.transforms.images.optimise import optimised; "
        "data = bytes.fromhex(sys.argv[1]); "
        "assert optimised(data, 'jpeg', 'lossless-progressive') == (data, None)"
    )
    command = [sys.executable, "-c", code, FATAL[name]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
