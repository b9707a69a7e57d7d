"""A version before that is damaged: no wrong byte comes over from it."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from recordmill.transforms.examples.framing import read_records
from recordmill.transforms.examples.tfrecord import RecordWriter
from tests.pipelines.conversion import digests
from tests.pipelines.versions.edits import put
from tests.pipelines.versions.homes import (
    NEXT,
    Rerun,
    assert_same_version,
    latest,
    roll_back,
    taken_over,
    versions,
)

SHARD = "train-00001-of-00004"
FILES = [
    f"{SHARD}.tfrecord",
    f"index/{SHARD}.idx",
    f"state/{SHARD}.rows.gz",
    "state/settings.json",
    "failures.jsonl",
]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    """One bit in the middle."""
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) // 2] ^= 4
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def lose(path: Path) -> None:
    path.unlink()


DAMAGES: list[Callable[[Path], None]] = [cut, flip, empty, lose]


def own_copy(home: Path) -> None:
    """No file of it is a link to another's."""
    for path in home.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            path.unlink()
            path.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: str(damage.__name__))
def test_damage_where_the_input_has_changed(
    damage: Callable[[Path], None], name: str, some: Rerun, tmp_path: Path
) -> None:
    home = some.home(tmp_path)
    own_copy(home)
    damage(home / "1.0.0" / name)
    put(some.input, some.edit.after)
    assert some.convert(home) == 0
    assert_same_version(home / NEXT, some.scratch)
    assert latest(home) == NEXT


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [cut, empty, lose], ids=lambda damage: str(damage.__name__))
def test_damage_where_nothing_has_changed(
    damage: Callable[[Path], None], name: str, some: Rerun, tmp_path: Path
) -> None:
    """What is not whole any more is made again, as a version of its own."""
    home = some.home(tmp_path)
    own_copy(home)
    if name == "failures.jsonl" and damage is not lose:
        pytest.skip("failures.jsonl is empty")
    damage(home / "1.0.0" / name)
    put(some.input, some.edit.before)
    assert some.convert(home) == 0
    assert versions(home) == ["1.0.0", NEXT]
    assert digests(home / NEXT) == digests(some.first / "1.0.0")


def test_a_bit_of_a_shard_that_would_be_taken_over_whole(some: Rerun, tmp_path: Path) -> None:
    """In each shard, of which the edit changes some only."""
    home = some.home(tmp_path)
    own_copy(home)
    for path in (home / "1.0.0").glob("*.tfrecord"):
        flip(path)
    put(some.input, some.edit.after)
    assert some.convert(home) == 0
    assert_same_version(home / NEXT, some.scratch)


@pytest.mark.slow
def test_lineage_of_another_shard(some: Rerun, tmp_path: Path) -> None:
    """A file of lineage that is complete, but of another shard."""
    home = some.home(tmp_path)
    own_copy(home)
    state = home / "1.0.0/state"
    one, other = state / f"{SHARD}.rows.gz", state / "train-00002-of-00004.rows.gz"
    swapped = one.read_bytes(), other.read_bytes()
    other.write_bytes(swapped[0])
    one.write_bytes(swapped[1])
    put(some.input, some.edit.after)
    assert some.convert(home) == 0
    assert_same_version(home / NEXT, some.scratch)


@pytest.mark.slow
def test_rows_that_say_something_else(some: Rerun, tmp_path: Path) -> None:
    """A lineage file that was written again: a row less, a row twice, or another order."""
    edits: list[Callable[[list[bytes]], list[bytes]]]
    edits = [lambda rows: rows[1:], lambda rows: rows[:1] + rows, lambda rows: rows[::-1]]
    for number, edited in enumerate(edits):
        folder = tmp_path / str(number)
        folder.mkdir()
        home = some.home(folder)
        own_copy(home)
        for path in (home / "1.0.0/state").glob("*.gz"):
            header, *rows = read_records(io.BytesIO(gzip.decompress(path.read_bytes())))
            packed = io.BytesIO()
            for row in (header, *edited(rows)):
                RecordWriter(packed).write(row)
            path.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
        put(some.input, some.edit.after)
        assert some.convert(home) == 0
        assert_same_version(home / NEXT, some.scratch)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 1}', '{"format_version": 1, "version": "../1.0.0"}']
)
def test_a_damaged_pointer_is_a_wrong_call(
    text: str, some: Rerun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = some.home(tmp_path)
    (home / "latest.json").write_text(text)
    put(some.input, some.edit.after)
    assert some.convert(home) == 2
    error = capsys.readouterr().err
    assert "latest.json" in error.splitlines()[-1]
    assert not (home / NEXT).exists()
    assert not (home / ".recordmill").exists()


@pytest.mark.slow
def test_a_pointer_to_a_version_that_is_gone(some: Rerun, tmp_path: Path) -> None:
    home = some.home(tmp_path)
    roll_back(home, "0.9.0")
    put(some.input, some.edit.after)
    assert some.convert(home) == 0
    assert_same_version(home / NEXT, some.scratch)
    assert latest(home) == NEXT
    assert "0.9.0" in taken_over(home / NEXT)["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("damage", [cut, flip, lose], ids=lambda damage: str(damage.__name__))
def test_the_manifest_of_the_version_before(
    damage: Callable[[Path], None], some: Rerun, tmp_path: Path
) -> None:
    """Without one, a folder called like a version is none; no number is given twice."""
    home = some.home(tmp_path)
    own_copy(home)
    damage(home / "1.0.0/manifest.json")
    put(some.input, some.edit.after)
    assert some.convert(home) == 0
    assert latest(home) == NEXT
    assert digests(home / NEXT) == digests(some.scratch)


@pytest.mark.slow
def test_without_the_lineage_everything_is_made_anew(some: Rerun, tmp_path: Path) -> None:
    """As of a version that was copied from elsewhere without its folder state/."""
    home = some.home(tmp_path)
    for path in (home / "1.0.0/state").iterdir():
        path.unlink()
    (home / "1.0.0/state").rmdir()
    put(some.input, some.edit.after)
    assert some.convert(home) == 0
    assert_same_version(home / NEXT, some.scratch)
    found = taken_over(home / NEXT)
    assert (found["records"], "settings.json is not there" in found["reason"]) == (0, True)
