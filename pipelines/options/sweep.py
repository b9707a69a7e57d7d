"""The flags of `sweep`, and their checked options."""

from __future__ import annotations

import argparse
import dataclasses
import uuid
from collections.abc import Sequence

from recordmill.pipelines.options.convert import schema_of
from recordmill.pipelines.options.parser import PASSES, Command, Parser, from_flags
from recordmill.pipelines.options.runner import (
    DIRECT_RUNNER,
    LOCAL_RUNNERS,
    Display,
    JobOptions,
    Runner,
    check_locations,
    job_options,
    writer_processes,
)
from recordmill.pipelines.options.source import check_given, chosen_source, label_flags
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.flags import declares_flags, flag, flags_of
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.registry import source_of
from recordmill.transforms.storage.listing import cached_listings
from recordmill.transforms.sweeping.output import check_sweep_output, scratch_of
from recordmill.transforms.sweeping.settings import SweepConfig


@declares_flags("running")
@dataclasses.dataclass(frozen=True)
class Sweep:
    """The output folder."""

    output: str | None = flag(
        None,
        "folder of the sweep, local or gs://; a new or empty folder; with "
        "--overwrite, also the folder of a sweep",
        "input and output",
        required=True,
        path="output",
        metavar="FOLDER",
    )
    overwrite: bool = flag(False, "replace the sweep in --output; other files stay")


SWEEP = Command(
    "sweep",
    "Measures costs and savings of each image setting: TFRecord bytes, speed and quality, of all images "
    "or of a sample. Prints a table, and writes sweep.csv, sweep.json, a plot and sweep.html, which shows "
    "the worst images at every setting side by side. No dataset is written.",
    f"{PASSES} Exit status: 0 measured; 1 the job failed; 2 the call was wrong; 130 interrupted.",
    (
        *flags_of(SourceConfig),
        *flags_of(DatasetConfig, "label_file", "label_offset"),
        *(one for cls in (Sweep, SweepConfig, Display, Runner) for one in flags_of(cls)),
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepOptions(JobOptions):
    """A checked call of `sweep`."""

    source: SourceConfig
    source_reason: str
    output: str
    scratch: str | None  # folder in it for decompressed files; None for a folder of this machine
    sweep: SweepConfig
    dataset: DatasetConfig


def parse_sweep(argv: Sequence[str], prog: str) -> SweepOptions:
    """The options of a call; exits with status 2 and one clear line if the call is wrong."""
    parser = SWEEP.parser(prog)
    args, others = parser.parse_known_args(argv)
    with parser.checking():
        return _checked(parser, args, others)


def _checked(parser: Parser, args: argparse.Namespace, others: Sequence[str]) -> SweepOptions:
    def check_output() -> str:
        check_given(parser, args)
        return str(args.output)

    job, flags = job_options(parser, args, others, check_output)
    sweep = from_flags(SweepConfig, args)
    with cached_listings():
        source, reason = chosen_source(args)
        dataset = _dataset(args, source)
        source_of(source).check(source)
    check_sweep_output(args.output, args.overwrite)
    check_locations(job, flags)
    return SweepOptions(
        source=source,
        source_reason=reason,
        output=args.output,
        # The output is the only folder that workers on other machines share.
        scratch=None if args.runner == DIRECT_RUNNER else scratch_of(args.output, uuid.uuid4().hex),
        sweep=sweep,
        dataset=dataset,
        **vars(job),
    )


def _dataset(args: argparse.Namespace, source: SourceConfig) -> DatasetConfig:
    """The configuration of `convert`, without a policy for images."""
    return DatasetConfig(
        schema=schema_of("auto", source),
        **label_flags(args),
        label_offset=args.label_offset,
        overwrite=args.overwrite,
        untyped_features=source_of(source).untyped,
        shuffles_in_memory=args.runner in LOCAL_RUNNERS,
        workers=writer_processes(args),
    )
