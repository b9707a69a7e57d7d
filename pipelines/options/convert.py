"""The flags of `convert`, and their checked options."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.pipelines.options.dataflow import DATAFLOW_RUNNER
from recordmill.pipelines.options.parser import PASSES, Command, Parser, from_flags
from recordmill.pipelines.options.runner import (
    LOCAL_RUNNERS,
    Display,
    JobOptions,
    Runner,
    check_locations,
    job_options,
    worker_slots,
    writer_processes,
)
from recordmill.pipelines.options.source import check_given, chosen_source, label_flags
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.flags import declares_flags, flag, flags_of
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.records import JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.registry import source_of
from recordmill.transforms.storage.files import exists
from recordmill.transforms.storage.layout import MANIFEST
from recordmill.transforms.storage.listing import cached_listings
from recordmill.transforms.storage.output import check_output, check_path
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.storage.versions import (
    AUTO,
    check_home,
    check_is_no_version,
    parse_version,
    published_versions,
    staged_versions,
    staging_folder,
    version_folder,
    version_to_write,
)


@declares_flags("input and output")
@dataclasses.dataclass(frozen=True)
class Output:
    """The output folder."""

    output: str | None = flag(
        None,
        "folder of the dataset, or of its versions, local or gs://; a new or empty folder, or the "
        "leftovers of an interrupted run",
        required=True,
        path="output",
        metavar="FOLDER",
    )


@declares_flags("running")
@dataclasses.dataclass(frozen=True)
class Running:
    """The end of the job."""

    plan: bool = flag(False, "print the plan of the dataset, and its cost on Dataflow; write nothing")
    is_async: bool = flag(
        False,
        "with DataflowRunner: return after the job is submitted, instead of following it to its end",
        name="async",
    )


CONVERT = Command(
    "convert",
    "Converts images and their labels to a sharded TFRecord dataset.",
    f"{PASSES} Exit status: 0 published (with --async: submitted); 1 the job failed, nothing is published; "
    "2 the call was wrong; 130 interrupted.",
    tuple(
        one
        for cls in (SourceConfig, Output, ImagePolicy, DatasetConfig, Running, Display, Runner)
        for one in flags_of(cls)
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions(JobOptions):
    """A checked call of `convert`."""

    source: SourceConfig
    source_reason: str
    output: str  # folder of the dataset, or of all its versions
    working: str  # folder that the job writes: that of the dataset, or the staging folder of a version
    published: str  # folder that readers will see: that of the dataset, or of the version
    dataset: DatasetConfig
    plan: bool


def parse_convert(argv: Sequence[str], prog: str) -> ConvertOptions:
    """The options of a call; exits with status 2 and one clear line if the call is wrong."""
    parser = CONVERT.parser(prog)
    args, others = parser.parse_known_args(argv)
    with parser.checking():
        return _checked(parser, args, others)


def _checked(parser: Parser, args: argparse.Namespace, others: Sequence[str]) -> ConvertOptions:
    job, flags = job_options(parser, args, others, lambda: _checked_output(parser, args))
    with cached_listings():
        source, reason = chosen_source(args)
        dataset = _dataset_config(args, source, flags)
        source_of(source).check(source)
    working, published = _output_folders(args)
    check_locations(job, flags)
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


def _checked_output(parser: Parser, args: argparse.Namespace) -> str:
    check_given(parser, args)
    if vars(args)["async"] and args.runner != DATAFLOW_RUNNER:
        raise ValueError(
            f"--async needs --runner={DATAFLOW_RUNNER}; --runner is {args.runner!r}, whose job ends with "
            "this call"
        )
    return str(args.output)


def _dataset_config(
    args: argparse.Namespace, source: SourceConfig, beam_flags: Mapping[str, Any]
) -> DatasetConfig:
    """The configuration of the dataset; raises ValueError if flags contradict each other or are wrong."""
    ways = [name for name in ("num_shards", "shard_size", "reader_hosts") if name in args.given]
    if len(ways) > 1:
        raise ValueError(f"--{ways[0]} and --{ways[1]} both decide the number of shards; give one of them")
    if args.dataset_version not in (None, AUTO):
        parse_version(args.dataset_version)
    writer = _writer(args, bool(ways and ways != ["num_shards"]))
    if writer == "beam" and "[" in args.output:
        raise ValueError(
            f"--output is {args.output!r}, in which [ begins a pattern for Beam's own writer; give another "
            "folder, or --writer=shards"
        )
    return from_flags(
        DatasetConfig,
        args,
        policy=_image_policy(args),
        schema=schema_of(args.schema, source),
        **label_flags(args),
        expected_splits=_expected_splits(args, source),
        writer=writer,
        split_names=_split_names(args, source) if writer == "beam" else (),
        name=args.name if "name" in args.given else os.path.basename(absolute(args.output)),
        untyped_features=source_of(source).untyped,
        shuffles_in_memory=args.runner in LOCAL_RUNNERS,
        workers=writer_processes(args),
        worker_slots=worker_slots(args.runner, beam_flags),
    )


def _image_policy(args: argparse.Namespace) -> ImagePolicy:
    """The image policy; raises ValueError if a flag is wrong, contradicts another or has no effect."""
    image_format = args.image_format
    if "image_format" not in args.given and args.schema == "plain":
        image_format = "raw"  # in the tutorials that introduced the name image_raw, it is pixels
    policy = from_flags(ImagePolicy, args, image_format=image_format)
    policy.check_effects(args.given, args.map_image is not None)
    return policy


def _output_folders(args: argparse.Namespace) -> tuple[str, str]:
    """`working` and `published`; raises ValueError if one of them cannot hold the dataset."""
    check_path(args.output)
    if args.dataset_version is None:
        try:
            check_output(args.output, args.overwrite)
        except ValueError as error:
            if not _has_versions(args.output):
                raise
            raise ValueError(
                f"--output is {args.output!r}, which holds versions of a dataset; --dataset_version={AUTO} "
                "publishes the next one, or give another folder"
            ) from error
        if args.overwrite:
            check_is_no_version(args.output)
        return args.output, args.output
    check_home(args.output)
    version = version_to_write(absolute(args.output), args.dataset_version)
    working = staging_folder(args.output, version)
    # This job publishes a complete version that an earlier job did not publish.
    if not exists(os.path.join(working, MANIFEST)):
        check_output(working)
    return working, version_folder(args.output, version)


def _has_versions(output: str) -> bool:
    with contextlib.suppress(OSError, ValueError, JobError):
        home = absolute(output)
        return bool(published_versions(home) or staged_versions(home))
    return False


def schema_of(asked: str, source: SourceConfig) -> str:
    """The schema of a call; `auto` becomes the schemas that the source determines, if any."""
    return asked if asked != "auto" else ",".join(source_of(source).schemas(source)) or "auto"


def _writer(args: argparse.Namespace, sized: bool) -> str:
    """The writer; --writer=auto is WriteToTFRecord if the runner shuffles on disk and no flag excludes it."""
    if args.writer != "auto":
        return str(args.writer)
    if args.dataset_version is not None:
        return "shards"
    ordered = args.order != "shuffled" or args.seed != 0
    return "shards" if args.runner in LOCAL_RUNNERS or ordered or sized else "beam"


def _split_names(args: argparse.Namespace, source: SourceConfig) -> tuple[str, ...]:
    """All possible splits, for --writer=beam; raises ValueError if only the rows of the input name them."""
    if args.splits:
        return tuple(args.splits)
    if isinstance(args.num_shards, dict):
        return tuple(args.num_shards)
    names = source_of(source).split_names(source)
    if names is None:
        raise ValueError(
            "--writer is 'beam', which needs the names of the splits in advance, and they are in the rows "
            "of the input: name them with --num_shards NAME=N,…, make others with --splits, or use "
            "--writer=shards"
        )
    return tuple(dict.fromkeys((*names, "train")))


def _expected_splits(args: argparse.Namespace, source: SourceConfig) -> tuple[str, ...]:
    """The splits of the layout; none if flags may leave one of them empty."""
    if args.splits or args.include or args.exclude or args.limit:
        return ()
    return source_of(source).split_names(source) or ()
