"""Rows that say nothing are left out."""

import dataclasses

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.sweeping.results import Row, Setting, without_idle_conversions
from tests.sweeping.found import FILES, RAW, WORSE, lossy, row

LOSSLESS = Setting("lossless", "lossless", None, ImagePolicy(optimize="lossless"))
PLAIN = [lossy("png to jpeg", f"PNG to JPEG, q{quality}", quality) for quality in (95, 75)]
OPTIMISED = [lossy("png to jpeg, optimised", f"{one.name}, optimised", 75) for one in PLAIN]


def rows(plain: tuple[int, int], optimised: tuple[int, int]) -> list[Row]:
    """All groups, each with TFRecord bytes."""
    sizes = [10_500, 9_000, *plain, *optimised]
    found = zip((FILES, LOSSLESS, *PLAIN, *OPTIMISED), sizes, strict=True)
    return [row(RAW, 83_000, 1, 1), *(row(one, size, 1, 1) for one, size in found), row(WORSE, 2500, 0.9, 0)]


def names(found: tuple[Row, ...]) -> list[str]:
    return [one.setting.name for one in found]


def test_png_to_jpeg_is_left_out_where_nothing_is_converted() -> None:
    found = without_idle_conversions(rows((10_500, 10_500), (9_000, 9_000)))
    assert names(found) == ["raw pixels", "files as they are", "lossless", WORSE.name]


def test_png_to_jpeg_stays_where_one_image_is_converted() -> None:
    for plain, optimised in (((9_900, 9_800), (8_900, 8_800)), ((10_500, 10_400), (9_000, 8_900))):
        every = rows(plain, optimised)
        assert without_idle_conversions(every) == tuple(every)


def test_png_to_jpeg_stays_where_it_refuses_images() -> None:
    every = [
        dataclasses.replace(one, failed=1) if one.setting in (*PLAIN, *OPTIMISED) else one
        for one in rows((10_500, 10_500), (9_000, 9_000))
    ]
    assert without_idle_conversions(every) == tuple(every)
    assert without_idle_conversions([row(FILES, 10_500, 1, 1)]) == (row(FILES, 10_500, 1, 1),)
