"""The flags of the small commands that read: `report`, `schema` and `formats`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable

from recordmill.pipelines.options.parser import Command
from recordmill.transforms.flags import REQUIRED, declares_flags, flag, flags_of


def path_of(dataset: str) -> str:
    """The field of PATH; `dataset` describes the possible folders."""
    found: str = flag(
        REQUIRED,
        f"{dataset}, a TFRecord file, or a pattern such as 'out/train-*'; local or gs://",
        positional=True,
        required=True,
        path="folder",
        metavar="PATH",
    )
    return found


def check_output_file(flag: str, path: str, is_ours: Callable[[bytes], bool]) -> None:
    """As `check_replaceable`; the file must also be in an existing, writable folder."""
    from recordmill.transforms.storage.file_system import file_system
    from recordmill.transforms.storage.files import check_folder

    folder = os.path.dirname(check_replaceable(flag, path, is_ours))
    system, given = file_system(folder), f"{flag} is {path!r}"
    if system.has_folders and not system.is_folder(folder):
        raise ValueError(f"{given}; give a file in an existing folder")
    check_folder(folder, given)


def check_replaceable(flag: str, path: str, is_ours: Callable[[bytes], bool]) -> str:
    """The full path of the file to write at `path`, the value of `flag`.

    Raises:
        ValueError: a folder, or a file with contents that are not ours, exists; one line.
    """
    from recordmill.transforms.records import JobError
    from recordmill.transforms.storage.file_system import file_system
    from recordmill.transforms.storage.files import may_replace
    from recordmill.transforms.storage.paths import absolute

    full_path, wrong = absolute(path), ""
    system = file_system(full_path)
    try:
        system.check_path(path)
        if system.is_folder(full_path):
            wrong = ", which is a folder; give a file"
        elif not may_replace(full_path, is_ours):
            wrong = (
                ", a file that recordmill did not write, or that was changed since; give another path, or "
                "remove the file"
            )
    except (OSError, ValueError, JobError) as error:
        wrong = f": {getattr(error, 'strerror', None) or error}"
    if wrong:
        raise ValueError(f"{flag} is {path!r}{wrong}")
    return full_path


@declares_flags("output")
@dataclasses.dataclass(frozen=True)
class Report:
    """The dataset, and the page."""

    path: str = path_of("folder of a dataset, or of versions of which the latest is read")
    output: str | None = flag(
        None,
        "file of the page",
        path="output",
        metavar="FILE",
        default_text="PATH/report.html, if PATH is a dataset that recordmill wrote",
    )


@declares_flags("output")
@dataclasses.dataclass(frozen=True)
class Schema:
    """The dataset, and the form of the code."""

    path: str = path_of("a dataset, a folder of versions of which the latest is read, a folder of TFRecords")
    split: str | None = flag(None, "only this split", metavar="NAME", default_text="all")
    format: str = flag(
        "code",
        "code: Python; input_reader: for pipeline.config of the Object Detection API",
        values=("code", "input_reader"),
    )


@declares_flags("output")
@dataclasses.dataclass(frozen=True)
class Formats:
    """The sources."""

    source: str | None = flag(None, "only this source", positional=True, metavar="SOURCE", default_text="all")
    markdown: bool = flag(False, "print the sources as a table in Markdown")


REPORT = Command(
    "report",
    "Makes report.html: one page about the contents of a dataset. The page loads nothing from a network.",
    "exit status: 0 the page is written; 1 a file of the dataset could not be read, or the page not written; "
    "2 the call was wrong; 130 interrupted",
    flags_of(Report),
)
SCHEMA = Command(
    "schema",
    "Prints the code that parses a dataset, in plain TensorFlow. If there are boxes, the input readers "
    "of the Object Detection API follow as a comment.",
    "",
    flags_of(Schema),
)
FORMATS = Command(
    "formats",
    "Lists the sources with an example tree each, the schemas and the image formats.",
    "",
    flags_of(Formats),
)
