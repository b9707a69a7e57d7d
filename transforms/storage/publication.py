"""The steps of a publication: each can be repeated, and undone until the last."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import NEW, ChangedError, file_system
from recordmill.transforms.storage.files import (
    is_file,
    read_bytes,
    read_json,
    remove_empty_folders,
    remove_files,
    write_file,
)
from recordmill.transforms.storage.layout import (
    DATASET_INFO,
    FAILURES,
    FORMAT_VERSION,
    MANIFEST,
    REPORT,
    Run,
    check_name,
)
from recordmill.transforms.storage.sealed import is_sealed_page

PUBLISHING = "publishing.json"
METADATA = "metadata.json"
"""In a run's folder: the digests of the metadata files that the run writes into the output."""


class Move(NamedTuple):
    """A finished file, its published path, and its SHA-256, if it has been computed.

    A file that `stays`, of another version, is linked or copied.
    """

    staged: str
    published: str
    sha256: str | None
    stays: bool = False


class PublishedDataset(msgspec.Struct, frozen=True):
    """A dataset that readers see: the SHA-256 of its manifest.json, and the names of all its files."""

    sha256: str
    files: tuple[str, ...]


class Publication(msgspec.Struct, frozen=True):
    """The journal of a publication, written before it begins.

    Attributes:
        moves: name in the output by path below the run's folder.
        metadata: names of the files that are written after the moves.
        replaces: the dataset that is unpublished.
        shared: names of the files that another version has, too.
    """

    moves: dict[str, str]
    metadata: tuple[str, ...]
    replaces: PublishedDataset | None
    shared: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """All files that it makes in the output."""
        return frozenset([*self.moves.values(), *self.shared, *self.metadata])

    @property
    def replaced_names(self) -> frozenset[str]:
        return frozenset(self.replaces.files if self.replaces is not None else ())


class DatasetFiles(msgspec.Struct):
    """The fields of manifest.json that are read here."""

    format_version: int
    files: list[Any]


def published_dataset(output: str) -> PublishedDataset | None:
    """The dataset in a folder, or None. Raises JobError if its manifest.json does not list its files."""
    path, manifest = os.path.join(output, MANIFEST), None
    try:
        text = read_bytes(path)
    except FileNotFoundError:
        return None
    with contextlib.suppress(ValueError, RecursionError):
        manifest = msgspec.json.decode(text, type=DatasetFiles)
    if manifest is None or manifest.format_version != FORMAT_VERSION:
        raise JobError(
            f"{path} does not list the dataset's files; remove the dataset yourself, or give another folder"
        )
    try:
        names = tuple(check_name(output, name) for name in manifest.files)
    except ValueError as error:
        raise JobError(f"{path} names {error}; give another folder") from error
    return PublishedDataset(hashlib.sha256(text).hexdigest(), names)


def read_journal(output: str, folder: str) -> Publication | None:
    """The publication that a run has begun, or was about to. Raises JobError if the journal is damaged."""
    path = os.path.join(folder, PUBLISHING)
    try:
        noted = read_json(path, Publication)
        if noted is None:
            return None
        for name in noted.moves:
            check_name(folder, name)
        for name in noted.names | noted.replaced_names:
            check_name(output, name)
    except ValueError as error:
        raise JobError(f"{path} is damaged ({error}); give another --output") from error
    return noted


def write_journal(run: Run, moves: Iterable[Move], metadata: Iterable[str], expected: str) -> Publication:
    """Writes the journal, before the publication begins.

    `expected` is the SHA-256 of the manifest at the start of the job; empty for none.

    Raises:
        JobError: a name is taken by a file that is not of the dataset; or the dataset in the output is not
            the one of the start of the job, perhaps because this step is repeated.
    """
    every = list(moves)
    before = read_journal(run.output, run.folder)
    replaces = published_dataset(run.output)
    if replaces is not None and replaces.sha256 != expected:
        raise JobError(_published_meanwhile(run.output))
    ours: frozenset[str] = frozenset()
    if replaces is None and before is not None:  # unpublished already, by a step that is now repeated
        replaces, ours = before.replaces, before.names
    publication = Publication(
        moves={
            os.path.relpath(move.staged, run.folder): os.path.relpath(move.published, run.output)
            for move in every
            if not move.stays
        },
        metadata=tuple(metadata),
        replaces=replaces,
        shared=tuple(os.path.relpath(move.published, run.output) for move in every if move.stays),
    )
    _check_free(run.output, publication.names, publication.replaced_names | ours)
    write_file(os.path.join(run.folder, PUBLISHING), msgspec.json.encode(publication))
    return publication


def unpublish(run: Run, publication: Publication) -> None:
    """Unpublishes the replaced dataset. Raises JobError if there is another one by now."""
    if publication.replaces is None:
        return
    system, path = file_system(run.output), os.path.join(run.output, MANIFEST)
    # Looked at before it is read: it is not removed in another state.
    found = system.find(path)
    present = published_dataset(run.output)
    if present is not None and found is not None:
        if present.sha256 != publication.replaces.sha256:
            raise JobError(_published_meanwhile(run.output))
        _remove_manifest(run.output, found.generation)
        system.sync_folder(run.output)
    if DATASET_INFO in publication.replaced_names:
        path = os.path.join(run.output, DATASET_INFO)
        if (found := system.find(path)) is not None:
            with contextlib.suppress(FileNotFoundError, ChangedError):
                system.remove(path, found.generation)
        system.sync_folder(run.output)


def _remove_manifest(output: str, generation: int) -> None:
    path = os.path.join(output, MANIFEST)
    try:
        file_system(path).remove(path, generation)
    except FileNotFoundError:
        return  # by a try whose answer was lost
    except ChangedError as error:
        raise JobError(_published_meanwhile(output)) from error


def _published_meanwhile(output: str) -> str:
    return f"--output is {output!r}, where another job has published meanwhile; this one publishes nothing"


def move_file(move: Move) -> None:
    """Gives one finished file its published path.

    Raises:
        JobError: it is at neither path; or a file of another version would replace another job's.
    """
    staged, published = move.staged, move.published
    system = file_system(published)
    with naming_faults(published):
        system.make_folder(os.path.dirname(published))
        if move.stays:
            _share(staged, published)
            return
        try:
            system.move(staged, published)
        except FileNotFoundError as error:  # where a step is repeated, it may have been moved
            is_there = system.find(published) is not None
            if not is_there or move.sha256 not in (None, system.sha256(published)):
                raise JobError(f"{staged}: a finished shard is gone; give the same command again") from error


def _share(staged: str, published: str) -> None:
    """Gives a file of another version its name in this one, unless an earlier try has.

    Its source stays, so that a job that was suspended and has lost the lock can still copy it: it must not
    replace what another job has published meanwhile.
    """
    system = file_system(published)
    try:
        system.link(staged, published, NEW if system.has_conditions else None)
    except ChangedError as error:
        if system.stat(published).stamp != system.stat(staged).stamp:
            raise JobError(_another_jobs(published)) from error


def complete_moves(output: str, publication: Publication) -> None:
    """After all moves: removes the files that only the replaced dataset had, and syncs the folders."""
    remove_files(output, publication.replaced_names - publication.names - {FAILURES})
    _sync_folders(output, publication.names)


def write_metadata_files(run: Run, texts: Mapping[str, str], publication: Publication) -> Mapping[str, str]:
    """Writes the files that describe the dataset, each completely or not at all. Returns SHA-256 by name.

    Raises:
        JobError: a file is another job's, which a suspended job must not replace.
    """
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    written = _written_metadata(run.folder)
    every = {name: [*written.get(name, ()), digest] for name, digest in digests.items()}
    write_file(os.path.join(run.folder, METADATA), msgspec.json.encode(every))
    system = file_system(run.output)
    for name, text in texts.items():
        path, pieces = os.path.join(run.output, name), [text.encode()]
        system.make_folder(os.path.dirname(path))
        is_new = system.has_conditions and name not in publication.replaced_names
        with naming_faults(path):
            try:
                system.write(path, pieces, NEW if is_new else None, run.folder)
            except ChangedError as error:
                found = system.stat(path)
                this = msgspec.structs.replace(publication, metadata=(name,))
                if foreign_metadata(run.output, run.folder, this):
                    raise JobError(_another_jobs(path)) from error
                system.write(path, pieces, found.generation)
    return digests


def _another_jobs(path: str) -> str:
    return f"{path} is another job's, published meanwhile; this one publishes nothing"


def _written_metadata(folder: str) -> Mapping[str, Collection[str]]:
    """The digests of all contents that a run wrote, or was about to write, by file name."""
    with contextlib.suppress(ValueError):
        return read_json(os.path.join(folder, METADATA), dict[str, list[str]]) or {}
    return {}


def foreign_metadata(output: str, folder: str, publication: Publication) -> frozenset[str]:
    """Names of existing metadata files that the run in `folder` did not write."""
    written, system = _written_metadata(folder), file_system(output)

    def is_foreign(name: str) -> bool:
        path = os.path.join(output, name)
        if not is_file(path) or (name == REPORT and _is_our_page(output)):
            return False
        return system.sha256(path) not in written.get(name, ())

    names = [name for name in publication.metadata if name not in publication.replaced_names]
    return frozenset(itertools.compress(names, system.each(is_foreign, names)))


def commit(run: Run, manifest: str) -> None:
    """Writes manifest.json, which publishes the dataset. Raises JobError if another job has published."""
    path = os.path.join(run.output, MANIFEST)
    try:
        written = file_system(path).write(path, [manifest.encode()], NEW, run.folder)
    except ChangedError as error:
        raise JobError(_published_meanwhile(run.output)) from error
    except OSError:
        published = published_dataset(run.output)
        if published is None or published.sha256 != hashlib.sha256(manifest.encode()).hexdigest():
            raise
        return  # the file is there, and only the folder could not be synced
    try:
        is_ours = lock.is_held_by(run.locked, run.token)
    except (OSError, JobError):
        return  # unknown: the lock was ours a moment ago
    if not is_ours:
        _remove_manifest(run.output, written.generation)
        raise JobError(_published_meanwhile(run.output))


def roll_back(output: str, folder: str, publication: Publication) -> None:
    """Undoes a publication that was interrupted before manifest.json; removes the replaced dataset."""
    foreign = foreign_metadata(output, folder, publication)
    made = publication.names | publication.replaced_names
    if DATASET_INFO in made - foreign:
        remove_files(output, [DATASET_INFO])
        _sync_folders(output, [DATASET_INFO])
    moves = [
        Move(os.path.join(folder, source), os.path.join(output, name), None)
        for source, name in publication.moves.items()
    ]
    file_system(output).each(_roll_back_move, moves)
    remove_files(output, {*publication.metadata, *publication.shared, *publication.replaced_names} - foreign)
    remove_empty_folders(output, made)
    _sync_folders(folder, publication.moves)
    _sync_folders(output, [MANIFEST])


def _roll_back_move(move: Move) -> None:
    """Undoes a move, as far as it got. A move in a bucket may have got to the copy."""
    staged, published = move.staged, move.published
    system = file_system(published)
    if not system.exists(staged):
        if system.exists(published):
            system.make_folder(os.path.dirname(staged))
            system.move(published, staged)
        return
    # The published file is the run's only if it is a copy.
    one, other = system.find(staged), system.find(published)
    if one and other and one.crc32c and (one.crc32c, one.size) == (other.crc32c, other.size):
        system.remove_existing(published)


def _check_free(output: str, names: Iterable[str], ours: Collection[str]) -> None:
    """Raises JobError where a name would lead outside the output, or is taken by a file that is not ours."""
    try:
        listed = [check_name(output, name) for name in sorted(names)]
    except ValueError as error:
        raise JobError(
            f"--output is {output!r}, where the dataset needs {error}; give another folder; nothing is "
            "published"
        ) from error
    taken = file_system(output).existing(output, listed)
    for name in listed:
        if name not in ours and name in taken and not (name == REPORT and _is_our_page(output)):
            raise JobError(
                f"--output is {output!r}, where a file that is no dataset's has the name {name!r}, which the "
                "new dataset needs; move it away, or give another folder; nothing is published"
            )


def _is_our_page(output: str) -> bool:
    """Whether report.html was made for a dataset that was published without one."""
    path = os.path.join(output, REPORT)
    return is_file(path) and is_sealed_page(read_bytes(path))


def _sync_folders(parent: str, names: Iterable[str]) -> None:
    for folder in sorted({os.path.join(parent, os.path.dirname(name)) for name in names}):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            file_system(folder).sync_folder(folder)
