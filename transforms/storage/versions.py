"""Versions of a dataset: folders x.y.z of one home, and latest.json, which names the one to read.

A job makes a version in a staging folder under `.recordmill`, and publishes it in its last step. The lock of
a home is needed by `recover_versions`, `publish_version` and `remove_old_versions`. Each may be interrupted;
the next job completes it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import files, lock, objects
from recordmill.transforms.storage.file_system import is_remote
from recordmill.transforms.storage.files import UNFINISHED, is_unfinished, write_file
from recordmill.transforms.storage.layout import FORMAT_VERSION, LATEST, MANIFEST, NOTE_START, RUNS, Run
from recordmill.transforms.storage.output import check_output, check_path
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.storage.runs import has_runs, remove_runs, remove_staging, strange_entries
from recordmill.transforms.storage.versions_files import (
    move_folder,
    remove_dataset,
    remove_listed,
    remove_staged_dataset,
)

AUTO = "auto"
# Journals under `.recordmill`: the version that is being published, and the manifest of one being removed.
_PUBLISHING = "exposing.json"
_REMOVING = re.compile(r"removing-(.+)\.json")
# Three numbers without leading zeros, as TFDS has them; short enough for any file system.
_NUMBER = "(0|[1-9][0-9]{0,8})"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}")
_NEARLY = re.compile(r"v?([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?")
# What reading a damaged JSON file may raise.
_DAMAGED = (ValueError, KeyError, TypeError, RecursionError)


class Version(NamedTuple):
    """The number of a version."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        """As people write it, and as its folder is named."""
        return f"{self.major}.{self.minor}.{self.patch}"


_FIRST = Version(1, 0, 0)


def parse_version(text: str) -> Version:
    """The version that a text names: three numbers without leading zeros, as TFDS wants them.

    Raises:
        ValueError: it names none.
    """
    version = _named(text)
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
        names = {found.name for found in files.entries(home)}
    if not names:
        check_output(home)
        return
    if not is_remote(home) and not os.access(home, os.W_OK | os.X_OK | os.R_OK):
        raise ValueError(f"--output is {home!r}, where you may not write; give another folder")
    try:
        _check_names(home, names)
        latest_version(home)
    except OSError as error:
        raise ValueError(f"--output is {home!r}: {error.filename}: {error.strerror}") from error


def check_is_no_version(output: str) -> None:
    """Raises ValueError where the dataset in a folder is one of several versions."""
    try:
        version = json.loads(files.read_bytes(os.path.join(absolute(output), MANIFEST))).get("version")
    except (OSError, JobError, ValueError, AttributeError, RecursionError):
        return  # none, or a damaged one: reported elsewhere
    if version is not None:
        raise ValueError(
            f"--output is {output!r}, which is version {version} of a dataset, and those stay as they are; "
            f"give the folder above it, with --dataset_version={AUTO}"
        )


def published_versions(home: str) -> list[Version]:
    """The complete versions, where readers look for them; ascending."""
    return _versions_where(_is_complete, home)


def staged_versions(home: str) -> list[Version]:
    """The versions that a job makes, or was making; ascending."""
    return sorted(_versions_in(os.path.join(home, RUNS)))


def latest_version(home: str) -> Version | None:
    """The version that latest.json names, which need not be there any more; None without one.

    Raises:
        ValueError: latest.json names none.
    """
    return _version_in(os.path.join(home, LATEST))


def version_folder(home: str, version: Version | str) -> str:
    """Where readers find a version."""
    return os.path.join(home, str(version))


def staging_folder(home: str, version: Version | str) -> str:
    """Where a job makes a version."""
    return os.path.join(home, RUNS, str(version))


def version_to_write(home: str, asked: str) -> Version:
    """The version that a job is going to make.

    Args:
        home: folder of the versions.
        asked: `auto` for the highest that is there with its last number raised, 1.0.0 where there is none; or
            `x.y.z`. One that an earlier job has made, and not published, may be given again.

    Raises:
        ValueError: it is no version, or not higher than all that are there.
    """
    unpublished = _versions_where(_is_staged, os.path.join(home, RUNS))
    there = {*_versions_in(home), *unpublished}
    following = max(there)._replace(patch=max(there).patch + 1) if there else _FIRST
    if asked == AUTO:
        if _named(str(following)) is None:
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


def recover_versions(home: str, working: str) -> list[Version]:
    """Recovers from earlier jobs, under the lock; may be interrupted at any step, and repeated.

    Publishes complete versions, completes removals, and removes leftovers of versions other than `working`.

    Returns:
        The versions that were published.

    Raises:
        JobError: a journal is damaged, or a complete version cannot be published.
    """
    state = os.path.join(home, RUNS)
    _recover_removals(home)
    recovered = []
    for version in _versions_where(_is_staged, state):
        if _recover_publication(home, version):
            recovered.append(version)
    noted = _publishing(home)
    if noted is not None:
        version, before = noted
        # Unless somebody has set latest.json since.
        if _is_complete(version_folder(home, version)) and before == _latest_name(home):
            _write_latest(home, version)
        files.remove_if_there(os.path.join(state, _PUBLISHING))
    for found in files.entries(state):
        if found.is_folder and _named(found.name) and found.name != working:
            remove_staging(found.path)
        elif any(is_unfinished(found.path, name, NOTE_START) for name in (_PUBLISHING, LATEST)):
            files.remove_if_there(found.path)
    return recovered


def publish_version(run: Run) -> None:
    """Publishes a complete version: moves it out of its staging folder, then updates latest.json.

    May be interrupted at any step, and repeated; does nothing if the version is published.

    Raises:
        JobError: the job has lost the lock, the version is gone, or something else has its name by now.
    """
    home, version = run.home, parse_version(run.version)
    staging, published = staging_folder(home, version), version_folder(home, version)
    if not _is_staged(staging):
        if not _is_complete(published):
            raise JobError(f"{staging} is gone, and with it the version; give the same command again")
        if (_publishing(home) or (None, ""))[0] != version:
            return
    lock.check(run.locked, run.token)
    if _is_staged(staging):
        if _is_taken(home, version):
            raise JobError(
                f"--output is {home!r}, where something else has got the name {str(version)!r} meanwhile; "
                "this job publishes nothing"
            )
        _move_out(home, version)
        lock.check(run.locked, run.token)  # what comes between has taken a while
    _write_latest(home, version)
    files.remove_if_there(os.path.join(home, RUNS, _PUBLISHING))


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
        folder = version_folder(home, version)
        remove_dataset(folder, os.path.join(home, RUNS, f"removing-{version}.json"))
    return removed


def _named(text: object) -> Version | None:
    matched = _VERSION.fullmatch(text) if isinstance(text, str) else None
    return Version(*map(int, matched.groups())) if matched else None


def _versions_in(folder: str) -> list[Version]:
    """The versions that anything in a folder is called by; ascending."""
    return sorted(version for found in files.entries(folder) if (version := _named(found.name)))


def _versions_where(matches: Callable[[str], bool], folder: str) -> list[Version]:
    """The versions in a folder whose own folders match; ascending."""
    versions = sorted(
        version for found in files.entries(folder) if found.is_folder and (version := _named(found.name))
    )
    found = files.each(matches, [os.path.join(folder, str(version)) for version in versions])
    return list(itertools.compress(versions, found))


def _is_complete(folder: str) -> bool:
    return files.is_file(os.path.join(folder, MANIFEST))


def _is_staged(folder: str) -> bool:
    """Whether a folder under `.recordmill` has the manifest of the version that it is named after."""
    try:
        manifest = json.loads(files.read_bytes(os.path.join(folder, MANIFEST)))
        return bool(manifest["version"] == os.path.basename(folder))
    except (FileNotFoundError, *_DAMAGED):
        return False


def _check_names(home: str, names: Iterable[str]) -> None:
    """Raises ValueError if a name shows that a folder cannot take versions."""
    if MANIFEST in names:
        check_is_no_version(home)
        raise ValueError(
            f"--output is {home!r}, which holds a dataset without versions; leave --dataset_version, or give "
            "another folder"
        )
    if has_runs(home):
        raise ValueError(
            f"--output is {home!r}, where a run without --dataset_version has not ended; give its command "
            "again, or another folder"
        )
    strange = [name for name in strange_entries(home) if not _is_ours(os.path.relpath(name, RUNS))]
    if strange:
        raise ValueError(
            f"--output is {home!r}, where recordmill did not write {_shown(strange)}; move it away, or give "
            "another folder"
        )
    others = sorted({*names} - {RUNS})
    if others and not any(name == LATEST or _named(name) for name in names):
        raise ValueError(
            f"--output is {home!r}, which is not empty and has no versions ({_shown(others)}); give an empty "
            "or new folder"
        )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (", …" if len(names) > 3 else "")


def _is_ours(name: str) -> bool:
    """Whether something under `.recordmill` has the name of a journal, or of a staged version."""
    name = UNFINISHED.sub("", name)
    return bool(name in (_PUBLISHING, LATEST) or _REMOVING.fullmatch(name) or _named(name))


def _version_in(path: str) -> Version | None:
    """The version that a JSON file names; None where there is no file.

    Raises:
        ValueError: it names none.
    """
    try:
        found = json.loads(files.read_bytes(path))
        version = _named(found["version"])
        if found["format_version"] != FORMAT_VERSION or version is None:
            raise ValueError
    except FileNotFoundError:
        return None
    except _DAMAGED as error:
        raise ValueError(f"{path!r} names no version, as {_version_text(_FIRST)} would") from error
    return version


def _version_text(version: Version) -> str:
    return json.dumps({"format_version": FORMAT_VERSION, "version": str(version)})


def _publishing(home: str) -> tuple[Version, str] | None:
    """The version that a job has begun to publish, and the one that latest.json named then."""
    path = os.path.join(home, RUNS, _PUBLISHING)
    try:
        version = _version_in(path)
        return (
            None if version is None else (version, str(json.loads(files.read_bytes(path)).get("before", "")))
        )
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


def _is_taken(home: str, version: Version) -> bool:
    """Whether the name of a version that is in its staging folder is taken by something else."""
    published = version_folder(home, version)
    if not is_remote(published):
        return os.path.lexists(published)
    # Half of it may have been moved there.
    return objects.is_folder(published) and (_publishing(home) or (None, ""))[0] != version


def _recover_publication(home: str, version: Version) -> bool:
    """Publishes a complete version in its staging folder; False if it was published already."""
    staging, published = staging_folder(home, version), version_folder(home, version)
    if not _is_taken(home, version):
        _move_out(home, version)
        return True
    if _is_complete(published):  # so a job did not publish the staged one
        remove_runs(staging)
        remove_staged_dataset(staging)
        return False
    raise JobError(f"{published} is in the way of version {version}, which is to be put there; move it away")


def _move_out(home: str, version: Version) -> None:
    """Moves a version to where readers look for it; writes the journal first."""
    staging, published = staging_folder(home, version), version_folder(home, version)
    noted = {**json.loads(_version_text(version)), "before": _latest_name(home)}
    write_file(os.path.join(home, RUNS, _PUBLISHING), json.dumps(noted))
    remove_runs(staging)
    move_folder(staging, published)


def _write_latest(home: str, version: Version) -> None:
    path = os.path.join(home, LATEST)
    write_file(path, [f"{_version_text(version)}\n"], os.path.join(home, RUNS))


def _recover_removals(home: str) -> None:
    """Completes interrupted removals."""
    for found in files.entries(os.path.join(home, RUNS)):
        noted = _REMOVING.fullmatch(found.name)
        version = _named(noted[1]) if noted else None
        if version is None:
            continue
        folder = version_folder(home, version)
        if version == _latest_for_job(home) and _is_complete(folder):
            files.remove_if_there(found.path)  # only begun, when somebody set latest.json back to it
        else:
            with contextlib.suppress(OSError):  # no longer published; the next job tries again
                remove_listed(folder, found.path)
