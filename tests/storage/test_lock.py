"""The lock of an output, between processes that live and processes that die."""

import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import lock

ROOT = Path(__file__).parents[2]
HOLDS = """
import sys, time
from recordmill.transforms.storage import lock
lock.acquire(sys.argv[1], sys.argv[2], "recordmill convert there")
print("held", flush=True)
sys.stdin.read()
lock.release_all()
"""
TRIES = """
import sys
from recordmill.transforms.records import JobError
from recordmill.transforms.storage import lock
sys.stdin.readline()
try:
    lock.acquire(sys.argv[1], sys.argv[2])
except JobError as error:
    print(error)
else:
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _given_back() -> Iterator[None]:
    yield
    lock.release_all()


@contextlib.contextmanager
def process(script: str, output: Path, token: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", script, str(output), token]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as popen:
        try:
            yield popen
        finally:
            popen.kill()


def line(popen: "subprocess.Popen[str]") -> str:
    assert popen.stdout is not None
    return popen.stdout.readline().rstrip("\n")


def lock_file(output: Path) -> Path:
    return output / ".recordmill/lock"


def owner(output: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(lock_file(output).read_text())
    return found


def rewrite(output: Path, age: float = 0.0, **fields: object) -> None:
    """Makes of a lock that of another owner, whose last sign of life is so old."""
    path = lock_file(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = {"token": "theirs", "host": "elsewhere", "pid": 7, "started": "2026-01-02T03:04:05+00:00"}
    path.write_text(json.dumps({**written, "command": "", **fields}))
    os.utime(path, (time.time() - age, time.time() - age))


def test_a_living_owner_is_named_and_a_killed_one_is_followed_at_once(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with process(HOLDS, output, "theirs") as holding:
        assert line(holding) == "held"
        with pytest.raises(JobError) as refused:
            lock.acquire(str(output), "ours")
        pattern = (
            rf" is '{output}', where another job is at work: process {holding.pid} on .+, since "
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 \(recordmill convert there\); wait for it, or stop it, "
            "or give another folder"
        )
        assert re.fullmatch(f"WriteDataset.output{pattern}", str(refused.value))
        assert re.fullmatch(f"--output{pattern}", lock.holder(str(output)) or "")
        assert owner(output)["token"] == "theirs"
        holding.send_signal(signal.SIGKILL)
        holding.wait()
        assert lock.holder(str(output)) is None
        lock.acquire(str(output), "ours")
    assert owner(output)["token"] == "ours"
    assert owner(output)["pid"] == os.getpid()


def test_an_owner_that_ends_gives_it_back(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with process(HOLDS, output, "theirs") as holding:
        assert line(holding) == "held"
        holding.communicate("")
    assert not (output / ".recordmill").exists()
    lock.acquire(str(output), "ours")
    lock.check(str(output), "ours")


def test_a_child_that_outlives_its_parent_has_no_lock(tmp_path: Path) -> None:
    forks = HOLDS.replace("sys.stdin.read()", "import os; os.fork() or time.sleep(60); os._exit(0)")
    spawns = HOLDS.replace(
        "sys.stdin.read()", "import os, subprocess; subprocess.Popen(['sleep', '60']); os._exit(0)"
    )
    for script in (forks, spawns):
        with process(script, tmp_path, "theirs") as holding:
            assert line(holding) == "held"
            holding.wait()
            lock.acquire(str(tmp_path), "ours")
            lock.release(str(tmp_path), "ours")


def test_of_many_that_start_at_once_one_gets_it(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(process(TRIES, tmp_path, f"job{number}")) for number in range(4)]
        for job in jobs:
            assert job.stdin is not None
            job.stdin.write("go\n")
            job.stdin.flush()
        said = [line(job) for job in jobs]
        assert said.count("held") == 1
        winner = jobs[said.index("held")]
        refused = [text for text in said if text != "held"]
        assert all(f"another job is at work: process {winner.pid} on " in text for text in refused)


@pytest.mark.parametrize(
    ("age", "alive"), [(0.0, True), (50.0, True), (70.0, False), (3600.0, False)], ids=str
)
def test_an_owner_on_another_host_lives_while_it_beats(age: float, alive: bool, tmp_path: Path) -> None:
    rewrite(tmp_path, age)
    if alive:
        with pytest.raises(JobError, match=r"process 7 on elsewhere.*give the same command again in \d+ s"):
            lock.acquire(str(tmp_path), "ours")
        assert "process 7 on elsewhere" in str(lock.holder(str(tmp_path)))
        assert owner(tmp_path)["token"] == "theirs"
    else:
        assert lock.holder(str(tmp_path)) is None
        lock.acquire(str(tmp_path), "ours")
        assert owner(tmp_path)["token"] == "ours"
    assert [path.name for path in (tmp_path / ".recordmill").iterdir()] == ["lock"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_without_flock_the_beat_tells(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fails)
    lock.acquire(str(tmp_path), "ours")
    here = owner(tmp_path)["host"]
    lock.release_all()
    rewrite(tmp_path, 5, host=here)
    with pytest.raises(JobError, match=f"process 7 on {here}"):
        lock.acquire(str(tmp_path), "ours")
    rewrite(tmp_path, 61, host=here)
    lock.acquire(str(tmp_path), "ours")


def test_the_owner_beats_until_it_lets_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock._LockFile, "renew_seconds", 0.01)
    before = set(threading.enumerate())
    lock.acquire(str(tmp_path), "ours")
    (thread,) = set(threading.enumerate()) - before
    path = lock_file(tmp_path)

    def beats() -> bool:
        os.utime(path, (1, 1))
        deadline = time.monotonic() + 30
        while path.stat().st_mtime == 1 and time.monotonic() < deadline:
            if not thread.is_alive():
                return False
            time.sleep(0.01)
        return path.stat().st_mtime > 1

    assert beats()
    # Another host has taken it over: the beats of the former owner must not keep it alive.
    rewrite(tmp_path)
    assert not beats()
    with pytest.raises(JobError, match="which another job has taken over: process 7 on elsewhere"):
        lock.check(str(tmp_path), "ours")
    lock.release(str(tmp_path), "ours")
    assert owner(tmp_path)["token"] == "theirs"


def test_the_same_job_may_ask_again(tmp_path: Path) -> None:
    with process(HOLDS, tmp_path, "ours") as holding:
        assert line(holding) == "held"
        lock.acquire(str(tmp_path), "ours")
        lock.acquire(str(tmp_path), "ours")
        lock.check(str(tmp_path), "ours")
        assert owner(tmp_path)["pid"] == holding.pid


def test_a_job_of_the_same_process_takes_over(tmp_path: Path) -> None:
    lock.acquire(str(tmp_path), "first")
    assert lock.holder(str(tmp_path)) is None
    lock.acquire(str(tmp_path), "second")
    with pytest.raises(JobError, match="another job has taken over"):
        lock.check(str(tmp_path), "first")
    lock.release(str(tmp_path), "first")
    lock.check(str(tmp_path), "second")
    with process(TRIES, tmp_path, "third") as other:
        assert f"process {os.getpid()} on " in other.communicate("go\n")[0]
    lock.release(str(tmp_path), "second")
    assert not (tmp_path / ".recordmill").exists()


def test_a_removed_output_is_no_longer_held(tmp_path: Path) -> None:
    output = tmp_path / "out"
    lock.acquire(str(output), "ours")
    lock_file(output).unlink()
    with pytest.raises(JobError, match="whose lock is gone"):
        lock.check(str(output), "ours")
    lock.acquire(str(output), "ours")
    lock.check(str(output), "ours")


@pytest.mark.parametrize("content", ["", "{", '{"token": "a"}', '{"token": "a", "host": '])
def test_a_lock_without_an_owner_is_free(content: str, tmp_path: Path) -> None:
    lock_file(tmp_path).parent.mkdir()
    lock_file(tmp_path).write_text(content)
    assert lock.holder(str(tmp_path)) is None
    lock.acquire(str(tmp_path), "ours")
    assert owner(tmp_path)["token"] == "ours"


@pytest.mark.parametrize("content", ["[]", "null", "mine", '{"name": "mine"}'])
def test_a_file_that_is_no_lock_stays(content: str, tmp_path: Path) -> None:
    lock_file(tmp_path).parent.mkdir()
    lock_file(tmp_path).write_text(content)
    with pytest.raises(JobError, match="lock is not a lock that recordmill wrote; move it away"):
        lock.acquire(str(tmp_path), "ours")
    lock.release(str(tmp_path), "ours")
    assert lock_file(tmp_path).read_text() == content


def test_other_entries_stay(tmp_path: Path) -> None:
    lock.acquire(str(tmp_path), "ours")
    (tmp_path / ".recordmill/run").mkdir()
    lock.release(str(tmp_path), "ours")
    assert [path.name for path in (tmp_path / ".recordmill").iterdir()] == ["run"]


def test_faults_are_errors_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JobError, match=r"file/\.recordmill: Not a directory"):
        lock.acquire(str(tmp_path / "file"), "ours")

    def full(descriptor: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(
            JobError, match=r"\.recordmill/lock: No space left on device; .* are free there; free"
        ):
            lock.acquire(str(tmp_path), "ours")
    # What that left is nobody's.
    with process(HOLDS, tmp_path, "theirs") as holding:
        assert line(holding) == "held"


def test_giving_back_never_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object, **options: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    lock.acquire(str(tmp_path), "ours")
    with monkeypatch.context() as patched:
        patched.setattr(os, "remove", fails)
        patched.setattr(os, "open", fails)
        lock.release(str(tmp_path), "ours")
        lock.release_all()
    # The file is still there, and nobody has it.
    assert owner(tmp_path)["token"] == "ours"
    with process(HOLDS, tmp_path, "theirs") as holding:
        assert line(holding) == "held"


def test_a_signal_handler_can_give_back_whatever_it_interrupts(tmp_path: Path) -> None:
    lock.acquire(str(tmp_path), "ours")
    with lock._mutex:
        lock.release_all()
    assert not (tmp_path / ".recordmill").exists()
