"""Speed of re-encoding and resizing, compared with a bare loop of the codecs.

python -m benchmarks.images
python -m benchmarks.images --images 300 --repeats 1

Draws its inputs once, into --work: JPEGs of quality 95, and a quarter as many PNGs of the same pictures.
Every measurement is of a complete command, from the start of its process to its end; recordmill writes a
dataset, the loop discards its results. The contenders alternate; times are medians.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.contenders import Contender, convert
from benchmarks.inputs import TEN, benchmark_parser, draw_jpegs, draw_pngs, once, own_folder
from benchmarks.measure import Times
from benchmarks.report import machine, markdown_table
from recordmill.pipelines.options.runner import available_cores

_LEAST = 0.85


class Job(NamedTuple):
    """A conversion of images of a kind, by recordmill, which re-encodes every image, and by the loop."""

    kind: str
    ours: Contender
    loop: Contender


def _job(kind: str, short_side: int) -> Job:
    name = f"{kind} to JPEG q90{f', short side {short_side}' if short_side else ''}"
    flags = ["--image_format=jpeg", "--reencode=always"]
    flags += [f"--short_side={short_side}"] if short_side else []

    def loop(source: Path, _: Path) -> list[str]:
        return ["-m", "benchmarks.codec_loop", str(source), str(available_cores()), str(short_side)]

    return Job(kind, Contender(name, convert(*flags)), Contender(f"{name}, loop", loop))


JOBS = tuple(_job(kind, side) for kind in ("JPEG", "PNG") for side in (0, 256))


def main(argv: Sequence[str] | None = None) -> None:
    """Runs all jobs and prints the table."""
    parser = benchmark_parser("images", __doc__, images=20_000, repeats=3)
    args = parser.parse_args(argv)
    if args.images < 4 * TEN or args.repeats < 1:
        parser.error(f"--images must be at least {4 * TEN}, --repeats at least 1")
    facts = machine()
    work = args.work.absolute()
    images = {"JPEG": args.images, "PNG": args.images // 4}
    draw = {"JPEG": draw_jpegs, "PNG": draw_pngs}
    few, many = (
        {
            kind: once(work / f"{kind.lower()}-{number:08d}", draw[kind], number)
            for kind, number in numbers.items()
        }
        for numbers in (dict.fromkeys(images, TEN), images)
    )
    for folder in many.values():  # all of them are cached
        for path in folder.rglob("*.*"):
            path.read_bytes()
    times: dict[str, Times] = defaultdict(Times)
    with own_folder(work) as folder:
        for number in range(1, args.repeats + 1):
            print(f"round {number} of {args.repeats}", file=sys.stderr)
            for job in JOBS:
                for contender in (job.ours, job.loop):
                    found = times[contender.name]
                    for inputs, seconds in ((few, found.ten), (many, found.everything)):
                        seconds.append(contender.seconds(inputs[job.kind], folder / "output", 0))
                    print(f"  {contender.name}: {found.everything[-1]:.2f} s", file=sys.stderr)
    print(f"{facts}.\n\n{_table(times, images)}")


def _table(times: dict[str, Times], images: dict[str, int]) -> str:
    """A row for each job: both rates, and their ratio with and without start-up."""
    rows = []
    for job in JOBS:
        ours, loop = times[job.ours.name], times[job.loop.name]
        ratio = loop.total / ours.total
        each = [one / other for one, other in zip(loop.everything, ours.everything, strict=True)]
        rows.append(
            (
                f"{images[job.kind]:,} {job.ours.name}",
                f"{images[job.kind] / ours.total:,.0f}",
                f"{images[job.kind] / loop.total:,.0f}",
                f"{ratio:.2f}",
                f"{statistics.median(each):.2f}",
                f"{loop.beyond_startup / ours.beyond_startup:.2f}",
                "yes" if ratio >= _LEAST else "**no**",
            )
        )
    ratios = ("ratio", "median of rounds", "beyond start-up", f"at least {_LEAST}")
    return markdown_table(("images", "images/s", "the loop's", *ratios), rows)


if __name__ == "__main__":
    main()
