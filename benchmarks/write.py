"""Speed and memory of conversions, compared with a plain Beam pipeline and hand-written loops.

python -m benchmarks.write
python -m benchmarks.write --images 500 --rows 20000 --digits 1000 --repeats 1

Draws its inputs once, into --work. Every measurement is of a complete command, from the start of its process
to its end. The contenders alternate; times are medians, memory is the highest of all rounds. The
plain Beam pipeline holds everything in memory: the full size takes 9 GB of it, and some 5 GB of disk.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contenders import (
    BEAM,
    CODEC,
    CONTENDERS,
    KEPT_DECODE,
    KEPT_HEADER,
    LOOP,
    Q90,
    TWO_WORKERS,
    MemoryCase,
    convert,
    memory_cases,
)
from benchmarks.inputs import TEN, Inputs, benchmark_parser, draw_inputs, own_folder
from benchmarks.measure import (
    Memory,
    Peaks,
    Speeds,
    Times,
    megabytes,
    peak_memory,
    processes_importing,
)
from benchmarks.report import Goal, goals_table, machine, markdown_table

# The size of one of Beam's pickled transforms varies by some bytes.
_GRAPH_JITTER = 1.005


def main(argv: Sequence[str] | None = None) -> None:
    """Runs all rounds and prints the tables."""
    parser = benchmark_parser("write", __doc__, images=20_000, repeats=3)
    parser.add_argument("--digits", type=int, default=10_000, help="images in IDX files (default: 10000)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the manifest (default: 1000000)")
    args = parser.parse_args(argv)
    if args.images < TEN or min(args.digits, args.rows, args.repeats) < 1:
        parser.error(f"--images must be at least {TEN}, --digits, --rows and --repeats at least 1")
    facts = machine()
    work = args.work.absolute()
    inputs = draw_inputs(work, args.images, args.digits, args.rows)
    with own_folder(work) as folder:
        print(_measured(args, inputs, facts, folder / "output"))


def _measured(args: argparse.Namespace, inputs: Inputs, facts: str, output: Path) -> str:
    """All rounds, and their tables."""
    cases = memory_cases(inputs)
    for contender in CONTENDERS:  # compiles and caches their imports
        contender.seconds(inputs.ten_images, output, TEN)
    speeds: Speeds = defaultdict(Times)
    peaks: Peaks = defaultdict(Memory)
    for number in range(1, args.repeats + 1):
        print(f"round {number} of {args.repeats}", file=sys.stderr)
        _time_round(inputs, output, speeds)
        _memory_round(cases, output, peaks)
    goals = [
        *speed_goals(speeds),
        *memory_goals(cases, peaks),
        tensorflow_goal(inputs, output),
        *graph_goals(inputs, output),
    ]
    tables = (speed_table(inputs, speeds), memory_table(cases, peaks), goals_table(goals))
    return _report(args, inputs, facts, tables)


def _time_round(inputs: Inputs, output: Path, speeds: Speeds) -> None:
    for contender in CONTENDERS:
        times = speeds[contender.name]
        times.ten.append(contender.seconds(inputs.ten_images, output, TEN))
        times.everything.append(contender.seconds(inputs.all_images, output, inputs.images))
        print(f"  {contender.name}: {times.ten[-1]:.2f} s, {times.everything[-1]:.2f} s", file=sys.stderr)


def _memory_round(cases: Sequence[MemoryCase], output: Path, peaks: Peaks) -> None:
    for case in cases:
        shutil.rmtree(output, ignore_errors=True)
        memory = peak_memory(case.arguments(case.source, output))
        shutil.rmtree(output, ignore_errors=True)
        peaks[case.name] = peaks[case.name].peak(memory)
        print(f"  {case.name}: {megabytes(memory.rss)}", file=sys.stderr)


def speed_table(inputs: Inputs, speeds: Speeds) -> str:
    """A row for each contender, with its speed relative to that of its loop."""
    against = {KEPT_HEADER: LOOP, KEPT_DECODE: LOOP, BEAM: LOOP, LOOP: LOOP, Q90: CODEC, CODEC: CODEC}
    rows = []
    for contender, other in against.items():
        times = speeds[contender.name]
        other_times = speeds[other.name]
        beyond, other_beyond = times.beyond_startup, other_times.beyond_startup
        rows.append(
            (
                contender.name,
                f"{inputs.images / times.total:,.0f}",
                f"{other_times.total / times.total:.2f}",
                ", ".join(f"{seconds:.2f}" for seconds in times.everything),
                f"{times.startup:.2f}",
                f"{inputs.images / beyond:,.0f}" if beyond > 0 else "–",
                f"{other_beyond / beyond:.2f}" if beyond > 0 else "–",
            )
        )
    rates = ("images/s", "of its loop", "s, each round")
    beyond_startup = ("s with ten images", "images/s beyond that", "of its loop")
    return markdown_table((f"{inputs.images:,} JPEGs", *rates, *beyond_startup), rows)


def memory_table(cases: Sequence[MemoryCase], peaks: Peaks) -> str:
    found = [(case.name, peaks[case.name]) for case in cases]
    rows = [(name, megabytes(peak.rss), megabytes(peak.pss), str(peak.processes)) for name, peak in found]
    return markdown_table(("process tree", "peak RSS", "peak PSS", "processes"), rows)


def speed_goals(speeds: Speeds) -> list[Goal]:
    goals = []
    for ours, theirs, least in ((KEPT_HEADER, BEAM, 6.0), (KEPT_HEADER, LOOP, 0.8), (Q90, CODEC, 0.85)):
        ratio = speeds[theirs.name].total / speeds[ours.name].total
        name = f"speed of {ours.name}, over {theirs.name}"
        goals.append(Goal(name, f"≥ {least:g}", f"{ratio:.2f}", ratio >= least))
    seconds = speeds[KEPT_DECODE.name].startup
    return [*goals, Goal("ten images, default flags", "< 3 s", f"{seconds:.2f} s", seconds < 3)]


def memory_goals(cases: Sequence[MemoryCase], peaks: Peaks) -> list[Goal]:
    """All limits; and ten times the images use at most 1.15 times the memory."""
    goals = [
        Goal(
            f"peak RSS, {case.name}",
            f"≤ {megabytes(case.limit)}",
            megabytes(peaks[case.name].rss),
            peaks[case.name].rss <= case.limit,
        )
        for case in cases
        if case.limit
    ]
    for few, many in zip(cases[0:6:2], cases[1:6:2], strict=True):
        growth = peaks[many.name].rss / peaks[few.name].rss
        goals.append(Goal(f"peak RSS, {many.name}, over a tenth", "≤ 1.15", f"{growth:.2f}", growth <= 1.15))
    return goals


def tensorflow_goal(inputs: Inputs, output: Path) -> Goal:
    """No process of a conversion imports TensorFlow, although it is installed."""
    shutil.rmtree(output, ignore_errors=True)
    arguments = convert(TWO_WORKERS)(inputs.all_images, output)
    processes, importing = processes_importing(arguments)
    shutil.rmtree(output, ignore_errors=True)
    installed = importlib.util.find_spec("tensorflow") is not None
    measured = f"{importing} of {processes}" if installed else "TensorFlow is not installed here"
    return Goal("processes that import TensorFlow", "0", measured, installed and importing == 0 < processes)


def graph_goals(inputs: Inputs, output: Path) -> list[Goal]:
    goals = []
    for source, few, many in (
        ("folder", inputs.ten_images, inputs.all_images),
        ("csv", inputs.ten_rows, inputs.all_rows),
    ):
        sizes = [job_graph_bytes(source, path, output) for path in (few, many)]
        ratio = sizes[1] / sizes[0]
        name = f"bytes of the job graph ({source}), all inputs over ten"
        measured = f"{ratio:.3f} ({sizes[1]:,} over {sizes[0]:,})"
        goals.append(Goal(name, f"≤ {_GRAPH_JITTER}", measured, ratio <= _GRAPH_JITTER))
    return goals


def job_graph_bytes(source: str, path: Path, output: Path) -> int:
    """Bytes of the pipeline that `convert` builds for `path`; it is not run."""
    import apache_beam as beam

    from recordmill.transforms.config import DatasetConfig
    from recordmill.transforms.read import ReadSource
    from recordmill.transforms.sources.config import SourceConfig
    from recordmill.transforms.write import WriteDataset

    pipeline = beam.Pipeline("apache_beam.runners.portability.fn_api_runner.FnApiRunner")
    config = SourceConfig(kind=source, input=str(path))
    settings = {"kind": source, "input": str(path)}
    write = WriteDataset(str(output), DatasetConfig(), settings)
    _ = pipeline | "ReadSource" >> ReadSource(config, f"{write.run}/scratch") | "WriteDataset" >> write
    return len(pipeline.to_runner_api().SerializeToString())


def _report(args: argparse.Namespace, inputs: Inputs, facts: str, tables: Sequence[str]) -> str:
    size = inputs.image_bytes / inputs.images / 1000
    command = (
        f"`python -m benchmarks.write --images {args.images} --digits {args.digits} --rows {args.rows} "
        f"--repeats {args.repeats}`"
    )
    about = (
        f"{inputs.images:,} JPEGs of {size:.0f} KB on average, 480x360, quality 95 at 4:2:0; {args.digits:,} "
        f"digits; {args.rows:,} rows. Rounds: {args.repeats}; times are medians of complete commands, with "
        "start-up; memory is the highest of all rounds, sampled every 20 ms (PSS: 200 ms)."
    )
    return "\n\n".join((command, facts + ".", about, *tables))


if __name__ == "__main__":
    main()
