"""What runs leave under `.recordmill`: how they are known, how a new one settles it, and how one ends."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping

from transforms.storage import lock
from transforms.storage.durable import sync_folder, write_text
from transforms.storage.layout import FAILURES, FORMAT_VERSION, MANIFEST, RUNS, Run
from transforms.storage.publication import PUBLISHING, noted_publication, undo

_MARKER = "run.json"
_SCRATCH = "scratch"
_RECORDS = "tfrecord-"
_STATE = ".state.json"
# What reading a damaged JSON file may raise.
_DAMAGED = (ValueError, KeyError, TypeError, RecursionError)


def run_folders(output: str) -> list[str]:
    """The folders of all runs that have something in an output."""
    runs = os.path.join(output, RUNS)
    return sorted(path for path in _entries(runs) if os.path.isdir(path) and not os.path.islink(path))


def strange_entries(output: str) -> list[str]:
    """Names of what is under `.recordmill` and no run has left, nor a job that was about to be one."""
    runs = os.path.join(output, RUNS)
    if os.path.lexists(runs) and (os.path.islink(runs) or not os.path.isdir(runs)):
        return [RUNS]
    folders = run_folders(output)
    strange = [path for path in _entries(runs) if path not in folders and not lock.is_lock_file(path)]
    strange += [folder for folder in folders if _marker(folder) is None and not _is_early(folder)]
    return [os.path.relpath(path, output) for path in sorted(strange)]


def has_runs(output: str) -> bool:
    """Whether a run has begun in an output, and not published."""
    return any(_marker(folder) is not None for folder in run_folders(output))


def has_withdrawn(output: str) -> bool:
    """Whether a run, or one before it, was to replace a dataset: other files may be beside what it left."""
    return any((_marker(folder) or {}).get("replaces") is True for folder in run_folders(output))


def mark_run(run: Run, version: str) -> None:
    """Makes the run's folder, known as one by its marker; touches nothing else.

    Args:
        run: that starts, under the output's lock.
        version: of recordmill.
    """
    published = os.path.lexists(os.path.join(run.output, MANIFEST))
    marker = {
        "format_version": FORMAT_VERSION,
        "recordmill": version,
        "config_digest": run.digest,
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "replaces": published or has_withdrawn(run.output),
    }
    os.makedirs(run.folder, exist_ok=True)
    write_text(os.path.join(run.folder, _MARKER), json.dumps(marker))
    sync_folder(os.path.dirname(run.folder))
    sync_folder(run.output)
    with contextlib.suppress(OSError):  # which we may have made, in a folder that we may not read
        sync_folder(os.path.dirname(run.output))


def settle_runs(run: Run) -> None:
    """Settles what earlier jobs left, for a run that is marked; may be cut off anywhere, and repeated.

    What a publication that was cut off had made is taken back. The finished shards of the same run stay.
    """
    published = os.path.lexists(os.path.join(run.output, MANIFEST))
    folders = run_folders(run.output)
    for folder in folders:
        publication = noted_publication(run.output, folder)
        if publication is not None:
            # With a manifest it never began, or was complete.
            if not published:
                undo(run.output, folder, publication)
            os.remove(os.path.join(folder, PUBLISHING))
    for folder in folders:
        if folder != run.folder:
            _remove_run(folder)
    _tidy(run)


def end_run(run: Run) -> None:
    """Removes what the run, now published, has left, and gives the lock back; never fails."""
    with contextlib.suppress(OSError):
        _remove_run(run.folder)
    lock.release(run.output, run.token)


def finished_shards(output: str) -> int:
    """How many finished, unpublished shards runs have left in an output."""
    runs = [folder for folder in run_folders(output) if _marker(folder) is not None]
    shards = [os.path.join(folder, "shards") for folder in runs]
    return sum(path.endswith(_STATE) for folder in shards for path in _entries(folder))


def kept_bytes(output: str) -> int:
    """What the unpublished shards of runs take in an output already."""
    shards = [os.path.join(folder, "shards") for folder in run_folders(output)]
    return sum(os.path.getsize(path) for folder in shards for path in _entries(folder))


def failures_path(run: Run) -> str:
    """Where the run's failures.jsonl goes: beside a published dataset, whose own stays, under the run."""
    published = os.path.lexists(os.path.join(run.output, MANIFEST))
    return os.path.join(run.folder if published else run.output, FAILURES)


def _marker(folder: str) -> Mapping[str, object] | None:
    try:
        with open(os.path.join(folder, _MARKER), encoding="utf-8") as file:
            marker = json.load(file)
    except (FileNotFoundError, *_DAMAGED):
        return None
    return marker if isinstance(marker, dict) and marker.get("format_version") == FORMAT_VERSION else None


def _is_early(folder: str) -> bool:
    """Whether it holds only what a job makes before it is a run, or what is left of one that was removed."""
    names = (os.path.basename(path) for path in _entries(folder))
    return all(name in (_SCRATCH, f"{_MARKER}.part") or name.startswith(_RECORDS) for name in names)


def _tidy(run: Run) -> None:
    """Leaves of a run's folder what this job needs, and the finished shards."""
    kept = [os.path.join(run.folder, name) for name in (_MARKER, _SCRATCH)]
    for path in _entries(run.folder):
        if path not in (*kept, run.sample, run.shards, run.records):
            _remove(path)
    finished = _finished_files(run.shards)
    for path in _entries(run.shards):
        if os.path.basename(path) not in finished:
            _remove(path)


def _finished_files(shards: str) -> Collection[str]:
    """Names of the state files, and of the files that they name."""
    names: set[str] = set()
    for path in _entries(shards):
        if path.endswith(_STATE):
            with contextlib.suppress(*_DAMAGED), open(path, encoding="utf-8") as file:
                named = json.load(file)["report"]["file"]
                names.update([named["path"], named["index_path"], os.path.basename(path)])
                names.update([named["failures_path"]] if named["failures_path"] else [])
    return names


def _remove_run(folder: str) -> None:
    """Removes a run's folder: what it is known by, last."""
    last = [os.path.join(folder, name) for name in (PUBLISHING, _MARKER)]
    for path in _entries(folder):
        if path not in last:
            _remove(path)
    for path in last:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
    os.rmdir(folder)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def _entries(folder: str) -> Iterator[str]:
    """Paths in a folder, which need not be there."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        yield from [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
