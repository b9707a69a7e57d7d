"""The command line of `verify`: flags that become one frozen, checked configuration."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.pipelines import dataflow, flag_values
from recordmill.pipelines.dataflow import DATAFLOW_RUNNER
from recordmill.pipelines.flag_parser import HelpFormatter, Parser, add_switch
from recordmill.pipelines.options import add_display_flags, add_runner_flags, job_options
from recordmill.pipelines.runner_flags import (
    DIRECT_RUNNER,
    LOCAL_RUNNERS,
    JobOptions,
    beam_flags,
    without_path,
    writer_processes,
)
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.reading.against_settings import config_of, source_of_manifest
from recordmill.transforms.reading.dataset import find_dataset, followed
from recordmill.transforms.reading.verify_dataset import expected_of, has_keys
from recordmill.transforms.reading.verify_report import is_report
from recordmill.transforms.sources.detection import detect
from recordmill.transforms.sources.registry import source_of
from recordmill.transforms.sources.source import SourceConfig
from recordmill.transforms.storage import files
from recordmill.transforms.storage.cloud import NO_AUTH
from recordmill.transforms.storage.layout import MANIFEST
from recordmill.transforms.storage.listing import glance
from recordmill.transforms.storage.paths import absolute, is_remote
from recordmill.transforms.storage.places import check_place, is_file, is_folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyOptions(JobOptions):
    """A checked call of `verify`.

    Attributes:
        path: what is verified.
        report: path of the report; None where it is shown and not kept.
        source: that the records are held against; None for the dataset alone.
        dataset: how it was made; None likewise.
        workers: processes of this machine; 0 where the runner's own workers are many.
    """

    path: str
    report: str | None
    source: SourceConfig | None
    dataset: DatasetConfig | None
    workers: int


def parse_verify(argv: Sequence[str], prog: str) -> VerifyOptions:
    """The options of a call; exits with status 2 and one clear line where the call is wrong."""
    parser = verify_parser(prog)
    args = parser.parse_known_args(list(argv))[0]  # which may take the value of a flag of Beam's for PATH
    flags = _parser(prog)
    path, others = without_path(flags, flags.parse_known_args(list(argv))[1])
    if path is None:
        parser.error("PATH is not given: the folder of a dataset, a TFRecord file, or a pattern")
    try:
        args.path = flag_values.path(path)
        return _checked(parser, args, others)
    except (ValueError, argparse.ArgumentTypeError) as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{error.filename!r}: {error.strerror}")


def verify_parser(prog: str) -> Parser:
    """The parser of `verify`; Beam's own flags pass beside it."""
    parser = _parser(prog)
    parser.add_argument(
        "path",
        type=flag_values.path,
        metavar="PATH",
        help="folder of a dataset, or of versions of one, of which the latest is taken; a TFRecord file, or "
        "a pattern such as out/train-*; local or gs://",
    )
    return parser


def _parser(prog: str) -> Parser:
    """The parser of all but PATH."""
    parser = Parser(
        prog=prog,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
        description="Reads TFRecords back, whole: checksums, counts and digests against the manifest, every "
        "image decoded, every label, box and mask looked at. What is not a dataset of Recordmill's is "
        "verified as far as it can be.",
        epilog="Every flag of Apache Beam passes through. "
        "Exit status: 0 nothing is wrong; 1 something is, or the job failed; 2 the call was wrong; "
        "130 interrupted.",
    )
    _add_source(parser.add_argument_group("source"))
    group = parser.add_argument_group("output")
    group.add_argument(
        "--report",
        type=flag_values.path,
        metavar="FILE",
        help="write all that was found to this file, as JSON; local or gs://",
    )
    add_display_flags(group)
    add_switch(group, "--quiet", "say nothing but errors")
    add_runner_flags(parser.add_argument_group("Beam's runner"))
    return parser


def _add_source(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--input",
        type=flag_values.path,
        metavar="PATH",
        help="hold every record against its source, where that lies now; it is listed as the manifest says "
        "that it was",
    )
    add(
        "--annotations",
        action="append",
        default=[],
        type=flag_values.path,
        metavar="FILE",
        help="with --input: where its annotations lie now (repeatable; default: where they lay)",
    )
    add(
        "--image_root",
        action="append",
        default=[],
        type=flag_values.path,
        metavar="FOLDER",
        help="with --input: a folder in which images are also looked for (repeatable; default: as before)",
    )


def _checked(parser: Parser, args: argparse.Namespace, others: Sequence[str]) -> VerifyOptions:
    for name in ("path", "report", "input"):
        if vars(args)[name] == "":
            raise ValueError(f"{'PATH' if name == 'path' else f'--{name}'} is empty; give a path")
    if args.input is None and (args.annotations or args.image_root):
        raise ValueError("--annotations and --image_root tell of --input, which is not given")
    others, flags = _beam_args(parser, args, others)
    job = job_options(args, others, flags)
    path = _checked_path(args.path)
    if args.report is not None:
        _check_report(args.report)
    source = dataset = None
    if args.input is not None:
        with glance():
            source, dataset = _source(args, path)
            source_of(source).check(source)
    if args.runner == DATAFLOW_RUNNER:
        dataflow.check_locations(flags)
    return VerifyOptions(
        path=path,
        report=args.report,
        source=source,
        dataset=dataset,
        workers=writer_processes(args),
        **vars(job),
    )


def _beam_args(
    parser: Parser, args: argparse.Namespace, others: Sequence[str]
) -> tuple[list[str], Mapping[str, Any]]:
    """The flags that are Beam's, with those that the runner lacks; and the same by name."""
    known = list(others)
    flags = beam_flags(parser, known, args.runner)
    elsewhere = args.runner not in LOCAL_RUNNERS
    if elsewhere and args.report is None:
        raise ValueError(
            f"--report must be given where --runner is {args.runner!r}: its workers write it, and from it "
            "this process tells what they found"
        )
    if args.runner == DATAFLOW_RUNNER:
        given = [args.input] if args.input is not None else []
        paths = {"report": [args.report], "input": given}
        dataflow.check_paths({**paths, "annotations": args.annotations, "image_root": args.image_root})
        if not is_remote(absolute(args.path)):
            raise ValueError(f"PATH is {args.path!r}, on this machine, which Dataflow's workers do not see")
        if importlib.util.find_spec("google.cloud.dataflow") is None:
            raise ValueError(f"--runner is {args.runner!r}, which wants recordmill[gcp]")
        known += dataflow.dataflow_args(flags, f"{args.path.rstrip('/')}/verify")
        flags = beam_flags(parser, known, args.runner)
    if flags.get("no_auth"):
        os.environ[NO_AUTH] = "true"  # our own client of the bucket asks as Beam's does
    return known, flags


def _source(args: argparse.Namespace, path: str) -> tuple[SourceConfig, DatasetConfig]:
    """What the dataset at `path` was made from, where that lies now, and how it was made."""
    found = find_dataset(path)
    if found.manifest is None or not found.is_whole:
        raise ValueError(
            f"--input is given, and PATH, {args.path!r}, is no folder of a dataset whose {MANIFEST} tells "
            "how it was made"
        )
    if not has_keys(expected_of(found)):
        raise ValueError(
            f"--input is given, and the records of PATH, {args.path!r}, hold no key by which "
            f"their source could be found: the schema {found.manifest['config']['schema']!r} stores none"
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
        # Like `convert`, this takes a folder around the dataset.
        source = dataclasses.replace(source, input=detect(source).input)
    return source, config_of(found.manifest, source)


def _checked_path(path: str) -> str:
    """What is verified, of versions the latest: another job may publish one while this one reads.

    Raises:
        ValueError: there is nothing to verify; a damaged manifest is for the job to tell of.
    """
    place = absolute(path)
    try:
        check_place(place)
    except ValueError as error:
        raise ValueError(f"PATH is {path!r}: {error}") from error
    found = followed(place)
    if not (is_folder(found) and is_file(f"{found}/{MANIFEST}")):
        find_dataset(path)
    return path if found == place else found


def _check_report(path: str) -> None:
    place = absolute(path)
    if is_remote(place):
        check_place(place)
    if not os.path.isdir(place) and not files.may_replace(place, is_report):
        raise ValueError(
            f"--report is {path!r}, a file that verify did not write; give another path, or remove the file"
        )
    if is_remote(place):
        return
    folder = os.path.dirname(place)
    if os.path.isdir(place) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise ValueError(
            f"--report is {path!r}, where no file can be written; name one in a folder that is there"
        )


def scratch_beside(report: str) -> str:
    """A folder for what has to be decompressed once, that all workers see."""
    return f"{absolute(report)}-{uuid.uuid4().hex}"


def report_in(options: VerifyOptions, folder: str) -> str:
    """Where the job writes its report; below `folder` where none is wanted."""
    assert options.report is not None or options.runner in (*LOCAL_RUNNERS, DIRECT_RUNNER)
    return options.report or os.path.join(folder, "report.json")
