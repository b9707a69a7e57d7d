"""Speed and memory of conversions, compared with a plain Beam pipeline and hand-written loops.

python -m benchmarks.write
python -m benchmarks.write --images 500 --rows 20000 --digits 1000 --repeats 1

Draws its inputs once, into --work. Every measurement is of a complete command, from the start of its process
to its end. The contenders alternate; times are medians, memory is the highest of all rounds. The
plain Beam pipeline holds everything in memory: the full size takes 9 GB of it, and some 5 GB of disk.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contenders import CONTENDERS, Contender, MemoryCase, memory_cases
from benchmarks.goals import graph_goals, memory_goals, speed_goals, tensorflow_goal
from benchmarks.inputs import TEN, Inputs, benchmark_parser, draw_inputs, own_folder
from benchmarks.measure import Memory, Peaks, Speeds, Times, megabytes, peak_memory, wall_seconds
from benchmarks.report import goals_table, machine, memory_table, speed_table


def main(argv: Sequence[str] | None = None) -> None:
    """Runs all rounds and prints the tables."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.images < TEN or min(args.digits, args.rows, args.repeats) < 1:
        parser.error(f"--images must be at least {TEN}, --digits, --rows and --repeats at least 1")
    facts = machine()
    work = args.work.absolute()
    inputs = draw_inputs(work, args.images, args.digits, args.rows)
    with own_folder(work) as folder:
        text = _measured(args, inputs, facts, folder / "output")
    print(text)
    if args.output is not None:
        args.output.write_text(text + "\n", encoding="utf-8")


def _measured(args: argparse.Namespace, inputs: Inputs, facts: str, output: Path) -> str:
    """All rounds, and their tables."""
    cases = memory_cases(inputs)
    for contender in CONTENDERS:  # compiles and caches what they import
        _time(contender, inputs.ten_images, output)
    speeds: Speeds = defaultdict(Times)
    peaks: Peaks = defaultdict(Memory)
    for number in range(1, args.repeats + 1):
        print(f"round {number} of {args.repeats}", file=sys.stderr)
        time_round(inputs, output, speeds)
        memory_round(cases, output, peaks)
    goals = [
        *speed_goals(speeds),
        *memory_goals(cases, peaks),
        tensorflow_goal(inputs, output),
        *graph_goals(inputs, output),
    ]
    return _report(
        args, inputs, facts, [speed_table(inputs, speeds), memory_table(cases, peaks), goals_table(goals)]
    )


def _parser() -> argparse.ArgumentParser:
    parser = benchmark_parser("write", __doc__, images=20_000, repeats=3)
    parser.add_argument("--digits", type=int, default=10_000, help="images in IDX files (default: 10000)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the manifest (default: 1000000)")
    parser.add_argument("--output", type=Path, help="file to write the tables to, too")
    return parser


def time_round(inputs: Inputs, output: Path, speeds: Speeds) -> None:
    """Times each contender once on ten images and once on all of them."""
    for contender in CONTENDERS:
        times = speeds[contender.name]
        times.ten.append(_time(contender, inputs.ten_images, output))
        times.everything.append(_time(contender, inputs.all_images, output, inputs.images))
        print(f"  {contender.name}: {times.ten[-1]:.2f} s, {times.everything[-1]:.2f} s", file=sys.stderr)


def _time(contender: Contender, source: Path, output: Path, images: int = TEN) -> float:
    shutil.rmtree(output, ignore_errors=True)
    seconds = wall_seconds(contender.arguments(source, output))
    contender.check(output, images)
    shutil.rmtree(output, ignore_errors=True)
    return seconds


def memory_round(cases: Sequence[MemoryCase], output: Path, peaks: Peaks) -> None:
    """Measures each case once."""
    for case in cases:
        shutil.rmtree(output, ignore_errors=True)
        memory = peak_memory(case.arguments(case.source, output))
        shutil.rmtree(output, ignore_errors=True)
        peaks[case.name] = peaks[case.name].peak(memory)
        print(f"  {case.name}: {megabytes(memory.rss)}", file=sys.stderr)


def _report(args: argparse.Namespace, inputs: Inputs, facts: str, tables: Sequence[str]) -> str:
    size = inputs.image_bytes / inputs.images / 1000
    command = (
        f"`python -m benchmarks.write --images {args.images} --digits {args.digits} --rows {args.rows} "
        f"--repeats {args.repeats}`"
    )
    about = (
        f"{inputs.images:,} JPEGs of {size:.0f} KB on average, 480x360, quality 95 at 4:2:0; {args.digits:,} "
        f"digits; {args.rows:,} rows. Rounds: {args.repeats}; times are medians of whole commands, start-up "
        "included; memory is the highest of all rounds, sampled every 20 ms (PSS: 200 ms)."
    )
    return "\n\n".join((command, facts + ".", about, *tables))


if __name__ == "__main__":
    main()
