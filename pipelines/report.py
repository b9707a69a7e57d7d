"""Makes report.html of a published dataset, or of any TFRecords: a page about their contents.

recordmill report out/
recordmill report gs://bucket/out
python -m recordmill.pipelines.report elsewhere/train-00000-of-00010.tfrecord --output train.html
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from recordmill.pipelines.options.parser import Parser
from recordmill.pipelines.options.reading import REPORT, check_replaceable
from recordmill.transforms.flags import as_flags
from recordmill.transforms.records import JobError
from recordmill.transforms.workers import own_process

if TYPE_CHECKING:
    from recordmill.transforms.reading.dataset import Dataset


def main(argv: Sequence[str] | None = None, prog: str = "python -m recordmill.pipelines.report") -> int:
    """Writes the page; returns the exit status (see `--help`)."""
    parser = REPORT.parser(prog)
    args = parser.parse_args(sys.argv[1:] if argv is None else argv)
    own_process.set_up()
    try:
        return _write(args, parser)
    except (JobError, ValueError) as error:
        print(f"{prog}: error: {as_flags(str(error))}", file=sys.stderr)
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        print(f"{prog}: error: {path}{error.strerror or error}", file=sys.stderr)
    return 1


def _write(args: argparse.Namespace, parser: Parser) -> int:
    from recordmill.transforms.reading.dataset import find_dataset
    from recordmill.transforms.reporting.findings import gather
    from recordmill.transforms.reporting.page import html_text
    from recordmill.transforms.storage.files import replace_own
    from recordmill.transforms.storage.sealed import is_sealed_page, seal

    try:
        dataset = find_dataset(args.path)
        output = _output(args.output, dataset)
    except ValueError as error:
        parser.error(str(error))
    report, failures, complaints = _published_files(dataset)
    findings = gather(dataset, report, failures)
    complaints += [f"{name}: {damage}" for name, damage in findings.damages]
    replace_own(output, seal(html_text(findings)), is_sealed_page)
    for complaint in complaints:
        print(f"{parser.prog}: {complaint}", file=sys.stderr)
    with contextlib.suppress(BrokenPipeError):
        print(f"The page is {output}")
    return 1 if complaints else 0


def _output(given: str | None, dataset: Dataset) -> str:
    """The path of the page.

    Raises:
        ValueError: it is not given and has no default, or another file has this path; one line.
    """
    from recordmill.transforms.storage.layout import REPORT
    from recordmill.transforms.storage.sealed import is_sealed_page

    if given is None:
        if not dataset.is_whole:
            raise ValueError(
                f"PATH is {dataset.path!r}, which is not a complete dataset of recordmill; give the path of "
                "the page with --output FILE"
            )
        given = f"{dataset.folder}/{REPORT}"
    return check_replaceable("--output", given, is_sealed_page)


def _published_files(dataset: Dataset) -> tuple[dict[str, Any] | None, str | None, list[str]]:
    """The files next to the shards of a complete dataset.

    Returns:
        The parsed report.json, or None if the records must be counted; the path of failures.jsonl, or
        None; and an error message for each damaged file.
    """
    from recordmill.transforms.reporting.findings import parse_report, read_failures
    from recordmill.transforms.shards.duplicates import first_groups
    from recordmill.transforms.storage.files import is_file, read_bytes
    from recordmill.transforms.storage.layout import DUPLICATES, FAILURES, REPORT_DATA

    if not dataset.is_whole:
        return None, None, []
    report, complaints = None, []
    path = f"{dataset.folder}/{REPORT_DATA}"
    if is_file(path):
        try:
            report = json.loads(read_bytes(path))
            parse_report(report)
        except (ValueError, RecursionError) as error:
            report = None
            complaints.append(f"{path} is damaged, so the records were counted: {error}")
    try:
        if DUPLICATES in (dataset.manifest or {}).get("files", ()):
            first_groups(f"{dataset.folder}/{DUPLICATES}")
    except (ValueError, FileNotFoundError) as error:
        complaints.append(str(error))
    failures: str | None = f"{dataset.folder}/{FAILURES}"
    try:
        read_failures(f"{failures}")
    except (ValueError, FileNotFoundError) as error:
        failures = None
        complaints.append(str(error))
    return report, failures, complaints


if __name__ == "__main__":
    sys.exit(main())
