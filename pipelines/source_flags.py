"""The flags about the source, and the source that they name."""

from __future__ import annotations

import argparse
import dataclasses

from pipelines import flag_values
from transforms.examples.labels import read_label_file
from transforms.sources.registry import SOURCES, detect
from transforms.sources.source import SourceConfig
from transforms.storage.files import read_text
from transforms.storage.paths import absolute


def add_source_flags(group: argparse._ArgumentGroup, output: str) -> None:
    """All flags about the source, and --output.

    Args:
        group: that takes them.
        output: what the help says of --output.
    """
    add = group.add_argument
    add("--input", metavar="PATH", help="folder of images, manifest, or IDX files; local or gs://")
    add("--output", metavar="FOLDER", help=output)
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


def chosen_source(args: argparse.Namespace) -> tuple[SourceConfig, str]:
    """The source, its kind found out; and why it is of that kind.

    Raises:
        ValueError: it is of none, or its flags contradict each other.
    """
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
        skip_dirs=(absolute(args.output),),
    )
    if source.kind != "auto":
        return source, "as --source says"
    kind, reason = detect(source)
    return dataclasses.replace(source, kind=kind), reason


def check_given(args: argparse.Namespace) -> None:
    """Raises ValueError where --input or --output is not given, or another flag is given and empty."""
    missing = [flag for flag in ("--input", "--output") if getattr(args, flag[2:]) is None]
    if missing:
        raise ValueError(f"{' and '.join(missing)} must be given")
    for name, value in vars(args).items():
        if name != "output" and (value == "" or (isinstance(value, list) and "" in value)):
            raise ValueError(f"--{name} is empty; give a value, or leave the flag out")


def label_names(args: argparse.Namespace) -> tuple[str, ...] | None:
    """The names in --label_file; None where that is not given.

    Raises:
        ValueError: it cannot be read, or holds no such names.
    """
    path = args.label_file
    if path is None:
        return None
    try:
        return read_label_file(read_text(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--label_file is {path!r}: {getattr(error, 'strerror', None) or error}") from error
    except ValueError as error:
        raise ValueError(f"--label_file is {path!r}: {error}") from error
