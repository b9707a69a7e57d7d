"""Folders of runs under `.recordmill`: how they are recognised, recovered and removed.

A run's folder has a marker, `run.json`. In a folder without one, only a scratch folder with its own marker is
removed. In a folder with one, files with the names that runs give are removed, except those that were there
before the marker.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Sequence

import msgspec

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.file_system import Entry, file_system
from recordmill.transforms.storage.files import (
    exists,
    is_unfinished,
    named_entries,
    read_bytes,
    read_json,
    write_file,
)
from recordmill.transforms.storage.layout import (
    CHECKPOINT_ENDING,
    FAILURES,
    FORMAT_VERSION,
    HASHES,
    MANIFEST,
    NOTE_START,
    RUNS,
    Run,
)
from recordmill.transforms.storage.owner import owner_of, remove_marked_folder, utc_now
from recordmill.transforms.storage.publication import PUBLISHING, read_journal, roll_back
from recordmill.transforms.storage.sealed import without_digest

_MARKER = "run.json"
_SCRATCH = "scratch"
_SHARDS = "shards"
# Of the checkpoints that version 0.1 wrote.
_OLD_CHECKPOINT = ".state.json"
# Names of the folders of runs, and of their contents.
_RUN = re.compile(r"[0-9a-f]{16}")
_OUR_NAMES = re.compile(
    r"scratch|shards|sample\.json|failures\.jsonl|duplicates\.jsonl|publishing\.json|metadata\.json|run\.json|tfrecord-.*|.+\.\w+\.part",
    re.DOTALL,
)
_OUR_SHARDS = re.compile(
    r".+-\d{5}(-\w[\w-]*)?\.(tfrecord|idx|failures|rows(\.gz)?|jsonl\.gz|state(\.json)?(\.failures)?)(\.\w+\.part)?",
    re.DOTALL,
)


class _Marker(msgspec.Struct):
    """The part of run.json that is read here; `foreign` are the files that were there before the run."""

    format_version: int
    replaces: bool = False
    foreign: list[str] = []


class _Checkpoint(msgspec.Struct):
    """The part of a checkpoint that is read here: the size of each file of the shard, by name."""

    sizes: dict[str, int]


def run_folders(output: str) -> list[str]:
    runs = os.path.join(output, RUNS)
    return [found.path for found in file_system(runs).contents(runs) if found.is_folder]


def marked_run_folders(output: str) -> list[str]:
    return [folder for folder in run_folders(output) if _marker(folder) is not None]


def strange_entries(output: str) -> list[str]:
    """Names under `.recordmill` that are not of a run or a lock."""
    runs = os.path.join(output, RUNS)
    system = file_system(runs)
    if system.exists(runs) and (system.is_link(runs) or not system.is_folder(runs)):
        return [RUNS]
    strange = []
    for found in system.contents(runs):
        path = found.path
        is_ours = _is_our_folder(path) if found.is_folder else lock.is_lock_file(path)
        if not is_ours:
            strange.append(os.path.relpath(path, output))
    return strange


def has_unpublished(output: str) -> bool:
    """Whether a run, or one before it, was to replace a dataset: other files may be next to its own."""
    markers = map(_marker, run_folders(output))
    return any(marker is not None and marker.replaces for marker in markers)


def mark_run(run: Run, version: str) -> None:
    """Makes the folder of a run that has the lock, and its marker, with the version of recordmill."""
    published = exists(os.path.join(run.output, MANIFEST))
    before = _marker(run.folder)
    marker = {
        "format_version": FORMAT_VERSION,
        "recordmill": version,
        "config_digest": run.digest,
        "started": utc_now(),
        "replaces": published or has_unpublished(run.work),
        "foreign": before.foreign if before is not None else _names_in(run),
    }
    system = file_system(run.folder)
    system.make_folder(run.folder)
    write_file(os.path.join(run.folder, _MARKER), json.dumps(marker))
    system.sync_folder(os.path.dirname(run.folder))
    system.sync_folder(run.work)
    with contextlib.suppress(OSError):  # which we may have made, in a folder that we may not read
        system.sync_folder(os.path.dirname(run.work))


def recover_runs(run: Run) -> int:
    """Recovers from earlier jobs, for a run that is marked; may be interrupted anywhere, and repeated.

    An interrupted publication is undone. The finished shards of the same run stay, except those whose
    checkpoints version 0.1 wrote: their number is returned.
    """
    recover_publications(run.output, run.work)
    folders = run_folders(run.work)
    outdated = sum(
        found.basename.endswith(_OLD_CHECKPOINT) for folder in folders for found in _made_in(folder)
    )
    for folder in folders:
        if folder != run.folder:
            _remove_run(folder)
    _tidy(run)
    return outdated


def recover_publications(output: str, work: str) -> None:
    """Undoes the interrupted publications into `output` of the runs in `work`."""
    published = exists(os.path.join(output, MANIFEST))
    for folder in marked_run_folders(work):
        publication = read_journal(output, folder)
        if publication is not None:
            # With a manifest it never began, or was complete.
            if not published:
                roll_back(output, folder, publication)
            file_system(folder).remove_existing(os.path.join(folder, PUBLISHING))


def remove_run(run: Run) -> None:
    """Removes the files of the run, now published, while the job has the lock; never fails."""
    with contextlib.suppress(OSError, JobError):
        if lock.is_held_by(run.locked, run.token):
            _remove_run(run.folder)
            # The lock, or another run, may be there.
            file_system(run.folder).remove_folder(os.path.dirname(run.folder))


def remove_staging(folder: str) -> None:
    """Removes the folder in which runs made a version, markers last. Without a run, it is left as it is.

    Where folders cannot be renamed, runs make nothing in it but their own folders: other files stay.
    """
    system = file_system(folder)
    if system.has_folders and marked_run_folders(folder):
        runs = os.path.join(folder, RUNS)
        system.remove_entries(found for found in system.contents(folder) if found.path != runs)
    remove_runs(folder)
    system.remove_folder(folder)


def remove_runs(output: str) -> None:
    """Removes the files of all runs under `.recordmill` in an output."""
    for run in run_folders(output):
        _remove_run(run)
    file_system(output).remove_folder(os.path.join(output, RUNS))


def end_run(run: Run) -> None:
    """`remove_run`; then releases the lock. Never fails."""
    remove_run(run)
    lock.release(run.locked, run.token)


def finished_shards(output: str) -> int:
    """The number of finished, unpublished shards of runs in an output."""
    names = [name for folder in marked_run_folders(output) for name in _shard_sizes(folder)]
    return sum(name.endswith(CHECKPOINT_ENDING) for name in names)


def kept_bytes(output: str) -> int:
    """Bytes of the unpublished shards of runs in an output."""
    return sum(sum(_shard_sizes(folder).values()) for folder in marked_run_folders(output))


def failures_path(run: Run) -> str:
    """The path of the run's failures.jsonl: in its own folder where readers would see it in the output."""
    seen = run.work != run.output or exists(os.path.join(run.output, MANIFEST))
    return os.path.join(run.folder if seen else run.output, FAILURES)


def _marker(folder: str) -> _Marker | None:
    with contextlib.suppress(ValueError):
        marker = read_json(os.path.join(folder, _MARKER), _Marker)
        return marker if marker is not None and marker.format_version == FORMAT_VERSION else None
    return None


def _shard_sizes(folder: str) -> dict[str, int]:
    return file_system(folder).sizes(os.path.join(folder, _SHARDS))


def _names_in(run: Run) -> list[str]:
    """The names in a run's folder before the run begins, without our scratch folder."""
    return [
        name
        for name, found in named_entries(run.folder, [_SHARDS])
        if not (name == _SCRATCH and owner_of(found.path))
        and not is_unfinished(found.path, _MARKER, NOTE_START)
    ]


def _made_in(folder: str) -> Iterator[Entry]:
    """The files that runs made in a run's folder, except scratch folder, marker and journal."""
    marker = _marker(folder)
    if marker is None:
        return
    others = {_SCRATCH, _MARKER, PUBLISHING, *marker.foreign}
    for name, found in named_entries(folder, [_SHARDS]):
        if name in others:
            continue
        if name == found.basename:
            is_ours = _OUR_NAMES.fullmatch(name)
        else:
            is_ours = None if found.is_folder else _OUR_SHARDS.fullmatch(found.basename)
        if is_ours:
            yield found


def _is_our_folder(folder: str) -> bool:
    """Whether a folder under `.recordmill` is that of a run, or of hashes."""
    is_of_hashes = os.path.basename(folder) == HASHES and owner_of(folder) is not None
    return is_of_hashes or _marker(folder) is not None or _is_ours(folder)


def _is_ours(folder: str) -> bool:
    """Whether a folder without a marker has only names that jobs give, before or after a run."""
    names = [found.basename for found in file_system(folder).contents(folder)]
    return bool(_RUN.fullmatch(os.path.basename(folder))) and all(map(_OUR_NAMES.fullmatch, names))


def _tidy(run: Run) -> None:
    """Removes the files of a run's folder, except finished shards and the files that this job needs.

    In the scratch folder, files that a source has unpacked stay: this job uses them again.
    """
    system = file_system(run.folder)
    made = list(_made_in(run.folder))
    checkpoints = [found.path for found in made if found.basename.endswith(CHECKPOINT_ENDING)]
    finished = system.each(_files_of_checkpoint, checkpoints)
    kept = {os.path.join(run.shards, name) for names in finished for name in names}
    kept |= {run.sample, run.records}
    system.remove_entries(found for found in made if found.path not in kept)
    if owner_of(run.scratch) is not None:
        spools = [found for found in system.contents(run.scratch) if found.is_folder]
        system.remove_entries(found for found in spools if found.basename != run.token)


def _files_of_checkpoint(path: str) -> Sequence[str]:
    """Names of a checkpoint and of the files that it names; none where it is damaged."""
    with contextlib.suppress(ValueError, RecursionError):
        sizes = msgspec.msgpack.decode(without_digest(read_bytes(path)), type=_Checkpoint).sizes
        return [*sizes, os.path.basename(path)]
    return []


def _remove_run(folder: str) -> None:
    """Removes what runs made in a run's folder, the marker last, and the folder if it is then empty."""
    system = file_system(folder)
    system.remove_entries(list(_made_in(folder)))
    unfinished = [found.path for found in system.contents(folder)]
    system.remove_existing(*(path for path in unfinished if is_unfinished(path, _MARKER, NOTE_START)))
    remove_marked_folder(os.path.join(folder, _SCRATCH))
    if _marker(folder) is not None:
        system.remove_existing(os.path.join(folder, PUBLISHING))
        system.remove_existing(os.path.join(folder, _MARKER))
    system.remove_folder(os.path.join(folder, _SHARDS))
    system.remove_folder(folder)
