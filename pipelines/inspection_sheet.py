"""Writes the contact sheet of `recordmill inspect --images`."""

from __future__ import annotations

import os
from collections.abc import Iterator

from recordmill.pipelines.inspection_json import file_name
from recordmill.transforms.reading.survey_records import Taken, spread_records
from recordmill.transforms.reading.survey_sample import Inspected
from recordmill.transforms.records import BadInput
from recordmill.transforms.storage import files, places
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import is_remote
from recordmill.transforms.storage.files import write_file
from recordmill.transforms.storage.paths import absolute

_SIDE = 224
_MOST_BYTES = 256 << 20  # of records that are held at once


def check_sheet(path: str) -> None:
    """Raises ValueError, with a remedy, unless a contact sheet can be written to `path`."""
    if not path.lower().endswith(".png"):
        raise ValueError(f"--images is {path!r}; it is written as PNG; give a name such as sheet.png")
    from recordmill.transforms.reading.sheet import is_sheet

    full_path = absolute(path)
    try:
        places.check_place(full_path)
        if is_remote(full_path):
            has_folder = places.has_bucket(full_path)
        else:
            has_folder = places.is_folder(os.path.dirname(full_path)) and not places.is_folder(full_path)
        if has_folder and not files.may_replace(full_path, is_sheet):
            raise ValueError("inspect did not write that file; give another path, or remove the file")
    except (ValueError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"--images is {path!r}: {reason}") from error
    if not has_folder:
        raise ValueError(f"--images is {path!r}; give a file in an existing folder")


def write_sheet(path: str, found: Inspected, pictures: int, columns: int) -> int:
    """Writes records, evenly over all, as pictures with their labels, boxes and masks; the number of them.

    Raises:
        JobError: it cannot be written.
        OSError: the records cannot be read.
    """
    from recordmill.transforms.reading.sheet import contact_sheet
    from recordmill.transforms.reading.stored_record import StoredRecord, stored_record

    def read(taken: Taken | BadInput) -> StoredRecord | BadInput:
        if isinstance(taken, BadInput):
            return taken
        key = f"{file_name(found.dataset, taken.entry)}:{taken.record.number}"
        try:
            return stored_record(taken.record.payload or b"", found.names, found.dataset.renames, key)
        except BadInput as error:
            return error

    records = [read(taken) for taken in _held(spread_records(found.files, pictures))]
    _write(path, contact_sheet(records, columns, _SIDE))
    return len(records)


def _held(records: Iterator[Taken | BadInput]) -> Iterator[Taken | BadInput]:
    """The records, those that would take too much memory as a BadInput."""
    size = 0
    for taken in records:
        if isinstance(taken, BadInput):
            yield taken
            continue
        size += taken.record.size
        if taken.record.payload is None or size > _MOST_BYTES:
            yield BadInput("load", "too large for a sheet", f"{taken.record.size:,} bytes")
        else:
            yield taken


def _write(path: str, data: bytes) -> None:
    """Writes the complete file, or leaves the old one."""
    from recordmill.transforms.reading.sheet import is_sheet

    with naming_faults(path):
        files.check_replaceable(absolute(path), is_sheet)
        write_file(absolute(path), data)
