"""Prints the code that parses a dataset, in plain TensorFlow, and its input reader for object detection.

recordmill schema out/ > parse.py
recordmill schema gs://bucket/out --split train
recordmill schema out/ --format input_reader >> pipeline.config
"""

from __future__ import annotations

import dataclasses
import os
import sys
import textwrap
from collections.abc import Sequence

from recordmill.pipelines.input.code import input_readers, parsing_code, why_no_reader
from recordmill.pipelines.input.layout import layout_of
from recordmill.pipelines.options.reading import SCHEMA
from recordmill.transforms.flags import as_flags
from recordmill.transforms.reading.dataset import Dataset, find_dataset
from recordmill.transforms.records import BadInput
from recordmill.transforms.workers import own_process


def main(argv: Sequence[str] | None = None, prog: str = "python -m recordmill.pipelines.schema_code") -> int:
    """Prints it; returns the exit status."""
    parser = SCHEMA.parser(prog)
    args = parser.parse_args(sys.argv[1:] if argv is None else argv)
    own_process.set_up()
    try:
        complete = find_dataset(args.path)
        dataset = _only(complete, args.split)
    except (ValueError, OSError) as error:
        parser.error(str(error) if isinstance(error, ValueError) else f"PATH is {args.path!r}: {error}")
    try:
        layout = layout_of(complete)  # as `load_dataset` has it for every split
        fault = why_no_reader(dataset, layout)
        readers = "" if fault else input_readers(dataset, layout)
        code = parsing_code(dataset, layout)
    except (ValueError, OSError, BadInput) as error:
        parser.exit(1, f"{prog}: error: {args.path!r}: {as_flags(str(error))}\n")
    if args.format == "input_reader":
        if fault:
            parser.error(f"--format is 'input_reader', but {fault}")
        _print(readers)
        return 0
    _print(code)
    if readers:
        _print("\n# The input readers of the Object Detection API, for its pipeline.config:\n#\n")
        _print(textwrap.indent(readers, "# "))
    return 0


def _only(dataset: Dataset, split: str | None) -> Dataset:
    if split is None:
        return dataset
    splits = dataset.splits
    if split not in splits:
        raise ValueError(f"--split is {split!r}; there is {', '.join(map(repr, splits))}")
    return dataclasses.replace(dataset, shards=splits[split])


def _print(text: str) -> None:
    """Escapes characters that the terminal cannot show: in Python's literals, the text stays the same."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has ended; the rest is flushed to the null device
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
