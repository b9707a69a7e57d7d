"""The flags about the source, and the source that they name."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
from typing import TypedDict

from recordmill.pipelines import flag_values
from recordmill.transforms.examples.labels import read_label_file, read_label_map, read_label_texts
from recordmill.transforms.sources.registry import SOURCES, source_of
from recordmill.transforms.sources.source import ANNOTATIONS, SourceConfig
from recordmill.transforms.storage.files import read_text
from recordmill.transforms.storage.output import check_path
from recordmill.transforms.storage.paths import absolute, below, real_path

# Schemas that store one mask of each image, given alone.
_OF_MASKS = ("segmentation", "plain")


def add_source_flags(group: argparse._ArgumentGroup, output: str) -> None:
    """All flags about the source, and --output.

    Args:
        group: that takes them.
        output: what the help says of --output.
    """
    add = group.add_argument
    add(
        "--input",
        type=flag_values.path,
        metavar="PATH",
        help="what to read, as `recordmill formats` lists it; local or gs://",
    )
    add("--output", type=flag_values.path, metavar="FOLDER", help=output)
    add(
        "--source",
        default="auto",
        type=flag_values.source,
        metavar="NAME",
        help=f"what the input is; auto finds it out; {', '.join(SOURCES)}",
    )
    add(
        "--annotations",
        action="append",
        default=[],
        type=flag_values.path,
        metavar="FILE",
        help="manifest or annotations of the images (repeatable)",
    )
    add(
        "--image_root",
        action="append",
        default=[],
        type=flag_values.path,
        metavar="FOLDER",
        help="a folder in which images are also looked for (repeatable)",
    )
    add("--image_column", metavar="NAME", help="the manifest's column of image paths")
    add("--label_column", metavar="NAME[,NAME…]", help="the manifest's column, or columns, of labels")
    add("--label_pattern", metavar="REGEX", help="takes the label from the key: its first group")
    add(
        "--label_file",
        type=flag_values.path,
        metavar="FILE",
        help="names of the labels, one a line, in the order of their ids; or a label_map.pbtxt",
    )
    add(
        "--label_offset",
        type=int,
        metavar="N",
        help="added to every label id (default: what makes them start where the schema wants them)",
    )
    add(
        "--include_annotations",
        type=flag_values.names_of(*ANNOTATIONS),
        metavar="KIND[,KIND]",
        help=f"what is stored of {', '.join(ANNOTATIONS)}, beside boxes and labels",
    )
    add(
        "--mask_pattern",
        metavar="PATTERN",
        help="with --source masks: where an image's mask lies below the input, as 'masks/{stem}_mask.png'",
    )
    add(
        "--input_features",
        type=flag_values.pairs,
        metavar="OLD=NEW,…",
        help="with --source tfrecord: which features of foreign records are ours, as img=image/encoded",
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
    """The source, with its kind and its folder as detected, and the reason for the kind.

    Raises:
        ValueError: it is of none, or its flags contradict each other.
    """
    from recordmill.transforms.sources.detection import detect  # imports all sources, which --help need not

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
        include_annotations=args.include_annotations or (),
        input_features=args.input_features or (),
        mask_pattern=args.mask_pattern,
        limit=args.limit,
        skip_dirs=(absolute(args.output),),
    )
    check_apart(source.input, args.output)
    found = detect(source)
    source = dataclasses.replace(source, kind=found.kind, input=found.input)
    return _with_masks(source, args), found.why


def check_apart(source: str, output: str) -> None:
    """Raises ValueError if output is the input, lies in it or contains it, or cannot be a folder."""
    check_path(output)
    read, written = real_path(source), real_path(output)
    if read == written:
        raise ValueError(f"--output is {output!r}, which is --input; give another folder")
    if below(read, written) is not None:
        raise ValueError(
            f"--output is {output!r}, which lies in --input, {source!r}; give a folder outside of it, "
            f"such as {shlex.quote(f'{read}-records')}"
        )
    if below(written, read) is not None:
        raise ValueError(
            f"--output is {output!r}, in which --input, {source!r}, lies; give a folder that does not hold it"
        )


def _with_masks(source: SourceConfig, args: argparse.Namespace) -> SourceConfig:
    """The source with the masks that a schema is asked for to store, unless other kinds are named."""
    wanted = getattr(args, "schema", "auto") in _OF_MASKS and args.include_annotations is None
    if wanted and "masks" in source_of(source).description.annotations:
        return dataclasses.replace(source, include_annotations=("masks",))
    return source


def check_given(args: argparse.Namespace) -> None:
    """Raises ValueError where --input or --output is not given, or another flag is given and empty."""
    missing = [flag for flag in ("--input", "--output") if getattr(args, flag[2:]) is None]
    if missing:
        raise ValueError(f"{' and '.join(missing)} must be given")
    for name, value in vars(args).items():
        if name != "output" and (value == "" or (isinstance(value, list) and "" in value)):
            raise ValueError(f"--{name} is empty; give a value, or leave the flag out")


_LONGEST_LABEL_FILE = 64 << 20
_NO_LABEL_FILES = (".json", ".xml", ".yaml", ".yml")  # whose lines are no names


class LabelFlags(TypedDict):
    """What --label_file says, as fields of `DatasetConfig`: names by line, or a label map's by their ids."""

    label_names: tuple[str, ...] | None
    label_classes: dict[int, str] | None
    label_texts: dict[str, str]


def label_flags(args: argparse.Namespace) -> LabelFlags:
    """The names in --label_file.

    Raises:
        ValueError: it cannot be read, or holds no such names.
    """
    path = args.label_file
    if path is None:
        return LabelFlags(label_names=None, label_classes=None, label_texts={})
    if path.lower().endswith(_NO_LABEL_FILES):
        raise ValueError(
            f"--label_file is {path!r}; give a text file with one class name a line, in the order of the "
            "ids, or a label_map.pbtxt"
        )
    if os.path.isfile(path) and (size := os.path.getsize(path)) > _LONGEST_LABEL_FILE:
        raise ValueError(f"--label_file is {path!r}, of {size} bytes; up to {_LONGEST_LABEL_FILE} are read")
    try:
        text = read_text(path)
        if path.endswith(".pbtxt"):
            classes, texts = read_label_map(text), read_label_texts(text)
            return LabelFlags(label_names=None, label_classes=classes, label_texts=texts)
        return LabelFlags(label_names=read_label_file(text), label_classes=None, label_texts={})
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--label_file is {path!r}: {getattr(error, 'strerror', None) or error}") from error
    except ValueError as error:
        raise ValueError(f"--label_file is {path!r}: {error}") from error
