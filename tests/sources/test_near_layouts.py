"""Layouts a step off what the sources read: read as what they are, or refused with what speaks against it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sources.moved_reading import read
from tests.sources.moved_trees import lay_out
from tests.sources.moved_variants import unlike
from tests.sources.near_layouts import NEAR, OPEN


def _case(name: str) -> object:
    return (
        pytest.param(name, marks=pytest.mark.xfail(reason=OPEN[name], strict=True)) if name in OPEN else name
    )


@pytest.mark.parametrize("name", [_case(near) for near in NEAR])
def test_read_as_what_it_is_or_refused(tmp_path: Path, name: str) -> None:
    near = NEAR[name]
    reading = read(["--input", str(lay_out(near.tree, tmp_path / "input"))])
    if reading.status == "read" or near.evidence is None:
        assert near.right is not None, f"read as {reading.source}: {reading.splits}, {reading.labels}"
        assert unlike(reading, near.right) == ""
    else:
        assert reading.status in ("refused", "failed")
        assert near.evidence in reading.message
