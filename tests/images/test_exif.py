"""Orientation: read from any block, and pixels turned as Pillow turns them."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from recordmill.transforms.images.exif import read_orientation, turned
from tests.images.drawn import gradient, with_orientation


@pytest.mark.parametrize("orientation", range(1, 9))
def test_reads_what_pillow_writes_and_turns_as_pillow_does(orientation: int) -> None:
    exif = with_orientation(orientation)
    assert read_orientation(exif.tobytes()) == orientation
    pixels = gradient(5, 7)
    image = Image.fromarray(pixels)
    image.getexif()[0x0112] = orientation
    expected = np.asarray(ImageOps.exif_transpose(image))
    np.testing.assert_array_equal(turned(pixels, orientation), expected)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"MM\0*\0\0\0\x08\0\x01" + struct.pack(">HHIHH", 0x0112, 3, 1, 8, 0), 8),
        (b"MM\0*\0\0\0\x08\0\x01" + struct.pack(">HHIHH", 0x0112, 3, 1, 9, 0), 1),  # no such orientation
        (b"MM\0*\0\0\0\x08\0\x01" + struct.pack(">HHII", 0x0112, 4, 1, 6), 1),  # a LONG, not a SHORT
        (b"II*\0\xff\xff\xff\xff", 1),  # the directory lies far outside
        (b"II*\0\x08\0\0\0\xff\xff", 1),  # 65,535 entries, none there
        (b"XX*\0", 1),
        (b"", 1),
    ],
)
def test_odd_blocks(block: bytes, expected: int) -> None:
    assert read_orientation(block) == expected


@given(st.binary(max_size=200))
def test_bad_exif_is_never_fatal(block: bytes) -> None:
    assert 1 <= read_orientation(b"Exif\0\0II*\0" + block) <= 8
