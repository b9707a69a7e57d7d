"""Jobs that make versions of a dataset, small and by hand, and readers that share nothing with them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from recordmill.transforms.storage import files, lock
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.layout import Run
from recordmill.transforms.storage.publication import (
    Move,
    commit,
    complete_moves,
    move_file,
    write_journal,
    write_metadata_files,
)
from recordmill.transforms.storage.runs import mark_run, recover_runs, remove_run
from recordmill.transforms.storage.versions import (
    assembly_folder,
    begin_publication,
    parse_version,
    publish_version,
    recover_versions,
    remove_old_versions,
)

FILES = ("dataset_info.json", "index/train-00000-of-00001.idx", "train-00000-of-00001.tfrecord")
KEPT = 2
_CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir")


class Killed(BaseException):
    """What follows a kill -9: nothing that a job has to say."""


def run_of(home: str, version: str, token: str = "token") -> Run:
    """The run that makes a version."""
    return Run(assembly_folder(home, version), "d" * 64, token, home=home, version=version)


def text_of(version: str, name: str) -> str:
    """What a file of a version holds."""
    return f"{name} of {version}"


def manifest_of(version: str) -> str:
    """The manifest of a version."""
    return json.dumps({"format_version": 1, "files": [*FILES, "manifest.json"], "version": version})


def put(path: str, text: str) -> None:
    """A file, in a folder or a bucket."""
    system = file_system(path)
    system.make_folder(os.path.dirname(path))
    system.write(path, [text.encode()])


def put_staged(run: Run) -> None:
    """A complete dataset in its folder, before the run's own folder is removed."""
    put(os.path.join(run.folder, "run.json"), '{"format_version": 1}')
    for name in FILES:
        put(os.path.join(run.output, name), text_of(run.version, name))
    begin_publication(run.home, parse_version(run.version))
    put(os.path.join(run.output, "manifest.json"), manifest_of(run.version))


@contextlib.contextmanager
def locked(home: str | Path, token: str = "token") -> Iterator[None]:
    """While the job `token` has the lock."""
    lock.acquire(str(home), token)
    yield
    lock.release(str(home), token)


def publish(home: str, version: str, keep: int = 100) -> None:
    """The whole of a job that publishes a version, but for what it converts."""
    run = run_of(home, version, f"token of {version}")
    with locked(home, run.token):
        work(run, keep)


def work(run: Run, keep: int = KEPT) -> None:
    """What such a job does under the lock."""
    recover_versions(run.home, run.version)
    if not files.exists(os.path.join(run.published, "manifest.json")):
        convert(run)
        publish_version(run)
    remove_old_versions(run.home, keep)


def convert(run: Run) -> None:
    """From the start of a run to a complete dataset in the folder in which it is put together."""
    mark_run(run, "1.0")
    recover_runs(run)
    moves = []
    for name in FILES[1:]:
        moves.append(
            Move(os.path.join(run.shards, os.path.basename(name)), os.path.join(run.output, name), None)
        )
        put(moves[-1].staged, text_of(run.version, name))
    publication = write_journal(run, moves, [*FILES[:1], "manifest.json"], "")
    file_system(run.output).each(move_file, moves)
    complete_moves(run.output, publication)
    write_metadata_files(run, {FILES[0]: text_of(run.version, FILES[0])}, publication)
    begin_publication(run.home, parse_version(run.version))
    commit(run, manifest_of(run.version))
    remove_run(run)


def versions_seen(home: Path) -> list[str]:
    """The folders that TFDS would take for versions, in its order."""
    found = [path.name for path in home.iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", path.name)]
    return sorted(found, key=lambda name: [int(number) for number in name.split(".")])


def latest_seen(home: Path) -> str:
    """What latest.json names."""
    found = json.loads((home / "latest.json").read_text())
    assert found["format_version"] == 1
    return str(found["version"])


def contents(folder: Path) -> dict[str, str]:
    """Text of each file below a folder, by name."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def whole(version: str) -> dict[str, str]:
    """Text of each file of a version."""
    return {**{name: text_of(version, name) for name in FILES}, "manifest.json": manifest_of(version)}


def check_readers(home: Path) -> None:
    """A reader of latest.json, and one of the highest folder, both have a whole dataset."""
    for version in (latest_seen(home), versions_seen(home)[-1]):
        assert contents(home / version) == whole(version)


class Watch:
    """Stops this thread before one of its changes of a file system, and watches all before it."""

    def __init__(self, stop_before: int, look: Callable[[], None]) -> None:
        self.changes = 0
        self._stop_before = stop_before
        self._look = look
        self._thread = threading.get_ident()
        self._looking = False

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        """One event of the interpreter; see its table of audit events."""
        writes = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if threading.get_ident() != self._thread or self._looking or not (writes or event in _CHANGES):
            return
        self._looking = True
        try:
            self._look()
        finally:
            self._looking = False
        self.changes += 1
        if self.changes >= self._stop_before:
            raise Killed


_watches: list[Watch] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    for watch in _watches:
        watch(event, arguments)


@contextlib.contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """While it is at work."""
    if not hasattr(sys, "_recordmill_watch"):
        sys.addaudithook(_hook)  # for good
        sys._recordmill_watch = True  # type: ignore[attr-defined]
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.remove(watch)
