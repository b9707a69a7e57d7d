"""Speed of reading a dataset with `load_dataset`, TFDS and a hand-written pipeline.

python -m benchmarks.read
python -m benchmarks.read --images 400 --digits 2000 --repeats 3

Draws its inputs once, into --work, and converts them. Every reader decodes every image, JPEGs scaled to
224x224, in batches of 32, and is first checked to yield the same pixels and labels as the others. Readers
alternate in one process; times are medians of epochs, after one that does not count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.contenders import convert
from benchmarks.goals import Goal
from benchmarks.inputs import benchmark_parser, draw_digits, draw_jpegs, once
from benchmarks.measure import wall_seconds
from benchmarks.report import goals_table, machine, markdown_table

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.read_contenders import (
    BY_HAND,
    READERS,
    RECORDMILL,
    TFDS,
    Work,
    digest,
    epoch_seconds,
)

Epochs = Mapping[tuple[str, str], Sequence[float]]
"""Seconds of each epoch, by the names of the work and of the reader."""

_LEAST = {TFDS.name: 1.0, BY_HAND.name: 0.9}


def main(argv: Sequence[str] | None = None) -> None:
    """Runs all epochs and prints the tables."""
    parser = _parser()
    args = parser.parse_args(argv)
    if min(args.images, args.digits, args.repeats) < 1:
        parser.error("--images, --digits and --repeats must be at least 1")
    facts = machine()
    works = make_works(args.work.absolute(), args.images, args.digits)
    for work in works:
        check_same(work)
    epochs = time_epochs(works, args.repeats)
    images = {works[0].name: args.images, works[1].name: args.digits}
    command = (
        f"`python -m benchmarks.read --images {args.images} --digits {args.digits} --repeats {args.repeats}`"
    )
    text = "\n\n".join((command, facts + ".", speed_table(images, epochs), goals_table(read_goals(epochs))))
    print(text)
    if args.output is not None:
        args.output.write_text(text + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = benchmark_parser("read", __doc__, images=3000, repeats=5)
    parser.add_argument("--digits", type=int, default=10_000, help="PNGs of 28x28 (default: 10000)")
    parser.add_argument("--output", type=Path, help="file to write the tables to, too")
    return parser


def make_works(work: Path, images: int, digits: int) -> list[Work]:
    """Draws and converts the inputs that are not in `work` yet."""
    jpegs = once(work / f"jpeg-{images:08d}", draw_jpegs, images)
    numbers = once(work / f"digits-{digits:08d}", draw_digits, digits)
    return [
        Work("JPEGs to 224x224", _converted(jpegs), 3, (224, 224)),
        Work("digits", _converted(numbers, "--splits", "train=1"), 1, None),
    ]


def _converted(source: Path, *flags: str) -> Path:
    output = source.with_name(f"records-{source.name}")
    if not (output / "manifest.json").exists():
        wall_seconds(convert("--num_shards", "8", "--quiet", *flags)(source, output))
    return output


def check_same(work: Work) -> None:
    """Raises RuntimeError unless all readers yield the same images with the same labels."""
    found = {reader.name: digest(reader.dataset(work)) for reader in READERS}
    if len(set(found.values())) > 1:
        raise RuntimeError(f"{work.name}: the readers yield different images or labels: {found}")


def time_epochs(works: Sequence[Work], repeats: int) -> dict[tuple[str, str], list[float]]:
    """Times each reader `repeats` times, alternately."""
    epochs: dict[tuple[str, str], list[float]] = {}
    for work in works:
        datasets = {reader.name: reader.dataset(work) for reader in READERS}
        for number in range(repeats + 1):
            for name, dataset in datasets.items():
                seconds = epoch_seconds(dataset)
                print(f"{work.name}, epoch {number}, {name}: {seconds:.2f} s", file=sys.stderr)
                if number:
                    epochs.setdefault((work.name, name), []).append(seconds)
    return epochs


def speed_table(images: Mapping[str, int], epochs: Epochs) -> str:
    """A row for each reader and input, with its speed over TFDS and over the hand-written pipeline."""
    rows = []
    for (work, name), seconds in epochs.items():
        median = statistics.median(seconds)
        rows.append(
            (
                f"{work}: {name}",
                f"{images[work] / median:,.0f}",
                *(f"{_ratio(epochs, work, name, other.name):.2f}" for other in (TFDS, BY_HAND)),
                ", ".join(f"{one:.2f}" for one in seconds),
            )
        )
    return markdown_table(("reader", "images/s", "of TFDS", "of by hand", "s, each epoch"), rows)


def read_goals(epochs: Epochs) -> list[Goal]:
    """`load_dataset` is as fast as TFDS, and 0.9 times as fast as the hand-written pipeline."""
    goals = []
    for work in dict.fromkeys(work for work, _ in epochs):
        for other, least in _LEAST.items():
            ratio = _ratio(epochs, work, RECORDMILL.name, other)
            name = f"{work}: speed of {RECORDMILL.name}, over {other}"
            goals.append(Goal(name, f"≥ {least:g}", f"{ratio:.2f}", ratio >= least))
    return goals


def _ratio(epochs: Epochs, work: str, ours: str, other: str) -> float:
    return statistics.median(epochs[work, other]) / statistics.median(epochs[work, ours])


if __name__ == "__main__":
    main()
