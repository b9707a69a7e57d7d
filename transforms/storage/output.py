"""The output folder: whether it can take a dataset, what room it has, and its failures.jsonl."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator

from recordmill.transforms.records import Failure, JobError
from recordmill.transforms.storage import files, objects
from recordmill.transforms.storage.durable import write_lines
from recordmill.transforms.storage.layout import FAILURES, INDEX, MANIFEST, RUNS, STATE, Run
from recordmill.transforms.storage.paths import absolute, is_remote, scheme_of
from recordmill.transforms.storage.publication import foreign_metadata, published_dataset, read_journal
from recordmill.transforms.storage.runs import (
    failures_path,
    has_unpublished,
    marked_run_folders,
    strange_entries,
)
from recordmill.transforms.storage.sorted_lines import in_order

# Of lines of failures, that are read at a time.
_FILES_AT_A_TIME = 64
_LONGEST_LINE = 1 << 20

# https://cloud.google.com/storage/docs/buckets#naming
_BUCKET_URI = re.compile(r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](?:/(?!/)|$)")


def check_path(output: str) -> None:
    """Raises ValueError unless `output` can name a folder of this machine, or of a bucket."""
    if not output:
        raise ValueError("--output is empty; give a folder, new or empty")
    if is_remote(output):
        if not _BUCKET_URI.match(output):
            raise ValueError(
                f"--output is {output!r}; it may be gs://BUCKET/FOLDER, with a bucket of 3 letters or more"
            )
    elif scheme_of(output):
        raise ValueError(f"--output is {output!r}; local folders and gs:// are written")
    try:
        output.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"--output is {ascii(output)}, which is not UTF-8; give another folder") from error


def check_output(output: str, overwrite: bool = False) -> None:
    """Raises ValueError unless `output` can take a new dataset.

    It may not exist, be empty, or hold only what a run left that did not publish; with `overwrite`, it may
    hold a dataset, and other files beside it.
    """
    check_path(output)
    output = absolute(output)
    if is_remote(output):
        _check_bucket(output)
    elif not os.path.lexists(output):
        _check_parent(output)
        return
    elif not os.path.isdir(output):
        raise ValueError(
            f"--output is {output!r}, which is a file; give a folder, or a path where none is yet"
        )
    elif not os.access(output, os.W_OK | os.X_OK | os.R_OK):
        raise ValueError(f"--output is {output!r}, where you may not write; give another folder")
    try:
        others = _foreign_files(output, overwrite)
    except JobError as error:
        raise ValueError(f"--output is {output!r}: {error}") from error
    except OSError as error:
        raise ValueError(f"--output is {output!r}: {error.filename}: {error.strerror}") from error
    if others:
        shown = ", ".join(repr(name) for name in others[:3]) + (", …" if len(others) > 3 else "")
        raise ValueError(f"--output is {output!r}, which is not empty ({shown}); give an empty or new folder")


def recheck_output(output: str, overwrite: bool) -> None:
    """`check_output` for a job that is at work.

    Raises:
        JobError: likewise.
    """
    try:
        check_output(output, overwrite)
    except ValueError as error:
        raise JobError(str(error)) from error


def write_failures(run: Run, failures: Iterable[Failure], paths: Iterable[str] = ()) -> str:
    """Writes failures.jsonl: `failures`, and the lines of files, sorted by key. Returns its path."""
    path = failures_path(run)
    if files.exists(path) and not _lists_failures(path):
        raise JobError(f"{path} is not a list of failures that recordmill wrote; move it away")
    lines = in_order(_failure_lines(failures, paths), _failure_order)
    write_lines(path, (f"{line}\n" for line in lines), run.folder)
    return path


def _lists_failures(path: str) -> bool:
    """Whether a file is a failures.jsonl: it is empty, or its first line is a failure."""
    if not files.is_file(path):
        return False
    with files.open_stream(path) as file:
        line = file.readline(_LONGEST_LINE)
    try:
        return not line or {"key", "stage", "reason"} <= json.loads(line).keys()
    except (ValueError, AttributeError, RecursionError):
        return False


def _failure_lines(failures: Iterable[Failure], paths: Iterable[str]) -> Iterator[str]:
    """Lines of failures.jsonl, in no order; those of some files are held at a time."""
    for failure in failures:
        yield failure.to_json()
    left = iter(paths)
    while some := list(itertools.islice(left, _FILES_AT_A_TIME)):
        for text in files.each(files.read_text, some):
            yield from text.removesuffix("\n").split("\n")


def _check_bucket(output: str) -> None:
    """Raises ValueError unless the bucket is there and may be listed."""
    try:
        objects.check_bucket(output)
    except FileNotFoundError as error:
        bucket = output.removeprefix("gs://").partition("/")[0]
        raise ValueError(f"--output is {output!r}, and there is no bucket {bucket!r}") from error
    except (OSError, JobError) as error:
        raise ValueError(f"--output is {output!r}: {getattr(error, 'strerror', None) or error}") from error


def _check_parent(output: str) -> None:
    """Raises ValueError unless the folder can be made where `output` says."""
    parent = os.path.dirname(output)
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent):
        raise ValueError(f"--output is {output!r}, and {parent!r} is no folder; give another path")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise ValueError(f"--output is {output!r}, and you may not write in {parent!r}; give another folder")


def _foreign_files(output: str, overwrite: bool) -> list[str]:
    """Names in `output` that keep a dataset out of it.

    Raises:
        ValueError: it holds a dataset that is to stay.
        JobError: it holds one that cannot be replaced.
    """
    strange = strange_entries(output)
    if files.exists(os.path.join(output, MANIFEST)):
        if not overwrite:
            raise ValueError(
                f"--output is {output!r}, which holds a dataset already; --overwrite replaces it, or give "
                "another folder"
            )
        published_dataset(output)
        return strange
    if has_unpublished(output):
        return strange
    return sorted({*strange, *(_files(output) - _left_over(output))})


def _files(output: str) -> set[str]:
    """What a folder holds, but for runs: names, and those in the folders of a dataset below their names."""
    names = {found.name for found in files.entries(output)} - {RUNS}
    for name in (INDEX, STATE):
        folder = os.path.join(output, name)
        if name in names and files.is_own_folder(folder):
            names.discard(name)
            names |= {f"{name}/{found.name}" for found in files.entries(folder)}
    return names


def _left_over(output: str) -> set[str]:
    """Names of the files that unpublished runs have left: failures, and files that they had moved."""
    folders = marked_run_folders(output)
    names = {FAILURES} if folders and _lists_failures(os.path.join(output, FAILURES)) else set()
    for folder in folders:
        publication = read_journal(output, folder)
        if publication is not None:
            names |= publication.names - foreign_metadata(output, folder, publication)
    return names


def _failure_order(line: str) -> tuple[str, str]:
    fields = json.loads(line)
    return fields["key"], fields["stage"]
