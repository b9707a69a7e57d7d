"""PNG: as strict as libpng, and no chunk but the pixels' can do harm."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from recordmill.transforms.images.png import encode_deep
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image
from recordmill.transforms.records import BadInput
from tests.images.drawn import chunk, encoded, gradient, png_file, tensorflow_pixels, with_orientation

KEEP, HEADER, RAW = ImagePolicy(), ImagePolicy(validate="header"), ImagePolicy("raw")
SIGNATURE, IHDR = b"\x89PNG\r\n\x1a\n", bytes((0, 0, 0, 4, 0, 0, 0, 4, 8, 0, 0, 0, 0))
ROWS = b"".join(b"\0" + bytes(range(row, row + 4)) for row in range(4))


def gray(*before: bytes) -> bytes:
    return png_file((4, 4, 8, 0, 0, 0, 0), ROWS, *before)


def deflated(stream: bytes) -> bytes:
    """A PNG of the pixels in a zlib stream."""
    return SIGNATURE + chunk(b"IHDR", IHDR) + chunk(b"IDAT", stream) + chunk(b"IEND", b"")


def reason(data: bytes, policy: ImagePolicy = KEEP) -> str:
    with pytest.raises(BadInput) as caught:
        store_image(data, policy)
    return caught.value.reason


def test_every_truncation_is_seen() -> None:
    data = encoded(gradient(), "PNG")
    for length in range(8, len(data)):
        assert reason(data[:length], HEADER) == "truncated", length


def test_every_flipped_byte_of_a_critical_chunk_is_seen() -> None:
    data = gray()
    for position in range(8, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x01
        with pytest.raises(BadInput):
            store_image(bytes(damaged), HEADER)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (png_file((4, 4, 8, 0, 0, 0, 0), ROWS[:-1]), "truncated"),
        (png_file((4, 4, 8, 0, 0, 0, 0), b"\x05" + ROWS[1:]), "corrupt"),
        (png_file((4, 4, 8, 3, 0, 0, 0), ROWS), "corrupt"),  # no palette
        (png_file((4, 4, 7, 0, 0, 0, 0), ROWS), "corrupt"),
        (png_file((0, 4, 8, 0, 0, 0, 0), b""), "corrupt"),
        (png_file((2_000_000_000, 3_000, 8, 0, 0, 0, 0), ROWS), "too many pixels"),
        (png_file((1_000_001, 1, 8, 0, 0, 0, 0), b"\0" * 1_000_002), "too many pixels"),
        (gray(chunk(b"ABCD", b"")), "corrupt"),  # a critical chunk of no standard
        (gray().replace(b"IHDR", b"CgBI", 1), "corrupt"),
        (deflated(zlib.compress(ROWS)[:-4]), "truncated"),  # all pixels, but no checksum
        (deflated(zlib.compress(ROWS)[:-1] + b"x"), "corrupt"),  # the wrong one
        (deflated(zlib.compress(ROWS + bytes(900))[:-5]), "truncated"),  # too many pixels, and no end
        (SIGNATURE + chunk(b"IHDR", IHDR + b"\0") + gray()[33:], "corrupt"),
        (png_file((2, 2, 8, 2, 0, 0, 0), bytes(14), chunk(b"PLTE", b"")), "corrupt"),
        (b"\x89PNG\r\n\x1a\n" + chunk(b"CgBI", b"abcd") + gray()[8:], "not supported"),
        (gray().replace(b"\r\n", b"\n", 1), "corrupt"),  # sent as text
    ],
)
def test_what_tensorflow_rejects(data: bytes, expected: str) -> None:
    assert reason(data) == expected
    with pytest.raises(Exception, match="(?i)png|format"):
        tensorflow_pixels(data)


def test_more_pixels_than_there_should_be_do_no_harm_within_bounds() -> None:
    data = deflated(zlib.compress(ROWS + bytes(9000)))
    assert store_image(data, KEEP).data == data
    assert tensorflow_pixels(data).shape == (4, 4, 1)
    assert reason(deflated(zlib.compress(ROWS + bytes(5_000_000)))) == "corrupt"


@pytest.mark.parametrize("empty", [(), (chunk(b"IDAT", b""),)])
def test_a_window_too_small_for_its_distances_is_made_anew(empty: tuple[bytes, ...]) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1, 400, 3), np.uint8)
    pixels = np.repeat(noise, 30, axis=0)
    stream = zlib.compress(b"".join(b"\0" + row.tobytes() for row in pixels))
    stored = {}
    for bits in range(8, 16):
        head = (bits - 8) << 4 | 8
        declared = bytes((head, 31 - (head << 8) % 31)) + stream[2:]
        head = struct.pack(">IIBBBBB", 400, 30, 8, 2, 0, 0, 0)
        chunks = (chunk(b"IHDR", head), *empty, chunk(b"IDAT", declared), chunk(b"IEND", b""))
        data = SIGNATURE + b"".join(chunks)
        image = store_image(data, KEEP)
        np.testing.assert_array_equal(tensorflow_pixels(image.data), pixels)
        stored[bits] = image.actions[0]
        if bits < 11:
            with pytest.raises(Exception, match="PNG"):
                tensorflow_pixels(data)
            assert reason(data.replace(declared[-1:] + data[-16:-12], b"xxxxx")) == "corrupt"
    assert stored == {bits: "transcoded" if bits < 11 else "kept" for bits in range(8, 16)}


@pytest.mark.parametrize(("width", "height"), [(254, 257), (254, 514), (1, 1), (300, 500)])
@pytest.mark.parametrize(("color", "samples"), [(0, 1), (2, 3), (4, 2), (6, 4)])
@pytest.mark.parametrize("depth", [8, 16])
def test_pixels_inflated_by_either_library(
    width: int, height: int, color: int, samples: int, depth: int
) -> None:
    """Rows of every filter, in one or several blocks; bytes after the stream leave inflating to Pillow."""
    noise = np.random.default_rng(0).integers(0, 256, (height, 1 + width * samples * depth // 8), np.uint8)
    noise[:, 0] = np.arange(height) % 5
    stream = zlib.compress(noise.tobytes())
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
    stored = []
    for parts in ((stream,), (stream[:9], stream[9:]), (stream, b"more")):
        data = SIGNATURE + b"".join((head, *(chunk(b"IDAT", part) for part in parts), chunk(b"IEND", b"")))
        image = store_image(data, RAW)
        pixels = np.frombuffer(image.data, f"<u{depth // 8}").reshape(height, width, samples)
        np.testing.assert_array_equal(pixels, tensorflow_pixels(data, image.dtype))
        stored.append(image.data)
    assert stored[0] == stored[1] == stored[2]


def test_text_bombs_and_strange_profiles_do_no_harm() -> None:
    bomb = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(80_000_000)))
    profile = chunk(b"iCCP", b"odd\0\x07nothing")
    data = gray(bomb, profile)
    assert store_image(data, KEEP).data == data
    expected = bytes(row + column for row in range(4) for column in range(4))
    assert store_image(data, RAW).data == expected == tensorflow_pixels(data).tobytes()


def test_orientation_in_text_as_imagemagick_writes_it() -> None:
    block = with_orientation(3).tobytes()
    text = b"Raw profile type exif\0\nexif\n%8d\n" % len(block) + block.hex().encode()
    image = store_image(gray(chunk(b"tEXt", text)), KEEP)
    assert image.actions == ("transcoded", "rotated")
    np.testing.assert_array_equal(tensorflow_pixels(image.data), tensorflow_pixels(gray())[::-1, ::-1])
    assert store_image(gray(chunk(b"tEXt", text[:-3] + b"zz")), KEEP).actions == ("kept",)


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_a_transparent_grey_becomes_alpha_where_pixels_are_asked_for(depth: int) -> None:
    width = 8
    row = b"\0" + bytes(range(width * depth // 8))
    data = png_file((width, 1, depth, 0, 0, 0, 0), row, chunk(b"tRNS", b"\0\0"))
    kept = store_image(data, KEEP)
    assert (kept.data, kept.channels) == (data, 1)
    raw = store_image(data, RAW)
    pixels = np.frombuffer(raw.data, f"<u{2 if depth == 16 else 1}").reshape(1, width, 2)
    np.testing.assert_array_equal(pixels[:, :, :1], tensorflow_pixels(data, raw.dtype))
    opaque = 65535 if depth == 16 else 255
    np.testing.assert_array_equal(pixels[:, :, 1], np.where(pixels[:, :, 0] == 0, 0, opaque))


def test_a_transparency_that_libpng_ignores_is_none() -> None:
    palette = chunk(b"PLTE", bytes(range(24)))
    header = (4, 4, 8, 3, 0, 0, 0)
    rows = ROWS
    sound = png_file(header, rows, palette, chunk(b"tRNS", b"\x10"))
    too_long = png_file(header, rows, palette, chunk(b"tRNS", bytes(9)))
    early = png_file(header, rows, chunk(b"tRNS", b"\x10"), palette)
    # Of a palette, two bits a pixel tell apart four colours.
    beyond = png_file((4, 4, 2, 3, 0, 0, 0), bytes(8), palette, chunk(b"tRNS", bytes(5)))
    second = png_file(header, rows, palette, chunk(b"tRNS", bytes(9)), chunk(b"tRNS", b"\x10"))
    for data, channels in ((sound, 4), (too_long, 3), (early, 3), (beyond, 3), (second, 4)):
        assert store_image(data, KEEP).channels == channels == tensorflow_pixels(data).shape[2]


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_deep_encoder(channels: int) -> None:
    pixels = gradient(7, 5, channels, "uint16")
    np.testing.assert_array_equal(tensorflow_pixels(encode_deep(pixels), "uint16"), pixels)
