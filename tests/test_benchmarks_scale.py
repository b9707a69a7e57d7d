"""The model of docs/scale.md: the page has its tables, and its figures are consistent."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scale import RUNS, SIZES, Size, cost_of, cost_table, size_table

PAGE = (Path(__file__).parents[1] / "docs/scale.md").read_text("utf-8")


def test_the_page_has_the_tables_of_the_model() -> None:
    for table in (size_table(), *map(cost_table, SIZES)):
        assert table in PAGE


def test_each_run_takes_less_than_the_one_before() -> None:
    for size in SIZES:
        totals = [cost_of(size, run).total for run in RUNS]
        assert totals == sorted(totals, reverse=True)
        assert [cost_of(size, run).images > 0 for run in RUNS] == [True, True, True, False]


def test_ten_new_images_are_in_ten_shards() -> None:
    size = Size("1 million", 10**6, 10)
    first, hundredths, ten, nothing = RUNS
    assert first.written(size) == size.shards == 746
    assert round(hundredths.written(size)) == 746
    assert 9.9 < ten.written(size) < 10
    assert nothing.written(size) == 0


def test_fifty_jobs_cost_as_much_as_one() -> None:
    _, part, whole = SIZES
    for run in RUNS[:2]:
        assert 50 * cost_of(part, run).total == pytest.approx(cost_of(whole, run).total, rel=0.6)
