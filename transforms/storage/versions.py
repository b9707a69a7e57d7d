"""Versions of a dataset: folders x.y.z of one home, and latest.json, which names the one to read.

A version is complete with its manifest. Where folders can be renamed, it is put together in a staging folder
under `.recordmill`, and renamed; elsewhere, its files are moved into its own folder, the manifest last. Then
latest.json names it. Publication, recovery and removal need the lock of the home, and go in steps that may be
interrupted; the next job completes them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import (
    UNFINISHED,
    check_folder,
    exists,
    is_unfinished,
    read_bytes,
    read_json,
    remove_files,
    write_file,
)
from recordmill.transforms.storage.layout import (
    DATASET_INFO,
    FORMAT_VERSION,
    LATEST,
    MANIFEST,
    NOTE_START,
    RUNS,
    Run,
    check_name,
)
from recordmill.transforms.storage.output import check_output, check_path, shown
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.storage.publication import PUBLISHING as RUN_JOURNAL
from recordmill.transforms.storage.publication import DatasetFiles, published_dataset
from recordmill.transforms.storage.runs import (
    marked_run_folders,
    recover_publications,
    remove_runs,
    remove_staging,
    strange_entries,
)

AUTO = "auto"
PUBLISHING = "exposing.json"
"""The journal, under `.recordmill`, of the version that is being published."""
REMOVING = re.compile(r"removing-(.+)\.json")
"""The manifest, under `.recordmill`, of a version that is being removed."""
# Three numbers without leading zeros, as TFDS has them; short enough for any file system.
_NUMBER = "(0|[1-9][0-9]{0,8})"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}")
_NEARLY = re.compile(r"v?([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?")


class _VersionFile(msgspec.Struct):
    """The contents of latest.json; and of a journal, with what latest.json named before."""

    format_version: int
    version: str
    before: str = ""


class _Manifest(msgspec.Struct):
    """The field of manifest.json that is read here."""

    version: str | None = None


class Version(NamedTuple):
    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


_FIRST = Version(1, 0, 0)


def parse_version(text: str) -> Version:
    """The version that a text names, as TFDS wants them; raises ValueError if it names none."""
    version = named_version(text)
    if version is None:
        nearly = _NEARLY.fullmatch(text)
        meant = Version(*(int(number or 0) for number in nearly.groups())) if nearly else _FIRST
        raise ValueError(f"--dataset_version is {text!r}; it may be {AUTO}, or three numbers such as {meant}")
    return version


def check_home(home: str) -> None:
    """Raises ValueError unless a folder can take versions: new, empty, or with versions in it already.

    Other files next to versions stay as they are.
    """
    check_path(home)
    home = absolute(home)
    names: set[str] = set()
    with contextlib.suppress(OSError):  # reported below
        names = {found.basename for found in file_system(home).list(home)}
    if not names:
        check_output(home)
        return
    check_folder(home)
    try:
        _check_names(home, names)
        latest_version(home)
    except OSError as error:
        raise ValueError(f"--output is {home!r}: {error.filename}: {error.strerror}") from error


def check_is_no_version(output: str) -> None:
    """Raises ValueError where the dataset in a folder is one of several versions."""
    version = None
    with contextlib.suppress(OSError, JobError, ValueError):  # reported elsewhere
        version = _noted_version(absolute(output))
    if version is not None:
        raise ValueError(
            f"--output is {output!r}, which is version {version} of a dataset, and those stay as they are; "
            f"give the folder above it, with --dataset_version={AUTO}"
        )


def published_versions(home: str) -> list[Version]:
    return versions_where(is_complete, home)


def staged_versions(home: str) -> list[Version]:
    """The versions that a job has begun to make; ascending."""
    return _versions_in(os.path.join(home, RUNS))


def latest_version(home: str) -> Version | None:
    """The version that latest.json names, which may be gone. Raises ValueError if it names none."""
    found = read_version(os.path.join(home, LATEST))
    return found[0] if found is not None else None


def version_folder(home: str, version: Version | str) -> str:
    """The folder of a version that readers see."""
    return os.path.join(home, str(version))


def staging_folder(home: str, version: Version | str) -> str:
    """The folder below whose `.recordmill` a job keeps the unpublished files of a version."""
    return os.path.join(home, RUNS, str(version))


def assembly_folder(home: str, version: Version | str) -> str:
    """The folder into which a job moves the files of a version, the manifest last."""
    return (staging_folder if file_system(home).has_folders else version_folder)(home, version)


def version_to_write(home: str, asked: str) -> Version:
    """The version that a job is going to make.

    It is `x.y.z`, as asked; for `auto`, the highest one with its last number raised, or 1.0.0. An unpublished
    version of an earlier job may be asked for again.

    Raises:
        ValueError: it is no version, or not higher than all that exist.
    """
    unpublished = versions_where(is_staged, os.path.join(home, RUNS))
    interrupted = {version for version in staged_versions(home) if _is_half_published(home, version)}
    there = {*_versions_in(home), *unpublished} - interrupted
    following = max(there)._replace(patch=max(there).patch + 1) if there else _FIRST
    if asked == AUTO:
        if named_version(str(following)) is None:
            raise ValueError(
                f"--dataset_version is {AUTO}, and {home!r} has {max(there)}, after which there is none; "
                "give a higher one"
            )
        return following
    version = parse_version(asked)
    others = there - {version} if version in unpublished else there
    if others and version <= max(others):
        raise ValueError(
            f"--dataset_version is {asked!r}, and {home!r} has {max(others)} already; readers take the "
            f"highest: give {AUTO}, {following}, or a higher one"
        )
    return version


def begin_publication(home: str, version: Version) -> None:
    """Writes the journal of a version, before its manifest."""
    text = version_text(version, before=_latest_name(home))
    write_file(os.path.join(home, RUNS, PUBLISHING), text)


def publish_version(run: Run) -> None:
    """Publishes a complete version, if it is not: renames its staging folder, and updates latest.json.

    Raises:
        JobError: the job has lost the lock, the version is gone, or its name is taken.
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
    file_system(home).remove_existing(os.path.join(home, RUNS, PUBLISHING))


def recover_versions(home: str, working: str) -> list[Version]:
    """Recovers from earlier jobs; returns the versions that are published by that.

    Publishes complete versions, completes removals, undoes the interrupted publication of other versions than
    `working`, and removes their leftovers.

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
        system.remove_existing(os.path.join(runs, PUBLISHING))
    for found in system.contents(runs):
        version_name = found.basename if found.is_folder and named_version(found.basename) else ""
        if version_name and (version_name != working or is_complete(version_folder(home, working))):
            recover_publications(assembly_folder(home, version_name), found.path)
            remove_staging(found.path)
        elif any(is_unfinished(found.path, name, NOTE_START) for name in (PUBLISHING, LATEST)):
            system.remove_existing(found.path)
    return recovered


def remove_old_versions(home: str, keep: int) -> list[Version]:
    """Removes the oldest versions until `keep` are left, never the highest, nor the one of latest.json.

    Only the files that the manifest of a version lists are removed: others in its folder stay. Meanwhile,
    the manifest is a journal, so that readers see no dataset.

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
    system = file_system(home)
    for version in removed:
        folder, journal = version_folder(home, version), os.path.join(home, RUNS, f"removing-{version}.json")
        published_dataset(folder)  # a damaged manifest is reported while it is still published
        system.move(os.path.join(folder, MANIFEST), journal)
        system.sync_folder(folder)
        system.sync_folder(os.path.dirname(journal))
        _remove_listed(folder, journal)
    return removed


def is_complete(folder: str) -> bool:
    return file_system(folder).find(os.path.join(folder, MANIFEST)) is not None


def is_staged(folder: str) -> bool:
    """Whether a folder under `.recordmill` has the manifest of the version that it is named after."""
    with contextlib.suppress(ValueError):
        return _noted_version(folder) == os.path.basename(folder)
    return False


def versions_where(matches: Callable[[str], bool], folder: str) -> list[Version]:
    """The versions in a folder whose own folders match; ascending."""
    system = file_system(folder)
    versions = sorted(
        version
        for found in system.contents(folder)
        if found.is_folder and (version := named_version(found.basename))
    )
    matching = system.each(matches, [os.path.join(folder, str(version)) for version in versions])
    return list(itertools.compress(versions, matching))


def named_version(text: object) -> Version | None:
    """The version of a name, or None."""
    matched = _VERSION.fullmatch(text) if isinstance(text, str) else None
    return Version(*map(int, matched.groups())) if matched else None


def _noted_version(folder: str) -> str | None:
    """The version in a folder's manifest. Raises ValueError where it is damaged."""
    manifest = read_json(os.path.join(folder, MANIFEST), _Manifest)
    return manifest.version if manifest is not None else None


def _is_half_published(home: str, version: Version) -> bool:
    """Whether a job was interrupted while it moved the files of a version into the version's own folder."""
    folder = version_folder(home, version)
    if assembly_folder(home, version) != folder or is_complete(folder):
        return False
    runs = marked_run_folders(staging_folder(home, version))
    return any(exists(os.path.join(run, RUN_JOURNAL)) for run in runs)


def _versions_in(folder: str) -> list[Version]:
    """The versions after which anything in a folder is named; ascending."""
    entries = file_system(folder).contents(folder)
    return sorted(version for found in entries if (version := named_version(found.basename)))


def _check_names(home: str, names: Iterable[str]) -> None:
    """Raises ValueError if a name shows that a folder cannot take versions."""
    if MANIFEST in names:
        check_is_no_version(home)
        raise ValueError(
            f"--output is {home!r}, which holds a dataset without versions; remove --dataset_version, or "
            "give another folder"
        )
    if marked_run_folders(home):
        raise ValueError(
            f"--output is {home!r}, where a run without --dataset_version has not ended; give its command "
            "again, or another folder"
        )
    strange = [name for name in strange_entries(home) if not _is_ours(os.path.relpath(name, RUNS))]
    if strange:
        raise ValueError(
            f"--output is {home!r}, where recordmill did not write {shown(strange)}; move it away, or give "
            "another folder"
        )
    others = sorted({*names} - {RUNS})
    if others and not any(name == LATEST or named_version(name) for name in names):
        raise ValueError(
            f"--output is {home!r}, which is not empty and has no versions ({shown(others)}); give an empty "
            "or new folder"
        )


def _is_ours(name: str) -> bool:
    name = UNFINISHED.sub("", name)
    return bool(name in (PUBLISHING, LATEST) or REMOVING.fullmatch(name) or named_version(name))


def read_version(path: str) -> tuple[Version, str] | None:
    """The version that a JSON file names, and in a journal the previous one; None if there is no file."""
    with contextlib.suppress(ValueError):  # of a damaged file
        found = read_json(path, _VersionFile)
        if found is None:
            return None
        if found.format_version == FORMAT_VERSION and (version := named_version(found.version)) is not None:
            return version, found.before
    raise ValueError(f"{path!r} names no version, as {version_text(_FIRST)} would")


def version_text(version: Version, **more: str) -> str:
    return json.dumps({"format_version": FORMAT_VERSION, "version": str(version), **more})


def _rename(home: str, version: Version) -> None:
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
        dataset = published_dataset(staging)
        remove_files(staging, {*(dataset.files if dataset is not None else ())} - {MANIFEST})
        remove_files(staging, [MANIFEST])
        file_system(staging).remove_folder(staging)
        return False
    raise JobError(f"{published} is in the way of version {version}, which is to be put there; move it away")


def _journal(home: str) -> tuple[Version, str] | None:
    """The version that a job has begun to publish, and the one that latest.json named then."""
    try:
        return read_version(os.path.join(home, RUNS, PUBLISHING))
    except ValueError as error:
        raise JobError(f"{error}; remove it") from error


def _latest_name(home: str) -> str:
    with contextlib.suppress(ValueError):
        return str(latest_version(home) or "")
    return ""


def _latest_for_job(home: str) -> Version | None:
    try:
        return latest_version(home)
    except ValueError as error:
        raise JobError(str(error)) from error


def _write_latest(home: str, version: Version) -> None:
    write_file(os.path.join(home, LATEST), f"{version_text(version)}\n", os.path.join(home, RUNS))


def _recover_removals(home: str) -> None:
    runs, system = os.path.join(home, RUNS), file_system(home)
    for found in system.contents(runs):
        removed = REMOVING.fullmatch(found.basename)
        version = named_version(removed[1]) if removed else None
        if version is None:
            continue
        folder = version_folder(home, version)
        if version == _latest_for_job(home) and is_complete(folder):
            system.remove_existing(found.path)  # only begun, when somebody set latest.json back to it
        else:
            with contextlib.suppress(OSError):  # no longer published; the next job tries again
                _remove_listed(folder, found.path)


def _remove_listed(folder: str, journal: str) -> None:
    """Removes the files that a journal lists, which was the manifest; then the journal."""
    try:
        listed = msgspec.json.decode(read_bytes(journal), type=DatasetFiles).files
        names = [check_name(folder, name) for name in listed]
    except (ValueError, RecursionError) as error:
        raise JobError(f"{journal} is damaged ({error}); remove it, and {folder}") from error
    system = file_system(folder)
    for name in (MANIFEST, DATASET_INFO):  # a move of the manifest in a bucket may have got to the copy
        system.remove_existing(os.path.join(folder, name))
    remove_files(folder, names)
    system.remove_folder(folder)
    system.sync_folder(os.path.dirname(folder))
    system.remove_existing(journal)
