"""The command line of `convert`: groups of flags that become one frozen, checked configuration."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
from collections.abc import Sequence
from typing import NoReturn

from pipelines import flag_values
from transforms.config import DatasetConfig
from transforms.examples.labels import read_label_file
from transforms.examples.registry import SCHEMAS
from transforms.images.policy import ImagePolicy
from transforms.sources.registry import SOURCES, detect, source_of
from transforms.sources.source import SourceConfig
from transforms.storage.output import check_output

DIRECT_RUNNER = "DirectRunner"
# Runners of one machine, which shuffle in memory.
_LOCAL_RUNNERS = (DIRECT_RUNNER, "BundleBasedDirectRunner", "FnApiRunner", "PrismRunner")
_IN_MEMORY = "in_memory"


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and exits with status 2."""

    def error(self, message: str) -> NoReturn:
        """One line to stderr."""
        self.exit(2, f"{self.prog}: error: {message}\n")


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Says the default where there is one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        nothing = action.default is None or action.default is False or action.default in ([], {})
        return action.help if nothing else super()._get_help_string(action)


@dataclasses.dataclass(frozen=True)
class ConvertOptions:
    """A checked call of `convert`.

    Attributes:
        source: what to read; its kind is found out.
        source_reason: why it is of that kind.
        output: folder of the dataset.
        dataset: what to make of it, but for what the runner decides.
        plan: print the plan and write nothing.
        progress: `auto`, `bar`, `lines` or `none`.
        verbose: log what Beam logs.
        quiet: say nothing but errors.
        runner: Beam's runner, by name.
        beam_args: the flags that are Beam's, --runner among them.
    """

    source: SourceConfig
    source_reason: str
    output: str
    dataset: DatasetConfig
    plan: bool
    progress: str
    verbose: bool
    quiet: bool
    runner: str
    beam_args: tuple[str, ...]


def parse_convert(argv: Sequence[str], prog: str) -> ConvertOptions:
    """The options of a call; exits with status 2 and one clear line where the call is wrong."""
    parser = convert_parser(prog)
    args, others = parser.parse_known_args(list(argv))
    try:
        _check_beam_args(parser, others, args.runner)
        missing = [flag for flag in ("--input", "--output") if getattr(args, flag[2:]) is None]
        if missing:
            raise ValueError(f"{' and '.join(missing)} must be given")
        return _checked(args, others)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{error.filename!r}: {error.strerror}")


def convert_parser(prog: str) -> Parser:
    """The parser of `convert`; Beam's own flags pass beside it."""
    parser = Parser(
        prog=prog,
        allow_abbrev=False,
        formatter_class=_HelpFormatter,
        description="Converts images and their labels to a sharded TFRecord dataset.",
        epilog="Every flag of Apache Beam passes through. "
        "Exit status: 0 published; 1 the job failed, nothing is published; 2 the call was wrong; "
        "130 interrupted.",
    )
    _add_source(parser.add_argument_group("input and output"))
    _add_images(parser.add_argument_group("images"))
    _add_records(parser.add_argument_group("records"))
    _add_shards(parser.add_argument_group("shards"))
    _add_running(parser.add_argument_group("running"))
    _add_runner(parser.add_argument_group("Beam's runner"))
    return parser


def _add_source(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--input", metavar="PATH", help="folder of images, manifest, or IDX files")
    add(
        "--output",
        metavar="FOLDER",
        help="folder of the dataset; new, empty, or what a call left that was cut off",
    )
    add("--source", default="auto", choices=["auto", *SOURCES], help="what the input is; auto finds it out")
    add(
        "--annotations",
        action="append",
        default=[],
        metavar="FILE",
        help="manifest of the images (repeatable)",
    )
    add(
        "--image_root",
        action="append",
        default=[],
        metavar="FOLDER",
        help="where a manifest's paths may lead too (repeatable)",
    )
    add("--image_column", metavar="NAME", help="the manifest's column of image paths")
    add("--label_column", metavar="NAME[,NAME…]", help="the manifest's column, or columns, of labels")
    add("--label_pattern", metavar="REGEX", help="takes the label from the key: its first group")
    add("--label_file", metavar="FILE", help="names of the labels, one a line, in the order of their ids")
    add(
        "--label_offset",
        type=int,
        metavar="N",
        help="added to every label id (default: the schema's: 1 for imagenet, else 0)",
    )
    add(
        "--include",
        action="append",
        default=[],
        metavar="GLOB",
        help="take only keys that match (repeatable)",
    )
    add(
        "--exclude",
        action="append",
        default=[],
        metavar="GLOB",
        help="leave out keys that match (repeatable)",
    )
    add("--limit", type=flag_values.positive, metavar="N", help="take the first N records only")


def _add_images(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--image_format",
        default="keep",
        choices=["keep", "jpeg", "png", "raw", "tensor"],
        help="keep: as they are, and what TensorFlow cannot decode losslessly as PNG; jpeg: re-encoded "
        "where it saves bytes; raw: pixels; tensor: for tf.io.parse_tensor",
    )
    add("--jpeg_quality", type=int, default=90, metavar="Q", help="of --image_format=jpeg, 1 to 100")
    add(
        "--validate",
        default="decode",
        choices=["decode", "header"],
        help="decode every image before it is written, or look at its header and end only",
    )
    add("--exif", default="apply", choices=["apply", "ignore"], help="turn images upright as their EXIF says")


def _add_records(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--schema", default="auto", choices=["auto", *SCHEMAS], help="names and meaning of the features")
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
    _add_switch(
        group,
        "--overwrite",
        "replace the dataset that --output holds; it stays until the new one is complete",
    )
    _add_switch(group, "--plan", "print what would be written, and write nothing")
    add(
        "--progress",
        default="auto",
        choices=["auto", "bar", "lines", "none"],
        help="auto: a bar on a terminal, else lines",
    )
    _add_switch(group, "--verbose", "log what Beam logs")
    _add_switch(group, "--quiet", "say nothing but errors, and the plan where that is asked for")


def _add_runner(group: argparse._ArgumentGroup) -> None:
    """Flags of Beam that decide about our own processes, so that they are known before Beam is imported."""
    add = group.add_argument
    add("--runner", default=DIRECT_RUNNER, metavar="NAME", help="where it runs; DirectRunner is this machine")
    add(
        "--direct_num_workers",
        type=flag_values.count,
        metavar="N",
        help="writer processes (default: one a core)",
    )
    add(
        "--direct_running_mode",
        default=_IN_MEMORY,
        choices=[_IN_MEMORY, "multi_threading", "multi_processing"],
        help="in_memory: our own writer processes; else Beam's workers",
    )


def _add_switch(group: argparse._ArgumentGroup, flag: str, text: str) -> None:
    """A boolean as --x, --x=true or --x=false: a template's parameters arrive as text."""
    group.add_argument(
        flag, nargs="?", const=True, default=False, type=flag_values.boolean, metavar="true|false", help=text
    )


def _checked(args: argparse.Namespace, others: Sequence[str]) -> ConvertOptions:
    if args.verbose and args.quiet:
        raise ValueError("--verbose and --quiet are both given; give one of them")
    output = os.path.abspath(args.output)
    source = SourceConfig(
        kind=args.source,
        input=args.input,
        annotations=tuple(args.annotations),
        image_roots=tuple(args.image_root),
        image_column=args.image_column,
        label_column=args.label_column,
        label_pattern=args.label_pattern,
        include=tuple(args.include),
        exclude=tuple(args.exclude),
        limit=args.limit,
        skip_dirs=(output,),
    )
    reason = "as --source says"
    if source.kind == "auto":
        kind, reason = detect(source)
        source = dataclasses.replace(source, kind=kind)
    dataset = _dataset(args, source)
    source_of(source).check(source)
    check_output(args.output, args.overwrite)
    return ConvertOptions(
        source=source,
        source_reason=reason,
        output=args.output,
        dataset=dataset,
        plan=args.plan,
        progress=args.progress,
        verbose=args.verbose,
        quiet=args.quiet,
        runner=args.runner,
        beam_args=(*_direct_args(args), *others),
    )


def _direct_args(args: argparse.Namespace) -> list[str]:
    """Beam's flags that we read too, for Beam; the number of our own processes is none of its business."""
    flags = [f"--runner={args.runner}"]
    if args.direct_running_mode != _IN_MEMORY:
        flags.append(f"--direct_running_mode={args.direct_running_mode}")
        if args.direct_num_workers is not None:
            flags.append(f"--direct_num_workers={args.direct_num_workers}")
    return flags


def _workers(args: argparse.Namespace) -> int:
    """Writer processes of our own: on one machine only."""
    if args.runner != DIRECT_RUNNER or args.direct_running_mode != _IN_MEMORY:
        return 0
    return args.direct_num_workers or available_cores()


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _dataset(args: argparse.Namespace, source: SourceConfig) -> DatasetConfig:
    ways = [flag for flag in ("num_shards", "shard_size", "reader_hosts") if getattr(args, flag) is not None]
    if len(ways) > 1:
        raise ValueError(f"--{ways[0]} and --{ways[1]} both decide the number of shards; give one of them")
    if args.jpeg_quality != 90 and args.image_format != "jpeg":
        raise ValueError(
            f"--jpeg_quality is {args.jpeg_quality}, which only --image_format=jpeg uses; "
            f"--image_format is {args.image_format}"
        )
    sizes = {} if args.shard_size is None else {"shard_size": args.shard_size}
    writer = _writer(args, bool(ways and ways != ["num_shards"]))
    return DatasetConfig(
        policy=ImagePolicy(args.image_format, args.jpeg_quality, args.validate, args.exif),
        schema=args.schema,
        rename=args.rename,
        label_names=None if args.label_file is None else _label_names(args.label_file),
        label_offset=args.label_offset,
        splits=args.splits,
        expected_splits=_expected_splits(args, source),
        group_by=args.group_by,
        group_pattern=args.group_pattern,
        num_shards=args.num_shards,
        reader_hosts=args.reader_hosts,
        seed=args.seed,
        order=args.order,
        writer=writer,
        split_names=_split_names(args, source) if writer == "beam" else (),
        overwrite=args.overwrite,
        max_failure_ratio=args.max_failure_ratio,
        name=args.name or os.path.basename(os.path.abspath(args.output)),
        untyped_features=source_of(source).untyped,
        shuffles_in_memory=args.runner in _LOCAL_RUNNERS,
        workers=_workers(args),
        **sizes,
    )


def _writer(args: argparse.Namespace, sized: bool) -> str:
    """What --writer=auto means: WriteToTFRecord where the shuffle is on disk, and it can do what is asked."""
    if args.writer != "auto":
        return str(args.writer)
    ordered = args.order != "shuffled" or args.seed != 0
    return "shards" if args.runner in _LOCAL_RUNNERS or ordered or sized else "beam"


def _split_names(args: argparse.Namespace, source: SourceConfig) -> tuple[str, ...]:
    """Every split that a record may fall into, for --writer=beam.

    Raises:
        ValueError: only reading the input would tell.
    """
    if args.splits:
        return tuple(args.splits)
    if isinstance(args.num_shards, dict):
        return tuple(args.num_shards)
    names = source_of(source).split_names(source)
    if names is None:
        raise ValueError(
            "--writer is 'beam', which has to know the splits beforehand, and they are in the rows of the "
            "input: name them with --num_shards NAME=N,…, make others with --splits, or use --writer=shards"
        )
    return tuple(dict.fromkeys((*names, "train")))


def _expected_splits(args: argparse.Namespace, source: SourceConfig) -> tuple[str, ...]:
    """The splits of the layout, unless what was asked for may well leave one empty."""
    if args.splits or args.include or args.exclude or args.limit:
        return ()
    return source_of(source).split_names(source) or ()


def _label_names(path: str) -> tuple[str, ...]:
    try:
        with open(path, encoding="utf-8") as file:
            return read_label_file(file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--label_file is {path!r}: {getattr(error, 'strerror', None) or error}") from error
    except ValueError as error:
        raise ValueError(f"--label_file is {path!r}: {error}") from error


def _check_beam_args(parser: Parser, others: Sequence[str], runner: str) -> None:
    """Raises ValueError for what is neither our flag nor Beam's, naming the nearest that is."""
    if not others:
        return
    from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser

    class BeamParser(Parser, _BeamArgumentParser):
        """Beam's flags, with our way to say what is wrong."""

    beam_parser = BeamParser(prog=parser.prog, allow_abbrev=False, add_help=False)
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(beam_parser)
    _, unknown = beam_parser.parse_known_args(list(others))
    if not unknown or runner.startswith(("Portable", "Flink", "Spark")):
        return
    name = unknown[0].split("=")[0]
    if not name.startswith("-"):
        raise ValueError(f"argument {unknown[0]!r} belongs to no flag; the input is given with --input")
    known = {flag for each in (parser, beam_parser) for flag in each._option_string_actions}
    # Ours are tried first: few mistype Beam's.
    nearest = difflib.get_close_matches(name, parser._option_string_actions, 1, 0.65)
    nearest = nearest or difflib.get_close_matches(name, known, 1, 0.75)
    hint = f"; did you mean {nearest[0]}?" if nearest else "; --help lists the flags"
    raise ValueError(f"{name} is not a flag{hint}")
