"""Masks: class ids that nothing changes, moved one by one, and read from every way they are stored."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from recordmill.transforms.images.geometry import plan_geometry
from recordmill.transforms.images.mask import decode_mask, encode_mask, moved_mask, pixel_counts
from recordmill.transforms.images.policy import FITS, ImagePolicy
from recordmill.transforms.records import BadInput
from tests.conftest import Figure
from tests.images.drawn import Array, chunk, deep_png, encoded, gradient, png_file, tensorflow_pixels
from tests.images.test_geometry import POLICIES, SIZES, asked, moved_one_by_one, numbered

CORPUS = os.environ.get("RECORDMILL_CORPUS", "")
# Ids of 0 to 15 in an order that no ramp has; odd sides, so that rows of few bits end within a byte.
IDS = (np.arange(35, dtype=np.uint8).reshape(5, 7) * 7) % 16


def packed(ids: Array, bits: int) -> bytes:
    """Unfiltered PNG rows of `bits` a sample."""
    rows = [sum(int(v) << (8 * len(row) - bits * (i + 1)) for i, v in enumerate(row)) for row in ids]
    size = -(-ids.shape[1] * bits // 8)
    spare = 8 * ids.shape[1] - 8 * size
    return b"".join(b"\0" + (row >> spare).to_bytes(size, "big") for row in rows)


def bmp(ids: Array, bits: int, colors: list[tuple[int, int, int]]) -> bytes:
    """An uncompressed BMP of palette indices (BITMAPINFOHEADER)."""
    height, width = ids.shape
    size = -(-width * bits // 32) * 4
    rows = b"".join(row[1:].ljust(size, b"\0") for row in [packed(line[None], bits) for line in ids[::-1]])
    palette = b"".join(bytes((b, g, r, 0)) for r, g, b in colors)
    start = 54 + len(palette)
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, 0, 0, 0, 0, len(colors), 0)
    return b"BM" + struct.pack("<IHHI", start + len(rows), 0, 0, start) + head + palette + rows


def indexed(ids: Array, colors: list[int]) -> Image.Image:
    image = Image.fromarray(ids, "P")
    image.putpalette(colors)
    return image


@pytest.mark.parametrize("policy", POLICIES, ids=asked)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_pixel_is_the_nearest(size: tuple[int, int], policy: ImagePolicy) -> None:
    ids = numbered(*size)
    for orientation in range(1, 9):
        planned = plan_geometry(*size, orientation, policy)
        expected = moved_one_by_one(ids, orientation, policy, fill=999)
        moved = moved_mask(planned, ids, 999)
        assert moved.dtype == np.uint16
        np.testing.assert_array_equal(moved, expected, str(planned))
        np.testing.assert_array_equal(moved_mask(planned, ids[:, :, None], 999), expected[:, :, None])


@settings(max_examples=60)
@given(
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(1, 8),
    st.tuples(st.integers(1, 90), st.integers(1, 90)),
    st.sampled_from(FITS),
)
def test_no_id_is_made_up(height: int, width: int, orientation: int, size: tuple[int, int], fit: str) -> None:
    ids = np.random.default_rng(0).choice(np.array([0, 3, 200, 255], np.uint8), (height, width))
    policy = ImagePolicy(size=size, fit=fit)
    moved = moved_mask(plan_geometry(height, width, orientation, policy), ids, 7)
    assert moved.shape == size and moved.dtype == np.uint8
    assert set(np.unique(moved)) <= set(np.unique(ids)) | ({7} if fit == "pad" else set())
    if fit == "stretch" and min(size) >= 2 * max(height, width):
        assert set(np.unique(moved)) == set(np.unique(ids))


def test_a_mask_of_another_size_fails() -> None:
    planned = plan_geometry(4, 6, 6, ImagePolicy())
    assert moved_mask(planned, np.zeros((4, 6), np.uint8), 0).shape == (6, 4)
    with pytest.raises(BadInput, match="4x6 on an image of 6x4"):
        moved_mask(planned, np.zeros((6, 4), np.uint8), 0)


def test_the_fill_must_be_an_id() -> None:
    planned = plan_geometry(4, 6, 1, ImagePolicy())
    with pytest.raises(ValueError, match="fill is 256"):
        moved_mask(planned, np.zeros((4, 6), np.uint8), 256)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_ids_are_the_samples_of_the_png(dtype: str) -> None:
    ids = np.random.default_rng(1).integers(0, np.iinfo(dtype).max + 1, (11, 17)).astype(dtype)
    data = encode_mask(ids)
    np.testing.assert_array_equal(tensorflow_pixels(data, dtype)[:, :, 0], ids)
    assert encode_mask(ids[:, :, None]) == data
    assert Image.open(io.BytesIO(data)).getbands() == ("I" if dtype == "uint16" else "L",)
    again = decode_mask(data)
    assert again.dtype == ids.dtype
    np.testing.assert_array_equal(again, ids)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_pixels_of_each_class_id(dtype: str) -> None:
    ids = np.array([[0, 0, 255, 7], [7, 7, 7, np.iinfo(dtype).max]], dtype)
    expected = {0: 2, 7: 4, 255: 2} if dtype == "uint8" else {0: 2, 7: 4, 255: 1, 65_535: 1}
    assert pixel_counts(ids) == expected
    assert {type(value) for pair in pixel_counts(ids).items() for value in pair} == {int}


def test_masks_encode_smaller_than_as_photographs() -> None:
    rows, columns = np.mgrid[:200, :300]
    ids = ((rows - 90) ** 2 + (columns - 140) ** 2 < 70**2).astype(np.uint8) * 15
    assert len(encode_mask(ids)) < 0.8 * len(encoded(ids, "PNG"))


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_grey_samples_of_few_bits(bits: int) -> None:
    ids = IDS & ((1 << bits) - 1)
    header = (7, 5, bits, 0, 0, 0, 0)
    np.testing.assert_array_equal(decode_mask(png_file(header, packed(ids, bits))), ids)
    key = chunk(b"tRNS", b"\0\1")
    np.testing.assert_array_equal(decode_mask(png_file(header, packed(ids, bits), key)), ids)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("transparency", [b"", b"\0"], ids=["opaque", "see-through"])
def test_palette_indices(bits: int, transparency: bytes) -> None:
    ids = IDS & ((1 << bits) - 1)
    palette = chunk(b"PLTE", bytes(range(48))[::-1][: 3 << bits])
    trns = chunk(b"tRNS", transparency) if transparency else b""
    data = png_file((7, 5, bits, 3, 0, 0, 0), packed(ids, bits), palette, trns)
    np.testing.assert_array_equal(decode_mask(data), ids)


def test_sixteen_bits() -> None:
    ids = numbered(5, 7) * 1000
    np.testing.assert_array_equal(decode_mask(deep_png(ids[:, :, None])), ids)
    np.testing.assert_array_equal(decode_mask(encoded(ids, "TIFF")), ids)


GREYS = [(i, i, i) for i in range(256)]
COLORS = [(9 * i % 256, 255 - i, i) for i in range(256)]


@pytest.mark.parametrize("colors", [GREYS, COLORS, [(0, 0, 0), (255, 255, 255)]], ids=["g", "c", "b/w"])
@pytest.mark.parametrize("bits", [1, 4, 8])
def test_bmp_indices(bits: int, colors: list[tuple[int, int, int]]) -> None:
    colors = colors[: 1 << bits]
    ids = IDS & (min(1 << bits, len(colors)) - 1)
    np.testing.assert_array_equal(decode_mask(bmp(ids, bits, colors)), ids)


@pytest.mark.parametrize("colors", [GREYS, COLORS], ids=["grey", "colour"])
@pytest.mark.parametrize("options", [{}, {"transparency": 3}], ids=str)
def test_gif_indices(colors: list[tuple[int, int, int]], options: dict[str, int]) -> None:
    image = indexed(IDS, [value for color in colors for value in color])
    data = encoded(image, "GIF", optimize=False, **options)
    np.testing.assert_array_equal(decode_mask(data), IDS)


def test_tiff_indices_and_greys() -> None:
    image = indexed(IDS, [value for color in COLORS for value in color])
    np.testing.assert_array_equal(decode_mask(encoded(image, "TIFF")), IDS)
    np.testing.assert_array_equal(decode_mask(encoded(IDS, "TIFF", compression="tiff_lzw")), IDS)
    np.testing.assert_array_equal(decode_mask(encoded(Image.fromarray(IDS % 2 == 1), "TIFF")), IDS % 2)


ANIMATED = {"save_all": True, "append_images": [Image.fromarray(255 - IDS)]}


@pytest.mark.parametrize(
    ("data", "reason", "detail"),
    [
        (encoded(gradient(), "PNG"), "not supported", "in colour"),
        (encoded(gradient(channels=4), "PNG"), "not supported", "in colour"),
        (encoded(gradient(channels=2), "PNG"), "not supported", "alpha"),
        (encoded(gradient(), "BMP"), "not supported", "in colour"),
        (encoded(gradient(), "TIFF"), "not supported", "in colour"),
        (encoded(IDS, "JPEG"), "not supported", "save the class ids as a PNG"),
        (encoded(gradient(), "WEBP"), "not supported", "save the class ids as a PNG"),
        (encoded(IDS, "PPM"), "not supported", "save the class ids as a PNG"),
        (encoded(IDS, "TIFF", compression="jpeg"), "not supported", "compression loses"),
        (encoded(Image.fromarray(IDS), "GIF", **ANIMATED), "not supported", "several frames"),
        (encoded(Image.fromarray(IDS), "PNG", **ANIMATED), "not supported", "several frames"),
        (encoded(IDS, "PNG")[:-20], "truncated", ""),
        (bmp(IDS, 8, COLORS)[:-20], "truncated", ""),
        (bmp(IDS, 8, COLORS)[:20], "truncated", ""),
        (b"no image at all", "not an image", ""),
        (b"", "empty file", ""),
    ],
)
def test_refused(data: bytes, reason: str, detail: str) -> None:
    with pytest.raises(BadInput) as caught:
        decode_mask(data)
    assert (caught.value.stage, caught.value.reason) == ("decode", reason)
    assert detail in caught.value.detail


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS, reason="RECORDMILL_CORPUS names no folder of real inputs")
def test_real_palette_masks_hold_the_ids_that_their_makers_list(figure: Figure) -> None:
    folder = Path(CORPUS) / "palette_masks"
    names = sorted(path.stem for path in (folder / "SegmentationClass").glob("*.png"))
    assert names
    figure("masks", len(names))
    for name in names:
        ids = decode_mask((folder / "SegmentationClass" / f"{name}.png").read_bytes())
        listed = np.load(folder / "SegmentationClassNpy" / f"{name}.npy")
        np.testing.assert_array_equal(ids, listed.astype(np.uint8))
        np.testing.assert_array_equal(decode_mask(encode_mask(ids)), ids)
