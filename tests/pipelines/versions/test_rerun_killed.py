"""Second runs that are killed before any step on a file: readers see whole versions, and the next one mends.

At every single one with RECORDMILL_EVERY_KILL set; else at one in nine.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Figure
from tests.pipelines.conversion import manifest
from tests.pipelines.versions.edits import put
from tests.pipelines.versions.forked import Forks, forks
from tests.pipelines.versions.homes import NEXT, Rerun, assert_same_version, latest, snapshot, versions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
STEP = 1 if os.environ.get("RECORDMILL_EVERY_KILL") else 9
# A process that is killed has just started its writers: one is enough.
ONE = "--direct_num_workers=1"


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with forks(tmp_path_factory.mktemp("forks")) as started:
        yield started


def contents(folder: Path) -> dict[str, str]:
    """sha256 of the files below a folder."""
    return {name: sha256 for name, (_, _, sha256) in snapshot(folder).items()}


def check_readers(home: Path, old: dict[str, str], rerun: Rerun) -> None:
    """What is named by latest.json is whole; so is whatever is called like a version and has a manifest."""
    whole = [path.name for path in home.iterdir() if (path / "manifest.json").exists()]
    assert latest(home) in whole
    for name in whole:
        if name == "1.0.0":
            assert contents(home / name) == old
        else:
            assert_same_version(home / name, rerun.scratch)
    # TFDS takes the highest folder of such a name that has this file.
    assert max(path.parent.name for path in home.glob("*.*.*/dataset_info.json")) in whole


@pytest.mark.parametrize("role", ["job", "writer"])
@pytest.mark.parametrize("keep", [0, 1])
def test_killed_before_each_step(
    role: str, keep: int, some: Rerun, forked: Forks, tmp_path: Path, figure: Figure
) -> None:
    if role == "writer" and keep:
        pytest.skip("writers are done before versions are removed")
    put(some.input, some.edit.after)
    flags = [f"--keep_versions={keep}"] if keep else []
    started = [*flags, ONE] if role == "job" else flags
    whole = some.home(tmp_path / "whole")
    status, steps = forked.stepped(some.call(whole, *started), whole, role)
    assert status == 0, forked.said
    assert_same_version(whole / NEXT, some.scratch)
    old = contents(some.first / "1.0.0")
    assert len(steps) > {"job": 20, "writer": 10}[role]
    places = range(keep, len(steps), STEP if role == "job" else 2)
    figure("kills", len(places))
    for at in places:
        folder = tmp_path / str(at)
        home = some.home(folder)
        status, done = forked.stepped(some.call(home, *started), home, role, at)
        where = f"before step {at}, {steps[at]}; {forked.said}"
        if role == "job":
            assert status == -9, where
        check_readers(home, old, some)
        assert some.convert(home, *flags) == 0, where
        left = [NEXT] if keep else ["1.0.0", NEXT]
        assert (latest(home), versions(home)) == (NEXT, left), where
        assert_same_version(home / NEXT, some.scratch)
        if not keep:
            assert contents(home / "1.0.0") == old
        shutil.rmtree(folder)


def test_killed_again_and_again(some: Rerun, forked: Forks, tmp_path: Path) -> None:
    """Each time a few steps further than the time before."""
    put(some.input, some.edit.after)
    home = some.home(tmp_path)
    old = contents(some.first / "1.0.0")
    for at in range(2, 400, 3):
        status, _ = forked.stepped(some.call(home, "--keep_versions=2", ONE), home, "job", at)
        check_readers(home, old, some)
        if status == 0:
            break
    assert status == 0
    assert (latest(home), versions(home)) == (NEXT, ["1.0.0", NEXT])
    assert manifest(home / NEXT)["version"] == NEXT


def test_what_another_edit_has_left_is_not_mixed_in(some: Rerun, forked: Forks, tmp_path: Path) -> None:
    """The input changes again between the kill and the next run."""
    put(some.input, some.edit.after)
    whole = some.home(tmp_path / "whole")
    _, steps = forked.stepped(some.call(whole, ONE), whole, "job")
    other = {**some.edit.after, "a/05.jpg": some.edit.before["a/00.jpg"]}
    put(some.input, other)
    assert some.convert(tmp_path / "scratch/out", version=NEXT) == 0
    for at in range(len(steps) // 4, len(steps), max(len(steps) // 4, 1)):
        folder = tmp_path / str(at)
        home = some.home(folder)
        put(some.input, some.edit.after)
        assert forked.stepped(some.call(home, ONE), home, "job", at)[0] == -9
        put(some.input, other)
        assert some.convert(home) == 0
        made = latest(home)
        if made == NEXT:
            assert_same_version(home / NEXT, tmp_path / "scratch/out" / NEXT)
        else:  # the killed one was whole: it has been exposed, and this is the next
            assert made == "1.0.2"
            assert_same_version(home / NEXT, some.scratch)
        scratch = contents(tmp_path / "scratch/out" / NEXT)
        shards = [name for name in scratch if name.endswith((".tfrecord", ".idx"))]
        assert len(shards) == 8
        found = contents(home / made)
        assert {name: found[name] for name in shards} == {name: scratch[name] for name in shards}
