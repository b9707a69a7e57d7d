"""The command line of `convert`: groups of flags that become one frozen, checked configuration."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recordmill.pipelines import flag_values
from recordmill.pipelines.dataflow import DATAFLOW_RUNNER, check_locations
from recordmill.pipelines.dataset_flags import dataset_config, output_folders
from recordmill.pipelines.flag_parser import HelpFormatter, Parser, add_switch
from recordmill.pipelines.image_flags import add_image_flags
from recordmill.pipelines.runner_flags import (
    DIRECT_RUNNER,
    IN_MEMORY,
    JobOptions,
    beam_flags,
    code_to_send,
    dataflow_args,
    is_on_a_cluster,
    runner_name,
)
from recordmill.pipelines.source_flags import add_source_flags, check_given, chosen_source
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.examples import SCHEMA_NAMES
from recordmill.transforms.records import BOXES
from recordmill.transforms.sources.registry import source_of
from recordmill.transforms.sources.source import SourceConfig
from recordmill.transforms.storage.cloud import NO_AUTH
from recordmill.transforms.storage.listing import glance


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions(JobOptions):
    """A checked call of `convert`.

    Attributes:
        source: what to read; its kind is detected.
        source_reason: why it is of that kind.
        output: folder of the dataset, or of all its versions.
        working: folder that the job works in: that of the dataset, or what becomes the version's.
        published: folder that readers will see: that of the dataset, or of the version.
        dataset: what to make of it, but for what the runner decides.
        plan: print the plan and write nothing.
    """

    source: SourceConfig
    source_reason: str
    output: str
    working: str
    published: str
    dataset: DatasetConfig
    plan: bool


def parse_convert(
    argv: Sequence[str], prog: str, set_up: Callable[[], None] = lambda: None
) -> ConvertOptions:
    """The options of a call; exits with status 2 and one clear line where the call is wrong.

    Args:
        argv: the flags.
        prog: name of the program, for messages.
        set_up: called between parsing the flags, with which --help ends, and looking at what they name.
    """
    parser = convert_parser(prog)
    args, others = parser.parse_known_args(list(argv))
    set_up()
    try:
        others, flags = runner_args(parser, args, others)
        if args.leave and args.runner != DATAFLOW_RUNNER:
            raise ValueError(
                f"--async leaves the job to --runner={DATAFLOW_RUNNER}; --runner is {args.runner!r}, and its "
                "job ends with this call"
            )
        return _checked(args, others, flags)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{error.filename!r}: {error.strerror}")


def runner_args(
    parser: Parser, args: argparse.Namespace, others: Sequence[str]
) -> tuple[list[str], Mapping[str, Any]]:
    """The flags that are Beam's, with those that the runner lacks; and the same by name.

    Args:
        parser: of ours.
        args: ours.
        others: as they were given.

    Raises:
        ValueError: one is neither Beam's nor ours, is missing, or is empty.
    """
    known = list(others)
    flags = beam_flags(parser, known, args.runner)
    check_given(args)
    if args.runner == DATAFLOW_RUNNER:
        known += dataflow_args(args, flags)
        flags = beam_flags(parser, known, args.runner)
    if flags.get("no_auth"):
        os.environ[NO_AUTH] = "true"  # our own client of the bucket asks as Beam's does
    return known, flags


def convert_parser(prog: str) -> Parser:
    """The parser of `convert`; Beam's own flags pass beside it."""
    parser = Parser(
        prog=prog,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
        description="Converts images and their labels to a sharded TFRecord dataset.",
        epilog="Every flag of Apache Beam passes through. "
        "Exit status: 0 published (with --async: submitted); 1 the job failed, nothing is published; "
        "2 the call was wrong; 130 interrupted.",
    )
    add_source_flags(
        parser.add_argument_group("input and output"),
        "folder of the dataset, or of its versions, local or gs://; new, empty, or what a call left that "
        "was cut off",
    )
    add_image_flags(parser.add_argument_group("images"))
    _add_records(parser.add_argument_group("records"))
    _add_shards(parser.add_argument_group("shards"))
    _add_running(parser.add_argument_group("running"))
    add_runner_flags(parser.add_argument_group("Beam's runner"))
    return parser


def _add_records(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--schema",
        default="auto",
        type=flag_values.schemas,
        metavar="NAME[,NAME]",
        help="names and meaning of the features: auto takes what fits the source; "
        f"{', '.join(SCHEMA_NAMES)}; or several, such as detection,segmentation",
    )
    add(
        "--boxes",
        default="clip",
        choices=BOXES,
        help="of boxes partly outside their image: clip or drop them, or fail the record; those without an "
        "area, or wholly outside, are dropped, or fail it",
    )
    add(
        "--rename", type=flag_values.renames, default={}, metavar="OLD=NEW,…", help="other names for features"
    )


def _add_shards(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--splits",
        type=flag_values.fractions,
        default={},
        metavar="NAME=FRACTION,…",
        help="split by a hash of the key, over the source's own splits",
    )
    add("--group_by", metavar="FEATURE", help="with --splits: records of equal value stay together")
    add(
        "--group_pattern",
        metavar="REGEX",
        help="with --splits: records of equal match in the key stay together",
    )
    add(
        "--num_shards",
        type=flag_values.shard_counts,
        metavar="N|NAME=N,…",
        help="shards of each split (default: from --shard_size)",
    )
    add(
        "--shard_size",
        type=flag_values.size,
        metavar="SIZE",
        help="bytes of a shard, about (default: 128MiB)",
    )
    add(
        "--reader_hosts",
        type=flag_values.positive,
        metavar="N",
        help="hosts that will read: 10 shards each, of at least 10 MB",
    )
    add("--seed", type=int, default=0, metavar="N", help="of order and shards, never of splits")
    add(
        "--order",
        default="shuffled",
        choices=["shuffled", "key"],
        help="order of the records over all shards",
    )
    add(
        "--writer",
        default="auto",
        choices=["auto", "shards", "beam"],
        help="shards: whole shards, the same bytes each time, and what was cut off is gone on with; beam: "
        "beam.io.WriteToTFRecord, which shuffles the records; auto: shards on one machine, beam elsewhere",
    )
    add("--name", metavar="NAME", help="the dataset's name for TFDS (default: from --output)")


def _add_running(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--max_failure_ratio",
        type=float,
        default=0.01,
        metavar="R",
        help="share of failed inputs above which nothing is published",
    )
    add_switch(
        group,
        "--strict",
        "publish nothing where the dataset has warnings, such as a single class or images without boxes; "
        "with --plan: exit with 1",
    )
    add_switch(
        group,
        "--overwrite",
        "replace the dataset that --output holds; it stays until the new one is complete",
    )
    add(
        "--dataset_version",
        metavar="auto|X.Y.Z",
        help="publish in a folder of this name below --output, beside the versions before it, and take over "
        "what has not changed since the last; auto raises the last number, and where nothing has changed "
        "nothing is published",
    )
    add(
        "--keep_versions",
        type=flag_values.positive,
        metavar="N",
        help="with --dataset_version: how many are left, the oldest being removed (default: all)",
    )
    add_switch(group, "--plan", "print what would be written, and write nothing")
    add_switch(
        group,
        "--async",
        "with DataflowRunner: return once the job is submitted; else it is followed to its end",
        dest="leave",
    )
    add_display_flags(group)
    add_switch(group, "--quiet", "say nothing but errors, and the plan where that is asked for")


def add_display_flags(group: argparse._ArgumentGroup) -> None:
    """What is said while a job runs."""
    add = group.add_argument
    add(
        "--progress",
        default="auto",
        choices=["auto", "bar", "lines", "none"],
        help="auto: a bar on a terminal, else lines",
    )
    add_switch(group, "--verbose", "log what Beam logs")


def add_runner_flags(group: argparse._ArgumentGroup) -> None:
    """Flags of Beam that decide about our own processes, so that they are known before Beam is imported."""
    add = group.add_argument
    add(
        "--runner",
        default=DIRECT_RUNNER,
        type=runner_name,
        metavar="NAME",
        help="where it runs; DirectRunner is this machine",
    )
    add(
        "--direct_num_workers",
        type=flag_values.count,
        metavar="N",
        help="writer processes (default: one a core)",
    )
    add(
        "--direct_running_mode",
        default=IN_MEMORY,
        choices=[IN_MEMORY, "multi_threading", "multi_processing"],
        help="in_memory: our own writer processes; else Beam's workers",
    )


def _checked(args: argparse.Namespace, others: Sequence[str], flags: Mapping[str, Any]) -> ConvertOptions:
    job = job_options(args, others, flags)
    with glance():
        source, reason = chosen_source(args)
        dataset = dataset_config(args, source, flags)
        source_of(source).check(source)
    working, published = output_folders(args)
    if args.runner == DATAFLOW_RUNNER:
        check_locations(flags)
    return ConvertOptions(
        source=source,
        source_reason=reason,
        output=args.output,
        working=working,
        published=published,
        dataset=dataset,
        plan=args.plan,
        **vars(job),
    )


def job_options(args: argparse.Namespace, others: Sequence[str], flags: Mapping[str, Any]) -> JobOptions:
    """The options of a parsed call.

    Args:
        args: as our parser has them.
        others: the flags that are Beam's.
        flags: those by name.

    Raises:
        ValueError: flags exclude each other, or this program cannot be sent to the workers.
    """
    if args.verbose and args.quiet:
        raise ValueError("--verbose and --quiet are both given; give one of them")
    return JobOptions(
        progress=args.progress,
        verbose=args.verbose,
        quiet=args.quiet,
        runner=args.runner,
        beam_args=(*direct_args(args), *others),
        setup_file=code_to_send(args.runner, flags),
        on_a_cluster=is_on_a_cluster(args.runner, flags),
        leave=getattr(args, "leave", False),
    )


def direct_args(args: argparse.Namespace) -> list[str]:
    """Beam's flags that we read too, for Beam; the number of our own processes is none of its business."""
    flags = [f"--runner={args.runner}"]
    if args.direct_running_mode != IN_MEMORY:
        flags.append(f"--direct_running_mode={args.direct_running_mode}")
        if args.direct_num_workers is not None:
            flags.append(f"--direct_num_workers={args.direct_num_workers}")
    return flags
