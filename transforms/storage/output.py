"""The output folder: whether it can take a dataset, what room it has, and its failures.jsonl."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

from recordmill.transforms.records import Failure, JobError
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import (
    check_folder,
    exists,
    is_file,
    named_entries,
    open_named,
    read_text,
    write_file,
)
from recordmill.transforms.storage.layout import FAILURES, INDEX, LINEAGE, MANIFEST, RUNS, Run
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.storage.publication import foreign_metadata, published_dataset, read_journal
from recordmill.transforms.storage.runs import (
    failures_path,
    has_unpublished,
    marked_run_folders,
    strange_entries,
)
from recordmill.transforms.storage.scratch import scratch_folder

_HELD = 64 << 20


def in_order(lines: Iterable[str], key: Callable[[str], Any], held: int = _HELD) -> Iterator[str]:
    """Lines, without line ends, in the order of their keys; a stable sort.

    At most `held` characters are in memory; the others are in files without a name.
    """
    with contextlib.ExitStack() as stack:
        sorted_parts: list[Iterator[str]] = []
        some: list[str] = []
        size = 0
        for line in lines:
            some.append(line)
            size += len(line)
            if size >= held:
                some.sort(key=key)
                file = stack.enter_context(
                    tempfile.TemporaryFile(
                        "w+", encoding="utf-8", errors="surrogatepass", newline="\n", dir=scratch_folder()
                    )
                )
                sorted_parts.append(_written(file, some))
                some, size = [], 0
        some.sort(key=key)
        yield from heapq.merge(*sorted_parts, some, key=key)


def _written(file: IO[str], lines: list[str]) -> Iterator[str]:
    file.writelines(f"{line}\n" for line in lines)
    file.seek(0)
    return (line.removesuffix("\n") for line in file)


# Of lines of failures, that are read at a time.
_FILES_AT_A_TIME = 64
_LONGEST_LINE = 1 << 20


def check_path(output: str) -> None:
    if not output:
        raise ValueError("--output is empty; give a folder, new or empty")
    try:
        file_system(output).check_output_path(output)
    except ValueError as error:
        raise ValueError(f"--output is {output!r}; {error}") from error
    try:
        output.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"--output is {ascii(output)}, which is not UTF-8; give another folder") from error


def check_output(output: str, overwrite: bool = False, work: str = "") -> None:
    """Raises ValueError unless `output` can take a new dataset.

    It may not exist, be empty, or hold only the leftovers of a run that did not publish; with `overwrite`, it
    may hold a dataset, with other files next to it. `work` is as of `Run`; by default, `output`.
    """
    check_path(output)
    output = absolute(output)
    check_folder(output)
    try:
        others = _foreign_files(output, overwrite, work or output)
    except JobError as error:
        raise ValueError(f"--output is {output!r}: {error}") from error
    except OSError as error:
        raise ValueError(f"--output is {output!r}: {error.filename}: {error.strerror}") from error
    if others:
        remedy = "give an empty or new folder"
        if work not in ("", output):
            remedy = "move that away, or give a higher --dataset_version"
        raise ValueError(f"--output is {output!r}, which is not empty ({shown(others)}); {remedy}")


def recheck_output(output: str, overwrite: bool, work: str = "") -> None:
    """`check_output` for a job that is at work: raises JobError."""
    try:
        check_output(output, overwrite, work)
    except ValueError as error:
        raise JobError(str(error)) from error


def shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (", …" if len(names) > 3 else "")


def write_failures(run: Run, failures: Iterable[Failure], paths: Iterable[str] = ()) -> str:
    """Writes failures.jsonl: `failures`, and the lines of files, sorted by key. Returns its path."""
    path = failures_path(run)
    if exists(path) and not _lists_failures(path):
        raise JobError(f"{path} is not a list of failures that recordmill wrote; move it away")
    lines = in_order(_failure_lines(failures, paths), _failure_order)
    write_file(path, (f"{line}\n" for line in lines), run.folder)
    return path


def _lists_failures(path: str) -> bool:
    if not is_file(path):
        return False
    with open_named(path) as file:
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
        for text in file_system(some[0]).each(read_text, some):
            yield from text.removesuffix("\n").split("\n")


def _foreign_files(output: str, overwrite: bool, work: str) -> list[str]:
    """Names in `output` that keep a dataset out of it.

    Raises:
        ValueError: it holds a dataset that is to stay.
        JobError: it holds one that cannot be replaced.
    """
    strange = strange_entries(work)
    if exists(os.path.join(output, MANIFEST)):
        if not overwrite:
            raise ValueError(
                f"--output is {output!r}, which holds a dataset already; --overwrite replaces it, or give "
                "another folder"
            )
        published_dataset(output)
        return strange
    if has_unpublished(work):
        return strange
    present = {name for name, _ in named_entries(output, (INDEX, LINEAGE))}
    return sorted({*strange, *(present - _left_over(output, work) - {RUNS})})


def _left_over(output: str, work: str) -> set[str]:
    """Names of the files that unpublished runs have left: failures, and files that they had moved."""
    folders = marked_run_folders(work)
    names = {FAILURES} if folders and _lists_failures(os.path.join(output, FAILURES)) else set()
    for folder in folders:
        publication = read_journal(output, folder)
        if publication is not None:
            names |= publication.names - foreign_metadata(output, folder, publication)
    return names


def _failure_order(line: str) -> tuple[str, str]:
    fields = json.loads(line)
    return fields["key"], fields["stage"]
