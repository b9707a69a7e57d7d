"""The scratch folder: private to one process, and removed at its end."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import scratch
from recordmill.transforms.storage.owner import MARKER, Owner

_PROGRAM = """
import sys
from recordmill.transforms.storage.scratch import scratch_folder
assert scratch_folder() == scratch_folder()
open(scratch_folder() + "/shard", "w").close()
print(scratch_folder(), flush=True)
sys.stdin.read()
"""


def started(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def folder_of(process: "subprocess.Popen[str]") -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def parent_in(folder: Path) -> Path:
    return folder / f"recordmill-scratch-{os.getuid()}"


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder, in which this process has no scratch folder yet."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scratch.scratch_folder.cache_clear()
    monkeypatch.setattr("atexit.register", lambda *_: None)
    yield tmp_path
    scratch.scratch_folder.cache_clear()


def test_it_goes_with_its_process(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        folder = folder_of(process)
        assert (folder / "shard").exists()
        assert folder.parent == parent_in(tmp_path)
        assert folder.parent.stat().st_mode & 0o777 == 0o700
        marker = json.loads((folder / MARKER).read_text())
        assert marker["pid"] == process.pid and marker["host"] and marker["born"]
        process.communicate("")
    assert [path.name for path in tmp_path.iterdir()] == [parent_in(tmp_path).name]
    assert list(parent_in(tmp_path).iterdir()) == []


def test_what_a_killed_process_leaves_the_next_removes_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "recordmill-notes").write_text("a file, not ours")
    (tmp_path / "recordmill-out").mkdir()
    (tmp_path / "recordmill-out/manifest.json").write_text("a dataset")
    with started(tmp_path) as alive, started(tmp_path) as killed:
        kept, left = folder_of(alive), folder_of(killed)
        killed.kill()
        killed.wait()
        copied = kept.parent / "copied"
        copied.mkdir()
        (copied / "shard").write_text("no marker")
        with started(tmp_path) as following:
            own = folder_of(following)
            assert sorted(kept.parent.iterdir()) == sorted([kept, own, copied])
            assert (kept / "shard").exists() and (copied / "shard").exists()
            assert not left.exists()
            following.communicate("")
        alive.communicate("")
    assert (tmp_path / "recordmill-notes").exists()
    assert (tmp_path / "recordmill-out/manifest.json").read_text() == "a dataset"


@pytest.mark.parametrize("marker", ["", "{}", "null", '{"pid": 1}', "not JSON"])
def test_a_folder_with_another_marker_stays(marker: str, fresh: Path) -> None:
    look_alike = parent_in(fresh) / "tmp12345678"
    look_alike.mkdir(parents=True, mode=0o700)
    (look_alike / MARKER).write_text(marker)
    scratch.scratch_folder()
    assert (look_alike / MARKER).read_text() == marker


def test_folders_of_other_hosts_and_links_stay(fresh: Path) -> None:
    parent = parent_in(fresh)
    parent.mkdir(mode=0o700)
    dead = Owner("", "elsewhere", 1, "2026-01-01T00:00:00+00:00", "", "", 1.0)
    (parent / "theirs").mkdir()
    (parent / "theirs" / MARKER).write_bytes(dead.to_json())
    here = Owner("", os.uname().nodename, 1, "2026-01-01T00:00:00+00:00", "", "", 1.0)
    (fresh / "linked").mkdir()
    (fresh / "linked" / MARKER).write_bytes(here.to_json())
    (parent / "link").symlink_to(fresh / "linked")
    (parent / "ours").mkdir()
    (parent / "ours" / MARKER).write_bytes(here.to_json())
    own = Path(scratch.scratch_folder())
    assert sorted(parent.iterdir()) == sorted([own, parent / "theirs", parent / "link"])
    assert (fresh / "linked" / MARKER).exists()


def _link(path: Path) -> None:
    (path.parent / "elsewhere").mkdir()
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize("made", [Path.touch, _link])
def test_a_parent_that_is_not_a_folder_of_ours_is_refused(made: Callable[[Path], None], fresh: Path) -> None:
    made(parent_in(fresh))
    with pytest.raises(JobError, match=r"recordmill-scratch-\d+ is needed .*; remove it, or set TMPDIR"):
        scratch.scratch_folder()


def test_a_parent_of_another_user_is_refused(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    (fresh / "recordmill-scratch-54321").mkdir()
    with pytest.raises(JobError, match="another user's folder; remove it, or set TMPDIR"):
        scratch.scratch_folder()


def test_an_open_parent_is_closed_to_others(fresh: Path) -> None:
    parent_in(fresh).mkdir()
    parent_in(fresh).chmod(0o777)
    scratch.scratch_folder()
    assert parent_in(fresh).stat().st_mode & 0o777 == 0o700


def test_a_fork_has_its_own_and_leaves_exit_handlers_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    program = f"""
import atexit, os, shutil, sys
atexit.register(shutil.rmtree, {str(mine)!r})
from recordmill.transforms.storage.scratch import scratch_folder
scratch = scratch_folder()
child = os.fork()
if child == 0:
    assert scratch_folder() != scratch
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert os.path.isdir(scratch)
assert not os.path.exists({str(mine)!r}), "the child ran the handler that was not ours"
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert list(parent_in(tmp_path).iterdir()) == []


def test_the_folder_that_is_removed_is_that_of_this_process(fresh: Path) -> None:
    folder = scratch.scratch_folder()
    scratch._remove_own(folder, os.getpid() + 1)
    assert os.path.isdir(folder)
    scratch._remove_own(folder, os.getpid())
    assert not os.path.exists(folder)
    shutil.rmtree(parent_in(fresh))
