"""Estimates the quality of a JPEG from its quantisation tables.

Measured on libjpeg's scale (IJG, jcparam.c): the example tables of ITU-T T.81, annex K, times a factor.
"""

from __future__ import annotations

import functools
import math

from recordmill.transforms.images.jpeg_header import LOSSLESS, JpegHeader, quantisation_tables

# T.81, tables K.1 and K.2, in zigzag order, as files hold them.
_LUMA = (
    *(16, 11, 12, 14, 12, 10, 16, 14, 13, 14, 18, 17, 16, 19, 24, 40, 26, 24, 22, 22, 24, 49, 35, 37, 29, 40),
    *(58, 51, 61, 60, 57, 51, 56, 55, 64, 72, 92, 78, 64, 68, 87, 69, 55, 56, 80, 109, 81, 87, 95, 98, 103),
    *(104, 103, 62, 77, 113, 121, 112, 100, 120, 92, 101, 103, 99),
)
_CHROMA = (17, 18, 18, 24, 21, 24, 47, 26, 26, 47, 99, 66, 56, 66, *(99,) * 50)


def saved_at_or_below(data: bytes, header: JpegHeader, quality: int) -> bool:
    """Whether a JPEG's tables are no finer than those that libjpeg makes for `quality`.

    Each table is compared with libjpeg's for its component (luma or chroma): it is no finer if the geometric
    mean of its 64 ratios to that is at least 1. For libjpeg's own tables this is exactly "saved at `quality`
    or less"; for those of cameras and of Photoshop it is approximate. It is False if a table is missing, or
    the JPEG has none because it is lossless.

    Raises:
        BadInput: a table is truncated.
    """
    tables = _tables(data, header)
    return bool(tables) and all(_no_finer(table, chroma, quality) for table, chroma in tables)


def estimated_quality(data: bytes, header: JpegHeader) -> int | None:
    """The quality, 1 to 100, whose tables are nearest; exact for libjpeg's own.

    None if a table is missing, or the JPEG is lossless. Raises as `saved_at_or_below`.
    """
    return _nearest(_tables(data, header))


def _tables(data: bytes, header: JpegHeader) -> tuple[tuple[tuple[int, ...], bool], ...]:
    """Each (table, whether it is for chroma) that the components use; empty if one is missing."""
    if header.process == LOSSLESS:
        return ()
    found = quantisation_tables(data)
    # Cb and Cr: the second and third of three or, under Adobe's transform 2 (YCCK), of four.
    chroma = header.adobe == 2 if len(header.components) == 4 else not header.stores_rgb
    used = dict.fromkeys(
        (component[3], chroma and index in (1, 2)) for index, component in enumerate(header.components)
    )
    if any(number not in found for number, _ in used):
        return ()
    return tuple((tuple(found[number]), is_chroma) for number, is_chroma in used)


@functools.lru_cache(maxsize=1024)
def _no_finer(table: tuple[int, ...], chroma: bool, quality: int) -> bool:
    # The product of integers, without a root: exactly equal for the transposed table of a turned JPEG.
    return math.prod(_baseline(table)) >= math.prod(_standard(chroma, quality))


@functools.lru_cache(maxsize=1024)
def _nearest(tables: tuple[tuple[tuple[int, ...], bool], ...]) -> int | None:
    if not tables:
        return None
    distances = [
        sum(_distance(table, _standard(chroma, quality)) for table, chroma in tables)
        for quality in range(1, 101)
    ]
    return 1 + distances.index(min(distances))


def _distance(table: tuple[int, ...], standard: tuple[int, ...]) -> float:
    return math.fsum(
        abs(math.log(value / other)) for value, other in zip(_baseline(table), standard, strict=True)
    )


def _baseline(table: tuple[int, ...]) -> tuple[int, ...]:
    """Limited to the values of baseline JPEG: libjpeg's 16-bit tables become its 8-bit tables."""
    return tuple(min(max(value, 1), 255) for value in table)


@functools.cache
def _standard(chroma: bool, quality: int) -> tuple[int, ...]:
    """libjpeg's table for a quality of 1 to 100."""
    factor = 5000 // quality if quality < 50 else 200 - 2 * quality
    return _baseline(tuple((value * factor + 50) // 100 for value in (_CHROMA if chroma else _LUMA)))
