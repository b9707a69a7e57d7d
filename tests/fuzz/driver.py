"""Runs fuzzers in child processes with bounds of time and memory, and replays the cases of the corpus."""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import json
import math
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple, Protocol

CORPUS = Path(__file__).parent / "corpus"
"""Cases that once showed a fault: FUZZER/CASE--NAME/, with the name of the case as in `Case`."""

_MEMORY = 3 << 30  # of addresses, beyond what the process has


class Finding(NamedTuple):
    """What a case showed.

    Attributes:
        kind: the same for the same fault.
        detail: for people.
    """

    kind: str
    detail: str


class Case(NamedTuple):
    """A damaged input.

    Attributes:
        name: of the seed that was damaged, and of the way to examine it.
        files: by path, after the damage.
    """

    name: str
    files: dict[str, bytes]


class Fuzzer(Protocol):
    """Makes cases, and examines them.

    Attributes:
        name: of its folder in the corpus.
        seconds: that a case may take, on a machine that does other things too.
        batch: cases for each child process.
    """

    name: str
    seconds: float
    batch: int

    def case(self, seed: int, number: int) -> Case:
        """The case of a number: the same for the same seed and number."""

    def examine(self, case: Case, folder: Path) -> Finding | None:
        """Processes a case in an empty folder; returns what is wrong. Exceptions are findings too."""


class Result(NamedTuple):
    """How many cases were tried, and how often each kind of finding was seen."""

    tried: int
    kinds: collections.Counter[str]


def run(fuzzer: Fuzzer, seed: int, minutes: float = 0, cases: int = 0, keep: str = "") -> Result:
    """Examines cases until the time is over or so many are done; prints the first of each kind of finding.

    `keep` is a folder for the files of these cases.
    """
    end = time.monotonic() + 60 * minutes if minutes else float("inf")
    kinds: collections.Counter[str] = collections.Counter()
    done = 0
    while time.monotonic() < end and (not cases or done < cases):
        numbers = range(done, min(done + fuzzer.batch, cases or done + fuzzer.batch))
        for number, finding in _batch(fuzzer, seed, numbers, end):
            if number < 0:
                done = -number
                continue
            kinds[finding.kind] += 1
            if kinds[finding.kind] == 1:
                case = fuzzer.case(seed, number)
                print(f"{fuzzer.name}, case {number} of {case.name}: {finding.kind}")
                print(f"{finding.detail}\n", flush=True)
                if keep:
                    _keep(case, finding, Path(keep) / fuzzer.name / f"{case.name}--{seed}-{number}")
    print(f"{fuzzer.name}: {done:,} inputs tried, {kinds.total()} findings of {len(kinds)} kinds", flush=True)
    for kind, count in kinds.most_common():
        print(f"  {count:6} {kind}")
    return Result(done, kinds)


def corpus(fuzzer: str) -> Iterator[tuple[str, Case]]:
    """The cases of a fuzzer in the corpus, with their names."""
    folder = CORPUS / fuzzer
    for path in sorted(folder.iterdir()) if folder.exists() else []:
        yield path.name, Case(path.name.partition("--")[0], files_of(path))


def files_of(folder: Path) -> dict[str, bytes]:
    """All files below a folder, by their paths in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def examined(fuzzer: Fuzzer, case: Case) -> Finding | None:
    """What is wrong with a case, in this process."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        try:
            return fuzzer.examine(case, Path(folder))
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)
            ours = [frame for frame in where if re.search(r"/(transforms|pipelines)/", frame.filename)][-1:]
            place = f"{Path(ours[0].filename).name}:{ours[0].name}" if ours else "?"
            text = "".join(traceback.format_exception(error))[-3000:]
            return Finding(f"{case.name}: {type(error).__name__} in {place}", text)


def _child(fuzzer: Fuzzer, seed: int, numbers: range, end: float, results: IO[str]) -> None:
    """Examines some cases; writes a line before each, and one for each finding."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY, size + _MEMORY))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends a process that cannot run Python any more
    for number in numbers:
        if time.monotonic() > end:
            return
        results.write(json.dumps([number]) + "\n")
        results.flush()
        signal.alarm(math.ceil(2 * fuzzer.seconds) + 10)
        case = fuzzer.case(seed, number)
        faulthandler.dump_traceback_later(fuzzer.seconds, exit=True, file=results)
        found = examined(fuzzer, case)
        faulthandler.cancel_dump_traceback_later()
        if found is not None:
            results.write(json.dumps([number, *found]) + "\n")
    signal.alarm(0)
    results.flush()


def _batch(fuzzer: Fuzzer, seed: int, numbers: range, end: float) -> Iterator[tuple[int, Finding]]:
    """The findings of some cases, in a child process; in another one, those after a case that ended it.

    The last is minus the number of the next case, without a finding.
    """
    while numbers:
        with tempfile.TemporaryFile("w+") as results:
            sys.stdout.flush()
            child = os.fork()
            if not child:
                status = 1
                try:
                    _child(fuzzer, seed, numbers, end, results)
                    status = 0
                finally:
                    with contextlib.suppress(ValueError):
                        results.flush()
                    os._exit(status)
            status = os.waitpid(child, 0)[1]
            results.seek(0)
            lines = results.read().splitlines()
        last, rest = numbers.start, []
        for line in lines:
            if not line.startswith("["):
                rest.append(line)
                continue
            last, *found = json.loads(line)
            if found:
                yield last, Finding(*found)
        if status:
            yield last, _ended(fuzzer.case(seed, last).name, status, rest)
        numbers = range(last + 1, numbers.stop) if status else range(0)
    yield -(last + 1), Finding("", "")


def _ended(name: str, status: int, lines: Sequence[str]) -> Finding:
    """The finding of a case that has ended its process."""
    ours = [line for line in lines if "/transforms/" in line][:1]
    what = "more than the seconds" if "Timeout" in "".join(lines[:1]) else f"status {status}"
    where = re.sub(r".*/", "", ours[0]) if ours else ""
    return Finding(f"{name}: {what}: {where}", "\n".join(lines)[:3000])


def _keep(case: Case, finding: Finding, folder: Path) -> None:
    for path, data in case.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    folder.with_suffix(".txt").write_text(f"{finding.kind}\n{finding.detail}\n")
