"""Huffman tables: the best there are, under the same coefficients, for every kind of sequential JPEG."""

from __future__ import annotations

import heapq
import io
from typing import Any

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from recordmill.transforms.images import jpeg_huffman
from recordmill.transforms.images.huffman_table import optimal_table
from recordmill.transforms.images.jpeg_header import SOS, read_header, segments
from recordmill.transforms.images.jpeg_huffman import huffman_optimised
from recordmill.transforms.records import BadInput
from tests.images.drawn import Array, encoded, rare_jpeg, tensorflow_pixels, with_orientation

SIZES = ((1, 1), (7, 9), (17, 33), (64, 48))


def picture(height: int, width: int, channels: int = 3, kind: str = "noise") -> Array:
    """Noise, one colour, or waves with a little noise."""
    noise = np.random.default_rng(height * width).integers(0, 256, (height, width, channels), dtype=np.uint8)
    if kind == "noise":
        return noise
    if kind == "flat":
        return np.full_like(noise, 77)
    rows, columns = np.mgrid[:height, :width]
    waves = 120 + 90 * np.sin(rows / 7) * np.cos(columns / 9)
    return (waves[:, :, None] + noise // 16).astype(np.uint8)


def result_of(data: bytes) -> bytes:
    """The optimised file, which TensorFlow decodes to the same pixels, and which cannot be improved again."""
    result = huffman_optimised(data, read_header(data))
    assert result is not None
    np.testing.assert_array_equal(tensorflow_pixels(result), tensorflow_pixels(data))
    assert huffman_optimised(result, read_header(result)) == result
    return result


def tables_and_scans(data: bytes) -> tuple[list[bytes], bytes, list[tuple[int, bytes]]]:
    """The sorted Huffman tables, all from the first scan on, and the other segments."""
    tables, others = [], []
    for marker, start, end in segments(data):
        payload = data[start:end]
        if marker == SOS:
            return sorted(tables), data[start:], others
        if marker != 0xC4:
            others.append((marker, payload))
            continue
        while payload:
            length = 17 + sum(payload[1:17])
            tables.append(payload[:length])
            payload = payload[length:]
    raise AssertionError("no scan")


@pytest.mark.parametrize("kind", ["noise", "flat", "waves"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {"subsampling": "4:4:4"},
        {"subsampling": "4:2:2"},
        {"subsampling": "4:2:0"},
        {"subsampling": "4:2:0", "restart_marker_blocks": 1},
        {"subsampling": "4:2:0", "restart_marker_rows": 1},
        {"keep_rgb": True},
        {"quality": 100},
        {"mode": "L"},
        {"mode": "L", "restart_marker_blocks": 3},
        {"mode": "CMYK"},
    ],
    ids=str,
)
def test_the_tables_and_codes_are_libjpegs_own(
    kind: str, size: tuple[int, int], options: dict[str, Any]
) -> None:
    options = dict(options)
    image = Image.fromarray(picture(*size, kind=kind)).convert(options.pop("mode", "RGB"))
    result = result_of(encoded(image, "JPEG", **options))
    expected = encoded(image, "JPEG", optimize=True, **options)
    assert tables_and_scans(result) == tables_and_scans(expected)
    tables = len(tables_and_scans(result)[0])
    assert len(result) == len(expected) - 4 * (tables - 1)  # one segment for all


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("subsampling", ["444", "422", "420", "440", "411", "Gray"])
def test_every_subsampling(subsampling: str, size: tuple[int, int]) -> None:
    gray = subsampling == "Gray"
    pixels = picture(*size, channels=1 if gray else 3, kind="waves")
    data = simplejpeg.encode_jpeg(pixels, 85, "GRAY" if gray else "RGB", subsampling)
    assert len(result_of(data)) < len(data)


def test_pieces_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({}, {"restart_marker_blocks": 2}):
        data = encoded(picture(64, 48), "JPEG", quality=95, **options)
        whole = result_of(data)
        for length in (1, 64, 1000):
            monkeypatch.setattr(jpeg_huffman, "_PIECE", length)
            assert huffman_optimised(data, read_header(data)) == whole


def test_a_scan_longer_than_a_piece() -> None:
    image = Image.fromarray(picture(500, 400))
    data = encoded(image, "JPEG", quality=80, restart_marker_rows=7)
    assert len(data) > 2 * (1 << 16)
    expected = encoded(image, "JPEG", quality=80, restart_marker_rows=7, optimize=True)
    assert tables_and_scans(result_of(data)) == tables_and_scans(expected)


def test_a_scan_for_each_component() -> None:
    """Three grey JPEGs as the components of one: luma of 45x37, chroma of half that."""
    parts = [encoded(picture(h, w, 1, "waves"), "JPEG") for h, w in ((45, 37), (23, 19), (23, 19))]
    frame = bytes((8, 0, 45, 0, 37, 3, 1, 0x22, 0, 2, 0x11, 0, 3, 0x11, 0))
    data = bytearray()
    for component, part in enumerate(parts):
        for marker, start, end in segments(part):
            if marker == SOS:
                data += b"\xff\xda\0\x08\x01" + bytes((component + 1, 0, 0, 63, 0)) + part[end:-2]
            elif marker == 0xC0 and component == 0:
                data += b"\xff\xc0" + (2 + len(frame)).to_bytes(2, "big") + frame
            elif marker == 0xC4 or component == 0:
                data += part[start - 4 : end]
    data = bytearray(b"\xff\xd8") + data + b"\xff\xd9"
    result = result_of(bytes(data))
    assert len(result) < len(data)
    assert result.count(b"\xff\xda") == 3


def test_everything_else_stays() -> None:
    options = {
        "exif": with_orientation(6),
        "icc_profile": bytes(range(256)) * 300,
        "comment": b"a comment",
        "dpi": (300, 200),
        "restart_marker_rows": 2,
    }
    data = encoded(picture(64, 48, kind="waves"), "JPEG", **options) + b"behind the end"
    result = result_of(data)
    assert tables_and_scans(result)[2] == tables_and_scans(data)[2]
    assert result.endswith(b"\xff\xd9behind the end")
    assert Image.open(io.BytesIO(result)).info["icc_profile"] == options["icc_profile"]
    assert [result.count(bytes((0xFF, 0xD0 + n))) for n in range(3)] == [1, 0, 0]


def test_extended_sequential() -> None:
    data = encoded(picture(17, 33), "JPEG").replace(b"\xff\xc0", b"\xff\xc1", 1)
    assert b"\xff\xc1" in result_of(data)


@pytest.mark.parametrize(
    "data",
    [
        encoded(picture(17, 33), "JPEG", progressive=True),
        rare_jpeg("arithmetic"),
        encoded(picture(17, 33), "JPEG")[:-40] + b"\xff\xd9",
        encoded(picture(17, 33), "JPEG")[:-2] + b"\0\0\xff\xd9",
        encoded(picture(17, 33), "JPEG", restart_marker_rows=1).replace(b"\xff\xd0", b"\xff\xd1"),
        encoded(picture(17, 33), "JPEG").replace(b"\xff\xda", b"\xff\xe2\0\x07MPF\0\0\xff\xda", 1),
        encoded(picture(17, 33), "JPEG").replace(b"\xff\xda", b"\0\xff\xda", 1),
        encoded(picture(17, 33), "JPEG").replace(
            b"\xff\xda\0\x0c\x03\x01\0", b"\xff\xda\0\x0c\x03\x01\x40", 1
        ),
    ],
    ids=["progressive", "arithmetic", "cut", "padded", "restarts", "multi-picture", "stray", "table 4"],
)
def test_what_is_left_as_it_is(data: bytes) -> None:
    assert huffman_optimised(data, read_header(data)) is None


@given(st.binary(max_size=3000), st.booleans())
@settings(max_examples=150, deadline=None)
def test_random_scans_never_crash(noise: bytes, gray: bool) -> None:
    data = encoded(picture(40, 40, 1 if gray else 3), "JPEG")
    end = next(end for marker, _, end in segments(data) if marker == SOS)
    damaged = data[:end] + noise + b"\xff\xd9"
    result = huffman_optimised(damaged, read_header(damaged))
    assert result is None or result.startswith(b"\xff\xd8")


@pytest.mark.slow
@given(st.data())
@settings(max_examples=300, deadline=None)
def test_wrong_bytes_never_crash(choices: st.DataObject) -> None:
    data = bytearray(encoded(picture(24, 24), "JPEG", restart_marker_blocks=2))
    for _ in range(choices.draw(st.integers(1, 3))):
        data[choices.draw(st.integers(2, len(data) - 1))] = choices.draw(st.integers(0, 255))
    try:
        header = read_header(bytes(data))
    except BadInput:
        return
    if header.height * header.width < 1 << 16:
        huffman_optimised(bytes(data), header)


@given(st.dictionaries(st.integers(0, 255), st.integers(1, 1 << 20), min_size=1, max_size=256))
@settings(deadline=None)
def test_no_prefix_code_is_shorter(found: dict[int, int]) -> None:
    lengths, symbols = optimal_table([found.get(symbol, 0) for symbol in range(256)])
    assert sorted(symbols) == sorted(found)
    by_symbol = np.repeat(np.arange(1, 17), lengths)
    assert len(by_symbol) == len(symbols)
    spent = sum(found[symbol] * int(length) for symbol, length in zip(symbols, by_symbol, strict=True))
    if len(found) <= 15:  # so that no code comes near 16 bits
        # One more symbol, of weight 1, has a code of the longest: it keeps the code of ones only unused.
        assert spent == sum_of_merges([*found.values(), 1]) - by_symbol[-1]
    assert (1 / 2.0**by_symbol).sum() <= 1 - 2**-16


def sum_of_merges(weights: list[int]) -> int:
    heapq.heapify(weights)
    total = 0
    while len(weights) > 1:
        both = heapq.heappop(weights) + heapq.heappop(weights)
        total += both
        heapq.heappush(weights, both)
    return total


def test_codes_are_cut_to_16_bits() -> None:
    counts = [1 << power for power in range(30)]
    lengths, symbols = optimal_table(counts + [0] * 226)
    assert sum(lengths) == 30
    assert symbols[:3] == [29, 28, 27]
    assert lengths[0] == 1
    assert (1 / 2.0 ** np.repeat(np.arange(1, 17), lengths)).sum() <= 1 - 2**-16
