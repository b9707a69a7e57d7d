"""What `benchmarks.rerun` measures: the same input on both sides, and shards that have to be the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.inputs import draw_jpegs
from benchmarks.rerun import (
    CASES,
    HEADER,
    HUNDREDTHS,
    NEW_CLASS,
    NOTHING,
    TEN_NEW,
    Bench,
    Change,
    Found,
    Runs,
    link_tree,
    table_row,
)

IMAGES = 30


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs") / "photos"
    draw_jpegs(folder, IMAGES)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.jpg")}


@pytest.mark.parametrize(
    ("change", "changed", "new", "deleted"), [(HUNDREDTHS, 1, 1, 1), (TEN_NEW, 0, 10, 0), (NOTHING, 0, 0, 0)]
)
def test_a_change_is_what_it_says(
    change: Change, changed: int, new: int, deleted: int, drawn: Path, tmp_path: Path
) -> None:
    before = contents(drawn)
    photos = tmp_path / "photos"
    link_tree(drawn, photos)
    change.apply(photos)
    after = contents(photos)
    assert contents(drawn) == before  # which the others are made from
    assert len(after.keys() - before.keys()) == new
    assert len(before.keys() - after.keys()) == deleted
    same = [name for name in before.keys() & after.keys() if before[name] == after[name]]
    assert len(same) == IMAGES - changed - deleted
    assert all(os.path.samefile(drawn / name, photos / name) for name in same)
    assert (photos / NEW_CLASS).is_dir() == (change is HUNDREDTHS)


@pytest.mark.slow
def test_the_next_version_is_held_against_one_from_scratch(drawn: Path, tmp_path: Path) -> None:
    bench = Bench(tmp_path / "rerun", drawn, shards=3)
    case = CASES[0]
    found = bench.prepare(case)
    bench.time_round(case, found)
    assert found.images == IMAGES
    assert len(found.rerun.wall) == len(found.scratch.cpu) == 1
    assert found.provenance is not None
    assert found.provenance["taken_over"]["from"] == "1.0.0"
    assert found.provenance["taken_over"]["records"] == IMAGES - 2
    assert found.provenance["work"]["images"] == 2
    (tmp_path / "rerun/scratch/train-00001-of-00003.tfrecord").write_bytes(b"")
    with pytest.raises(RuntimeError, match="the shards are not those from scratch"):
        bench._check(case, found)


def test_a_row_has_medians_and_ratios() -> None:
    rerun = Runs([1.0, 3.0, 2.0], [4.0, 4.0, 4.0], 200_000_000)
    scratch = Runs([8.0, 7.0, 9.0], [16.0, 15.0, 17.0], 300_000_000)
    work = {"source_reads": 1200, "images": 1300, "masks": 0}
    taken = {"from": "1.0.0", "records": 19_800, "shards": 3, "reason": ""}
    row = table_row(CASES[0], Found(rerun, scratch, 20_000, {"work": work, "taken_over": taken}))
    assert len(row) == len(HEADER)
    assert row[0].startswith("20,000 kept: 1 % changed")
    assert row[1:9] == ("2.00", "8.00", "0.25", "4.0", "16.0", "0.25", "200 MB", "300 MB")
    assert row[9:] == ("1,200", "1,300", "19,800", "3")
    assert table_row(CASES[-1], Found(rerun, scratch, 20_000))[-2] == "nothing is published"
