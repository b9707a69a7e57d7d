"""The flags of `inspect`."""

from __future__ import annotations

import dataclasses

from recordmill.pipelines.options.parser import Command
from recordmill.pipelines.options.reading import path_of
from recordmill.transforms.flags import declares_flags, flag, flags_of
from recordmill.transforms.reading.inspected import SAMPLE_RECORDS


@declares_flags("output")
@dataclasses.dataclass(frozen=True)
class Inspect:
    """The files to read, and the output."""

    path: str = path_of("a dataset, a folder of versions of which the latest is read, a folder of TFRecords")
    all: bool = flag(False, "read every record and verify every checksum, instead of a sample", "reading")
    sample: int = flag(
        SAMPLE_RECORDS,
        "number of records to read, spread evenly over the files",
        "reading",
        at_least=1,
        metavar="N",
        default_text=f"{SAMPLE_RECORDS}, or 64 MB",
    )
    records: int = flag(3, "number of first records to show", at_least=0, metavar="N")
    record: str | None = flag(
        None, "show only this record, in full: its number across all files, from 0, or FILE:N", metavar="N"
    )
    images: str | None = flag(
        None,
        "write a contact sheet: small pictures of records with their boxes and masks",
        path="output",
        metavar="PNG",
    )
    pictures: int = flag(
        24, "number of pictures on the contact sheet, spread evenly over all records", at_least=1, metavar="N"
    )
    columns: int = flag(6, "number of columns of the contact sheet", at_least=1, metavar="N")
    json: bool = flag(False, "print one JSON object")


INSPECT = Command(
    "inspect",
    "Shows the contents of TFRecords. The exit status is 1 if something is damaged.",
    "",
    flags_of(Inspect),
)
