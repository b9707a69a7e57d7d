"""Speed of `recordmill verify`, compared with a bare decode of the same records.

python -m benchmarks.verify
python -m benchmarks.verify --images 500 --repeats 1

Draws its images once, into --work, and converts them: as they are, and at quality 90. Each time is of a
complete command, from the start of its process to its end. The programs take turns; times are medians.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.inputs import TEN, benchmark_parser, draw_jpegs, once, own_folder
from benchmarks.measure import run_python
from benchmarks.report import Goal, goals_table, machine
from benchmarks.works import convert

LIMIT = 1.5
_PROCESSES = "2"
_SETTINGS = {"kept": (), "at quality 90": ("--image_format=jpeg", "--jpeg_quality=90", "--reencode=always")}


def main(argv: Sequence[str] | None = None) -> None:
    """Runs all rounds and prints the table."""
    parser = benchmark_parser("verify", __doc__, images=20_000, repeats=3)
    args = parser.parse_args(argv)
    if args.images < TEN or args.repeats < 1:
        parser.error(f"--images must be at least {TEN}, --repeats at least 1")
    work = args.work.absolute()
    photos = once(work / f"jpeg-{args.images:08d}", draw_jpegs, args.images)
    goals = []
    for name, flags in _SETTINGS.items():
        with own_folder(work) as folder:
            output = folder / "verified"
            run_python(convert(photos, output, "--quiet", "--num_shards=8", *flags))
            goals.append(goal(name, *times(output, args.repeats)))
    facts = f"{machine()}. {args.images:,} JPEGs of 480x360; {_PROCESSES} processes; rounds: {args.repeats}."
    print(f"{facts}\n\n{goals_table(goals)}")


def times(dataset: Path, repeats: int) -> tuple[float, float]:
    """Median seconds of a verification, and of the bare decode."""
    flags = ("--quiet", f"--direct_num_workers={_PROCESSES}")
    verify = ("-m", "recordmill.pipelines.cli", "verify", str(dataset), *flags)
    decode = ("-m", "benchmarks.verify_loop", str(dataset), _PROCESSES)
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(repeats):
        for seconds, arguments in zip(found, (verify, decode), strict=True):
            seconds.append(run_python(arguments).seconds)
        print(f"round {number + 1}: {found[0][-1]:.2f} s, {found[1][-1]:.2f} s", file=sys.stderr)
    return statistics.median(found[0]), statistics.median(found[1])


def goal(name: str, verify: float, decode: float) -> Goal:
    ratio = verify / decode
    measured = f"{ratio:.2f} ({verify:.2f} s over {decode:.2f} s)"
    return Goal(f"time of verify over a bare decode, images {name}", f"≤ {LIMIT}", measured, ratio <= LIMIT)


if __name__ == "__main__":
    main()
