"""GIF: kept if TensorFlow decodes it to the right picture; otherwise stored as PNG, or refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image
from recordmill.transforms.records import BadInput
from tests.fuzz.image_seeds import gif_codes, gif_file, packed, sub_blocks
from tests.images.drawn import encoded, gradient, tensorflow_pixels

KEEP = ImagePolicy()
WIDTH, HEIGHT = 23, 18
INDICES = bytes(x * y % 4 for y in range(HEIGHT) for x in range(WIDTH))
CODES = gif_codes(INDICES, 2)
# The end code after a hundred pixels, and more than two blocks of Pillow's behind it.
LONG = packed([*gif_codes(bytes(100), 8), *gif_codes(np.random.default_rng(0).bytes(120_000), 8)])
COMMENT = b"!\xfe\x03abc\0"


def frame(codes: list[tuple[int, int]], bits: int = 2, flags: int = 0, size: int = 255) -> bytes:
    head = b"," + struct.pack("<4HBB", 0, 0, WIDTH, HEIGHT, flags, bits)
    return head + sub_blocks(packed(codes), size)


def still(*blocks: bytes, colors: int = 2) -> bytes:
    return gif_file(WIDTH, HEIGHT, colors, *blocks)


def control(flags: int, index: int) -> bytes:
    return b"!\xf9\x04" + bytes((flags, 0, 0, index, 0))


def refuses(data: bytes) -> bool:
    try:
        tensorflow_pixels(data)
    except Exception:
        return True
    return False


@pytest.mark.parametrize(
    "data",
    [
        still(frame(CODES)),
        still(frame(CODES, size=1)),
        still(frame(CODES, flags=0x40)),
        still(COMMENT, control(0, 0), frame(CODES), COMMENT),
        still(frame(CODES[1:])),  # no code that clears the table
        still(frame(gif_codes(INDICES, 2, at_end=False))),
        still(frame(gif_codes(INDICES, 2, clear_every=9))),
        still(frame(gif_codes(INDICES + INDICES, 2))),  # more pixels than there is room for
        still(frame(CODES)[:-1] + b"\3abc\0"),
        still(frame(gif_codes(INDICES, 8), 8)),
        still(control(1, 9), frame(CODES)),  # no pixel is of the transparent colour
        gif_file(
            300,
            300,
            1,
            b"," + struct.pack("<4HBB", 0, 0, 300, 300, 0, 2),
            sub_blocks(packed(gif_codes(bytes(90_000), 2))),
        ),
        encoded(gradient(300, 400), "GIF"),  # a full table, many times
    ],
)
def test_kept(data: bytes) -> None:
    image = store_image(data, KEEP)
    assert (image.data, image.actions) == (data, ("kept",))
    pixels = tensorflow_pixels(data)
    assert pixels.shape == (image.height, image.width, 3)
    raw = store_image(data, ImagePolicy("raw"))
    assert pixels.tobytes() == raw.data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (still(frame(CODES[:40])), "truncated"),
        (still(frame([*CODES[:40], (5, CODES[40][1])])), "truncated"),  # the end code comes too early
        (
            gif_file(300, 300, 8, b"," + struct.pack("<4HBB", 0, 0, 300, 300, 0, 8), sub_blocks(LONG)),
            "truncated",
        ),
        (still(frame([*gif_codes(INDICES, 1)[:9], (3, 3)], 1), colors=1), "corrupt"),
        (still(frame(gif_codes(INDICES, 9), 9)), "corrupt"),
        (still(frame(gif_codes(INDICES, 11), 11)), "corrupt"),
        (still(frame(CODES), colors=1), "corrupt"),  # colours beyond the palette
        (still(), "truncated"),
    ],
)
def test_refused_as_tensorflow_does(data: bytes, reason: str) -> None:
    assert refuses(data)
    with pytest.raises(BadInput) as caught:
        store_image(data, KEEP)
    assert (caught.value.stage, caught.value.reason) == ("decode", reason)
    assert caught.value.detail


def test_a_code_without_meaning_is_damage_whatever_decoders_make_of_it() -> None:
    with pytest.raises(BadInput) as caught:
        store_image(still(frame([CODES[0], (1, 3), (7, 3), *CODES[3:]])), KEEP)
    assert caught.value.reason == "corrupt"


@pytest.mark.parametrize(
    ("before", "misread"),
    [
        ((b"!\xfe\0",), "refused"),  # an empty comment: giflib takes what follows for its second block
        (
            (control(1, 0), control(1, 9)),
            "black",
        ),  # two for one image: giflib heeds the first, others the last
    ],
)
def test_what_giflib_alone_takes_otherwise_is_made_anew(before: tuple[bytes, ...], misread: str) -> None:
    data = still(*before, frame(CODES))
    plain = tensorflow_pixels(still(frame(CODES)))
    if misread == "refused":
        assert refuses(data)
    else:
        assert not np.array_equal(tensorflow_pixels(data), plain)
    image = store_image(data, KEEP)
    assert (image.image_format, image.actions) == ("png", ("transcoded",))
    np.testing.assert_array_equal(tensorflow_pixels(image.data), plain)
