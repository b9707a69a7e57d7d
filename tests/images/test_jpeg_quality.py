"""The quality told by a JPEG's tables: exact for libjpeg's own, by definition for all others."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from recordmill.transforms.images.jpeg_header import JpegHeader, quantisation_tables, read_header
from recordmill.transforms.images.jpeg_quality import estimated_quality, saved_at_or_below
from recordmill.transforms.records import BadInput
from tests.images.drawn import encoded, gradient, rare_jpeg

PICTURE = Image.fromarray(gradient(16, 16))
QUALITIES = range(1, 101)


def saved(quality: int, mode: str = "RGB", **options: object) -> tuple[bytes, JpegHeader]:
    data = encoded(PICTURE.convert(mode), "JPEG", quality=quality, **options)
    return data, read_header(data)


def with_tables(tables: dict[int, list[int]], wide: bool = False) -> tuple[bytes, JpegHeader]:
    """A JPEG in YCbCr (tables 0, 1, 1) with these tables, in zigzag order, in place of its own."""
    bare = encoded(PICTURE, "JPEG", quality=50)
    while (start := bare.find(b"\xff\xdb")) >= 0:
        bare = bare[:start] + bare[start + 2 + int.from_bytes(bare[start + 2 : start + 4], "big") :]
    parts = [
        bytes([number | 16 * wide]) + struct.pack(">64H" if wide else ">64B", *values)
        for number, values in tables.items()
    ]
    body = b"".join(parts)
    data = bare[:2] + b"\xff\xdb" + struct.pack(">H", 2 + len(body)) + body + bare[2:]
    return data, read_header(data)


def zigzag(natural: list[int]) -> list[int]:
    """By walking the diagonals."""
    order, row, column, up = [], 0, 0, True
    for _ in range(64):
        order.append(natural[8 * row + column])
        if up and column == 7:
            row, up = row + 1, False
        elif up and row == 0:
            column, up = column + 1, False
        elif not up and row == 7:
            column, up = column + 1, True
        elif not up and column == 0:
            row, up = row + 1, True
        else:
            row, column = (row - 1, column + 1) if up else (row + 1, column - 1)
    return order


def pillow_tables(quality: int) -> dict[int, list[int]]:
    """libjpeg's, as Pillow reads them, in zigzag order."""
    with Image.open(io.BytesIO(saved(quality)[0])) as image:
        return {number: zigzag(list(table)) for number, table in image.quantization.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subsampling": "4:4:4", "progressive": True},
        {"subsampling": "4:2:2", "optimize": True},
        {"keep_rgb": True},
        {"mode": "L"},
        {"mode": "CMYK"},
    ],
    ids=str,
)
def test_every_quality(options: dict[str, object]) -> None:
    for quality in QUALITIES:
        data, header = saved(quality, **options)  # type: ignore[arg-type]
        # Every pair once; of the other kinds of file, the pairs that are nearest to each other.
        near = {1, quality - 1, quality, quality + 1, 100} & set(QUALITIES)
        for asked in near if options else QUALITIES:
            assert saved_at_or_below(data, header, asked) == (quality <= asked), (quality, asked)
        assert estimated_quality(data, header) == quality


def test_of_another_encoder() -> None:
    for quality in QUALITIES:
        data = simplejpeg.encode_jpeg(gradient(16, 16), quality, "RGB", "420")
        header = read_header(data)
        assert estimated_quality(data, header) == quality
        assert saved_at_or_below(data, header, quality)
        assert quality == 1 or not saved_at_or_below(data, header, quality - 1)


def test_of_ycck() -> None:
    """Components 2 and 3 are chroma there, which they are not in CMYK."""
    data = rare_jpeg("ycck")
    header = read_header(data)
    tables = quantisation_tables(data)
    by_component = [tables[component[3]] for component in header.components]
    (quality,) = (q for q in QUALITIES if list(pillow_tables(q).values()) == by_component[:2])
    assert by_component[0] == by_component[3] != by_component[1] == by_component[2]
    assert estimated_quality(data, header) == quality
    assert [saved_at_or_below(data, header, asked) for asked in QUALITIES] == [
        quality <= asked for asked in QUALITIES
    ]


def test_fine_chroma_of_ycck() -> None:
    data = rare_jpeg("ycck")
    own, header = quantisation_tables(data), read_header(data)
    for number, quality in ((0, 60), (1, 95)):
        data = data.replace(bytes(own[number]), bytes(pillow_tables(quality)[number]))
    assert [saved_at_or_below(data, header, asked) for asked in (93, 94, 95)] == [False, False, True]


def test_tables_of_sixteen_bits_are_read_as_baseline_has_them() -> None:
    """libjpeg without force_baseline: the same product, not clamped to 255."""
    base = pillow_tables(50)
    for quality in (1, 5, 10, 20, 24, 40, 60, 95):
        factor = 5000 // quality if quality < 50 else 200 - 2 * quality
        wide = {n: [max(1, (v * factor + 50) // 100) for v in table] for n, table in base.items()}
        data, header = with_tables(wide, wide=True)
        assert quantisation_tables(data) == wide
        assert max(wide[1]) > 255 or quality >= 20
        told = [saved_at_or_below(data, header, asked) for asked in QUALITIES]
        assert told == [quality <= asked for asked in QUALITIES]
        assert estimated_quality(data, header) == quality


def test_both_tables_have_to_be_coarse() -> None:
    for luma, chroma in ((60, 90), (90, 60)):
        data, header = with_tables({0: pillow_tables(luma)[0], 1: pillow_tables(chroma)[1]})
        assert [saved_at_or_below(data, header, asked) for asked in (60, 89, 90, 100)] == [0, 0, 1, 1]
        assert estimated_quality(data, header) in range(60, 91)


@pytest.mark.parametrize(("divisor", "expected"), [(2, True), (3, False)])
def test_tables_of_others_are_told_by_the_geometric_mean(divisor: int, expected: bool) -> None:
    """Every other value doubled, the rest divided: the mean of the ratios would be above 1 either way."""
    moved = {
        number: [2 * value if i % 2 else -(-value // divisor) for i, value in enumerate(table)]
        for number, table in pillow_tables(50).items()
    }
    assert saved_at_or_below(*with_tables(moved), 50) is expected


@pytest.mark.slow
@given(st.lists(st.integers(1, 255), min_size=64, max_size=64), st.integers(1, 100))
@settings(max_examples=200, deadline=None)
def test_any_table(table: list[int], quality: int) -> None:
    data, header = with_tables({0: table, 1: [255] * 64})
    standard = np.array(pillow_tables(quality)[0], float)
    mean = float(np.log(np.array(table) / standard).mean())
    assert abs(mean) < 1e-9 or saved_at_or_below(data, header, quality) == (mean > 0)


@pytest.mark.parametrize("quality", [30, 75, 92])
def test_transposed_tables_are_as_coarse(quality: int) -> None:
    """A JPEG that was turned without loss has them."""
    with Image.open(io.BytesIO(saved(quality)[0])) as image:
        square = {n: np.reshape(table, (8, 8)) for n, table in image.quantization.items()}
    data, header = with_tables({n: zigzag(table.T.ravel().tolist()) for n, table in square.items()})
    assert [saved_at_or_below(data, header, asked) for asked in QUALITIES] == [
        quality <= asked for asked in QUALITIES
    ]


def test_a_lone_value_does_not_decide() -> None:
    standard = pillow_tables(80)
    for step, expected in ((1, True), (-1, False)):
        moved = {number: [max(1, value + step) for value in table] for number, table in standard.items()}
        moved[0][0] = standard[0][0] - step
        data, header = with_tables(moved)
        assert saved_at_or_below(data, header, 80) is expected


def test_photoshops_finest_tables_are_fine() -> None:
    data, header = with_tables({0: [1] * 20 + [2] * 44, 1: [1] * 20 + [2] * 44})
    assert not saved_at_or_below(data, header, 95)
    assert saved_at_or_below(data, header, 100)
    quality = estimated_quality(data, header)
    assert quality is not None and quality >= 97


def test_no_tables_no_quality() -> None:
    data, header = with_tables({0: pillow_tables(50)[0]})  # none for chroma
    assert not saved_at_or_below(data, header, 100)
    assert estimated_quality(data, header) is None
    definition = data[2 : data.index(b"\xff\xdb") + 69]
    for name in ("lossless", "lossless_gray"):
        data = rare_jpeg(name)
        data = data[:2] + definition + data[2:]
        assert set(quantisation_tables(data)) == {0}
        assert not saved_at_or_below(data, read_header(data), 100)
        assert estimated_quality(data, read_header(data)) is None


def test_zeros_in_a_table_are_no_steps_at_all() -> None:
    data, header = with_tables({0: [0] * 64, 1: [0] * 64})
    assert not saved_at_or_below(data, header, 99)
    assert estimated_quality(data, header) == 100


@pytest.mark.parametrize("cut", [1, 40, 64, 65, 66])
@pytest.mark.parametrize("wide", [False, True])
def test_a_table_that_is_cut_off(cut: int, wide: bool) -> None:
    data, header = with_tables(pillow_tables(50), wide)
    start = data.index(b"\xff\xdb") + 2
    end = start + int.from_bytes(data[start : start + 2], "big")
    length = struct.pack(">H", end - start - cut)
    damaged = data[:start] + length + data[start + 2 : end - cut] + data[end:]
    if cut == 65 and not wide:
        assert set(quantisation_tables(damaged)) == {0}
        return
    with pytest.raises(BadInput) as caught:
        saved_at_or_below(damaged, header, 50)
    assert (caught.value.stage, caught.value.reason) == ("decode", "corrupt")


WHOLE = saved(75)[0]


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.tuples(st.integers(2, len(WHOLE) - 1), st.integers(0, 255)), max_size=6),
    st.integers(1, 100),
    st.integers(0, 3),
)
def test_damaged_headers(changes: list[tuple[int, int]], quality: int, cut: int) -> None:
    data = bytearray(WHOLE)
    for at, value in changes:
        data[at] = value
    file = bytes(data[: len(data) - cut])
    try:
        header = read_header(file)
        told, estimate = saved_at_or_below(file, header, quality), estimated_quality(file, header)
    except BadInput:
        return
    assert told in (True, False)
    assert estimate is None or 1 <= estimate <= 100
