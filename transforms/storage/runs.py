"""What runs leave under `.recordmill`: how they are known, how a new one settles it, and how one ends."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence

from transforms.records import JobError
from transforms.storage import files, lock
from transforms.storage.durable import sync_folder, write_text
from transforms.storage.layout import FAILURES, FORMAT_VERSION, MANIFEST, RUNS, Run
from transforms.storage.paths import is_remote
from transforms.storage.publication import PUBLISHING, noted_publication, undo

_MARKER = "run.json"
_SCRATCH = "scratch"
_SHARDS = "shards"
_RECORDS = "tfrecord-"
_STATE = ".state.json"
# Names of the folders of runs, and of what is in them.
_RUN = re.compile(r"[0-9a-f]{16}")
_OUR_NAMES = re.compile(
    r"scratch|shards|sample\.json|failures\.jsonl|publishing\.json|run\.json|tfrecord-.*|.*\.part", re.DOTALL
)
# What reading a damaged JSON file may raise.
_DAMAGED = (ValueError, KeyError, TypeError, RecursionError)


def run_folders(output: str) -> list[str]:
    """The folders of all runs that have something in an output."""
    return [found.path for found in files.entries(os.path.join(output, RUNS)) if found.is_folder]


def strange_entries(output: str) -> list[str]:
    """Names of what is under `.recordmill` and no run has left, nor a job that was about to be one."""
    runs = os.path.join(output, RUNS)
    if files.exists(runs) and not files.is_own_folder(runs):
        return [RUNS]
    strange = []
    for path, is_folder, _ in files.entries(runs):
        known = _marker(path) is not None or _is_ours(path) if is_folder else lock.is_lock_file(path)
        if not known:
            strange.append(os.path.relpath(path, output))
    return strange


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
    published = files.exists(os.path.join(run.output, MANIFEST))
    marker = {
        "format_version": FORMAT_VERSION,
        "recordmill": version,
        "config_digest": run.digest,
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "replaces": published or has_withdrawn(run.output),
    }
    files.make_folder(run.folder)
    write_text(os.path.join(run.folder, _MARKER), json.dumps(marker))
    sync_folder(os.path.dirname(run.folder))
    sync_folder(run.output)
    with contextlib.suppress(OSError):  # which we may have made, in a folder that we may not read
        sync_folder(os.path.dirname(run.output))


def settle_runs(run: Run) -> None:
    """Settles what earlier jobs left, for a run that is marked; may be cut off anywhere, and repeated.

    What a publication that was cut off had made is taken back. The finished shards of the same run stay.
    """
    published = files.exists(os.path.join(run.output, MANIFEST))
    folders = run_folders(run.output)
    for folder in folders:
        publication = noted_publication(run.output, folder)
        if publication is not None:
            # With a manifest it never began, or was complete.
            if not published:
                undo(run.output, folder, publication)
            files.remove_if_there(os.path.join(folder, PUBLISHING))
    for folder in folders:
        if folder != run.folder:
            _remove_run(folder)
    _tidy(run)


def remove_run(run: Run) -> None:
    """Removes what the run, now published, has left; never fails.

    Where the job has the lock no more, what is there is another's.
    """
    with contextlib.suppress(OSError, JobError):
        if lock.is_held_by(run.locked, run.token):
            _remove_run(run.folder)
            if not is_remote(run.folder):
                os.rmdir(os.path.dirname(run.folder))  # unless the lock, or another run, is there


def discard_run(run: Run) -> None:
    """Removes the folder of a version that is not published, with all that the run has left in it."""
    files.remove_all([files.Found(run.output, is_folder=True, size=0)])


def end_run(run: Run) -> None:
    """`remove_run`, and gives the lock back; never fails."""
    remove_run(run)
    with contextlib.suppress(OSError, JobError):
        if lock.is_held_by(run.locked, run.token):
            lock.release(run.locked, run.token)


def finished_shards(output: str) -> int:
    """How many finished, unpublished shards runs have left in an output."""
    runs = [folder for folder in run_folders(output) if _marker(folder) is not None]
    shards = [files.entries(os.path.join(folder, _SHARDS)) for folder in runs]
    return sum(found.name.endswith(_STATE) for listed in shards for found in listed)


def kept_bytes(output: str) -> int:
    """What the unpublished shards of runs take in an output already."""
    shards = [files.entries(os.path.join(folder, _SHARDS)) for folder in run_folders(output)]
    return sum(found.size for listed in shards for found in listed)


def failures_path(run: Run) -> str:
    """Where the run's failures.jsonl goes: beside a published dataset, whose own stays, under the run."""
    published = files.exists(os.path.join(run.output, MANIFEST))
    return os.path.join(run.folder if published else run.output, FAILURES)


def _marker(folder: str) -> Mapping[str, object] | None:
    try:
        marker = json.loads(files.read_bytes(os.path.join(folder, _MARKER)))
    except (FileNotFoundError, *_DAMAGED):
        return None
    return marker if isinstance(marker, dict) and marker.get("format_version") == FORMAT_VERSION else None


def _is_ours(folder: str) -> bool:
    """Whether it holds only what jobs make: before it is a run, or, late, after it was removed."""
    names = [found.name for found in files.entries(folder)]
    return bool(_RUN.fullmatch(os.path.basename(folder))) and all(map(_OUR_NAMES.fullmatch, names))


def _tidy(run: Run) -> None:
    """Leaves of a run's folder what this job needs, and the finished shards."""
    kept = [os.path.join(run.folder, name) for name in (_MARKER, _SCRATCH)]
    kept += [run.sample, run.shards, run.records]
    files.remove_all(found for found in files.entries(run.folder) if found.path not in kept)
    shards = files.entries(run.shards)
    finished = _finished_files([found.path for found in shards if found.name.endswith(_STATE)])
    files.remove_all(found for found in shards if found.name not in finished)


def _finished_files(states: Sequence[str]) -> Collection[str]:
    """Names of the state files that are whole, and of the files that they name."""
    return {name for names in files.each(_files_of_state, states) for name in names}


def _files_of_state(path: str) -> Sequence[str]:
    with contextlib.suppress(*_DAMAGED):
        named = json.loads(files.read_bytes(path))["report"]["file"]
        every = [name for key, name in named.items() if key == "path" or key.endswith("_path")]
        return [*map(str, filter(None, every)), os.path.basename(path)]
    return []


def _remove_run(folder: str) -> None:
    """Removes a run's folder: what it is known by, last."""
    last = [os.path.join(folder, name) for name in (PUBLISHING, _MARKER)]
    files.remove_all(found for found in files.entries(folder) if found.path not in last)
    for path in last:
        files.remove_if_there(path)
    files.remove_folder(folder)
