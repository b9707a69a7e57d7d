"""Publishes and removes versions, each in steps that may be interrupted and repeated.

A version is complete with its manifest. Where folders can be renamed, it is put together in a staging folder
under `.recordmill`, and renamed; elsewhere, its files are moved into its own folder, the manifest last. Then
latest.json names it. All functions need the lock of the home; the next job completes what was interrupted.
"""

from __future__ import annotations

import contextlib
import json
import os

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import (
    is_unfinished,
    read_bytes,
    remove_empty_folders,
    remove_existing,
    write_file,
)
from recordmill.transforms.storage.layout import (
    DATASET_INFO,
    LATEST,
    MANIFEST,
    NOTE_START,
    RUNS,
    Run,
    check_name,
)
from recordmill.transforms.storage.publication import published_dataset
from recordmill.transforms.storage.runs import recover_publications, remove_runs, remove_staging
from recordmill.transforms.storage.versions import (
    PUBLISHING,
    REMOVING,
    Version,
    assembly_folder,
    is_complete,
    is_staged,
    latest_version,
    named_version,
    parse_version,
    published_versions,
    read_version,
    staging_folder,
    version_folder,
    version_text,
    versions_where,
)


def begin_publication(home: str, version: Version) -> None:
    """Writes the journal of a version, before its manifest."""
    text = {**json.loads(version_text(version)), "before": _latest_name(home)}
    write_file(os.path.join(home, RUNS, PUBLISHING), json.dumps(text))


def publish_version(run: Run) -> None:
    """Publishes a complete version: renames its staging folder if it has one, and updates latest.json.

    Does nothing if the version is published.

    Raises:
        JobError: the job has lost the lock, the version is gone, or something else has its name by now.
    """
    home, version = run.home, parse_version(run.version)
    staging, published = staging_folder(home, version), version_folder(home, version)
    if run.output == staging and is_staged(staging):
        lock.check(run.locked, run.token)
        if file_system(published).exists(published):
            raise JobError(
                f"--output is {home!r}, where something else has got the name {str(version)!r} meanwhile; "
                "this job publishes nothing"
            )
        _rename(home, version)
    elif not is_complete(published):
        raise JobError(f"{run.output} is gone, and with it the version; give the same command again")
    elif (_journal(home) or (None, ""))[0] != version:
        return
    lock.check(run.locked, run.token)  # what comes between has taken a while
    _write_latest(home, version)
    remove_existing(os.path.join(home, RUNS, PUBLISHING))


def recover_versions(home: str, working: str) -> list[Version]:
    """Recovers from earlier jobs.

    Publishes complete versions, completes removals, undoes the interrupted publication of other versions than
    `working`, and removes what is left of them.

    Returns:
        The versions that were published.

    Raises:
        JobError: a journal is damaged, or a complete version cannot be published.
    """
    runs, system = os.path.join(home, RUNS), file_system(home)
    _recover_removals(home)
    staged = versions_where(is_staged, runs) if system.has_folders else []
    recovered = [version for version in staged if _recover_staged(home, version)]
    journal = _journal(home)
    if journal is not None:
        version, before = journal
        # Unless somebody has set latest.json since.
        if is_complete(version_folder(home, version)) and before == _latest_name(home):
            _write_latest(home, version)
        remove_existing(os.path.join(runs, PUBLISHING))
    for found in system.contents(runs):
        version_name = found.basename if found.is_folder and named_version(found.basename) else ""
        if version_name and (version_name != working or is_complete(version_folder(home, working))):
            recover_publications(assembly_folder(home, version_name), found.path)
            remove_staging(found.path)
        elif any(is_unfinished(found.path, name, NOTE_START) for name in (PUBLISHING, LATEST)):
            remove_existing(found.path)
    return recovered


def remove_old_versions(home: str, keep: int) -> list[Version]:
    """Removes the oldest versions until `keep` are left, never the highest, nor the one of latest.json.

    Only the files that its manifest lists are removed: other files in its folder stay.

    Returns:
        The removed versions.

    Raises:
        JobError: latest.json, or a manifest, is damaged.
    """
    if keep < 1:
        raise ValueError(f"--keep_versions is {keep}; it must be at least 1")
    _recover_removals(home)
    versions = published_versions(home)
    latest = _latest_for_job(home)
    # The highest stays too: its number would be given again.
    kept = (latest, *versions[-1:])
    removed = [version for version in versions if version not in kept][: max(len(versions) - keep, 0)]
    for version in removed:
        _remove_version(version_folder(home, version), os.path.join(home, RUNS, f"removing-{version}.json"))
    return removed


def _rename(home: str, version: Version) -> None:
    """Moves a version out of its staging folder."""
    staging = staging_folder(home, version)
    remove_runs(staging)
    file_system(home).rename_folder(staging, version_folder(home, version))


def _recover_staged(home: str, version: Version) -> bool:
    """Publishes a complete version in its staging folder; False if it was published already."""
    staging, published = staging_folder(home, version), version_folder(home, version)
    if not file_system(published).exists(published):
        begin_publication(home, version)
        _rename(home, version)
        return True
    if is_complete(published):  # so a job did not publish the staged one
        remove_runs(staging)
        _remove_staged(staging)
        return False
    raise JobError(f"{published} is in the way of version {version}, which is to be put there; move it away")


def _journal(home: str) -> tuple[Version, str] | None:
    """The version that a job has begun to publish, and the one that latest.json named then."""
    path = os.path.join(home, RUNS, PUBLISHING)
    try:
        version = read_version(path)
        return None if version is None else (version, str(json.loads(read_bytes(path)).get("before", "")))
    except ValueError as error:
        raise JobError(f"{error}; remove it") from error


def _latest_name(home: str) -> str:
    """What latest.json names; empty where it names none."""
    try:
        return str(latest_version(home) or "")
    except ValueError:
        return ""


def _latest_for_job(home: str) -> Version | None:
    try:
        return latest_version(home)
    except ValueError as error:
        raise JobError(str(error)) from error


def _write_latest(home: str, version: Version) -> None:
    write_file(os.path.join(home, LATEST), f"{version_text(version)}\n", os.path.join(home, RUNS))


def _recover_removals(home: str) -> None:
    """Completes interrupted removals."""
    runs = os.path.join(home, RUNS)
    for found in file_system(runs).contents(runs):
        removed = REMOVING.fullmatch(found.basename)
        version = named_version(removed[1]) if removed else None
        if version is None:
            continue
        folder = version_folder(home, version)
        if version == _latest_for_job(home) and is_complete(folder):
            remove_existing(found.path)  # only begun, when somebody set latest.json back to it
        else:
            with contextlib.suppress(OSError):  # no longer published; the next job tries again
                _remove_listed(folder, found.path)


def _remove_version(folder: str, journal: str) -> None:
    """Removes the files of a version that its manifest lists.

    Args:
        folder: of the version.
        journal: path of the manifest until all are removed, so that readers see no dataset.

    Raises:
        JobError: the manifest does not list the dataset's files.
    """
    published_dataset(folder)  # reported while it is still published
    system = file_system(folder)
    system.move(os.path.join(folder, MANIFEST), journal)
    system.sync_folder(folder)
    system.sync_folder(os.path.dirname(journal))
    _remove_listed(folder, journal)


def _remove_listed(folder: str, journal: str) -> None:
    """Removes the files that a manifest lists which has become a journal; then the journal.

    Raises:
        JobError: the journal is damaged.
    """
    try:
        names = [check_name(folder, name) for name in json.loads(read_bytes(journal))["files"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise JobError(f"{journal} is damaged ({error}); remove it, and {folder}") from error
    for name in (MANIFEST, DATASET_INFO):  # a move of the manifest in a bucket may have got to the copy
        remove_existing(os.path.join(folder, name))
    remove_existing(*(os.path.join(folder, name) for name in names))
    remove_empty_folders(folder, names)
    file_system(folder).remove_folder(folder)
    file_system(folder).sync_folder(os.path.dirname(folder))
    remove_existing(journal)


def _remove_staged(folder: str) -> None:
    """Removes the files that the manifest of an unpublished dataset lists, the manifest last.

    Raises:
        JobError: the manifest does not list the dataset's files.
    """
    dataset = published_dataset(folder)
    names = dataset.files if dataset is not None else ()
    remove_existing(*(os.path.join(folder, name) for name in names if name != MANIFEST))
    remove_existing(os.path.join(folder, MANIFEST))
    remove_empty_folders(folder, names)
    file_system(folder).remove_folder(folder)
