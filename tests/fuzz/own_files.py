"""Damaged files of our own: of unfinished runs, of versions and of published datasets.

A run is resumed, a next version is made, a dataset is verified, inspected, described and loaded. A finding
is an exception, a traceback, damage that `verify` accepts, or bytes that differ from those of another job.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

from recordmill import load_dataset
from recordmill.transforms.records import JobError
from tests.fuzz.driver import Case, Finding, files_of
from tests.fuzz.parser_mutations import mutated
from tests.fuzz.parsers import written
from tests.lazy import tf
from tests.pipelines.conversion import command, convert_call, digests
from tests.sources.small_inputs import INPUTS

_FLAGS = ("--num_shards=2", "--progress=none")
_VERSIONS = ("--dataset_version=auto", "--max_failure_ratio=1")
# Of an unfinished shard, only the sizes are compared.
_SHARD_FILES = (".tfrecord", ".idx", ".failures", ".rows.gz")


@functools.cache
def _inputs() -> tuple[Path, Path]:
    """Two folders of images, of which one is not decodable; the second has one image more."""
    base = Path(tempfile.mkdtemp(prefix="fuzz-own-"))
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    for name, count in (("first", 7), ("second", 8)):
        written({**INPUTS["folder"].files(tuple(range(1, count))), "cat/bad.jpg": b"bad"}, base / name)
    return base / "first", base / "second"


def _made(source: Path, name: str, flags: tuple[str, ...], status: int) -> Path:
    output = _inputs()[0].parent / name / "out"
    done = subprocess.run(convert_call(source, output, *_FLAGS, *flags), capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return output


@functools.cache
def states() -> dict[str, Path]:
    """The folders that are damaged, by name."""
    first, _ = _inputs()
    return {
        "unfinished": _made(first, "unfinished", (), 1),
        "versions": _made(first, "versions", _VERSIONS, 0),
        "dataset": _made(first, "dataset", _VERSIONS[1:], 0),
    }


@functools.cache
def _expected() -> dict[str, dict[str, str]]:
    """Digests of what the undamaged folders lead to."""
    _, second = _inputs()
    return {
        "unfinished": digests(states()["dataset"]),
        "versions": digests(_made(second, "scratch", _VERSIONS[1:], 0)),
    }


class OwnFiles:
    """The fuzzer of files that recordmill has written."""

    name = "own_files"
    seconds = 60.0
    batch = 40

    def case(self, seed: int, number: int) -> Case:
        _expected()  # made once, not in each child process
        rng = random.Random(f"{seed} {number}")
        name = rng.choice(sorted(states()))
        folder = states()[name]
        files = files_of(folder)
        unseen = _SHARD_FILES if name == "unfinished" else ()
        candidates = [path for path in sorted(files) if not path.endswith(unseen)]
        for path in rng.sample(candidates, rng.choice((1, 1, 1, 2))):
            if rng.random() < 0.05:
                del files[path]
            else:
                files[path] = mutated(rng, path, files[path])
        return Case(name, files)

    def examine(self, case: Case, folder: Path) -> Finding | None:
        output = folder / "out"
        written(case.files, output)
        if case.name == "dataset":
            return self._read(case, output, folder)
        first, second = _inputs()
        source, flags = (first, _VERSIONS[1:]) if case.name == "unfinished" else (second, _VERSIONS)
        status, errors = run_command("convert", "--input", source, "--output", output, *_FLAGS, *flags)
        if finding := unclear(case.name, status, errors):
            return finding
        versions = [path for path in output.glob("*.*.*") if (path / "manifest.json").exists()]
        published = output if case.name == "unfinished" else max(versions, default=output)
        if not status and digests(published) != _expected()[case.name]:
            return Finding(f"{case.name}: other bytes", f"{errors}\n{sorted(published.iterdir())}")
        return None

    def _read(self, case: Case, output: Path, folder: Path) -> Finding | None:
        status, errors = run_command("verify", output)
        if finding := unclear("verify", status, errors):
            return finding
        if not status and case.files != files_of(states()["dataset"]):
            return Finding("verify: damage is not reported", "")
        report = ("report", output, "--output", folder / "report.html")
        for call in (("inspect", output), ("schema", output), report):
            if finding := unclear(str(call[0]), *run_command(*call)):
                return finding
        with contextlib.suppress(ValueError, OSError, JobError, tf.errors.OpError):
            next(iter(load_dataset(str(output), split="train")), None)
        return None


def run_command(*args: object) -> tuple[int, str]:
    """Status and standard error of a command in this process."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        status = command(*args)
    return status, errors.getvalue()


def unclear(name: str, status: int, errors: str) -> Finding | None:
    """What is wrong with how a command has ended."""
    if status not in (0, 1, 2):
        return Finding(f"{name}: status {status}", errors[-2000:])
    if "Traceback" in errors or " object at 0x" in errors:
        return Finding(f"{name}: a traceback or an address", errors[-2000:])
    return None
