"""The folder for what goes on to a bucket: of one process, and not left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import os, sys
from transforms.storage.scratch import scratch_folder
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


def test_it_goes_with_its_process(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        folder = folder_of(process)
        assert (folder / "shard").exists()
        process.communicate("")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_leaves_the_next_removes_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "recordmill-notes").write_text("a file, not ours")
    (tmp_path / "other").mkdir()
    with started(tmp_path) as alive, started(tmp_path) as killed:
        kept, left = folder_of(alive), folder_of(killed)
        killed.kill()
        killed.wait()
        with started(tmp_path) as following:
            own = folder_of(following)
            assert {path.name for path in tmp_path.iterdir()} == {
                "recordmill-notes",
                "other",
                kept.name,
                own.name,
            }
            assert (kept / "shard").exists()
            assert not left.exists()
            following.communicate("")
        alive.communicate("")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import os\nfrom transforms.storage.scratch import scratch_folder\nmine = scratch_folder()\n"
        "child = os.fork()\nif child == 0:\n    os._exit(scratch_folder() == mine)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\nassert os.path.isdir(mine)\n"
    )
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True)
