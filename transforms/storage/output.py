"""The output folder: what may be in it at the start, and what a run leaves under it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable

from transforms.records import Failure
from transforms.storage.paths import scheme_of

RUNS = ".recordmill"
INDEX = "index"
MANIFEST = "manifest.json"
FAILURES = "failures.jsonl"
_PUBLISHING = "publishing.json"
_UNFINISHED = ".part"


def run_folder(output: str, run: str) -> str:
    """Where a run keeps its finished shards until the whole dataset is published."""
    return os.path.join(output, RUNS, run)


def check_path(output: str) -> None:
    """Raises ValueError unless `output` can name a folder of this machine."""
    if not output:
        raise ValueError("--output is empty; give a folder, new or empty")
    if scheme_of(output):
        raise ValueError(f"--output is {output!r}; this version writes local folders only")
    try:
        output.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"--output is {ascii(output)}, which is not UTF-8; give another folder") from error


def check_output(output: str) -> None:
    """Raises ValueError unless `output` can take a new dataset.

    It may not exist, be empty, or hold only what a run left that did not publish.
    """
    check_path(output)
    output = os.path.abspath(output)
    if not os.path.lexists(output):
        _check_parent(output)
        return
    if not os.path.isdir(output):
        raise ValueError(
            f"--output is {output!r}, which is a file; give a folder, or a path where none is yet"
        )
    if not os.access(output, os.W_OK | os.X_OK | os.R_OK):
        raise ValueError(f"--output is {output!r}, where you may not write; give another folder")
    if os.path.exists(os.path.join(output, MANIFEST)):
        raise ValueError(f"--output is {output!r}, which holds a dataset already; give another folder")
    others = sorted(_files(output) - _left_over(output))
    if others:
        shown = ", ".join(repr(name) for name in others[:3]) + (", …" if len(others) > 3 else "")
        raise ValueError(f"--output is {output!r}, which is not empty ({shown}); give an empty or new folder")


def start_run(output: str, folder: str) -> None:
    """Removes what runs left that did not publish, but for the scratch of this one; makes the folder."""
    for name in _left_over(output):
        _remove(os.path.join(output, name))
    with contextlib.suppress(OSError):  # not there, or not empty
        os.rmdir(os.path.join(output, INDEX))
    runs = os.path.join(output, RUNS)
    for name in os.listdir(runs) if os.path.isdir(runs) else ():
        if os.path.join(runs, name) != folder:
            shutil.rmtree(os.path.join(runs, name))
    shutil.rmtree(os.path.join(folder, "shards"), ignore_errors=True)
    _remove(os.path.join(folder, _PUBLISHING))
    os.makedirs(folder, exist_ok=True)


def announce_publication(folder: str, names: Iterable[str]) -> None:
    """Notes the names that publishing will make in the output: a run cut off there is known by them."""
    write_text(os.path.join(folder, _PUBLISHING), json.dumps(sorted(names)))


def publish_file(unpublished: str, published: str) -> None:
    """Moves one finished file to the name that readers see; may be repeated."""
    os.makedirs(os.path.dirname(published), exist_ok=True)
    if os.path.exists(unpublished) or not os.path.exists(published):
        os.replace(unpublished, published)


def end_runs(output: str) -> None:
    """Removes all that runs left."""
    shutil.rmtree(os.path.join(output, RUNS), ignore_errors=True)


def write_text(path: str, text: str) -> None:
    """Writes a whole file, or leaves the old one."""
    write_lines(path, [text])


def write_lines(path: str, lines: Iterable[str]) -> None:
    """Writes a whole file from pieces that carry their line ends, or leaves the old one."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = path + _UNFINISHED
    with open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)
    os.replace(temporary, path)


def free_bytes(path: str) -> int:
    """Bytes free where `path` will be."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return shutil.disk_usage(path).free


def _check_parent(output: str) -> None:
    """Raises ValueError unless the folder can be made where `output` says."""
    parent = os.path.dirname(output)
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent):
        raise ValueError(f"--output is {output!r}, and {parent!r} is no folder; give another path")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise ValueError(f"--output is {output!r}, and you may not write in {parent!r}; give another folder")


def _files(output: str) -> set[str]:
    """What a folder holds, but for runs: names, and those in the index folder below its name."""
    names = set(os.listdir(output)) - {RUNS}
    if os.path.isdir(os.path.join(output, INDEX)):
        names.remove(INDEX)
        names |= {f"{INDEX}/{name}" for name in os.listdir(os.path.join(output, INDEX))}
    return names


def _left_over(output: str) -> set[str]:
    """Names of files that runs which did not publish may have left: failures, and what they announced."""
    names = {FAILURES}
    runs = os.path.join(output, RUNS)
    for run in os.listdir(runs) if os.path.isdir(runs) else ():
        path = os.path.join(runs, run, _PUBLISHING)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                names.update(json.load(file))
    return names | {name + _UNFINISHED for name in names}


def _remove(path: str) -> None:
    if os.path.lexists(path):
        os.remove(path)


def write_failures(output: str, failures: Iterable[Failure], files: Iterable[str] = ()) -> None:
    """Writes failures.jsonl: `failures`, and the lines of `files`, sorted by key."""
    lines = [failure.to_json() for failure in failures]
    for path in files:
        with open(path, encoding="utf-8", newline="\n") as file:
            lines += [line.rstrip("\n") for line in file]
    lines.sort(key=_failure_order)
    write_lines(os.path.join(output, FAILURES), (f"{line}\n" for line in lines))


def _failure_order(line: str) -> tuple[str, str]:
    fields = json.loads(line)
    return fields["key"], fields["stage"]
