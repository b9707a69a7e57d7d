"""The flags of the small commands that read: `report`, `schema` and `formats`."""

from __future__ import annotations

import dataclasses

from recordmill.pipelines.options.parser import Command
from recordmill.transforms.flags import REQUIRED, declares_flags, flag, flags_of


def path_of(dataset: str) -> str:
    """The field of PATH; `dataset` describes the folders that it may be."""
    found: str = flag(
        REQUIRED,
        f"{dataset}, a TFRecord file, or a pattern such as 'out/train-*'; local or gs://",
        positional=True,
        required=True,
        path="folder",
        metavar="PATH",
    )
    return found


@declares_flags("output")
@dataclasses.dataclass(frozen=True)
class Report:
    """What is described, and where."""

    path: str = path_of("folder of a dataset, or of versions of which the latest is read")
    output: str | None = flag(
        None,
        "the page",
        path="output",
        metavar="FILE",
        default_text="PATH/report.html, if PATH is a dataset that recordmill wrote",
    )


@declares_flags("output")
@dataclasses.dataclass(frozen=True)
class Schema:
    """What is parsed, and how."""

    path: str = path_of("a dataset, a folder of TFRecords")
    split: str | None = flag(None, "only this split", metavar="NAME", default_text="all")
    format: str = flag(
        "code",
        "code: Python; input_reader: the Object Detection API's, for its pipeline.config",
        values=("code", "input_reader"),
    )


@declares_flags("output")
@dataclasses.dataclass(frozen=True)
class Formats:
    """What is listed."""

    source: str | None = flag(None, "only this source", positional=True, metavar="SOURCE", default_text="all")
    markdown: bool = flag(False, "print the sources as a table in Markdown")


REPORT = Command(
    "report",
    "Makes report.html: one page that shows what a dataset holds and fetches nothing.",
    "exit status: 0 the page is written; 1 a file of the dataset could not be read, or the page not written; "
    "2 the call was wrong; 130 interrupted",
    flags_of(Report),
)
SCHEMA = Command(
    "schema",
    "Prints the code that parses a dataset, in plain TensorFlow. Where there are boxes, the input readers "
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
