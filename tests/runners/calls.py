"""Conversions as people start them, in a process of their own; what is compared of them."""

import contextlib
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.pipelines.comparison import assert_same_dataset, payloads, shards
from tests.pipelines.conversion import convert_call, digests, manifest
from tests.runners.flink import ROOT, kill_group

INPUT_FLAGS = ("--num_shards=train=4,val=2",)
_SECONDS = 240


@contextlib.contextmanager
def converting(input: Path | str, output: Path | str, *args: str) -> Iterator[subprocess.Popen[str]]:
    """A conversion that runs; at the end of the block it is gone, and what it has started too."""
    call = convert_call(input, output)
    process = subprocess.Popen(
        [*call, "--quiet", *args],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill_group(process)
        if process.stdout is not None:
            process.stdout.close()


def convert(input: Path | str, output: Path | str, *args: str) -> tuple[int, str]:
    """Exit status of a conversion, and what it said."""
    with converting(input, output, *args) as process:
        said, _ = process.communicate(timeout=_SECONDS)
        return process.returncode, said


def programs_of(process: subprocess.Popen[Any]) -> list[str]:
    """Names of the programs that run in the session that a process leads, itself aside."""
    found = []
    for other in psutil.process_iter(["pid", "name", "status"]):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            gone = other.info["status"] == psutil.STATUS_ZOMBIE
            if os.getsid(other.info["pid"]) == process.pid != other.info["pid"] and not gone:
                found.append(other.info["name"])
    return found


def assert_same_shards(output: Path, direct: Path) -> None:
    """The same bytes in the same files, and nothing else."""
    assert digests(output) == digests(direct)
    assert_same_dataset(output, direct)
    assert files(output) == files(direct)


def assert_same_records(output: Path, direct: Path) -> None:
    """The same records, each once, in as many shards; the same counts; no other file."""
    assert_same_dataset(output, direct)
    assert {count for record, count in Counter(payloads(output)).items()} == {1}
    assert len(payloads(output)) == 300 == sum(shards(output).values())
    assert manifest(output)["counts"] == manifest(direct)["counts"]
    assert files(output) == files(direct)


def files(output: Path) -> list[str]:
    """Paths of all that is below a folder."""
    return sorted(str(path.relative_to(output)) for path in output.rglob("*"))


def check_identical_images(photos: Path, folder: Path, flags: list[str]) -> None:
    """Checks that a runner finds the copies that the in-process runner finds: 60 of train are also in val."""
    ways = {
        "drop": ("--duplicates=drop", *INPUT_FLAGS),
        "group": ("--splits=train=0.7,val=0.3", "--group_by=content", *INPUT_FLAGS),
    }
    for name, way in ways.items():
        found = []
        for runner in ([], flags):
            output = folder / f"{name}-{len(runner)}"
            status, said = convert(
                photos, output, *runner, *way, "--writer=shards", "--max_failure_ratio=0.1"
            )
            assert status == 0, said
            found.append(
                (digests(output), (output / "failures.jsonl").read_bytes(), manifest(output)["counts"])
            )
        assert found[0] == found[1]
        assert found[0][2]["skipped"] == (60 if name == "drop" else 0)
