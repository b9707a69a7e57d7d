"""The command line of `sweep`: groups of flags that become one frozen, checked configuration."""

from __future__ import annotations

import argparse
import dataclasses
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from recordmill.pipelines import flag_values
from recordmill.pipelines.dataflow import DATAFLOW_RUNNER, check_locations
from recordmill.pipelines.dataset_flags import schema_of
from recordmill.pipelines.flag_parser import HelpFormatter, Parser, add_switch
from recordmill.pipelines.options import add_display_flags, add_runner_flags, job_options, runner_args
from recordmill.pipelines.runner_flags import (
    DIRECT_RUNNER,
    LOCAL_RUNNERS,
    JobOptions,
    writer_processes,
)
from recordmill.pipelines.source_flags import add_source_flags, chosen_source, label_flags
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.policy import ALPHAS, EXIF_POLICIES, SUBSAMPLINGS
from recordmill.transforms.sources.registry import source_of
from recordmill.transforms.sources.source import SourceConfig
from recordmill.transforms.storage.listing import glance
from recordmill.transforms.sweeping.output import check_sweep_output, scratch_of
from recordmill.transforms.sweeping.settings import QUALITIES, TARGETS, SweepConfig

_NONE = "none"
_Number = TypeVar("_Number", int, float)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepOptions(JobOptions):
    """A checked call of `sweep`.

    Attributes:
        source: what to read; its kind is found out.
        source_reason: why it is of that kind.
        output: folder of the sweep.
        scratch: folder in it for what has to be decompressed; None for one of this machine.
        sweep: what is measured.
        dataset: how records are built of images.
    """

    source: SourceConfig
    source_reason: str
    output: str
    scratch: str | None
    sweep: SweepConfig
    dataset: DatasetConfig


def parse_sweep(argv: Sequence[str], prog: str) -> SweepOptions:
    """The options of a call; exits with status 2 and one clear line where the call is wrong."""
    parser = sweep_parser(prog)
    args, others = parser.parse_known_args(list(argv))
    try:
        others, flags = runner_args(parser, args, others)
        return _checked(args, others, flags)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{error.filename!r}: {error.strerror}")


def sweep_parser(prog: str) -> Parser:
    """The parser of `sweep`; Beam's own flags pass beside it."""
    parser = Parser(
        prog=prog,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
        description="Measures what each image setting costs and saves: TFRecord bytes, speed and quality, of "
        "all images or of a sample. Prints a table, and writes sweep.csv, sweep.json, a plot and sweep.html, "
        "with the worst images at every setting side by side. No dataset is written.",
        epilog="Every flag of Apache Beam passes through. "
        "Exit status: 0 measured; 1 the job failed; 2 the call was wrong; 130 interrupted.",
    )
    add_source_flags(
        parser.add_argument_group("input and output"),
        "folder of the sweep, local or gs://; new, empty, or with --overwrite one that holds a sweep",
    )
    _add_settings(parser.add_argument_group("settings"))
    group = parser.add_argument_group("running")
    add_switch(group, "--overwrite", "replace the sweep that --output holds; other files stay")
    add_display_flags(group)
    add_switch(group, "--quiet", "say nothing but errors")
    add_runner_flags(parser.add_argument_group("Beam's runner"))
    return parser


def _add_settings(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--qualities",
        type=_list_of(int),
        default=",".join(map(str, QUALITIES)),
        metavar="Q,…",
        help="of JPEG and WebP, a row of each group each; none for no such rows",
    )
    add(
        "--target_ssim",
        type=_list_of(float),
        default=",".join(map(str, TARGETS)),
        metavar="S,…",
        help="rows of JPEGs of the least quality whose SSIM is this; none for no such rows",
    )
    add(
        "--alpha",
        default="flatten",
        choices=ALPHAS,
        help="transparency in the JPEG and WebP rows: flatten makes them comparable; keep leaves such images "
        "in a format that holds it; fail refuses them",
    )
    add(
        "--background",
        type=flag_values.color,
        default="white",
        metavar="COLOR",
        help="beneath what is flattened: a name or #rrggbb",
    )
    add("--subsampling", default="420", choices=SUBSAMPLINGS, help="of colour in the JPEG rows")
    add("--exif", default="apply", choices=EXIF_POLICIES, help="turn images upright as their EXIF says")
    add(
        "--worst",
        type=flag_values.count,
        default=4,
        metavar="N",
        help="how many of the images with the lowest SSIM sweep.html shows at every setting",
    )


def _list_of(kind: Callable[[str], _Number]) -> Callable[[str], tuple[_Number, ...]]:
    """A parser of numbers with commas between; `none` for no number."""

    def numbers(text: str) -> tuple[_Number, ...]:
        try:
            return () if text.strip().lower() == _NONE else tuple(kind(item) for item in text.split(","))
        except ValueError as error:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no list of numbers; write them with commas between, or none"
            ) from error

    return numbers


def _checked(args: argparse.Namespace, others: Sequence[str], flags: Mapping[str, Any]) -> SweepOptions:
    sweep = SweepConfig(
        qualities=args.qualities,
        targets=args.target_ssim,
        alpha=args.alpha,
        background=args.background,
        subsampling=args.subsampling,
        exif=args.exif,
        worst=args.worst,
    )
    job = job_options(args, others, flags)
    with glance():
        source, reason = chosen_source(args)
        dataset = _dataset(args, source)
        source_of(source).check(source)
    check_sweep_output(args.output, args.overwrite)
    if args.runner == DATAFLOW_RUNNER:
        check_locations(flags)
    return SweepOptions(
        source=source,
        source_reason=reason,
        output=args.output,
        # Workers of other machines share nothing but the output.
        scratch=None if args.runner == DIRECT_RUNNER else scratch_of(args.output, uuid.uuid4().hex),
        sweep=sweep,
        dataset=dataset,
        **vars(job),
    )


def _dataset(args: argparse.Namespace, source: SourceConfig) -> DatasetConfig:
    """The records that `convert` would make, but for their images."""
    return DatasetConfig(
        schema=schema_of("auto", source),
        **label_flags(args),
        label_offset=args.label_offset,
        overwrite=args.overwrite,
        untyped_features=source_of(source).untyped,
        shuffles_in_memory=args.runner in LOCAL_RUNNERS,
        workers=writer_processes(args),
    )
