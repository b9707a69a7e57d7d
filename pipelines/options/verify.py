"""The flags of `verify`, and their checked options."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence

from recordmill.pipelines.options.parser import PASSES, Command, Parser
from recordmill.pipelines.options.reading import check_output_file
from recordmill.pipelines.options.runner import (
    LOCAL_RUNNERS,
    Display,
    JobOptions,
    Runner,
    check_locations,
    job_options,
    without_path,
    writer_processes,
)
from recordmill.pipelines.options.source import check_given
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.flags import REQUIRED, declares_flags, flag, flags_of
from recordmill.transforms.reading.dataset import find_dataset, followed
from recordmill.transforms.reading.verify_dataset import config_of, expected_of, source_of_manifest
from recordmill.transforms.reading.verify_report import is_report
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.registry import source_of
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import is_file, is_folder
from recordmill.transforms.storage.layout import MANIFEST
from recordmill.transforms.storage.listing import cached_listings
from recordmill.transforms.storage.paths import absolute, expanded


@declares_flags("source")
@dataclasses.dataclass(frozen=True)
class Verify:
    """The dataset, and the source to compare it with."""

    path: str = flag(
        REQUIRED,
        "folder of a dataset, or of versions of one, of which the latest is verified; a TFRecord file, or a "
        "pattern such as out/train-*; local or gs://",
        positional=True,
        required=True,
        path="folder",
        metavar="PATH",
    )
    input: str | None = flag(
        None,
        "compare every record with the source at this path, read with the settings in the manifest",
        path="input",
        metavar="PATH",
    )
    annotations: tuple[str, ...] = flag(
        (),
        "with --input: current path of its annotations",
        path="file",
        metavar="FILE",
        default_text="their paths in the manifest",
    )
    image_roots: tuple[str, ...] = flag(
        (),
        "with --input: another folder to search for images",
        name="image_root",
        path="folder",
        metavar="FOLDER",
        default_text="the folders of the conversion",
    )
    report: str | None = flag(
        None,
        "write all findings to this file, as JSON; local or gs://",
        "running",
        path="output",
        metavar="FILE",
    )


VERIFY = Command(
    "verify",
    "Reads TFRecords back completely: compares checksums, counts and digests with the manifest, decodes "
    "every image, and checks every label, box and mask. A dataset that recordmill did not write is "
    "verified as far as possible.",
    f"{PASSES} Exit status: 0 no fault; 1 a fault, or the job failed; 2 the call was wrong; 130 interrupted.",
    tuple(one for cls in (Verify, Display, Runner) for one in flags_of(cls)),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyOptions(JobOptions):
    """A checked call of `verify`."""

    path: str
    report: str | None  # path of the report; None to print it only
    source: SourceConfig | None  # to compare the records with; None for no comparison
    dataset: DatasetConfig | None
    workers: int  # processes of this machine; 0 for the workers of the runner


def parse_verify(argv: Sequence[str], prog: str) -> VerifyOptions:
    """The options of a call; exits with status 2 and one clear line if the call is wrong."""
    parser = VERIFY.parser(prog)
    args = parser.parse_known_args(argv)[0]  # its PATH may be the value of a flag of Beam
    flags = Parser(prog, [one for one in VERIFY.flags if not one.positional])
    path, others = without_path(flags, flags.parse_known_args(argv)[1])
    if path is None:
        parser.error("PATH is not given: the folder of a dataset, a TFRecord file, or a pattern")
    with parser.checking():
        args.path = expanded(path)
        return _checked(parser, args, others)


def _checked(parser: Parser, args: argparse.Namespace, others: Sequence[str]) -> VerifyOptions:
    job, flags = job_options(parser, args, others, lambda: _checked_flags(parser, args))
    path = _checked_path(args.path)
    if args.report is not None:
        check_output_file("--report", args.report, is_report)
    source = dataset = None
    if args.input is not None:
        with cached_listings():
            source, dataset = _source(args, path)
            source_of(source).check(source)
    check_locations(job, flags)
    return VerifyOptions(
        path=path,
        report=args.report,
        source=source,
        dataset=dataset,
        workers=writer_processes(args),
        **vars(job),
    )


def _checked_flags(parser: Parser, args: argparse.Namespace) -> str:
    """Checks flags against each other; returns the path from which the name of a Dataflow job derives."""
    check_given(parser, args)
    if args.input is None and (args.annotations or args.image_root):
        raise ValueError("--annotations and --image_root belong to --input, which is not given")
    if args.runner not in LOCAL_RUNNERS and args.report is None:
        raise ValueError(
            f"--report must be given if --runner is {args.runner!r}: its workers write their findings to it, "
            "and this process reads them"
        )
    return f"{args.path.rstrip('/')}/verify"


def _source(args: argparse.Namespace, path: str) -> tuple[SourceConfig, DatasetConfig]:
    """The source of the dataset at `path`, at its current paths, and the configuration of the dataset."""
    found = find_dataset(path)
    if found.manifest is None or not found.is_whole:
        raise ValueError(
            f"--input is given, and PATH, {args.path!r}, is no folder of a dataset whose {MANIFEST} "
            "describes its source"
        )
    if not expected_of(found).has_keys:
        raise ValueError(
            f"--input is given, and the records of PATH, {args.path!r}, have no key that "
            f"identifies their source: the schema {found.manifest['config']['schema']!r} stores none"
        )
    if (function := found.manifest["config"].get("map_image")) is not None:
        raise ValueError(
            f"--input is given, and the dataset was made with --map_image={function}: its records hold "
            "results of the function, which cannot be compared with the source; remove --input"
        )
    converted = source_of_manifest(found.manifest)
    source = dataclasses.replace(
        converted,
        input=args.input,
        annotations=tuple(args.annotations) or converted.annotations,
        image_roots=tuple(args.image_root) or converted.image_roots,
        skip_dirs=(absolute(args.path),),
    )
    if absolute(source.input) != converted.input:
        # As for `convert`, the folder may be a parent of the dataset.
        source = dataclasses.replace(source, input=detect(source).input)
    return source, config_of(found.manifest, source)


def _checked_path(path: str) -> str:
    """The path to verify; of versions, the latest at this time. The job reports a damaged manifest.

    Raises:
        ValueError: there is nothing to verify.
    """
    location = absolute(path)
    try:
        file_system(location).check_path(location)
    except ValueError as error:
        raise ValueError(f"PATH is {path!r}: {error}") from error
    found = followed(location)
    if not (is_folder(found) and is_file(f"{found}/{MANIFEST}")):
        find_dataset(path)
    return path if found == location else found
