"""From the flags of a call to the configuration of its dataset."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Mapping
from typing import Any

from recordmill.pipelines.image_flags import image_policy
from recordmill.pipelines.runner_flags import LOCAL_RUNNERS, worker_slots, writer_processes
from recordmill.pipelines.source_flags import label_flags
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.records import JobError
from recordmill.transforms.sources.registry import source_of
from recordmill.transforms.sources.source import SourceConfig
from recordmill.transforms.storage.files import exists
from recordmill.transforms.storage.layout import MANIFEST
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


def dataset_config(
    args: argparse.Namespace, source: SourceConfig, beam_flags: Mapping[str, Any]
) -> DatasetConfig:
    """The configuration that the flags ask for.

    Args:
        args: our flags.
        source: that they name, its kind found out.
        beam_flags: Beam's flags, by name.

    Raises:
        ValueError: they contradict each other, or one has a value that it cannot have.
    """
    ways = [flag for flag in ("num_shards", "shard_size", "reader_hosts") if getattr(args, flag) is not None]
    if len(ways) > 1:
        raise ValueError(f"--{ways[0]} and --{ways[1]} both decide the number of shards; give one of them")
    sizes = {} if args.shard_size is None else {"shard_size": args.shard_size}
    if args.dataset_version not in (None, AUTO):
        parse_version(args.dataset_version)
    writer = _writer(args, bool(ways and ways != ["num_shards"]))
    if writer == "beam" and "[" in args.output:
        raise ValueError(
            f"--output is {args.output!r}, where Beam's own writer takes [ for the start of a pattern; "
            "give another folder, or --writer=shards"
        )
    return DatasetConfig(
        policy=image_policy(args),
        schema=schema_of(args.schema, source),
        boxes=args.boxes,
        rename=args.rename,
        **label_flags(args),
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
        strict=args.strict,
        name=args.name or os.path.basename(absolute(args.output)),
        untyped_features=source_of(source).untyped,
        shuffles_in_memory=args.runner in LOCAL_RUNNERS,
        workers=writer_processes(args),
        worker_slots=worker_slots(args.runner, beam_flags),
        dataset_version=args.dataset_version,
        keep_versions=args.keep_versions,
        **sizes,
    )


def output_folders(args: argparse.Namespace) -> tuple[str, str]:
    """The folder that the job works in, and the one that readers will see.

    Raises:
        ValueError: one of them cannot take the dataset.
    """
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
    # One that is whole already, and was to be moved to its place, is moved by this job.
    if not exists(os.path.join(working, MANIFEST)):
        check_output(working)
    return working, version_folder(args.output, version)


def _has_versions(output: str) -> bool:
    with contextlib.suppress(OSError, ValueError, JobError):
        home = absolute(output)
        return bool(published_versions(home) or staged_versions(home))
    return False


def schema_of(asked: str, source: SourceConfig) -> str:
    """The schema of a call: `auto` is what fits the source, or is left to its records."""
    return asked if asked != "auto" else ",".join(source_of(source).schemas(source)) or "auto"


def _writer(args: argparse.Namespace, sized: bool) -> str:
    """What --writer=auto means: WriteToTFRecord where the shuffle is on disk, and it can do what is asked."""
    if args.writer != "auto":
        return str(args.writer)
    if args.dataset_version is not None:
        return "shards"
    ordered = args.order != "shuffled" or args.seed != 0
    return "shards" if args.runner in LOCAL_RUNNERS or ordered or sized else "beam"


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
