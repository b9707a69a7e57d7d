"""Damaged and odd files that once did harm: under every policy they are stored readable, or fail by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.images import POLICIES, finding
from tests.images.test_corpus import CORPUS

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.slow,
    pytest.mark.skipif(not CORPUS, reason="RECORDMILL_CORPUS names no folder of real inputs"),
]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("folder", ["fuzz_found", "odd_inputs", "pngsuite"])
def test_stored_readable_or_failed_by_name(folder: str, name: str) -> None:
    paths = sorted(path for path in (Path(CORPUS) / folder).iterdir() if path.is_file())
    assert len(paths) > 30
    if folder != "fuzz_found":  # test_corpus_policies.py has others of these
        paths = paths[list(POLICIES).index(name) % 3 :: 3]
    for path in paths:
        word, detail = finding(path.read_bytes(), POLICIES[name])
        assert not word, f"{path.name}: {word}, {detail}"
