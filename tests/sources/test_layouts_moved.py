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


def check(outcome: Outcome) -> None:
    assert outcome.verdict in GOOD, f"{outcome.verdict}: {outcome.detail}\n{' '.join(outcome.argv)}"


@pytest.mark.parametrize("name", CASES)
def test_the_right_folder_is_read_as_what_it_is(corpus: Path, name: str) -> None:
    expected, reading = CASES[name].expected, reference_of(name, corpus)
    if isinstance(expected, Expected):
        wrong = unlike(reading, expected)
        check(Outcome(name, "right call", "LESS" if wrong else "same", wrong, reading.argv))
    else:
        assert reading.status in ("refused", "failed")
        assert expected.message in reading.message


@pytest.mark.parametrize(
    ("name", "variant"), [(name, variant) for name in CASES for variant in variants_of(CASES[name])]
)
def test_given_another_way(corpus: Path, tmp_path: Path, name: str, variant: str) -> None:
    check(judged(CASES[name], variant, reference_of(name, corpus), corpus, tmp_path))


@pytest.mark.parametrize("name", CASES)
def test_several_in_one_folder_are_refused(corpus: Path, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    readings = [reference_of(name, corpus), reference_of(sibling_of(case).name, corpus)]
    check(judged_next_to_another(case, readings, corpus, tmp_path))


@pytest.mark.parametrize("is_wrapped", [False, True], ids=["itself", "in one folder"])
@pytest.mark.parametrize(
    ("name", "missing"), [(name, one.pieces) for name, case in CASES.items() for one in case.missing]
)
def test_without_a_piece(corpus: Path, tmp_path: Path, name: str, missing: str, is_wrapped: bool) -> None:
    case = CASES[name]
    (one,) = (one for one in case.missing if one.pieces == missing)
    check(judged_without(case, one, is_wrapped, corpus, tmp_path))
