"""The goals of `benchmarks.write`, compared with the measurements."""

from __future__ import annotations

import dataclasses
import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contenders import (
    BEAM,
    CODEC,
    KEPT_DECODE,
    KEPT_HEADER,
    LOOP,
    Q90,
    TWO_WORKERS,
    MemoryCase,
    convert,
)
from benchmarks.inputs import Inputs
from benchmarks.measure import Peaks, Speeds, megabytes, processes_importing

# The size of one of Beam's pickled transforms varies by some bytes.
_GRAPH_JITTER = 1.005


@dataclasses.dataclass(frozen=True)
class Goal:
    """A goal, and whether it is met."""

    name: str
    limit: str
    measured: str
    met: bool


def speed_goals(speeds: Speeds) -> list[Goal]:
    """Ratios of complete commands, and the time for ten images."""
    goals = []
    for ours, theirs, least in ((KEPT_HEADER, BEAM, 6.0), (KEPT_HEADER, LOOP, 0.8), (Q90, CODEC, 0.85)):
        ratio = speeds[theirs.name].whole / speeds[ours.name].whole
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
    """The job graph does not grow with the input."""
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
    from recordmill.transforms.sources.source import SourceConfig
    from recordmill.transforms.write import WriteDataset

    pipeline = beam.Pipeline("apache_beam.runners.portability.fn_api_runner.FnApiRunner")
    config = SourceConfig(kind=source, input=str(path))
    settings = {"kind": source, "input": str(path)}
    write = WriteDataset(str(output), DatasetConfig(), settings)
    _ = pipeline | "ReadSource" >> ReadSource(config, f"{write.run}/scratch") | "WriteDataset" >> write
    return len(pipeline.to_runner_api().SerializeToString())
