"""Writes the contact sheet of `recordmill inspect --images`."""

from __future__ import annotations

from collections.abc import Iterator

from recordmill.pipelines.inspection_json import file_name
from recordmill.pipelines.options.reading import check_output_file
from recordmill.transforms.reading.inspected import Inspected
from recordmill.transforms.reading.single_records import Taken, spread_records
from recordmill.transforms.records import BadInput
from recordmill.transforms.storage.files import replace_own
from recordmill.transforms.storage.paths import absolute

_SIDE = 224
_MOST_BYTES = 256 << 20  # of records that are held at once


def check_sheet(path: str) -> None:
    """Raises ValueError, with a remedy, unless a contact sheet can be written to `path`."""
    if not path.lower().endswith(".png"):
        raise ValueError(f"--images is {path!r}; it is written as PNG; give a name such as sheet.png")
    from recordmill.transforms.reading.sheet import is_sheet

    check_output_file("--images", path, is_sheet)


def write_sheet(path: str, found: Inspected, pictures: int, columns: int) -> int:
    """Writes records, evenly over all, as pictures with their labels, boxes and masks; the number of them.

    Raises:
        JobError: it cannot be written.
        OSError: the records cannot be read.
    """
    from recordmill.transforms.reading.sheet import contact_sheet, is_sheet
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
    replace_own(absolute(path), contact_sheet(records, columns, _SIDE), is_sheet)
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
