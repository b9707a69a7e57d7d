"""A short run of the fuzzer of parsers, and that it finds what it looks for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from recordmill.transforms.records import Failure, ImageRecord, JobError
from recordmill.transforms.sources.tables.manifest_sources import CsvSource
from tests.fuzz import parsers
from tests.fuzz.parser_seeds import seeds


def test_undamaged_inputs_are_read(tmp_path: Path) -> None:
    for name, seed in seeds().items():
        folder = tmp_path / name
        folder.mkdir()
        assert parsers.examine(parsers.Case(name, seed, dict(seed.files)), folder) is None
    assert len(seeds()) > 50


def test_a_case_is_the_same_again() -> None:
    inputs = seeds()
    for number in range(50):
        assert parsers.case_of(inputs, 1, number).files == parsers.case_of(inputs, 1, number).files


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (KeyError("x"), "csv: KeyError in "),
        (JobError("two\nlines of m.csv"), "csv: unclear: "),
        (JobError("something is wrong"), "csv: unclear: "),
        (None, "csv: more than the seconds"),
    ],
)
def test_it_finds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: Exception | None, kind: str
) -> None:
    def read(*_: object) -> list[ImageRecord | Failure]:
        if fault is None:
            time.sleep(60)
            return []
        raise fault

    monkeypatch.setattr(CsvSource, "read", read)
    assert parsers.run(1, cases=2, only="csv-boxes", seconds=1) >= 1
    assert kind in capsys.readouterr().out


@pytest.mark.slow
def test_a_short_run_finds_nothing() -> None:
    assert parsers.run(17, cases=1_000) == 0
