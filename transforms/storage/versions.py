"""Versions of a dataset: folders x.y.z of one home, and latest.json, which names the one to read.

How they are published and removed: `recordmill.transforms.storage.version_publication`.
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
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import UNFINISHED, check_folder, read_bytes
from recordmill.transforms.storage.layout import FORMAT_VERSION, LATEST, MANIFEST, RUNS
from recordmill.transforms.storage.output import check_output, check_path
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.storage.runs import has_publication, has_runs, strange_entries

AUTO = "auto"
PUBLISHING = "exposing.json"
"""The journal, under `.recordmill`, of the version that is being published."""
REMOVING = re.compile(r"removing-(.+)\.json")
"""The manifest, under `.recordmill`, of a version that is being removed."""
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
    try:
        version = json.loads(read_bytes(os.path.join(absolute(output), MANIFEST))).get("version")
    except (OSError, JobError, ValueError, AttributeError, RecursionError):
        return  # none, or a damaged one: reported elsewhere
    if version is not None:
        raise ValueError(
            f"--output is {output!r}, which is version {version} of a dataset, and those stay as they are; "
            f"give the folder above it, with --dataset_version={AUTO}"
        )


def published_versions(home: str) -> list[Version]:
    """The complete versions, where readers look for them; ascending."""
    return versions_where(is_complete, home)


def staged_versions(home: str) -> list[Version]:
    """The versions that a job makes, or was making; ascending."""
    return sorted(_versions_in(os.path.join(home, RUNS)))


def latest_version(home: str) -> Version | None:
    """The version that latest.json names, which need not be there any more; None without one.

    Raises:
        ValueError: latest.json names none.
    """
    return read_version(os.path.join(home, LATEST))


def version_folder(home: str, version: Version | str) -> str:
    """Where readers find a version."""
    return os.path.join(home, str(version))


def staging_folder(home: str, version: Version | str) -> str:
    """The folder below whose `.recordmill` a job keeps what of a version is not published."""
    return os.path.join(home, RUNS, str(version))


def assembly_folder(home: str, version: Version | str) -> str:
    """The folder into which a job moves the files of a version, the manifest last.

    Where folders can be renamed, it is the staging folder; elsewhere the version's own, in which readers see
    no dataset without its manifest.
    """
    folder_of = staging_folder if file_system(home).has_folders else version_folder
    return folder_of(home, version)


def version_to_write(home: str, asked: str) -> Version:
    """The version that a job is going to make.

    Args:
        home: folder of the versions.
        asked: `auto` for the highest that is there with its last number raised, 1.0.0 where there is none; or
            `x.y.z`. One that an earlier job has made, and not published, may be given again.

    Raises:
        ValueError: it is no version, or not higher than all that are there.
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


def is_complete(folder: str) -> bool:
    """Whether a folder holds a published dataset."""
    return file_system(folder).find(os.path.join(folder, MANIFEST)) is not None


def is_staged(folder: str) -> bool:
    """Whether a folder under `.recordmill` has the manifest of the version that it is named after."""
    try:
        manifest = json.loads(read_bytes(os.path.join(folder, MANIFEST)))
        return bool(manifest["version"] == os.path.basename(folder))
    except (FileNotFoundError, *_DAMAGED):
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
    """The version of a name; None where it is no version's."""
    matched = _VERSION.fullmatch(text) if isinstance(text, str) else None
    return Version(*map(int, matched.groups())) if matched else None


def _is_half_published(home: str, version: Version) -> bool:
    """Whether a job was interrupted while it moved the files of a version into the version's own folder."""
    folder = version_folder(home, version)
    if assembly_folder(home, version) != folder or is_complete(folder):
        return False
    return has_publication(staging_folder(home, version))


def _versions_in(folder: str) -> list[Version]:
    """The versions that anything in a folder is called by; ascending."""
    entries = file_system(folder).contents(folder)
    return sorted(version for found in entries if (version := named_version(found.basename)))


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
    if others and not any(name == LATEST or named_version(name) for name in names):
        raise ValueError(
            f"--output is {home!r}, which is not empty and has no versions ({_shown(others)}); give an empty "
            "or new folder"
        )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (", …" if len(names) > 3 else "")


def _is_ours(name: str) -> bool:
    """Whether something under `.recordmill` has the name of a journal, or of a staged version."""
    name = UNFINISHED.sub("", name)
    return bool(name in (PUBLISHING, LATEST) or REMOVING.fullmatch(name) or named_version(name))


def read_version(path: str) -> Version | None:
    """The version that a JSON file names; None where there is no file.

    Raises:
        ValueError: it names none.
    """
    try:
        found = json.loads(read_bytes(path))
        version = named_version(found["version"])
        if found["format_version"] != FORMAT_VERSION or version is None:
            raise ValueError
    except FileNotFoundError:
        return None
    except _DAMAGED as error:
        raise ValueError(f"{path!r} names no version, as {version_text(_FIRST)} would") from error
    return version


def version_text(version: Version) -> str:
    """The contents of a JSON file that names a version."""
    return json.dumps({"format_version": FORMAT_VERSION, "version": str(version)})
