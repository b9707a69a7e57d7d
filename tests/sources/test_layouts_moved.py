"""Every dataset of the corpus, one folder off, through links, or without a piece: never read as less."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import pytest

from tests.sources.moved_cases import CASES, Expected
from tests.sources.moved_reading import Reading
from tests.sources.moved_variants import (
    GOOD,
    Outcome,
    judged,
    judged_next_to_another,
    judged_without,
    reference,
    sibling_of,
    unlike,
    variants_of,
)

pytestmark = pytest.mark.corpus


@functools.cache
def reference_of(name: str, corpus: Path) -> Reading:
    with tempfile.TemporaryDirectory() as work:
        return reference(CASES[name], corpus, Path(work))


def check(*outcomes: Outcome) -> None:
    wrong = [one for one in outcomes if one.verdict not in GOOD]
    assert not wrong, "\n".join(
        f"{one.variant}: {one.verdict}: {one.detail}\n{' '.join(one.argv)}" for one in wrong
    )


@pytest.mark.parametrize("name", CASES)
def test_the_right_folder_is_read_as_what_it_is(corpus: Path, name: str) -> None:
    expected, reading = CASES[name].expected, reference_of(name, corpus)
    if isinstance(expected, Expected):
        wrong = unlike(reading, expected)
        check(Outcome(name, "right call", "LESS" if wrong else "same", wrong, reading.argv))
    else:
        assert reading.status in ("refused", "failed")
        assert expected.message in reading.message


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_given_another_way(corpus: Path, tmp_path: Path, name: str) -> None:
    case, found = CASES[name], []
    for variant in variants_of(case):
        (folder := tmp_path / str(len(found))).mkdir()
        found.append(judged(case, variant, reference_of(name, corpus), corpus, folder))
    check(*found)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_several_in_one_folder_are_refused(corpus: Path, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    readings = [reference_of(name, corpus), reference_of(sibling_of(case).name, corpus)]
    check(judged_next_to_another(case, readings, corpus, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.missing])
def test_without_a_piece(corpus: Path, tmp_path: Path, name: str) -> None:
    case, found = CASES[name], []
    for missing in case.missing:
        for is_wrapped in (False, True):
            (folder := tmp_path / str(len(found))).mkdir()
            found.append(judged_without(case, missing, is_wrapped, corpus, folder))
    check(*found)
