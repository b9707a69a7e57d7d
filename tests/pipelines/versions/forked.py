"""Conversions forked from one process that has imported everything, and killed at a chosen step."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]

# Steps are what changes a file below a folder: in the process of the job, or in those that write for it. It
# dies before the step of number `at`; where that opens a file to write, as soon as it is there, empty.
_STEPS = """
import os, signal, sys

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGING = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.utime", "os.truncate"}

def watch(own, folder, role, at, note):
    count = [0]
    def step(event, args):
        if event == "open":
            path, mode, flags = args
            if not isinstance(path, str) or not (flags or 0) & WRITING:
                return
        elif event not in CHANGING:
            return
        else:
            path = args[0]
        if not isinstance(path, (str, bytes)) or folder not in os.fsdecode(path):
            return
        if os.fsdecode(path) == note:
            return
        count[0] += 1
        if own == role and count[0] - 1 == at:
            if event == "open" and flags & os.O_CREAT:
                os.close(os.open(path, flags & ~os.O_EXCL | os.O_CREAT, 0o644))
            os.kill(os.getpid() if own == "writer" else 0, signal.SIGKILL)
        if own == role and note:
            file = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.write(file, f"{event} {os.fsdecode(path)}\\n".encode())
            os.close(file)
    sys.addaudithook(step)

def watch_as_told(own):
    folder, role, at, note = os.environ["RECORDMILL_TEST_STEPS"].split("|")
    watch(own, folder, role, int(at), note)
"""
_SITE = _STEPS + 'if "RECORDMILL_TEST_STEPS" in os.environ: watch_as_told("writer")\n'

_PARENT = (
    _STEPS
    + """
import json
from recordmill.pipelines import cli, convert
import recordmill.transforms.read, recordmill.transforms.write

for line in sys.stdin:
    call = json.loads(line)
    child = os.fork()
    if child == 0:
        os.setsid()
        os.environ.update(call["environment"])
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        said = os.open(call["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        status = 70
        try:
            if "RECORDMILL_TEST_STEPS" in os.environ:
                watch_as_told("job")
            status = cli.main(["convert", *call["args"], "--progress=none"])
        except SystemExit as stop:
            status = stop.code
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
)


class Forks:
    """The process that conversions are forked from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        site = folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(_SITE)
        environment = {**os.environ, "PYTHONPATH": f"{site}:{ROOT}"}
        environment.pop("RECORDMILL_TEST_STEPS", None)
        self._parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def convert(self, args: list[str], environment: Mapping[str, str] | None = None) -> int:
        """The exit status of a conversion; that of a signal is negative."""
        self.start(args, environment)
        return self.wait()

    def start(self, args: list[str], environment: Mapping[str, str] | None = None) -> int:
        """Starts one; its process group."""
        call = {"args": args, "environment": dict(environment or {}), "said": str(self._folder / "said")}
        assert self._parent.stdin is not None
        self._parent.stdin.write(f"{json.dumps(call)}\n")
        self._parent.stdin.flush()
        return self._line()

    def wait(self) -> int:
        """The exit status of what was started."""
        return self._line()

    @property
    def said(self) -> str:
        """What the last one has printed."""
        return (self._folder / "said").read_text()

    def stepped(self, args: list[str], folder: Path, role: str, at: int = -1) -> tuple[int, list[str]]:
        """Exit status of a conversion that is killed at a step, and the steps that it took until then.

        Args:
            args: of the conversion.
            folder: whose files count; what is written elsewhere is none of its steps.
            role: `job`, the process that the others are children of; or `writer`, the first of those.
            at: number of the step; -1 for none.
        """
        note = self._folder / "steps"
        note.unlink(missing_ok=True)
        told = f"{folder}|{role}|{at}|{note}"
        status = self.convert(args, {"RECORDMILL_TEST_STEPS": told})
        return status, note.read_text().splitlines() if note.exists() else []

    def close(self) -> None:
        """Ends the process."""
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait(60)
        self._parent.stdout.close()

    def _line(self) -> int:
        assert self._parent.stdout is not None
        return int(self._parent.stdout.readline())


@contextlib.contextmanager
def forks(folder: Path) -> Iterator[Forks]:
    """A process to fork conversions from, which ends with the block."""
    started = Forks(folder)
    try:
        yield started
    finally:
        started.close()


def kill_group(group: int) -> None:
    """Ends a conversion and whatever it has started in its group; those that it left notice by themselves."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
