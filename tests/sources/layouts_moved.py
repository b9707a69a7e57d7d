"""Prints the verdict on each dataset of the corpus, given in each way.

    RECORDMILL_CORPUS=FOLDER python -m tests.sources.layouts_moved [DATASET [VARIANT]]

DATASET and VARIANT are parts of names. Exit status 1 where anything is read as less, or leads nowhere.
"""

from __future__ import annotations

import collections
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.sources.moved_cases import CASES, Case, Expected
from tests.sources.moved_variants import (
    GOOD,
    Outcome,
    judged,
    judged_beside,
    judged_without,
    reference,
    sibling_of,
    unlike,
    variants_of,
)

_REFERENCE = "right call"


def outcomes(case: Case, corpus: Path, variant: str = "") -> Iterator[Outcome]:
    """Those of a dataset, in a folder of their own each."""
    with tempfile.TemporaryDirectory() as folder:
        work = _new_folders(Path(folder))
        right = reference(case, corpus, next(work))
        if isinstance(case.expected, Expected):
            wrong = unlike(right, case.expected)
            yield Outcome(case.name, _REFERENCE, "LESS" if wrong else "same", wrong, right.argv)
        else:
            is_refused = right.status in ("refused", "failed") and case.expected.message in right.message
            yield Outcome(
                case.name, _REFERENCE, "refused" if is_refused else "LESS", right.message, right.argv
            )
        for name in variants_of(case):
            if variant in name:
                yield judged(case, name, right, corpus, next(work))
        if variant in "next to another one":
            other = reference(sibling_of(case), corpus, next(work))
            yield judged_beside(case, (right, other), corpus, next(work))
        for missing in case.missing:
            for is_wrapped in (False, True):
                if variant in f"without {missing.name}":
                    yield judged_without(case, missing, is_wrapped, corpus, next(work))


def _new_folders(folder: Path) -> Iterator[Path]:
    number = 0
    while True:
        number += 1
        path = folder / str(number)
        path.mkdir()
        yield path


def main(argv: list[str]) -> int:
    """Prints the table, and counts the verdicts."""
    corpus = Path(os.environ["RECORDMILL_CORPUS"])
    name, variant = [*argv, "", ""][:2]
    counted: collections.Counter[str] = collections.Counter()
    for case in CASES.values():
        if name not in case.name:
            continue
        print("\n" + " ".join((case.name, *case.flags)))
        for one in outcomes(case, corpus, variant):
            counted[one.verdict] += 1
            print(f"  {one.verdict:12} | {one.variant} | {one.detail[:700]}", flush=True)
    print()
    for verdict, count in counted.most_common():
        print(f"{count:5} {verdict}")
    return 1 if counted.keys() - GOOD else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
