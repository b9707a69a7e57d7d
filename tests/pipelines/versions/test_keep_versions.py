"""--keep_versions: the oldest leave, never the one that readers take, and only what a manifest lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.conversion import digests
from tests.pipelines.versions.edits import put
from tests.pipelines.versions.homes import (
    NEXT,
    Rerun,
    assert_same_version,
    latest,
    roll_back,
    snapshot,
    versions,
)


@pytest.mark.slow
def test_the_oldest_leave_once_the_new_one_is_there(some: Rerun, tmp_path: Path) -> None:
    home = some.home(tmp_path)
    for number, state in enumerate([some.edit.after, some.edit.before, some.edit.after]):
        put(some.input, state)
        assert some.convert(home, "--keep_versions=2") == 0
        assert versions(home) == [f"1.0.{number}", f"1.0.{number + 1}"]
    assert latest(home) == "1.0.3"
    # The shards that it shared with versions that have left are whole.
    assert digests(home / "1.0.3") == digests(some.scratch)


@pytest.mark.slow
def test_one_alone(some: Rerun, tmp_path: Path) -> None:
    home = some.home(tmp_path)
    put(some.input, some.edit.after)
    assert some.convert(home, "--keep_versions=1") == 0
    assert versions(home) == [NEXT]
    assert_same_version(home / NEXT, some.scratch)


@pytest.mark.slow
def test_what_no_manifest_lists_stays(some: Rerun, tmp_path: Path) -> None:
    home = some.home(tmp_path)
    (home / "1.0.0/notes.txt").write_text("mine")
    (home / "notes.txt").write_text("mine too")
    put(some.input, some.edit.after)
    assert some.convert(home, "--keep_versions=1") == 0
    assert versions(home) == ["1.0.0", NEXT, "notes.txt"]
    assert [*snapshot(home / "1.0.0")] == ["notes.txt"]
    put(some.input, some.edit.before)
    assert some.convert(home, "--keep_versions=1") == 0
    assert versions(home) == ["1.0.0", "1.0.2", "notes.txt"]


@pytest.mark.slow
def test_a_number_that_was_given_is_not_given_again(some: Rerun, tmp_path: Path) -> None:
    """Rolled back to 1.0.0, which stays; numbers go on from the highest that is left."""
    home = some.home(tmp_path)
    put(some.input, some.edit.after)
    assert some.convert(home) == 0
    roll_back(home, "1.0.0")
    put(some.input, {**some.edit.before, "z/1.jpg": some.edit.before["a/00.jpg"]})
    assert some.convert(home, "--keep_versions=2") == 0
    assert versions(home) == [NEXT, "1.0.2"]
    assert latest(home) == "1.0.2"


@pytest.mark.slow
def test_an_unchanged_run_removes_none(some: Rerun, tmp_path: Path) -> None:
    """But what is above the number that is kept leaves then, too, or it would stay for ever."""
    home = some.home(tmp_path)
    put(some.input, some.edit.after)
    assert some.convert(home) == 0
    assert some.convert(home, "--keep_versions=2") == 0
    assert versions(home) == ["1.0.0", NEXT]
