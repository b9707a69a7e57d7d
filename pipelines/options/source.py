"""The source, and the names of its labels, from flags."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
from typing import TypedDict

from recordmill.pipelines.options.parser import Parser, from_flags
from recordmill.transforms.examples.labels import read_label_file, read_label_map, read_label_texts
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.registry import source_of
from recordmill.transforms.storage.files import read_text
from recordmill.transforms.storage.output import check_path
from recordmill.transforms.storage.paths import absolute, below, real_path

# Schemas that, given alone, store one mask of each image.
_OF_MASKS = ("segmentation", "plain")


def chosen_source(args: argparse.Namespace) -> tuple[SourceConfig, str]:
    """The source, with its detected kind and folder, and the reason for the kind.

    Raises:
        ValueError: no source reads the input, or flags contradict each other.
    """
    # Imports all sources, which --help does not need.
    from recordmill.transforms.sources.detection.detect import detect

    source = from_flags(SourceConfig, args, skip_dirs=(absolute(args.output),))
    check_apart(source.input, args.output)
    found = detect(source)
    source = dataclasses.replace(source, kind=found.kind, input=found.input)
    return _with_masks(source, args), found.why


def check_apart(source: str, output: str) -> None:
    """Raises ValueError if output is the input, is in it, contains it, or cannot be a folder."""
    check_path(output)
    read, written = real_path(source), real_path(output)
    if read == written:
        raise ValueError(f"--output is {output!r}, which is --input; give another folder")
    if below(read, written) is not None:
        raise ValueError(
            f"--output is {output!r}, which is in --input, {source!r}; give a folder outside of it, "
            f"such as {shlex.quote(f'{read}-records')}"
        )
    if below(written, read) is not None:
        raise ValueError(
            f"--output is {output!r}, which contains --input, {source!r}; give a folder that does not"
        )


def _with_masks(source: SourceConfig, args: argparse.Namespace) -> SourceConfig:
    """The source; with masks if --schema stores them and --include_annotations is not given."""
    wanted = getattr(args, "schema", "auto") in _OF_MASKS and "include_annotations" not in args.given
    if wanted and "masks" in source_of(source).description.annotations:
        return dataclasses.replace(source, include_annotations=("masks",))
    return source


def check_given(parser: Parser, args: argparse.Namespace) -> None:
    """Raises ValueError if a required flag is missing, or another flag is empty."""
    missing = [one.shown for one in parser.flags if one.required and getattr(args, one.name) is None]
    if missing:
        raise ValueError(f"{' and '.join(missing)} must be given")
    for one in parser.flags:
        value = getattr(args, one.name)
        if one.name != "output" and (value == "" or (isinstance(value, tuple) and "" in value)):
            raise ValueError(f"{one.shown} is empty; give a value, or remove the flag")


_LONGEST_LABEL_FILE = 64 << 20
_NO_LABEL_FILES = (".json", ".xml", ".yaml", ".yml")  # their lines are not names


class LabelFlags(TypedDict):
    """The names of --label_file, as fields of `DatasetConfig`: by line, or by the ids of a label map."""

    label_names: tuple[str, ...] | None
    label_classes: dict[int, str] | None
    label_texts: dict[str, str]


def label_flags(args: argparse.Namespace) -> LabelFlags:
    """The names in --label_file; raises ValueError if it cannot be read, or has no names."""
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
