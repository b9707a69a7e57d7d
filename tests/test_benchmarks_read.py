"""The readers that are compared do the same work, and goals are judged by medians."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks import read
from benchmarks.read import BY_HAND, READERS, RECORDMILL, TFDS, Reader, Work, digest
from tests.lazy import tf


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> list[Work]:
    return read.make_works(tmp_path_factory.mktemp("work"), images=12, digits=40)


@pytest.mark.slow
def test_readers_do_the_same_work(works: list[Work]) -> None:
    for work, images in zip(works, (12, 40), strict=True):
        read.check_same(work)
        found = digest(RECORDMILL.dataset(work))
        assert found[0] == images and found[1] > 0 and found[2] > 0
        [image_spec, _] = BY_HAND.dataset(work).element_spec
        assert image_spec.dtype == tf.uint8 and image_spec.shape[-1] == work.channels


@pytest.mark.slow
def test_a_reader_that_does_less_is_found(works: list[Work], monkeypatch: pytest.MonkeyPatch) -> None:
    less = Reader(TFDS.name, lambda work: BY_HAND.dataset(work).take(1))
    monkeypatch.setattr(read, "READERS", (RECORDMILL, less))
    with pytest.raises(RuntimeError, match="digits: the readers yield different images or labels"):
        read.check_same(works[1])


def test_goals_are_judged_by_medians() -> None:
    epochs = {
        ("a", RECORDMILL.name): [1.0, 1.0, 9.0],
        ("a", TFDS.name): [1.0, 1.0, 0.1],
        ("a", BY_HAND.name): [0.9, 0.89, 0.1],
    }
    goals = read.read_goals(epochs)
    assert [(goal.limit, goal.measured, goal.met) for goal in goals] == [
        ("≥ 1", "1.00", True),
        ("≥ 0.9", "0.89", False),
    ]
    table = read.speed_table({"a": 50}, epochs)
    assert f"| a: {RECORDMILL.name} | 50 | 1.00 | 0.89 | 1.00, 1.00, 9.00 |" in table


@pytest.mark.slow
def test_a_whole_run(
    works: list[Work], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "make_works", lambda *_: [dataclasses.replace(work) for work in works])
    read.main(["--images", "12", "--digits", "40", "--repeats", "2"])
    text = capsys.readouterr().out
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith(("| JPEGs", "| digits"))]
    assert len(rows) == 2 * len(READERS) + 4
    assert {len(row[4].split(",")) for row in rows if len(row) == 5} == {2}


@pytest.mark.parametrize("flag", ["--images", "--digits", "--repeats"])
def test_a_wrong_call(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        read.main([flag, "0"])
    assert "must be at least 1" in capsys.readouterr().err
