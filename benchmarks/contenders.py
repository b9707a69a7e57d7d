"""The measured commands: those of recordmill, and their alternatives."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.inputs import Inputs
from benchmarks.measure import wall_seconds
from recordmill.pipelines.options.runner import available_cores

Arguments = Callable[[Path, Path], list[str]]
"""(input, output) -> the arguments of `python` for the conversion."""


@dataclasses.dataclass(frozen=True)
class Contender:
    """One way to convert a folder."""

    name: str
    arguments: Arguments
    action: str | None = None  # of every image, in the manifest of recordmill; None for other commands

    def seconds(self, source: Path, output: Path, images: int) -> float:
        """Seconds of the command; `output` is removed before and after it."""
        shutil.rmtree(output, ignore_errors=True)
        seconds = wall_seconds(self.arguments(source, output))
        self.check(output, images)
        shutil.rmtree(output, ignore_errors=True)
        return seconds

    def check(self, output: Path, images: int) -> None:
        """Raises RuntimeError unless the action of every image is `action`."""
        if self.action is None:
            return
        manifest = json.loads((output / "manifest.json").read_text(encoding="utf-8"))
        if manifest["actions"] != {self.action: images}:
            raise RuntimeError(f"{self.name}: expected {images} {self.action}, got {manifest['actions']}")


def convert(*flags: str) -> Arguments:
    """The command of recordmill with `flags`."""

    def arguments(source: Path, output: Path) -> list[str]:
        return ["-m", "recordmill.pipelines.convert", "--input", str(source), "--output", str(output), *flags]

    return arguments


def _beam(source: Path, output: Path) -> list[str]:
    return ["-m", "benchmarks.beam_baseline", str(source), str(output)]


def _loop(source: Path, output: Path) -> list[str]:
    return ["-m", "benchmarks.process_loop", str(source), str(output), str(available_cores())]


def _codec(source: Path, _: Path) -> list[str]:
    return ["-m", "benchmarks.codec_loop", str(source), str(available_cores())]


HEADER_FLAGS = ("--validate", "header")
Q90_FLAGS = ("--image_format", "jpeg", "--jpeg_quality", "90")

KEPT_HEADER = Contender("recordmill, kept, `--validate header`", convert(*HEADER_FLAGS), "kept")
KEPT_DECODE = Contender("recordmill, kept, `--validate decode` (default)", convert(), "kept")
BEAM = Contender("plain Beam: Create, Reshuffle, Map, WriteToTFRecord", _beam)
LOOP = Contender("hand-written multi-process loop", _loop)
Q90 = Contender("recordmill, q90", convert(*Q90_FLAGS), "reencoded")
CODEC = Contender("bare multi-process simplejpeg loop, q90", _codec)
CONTENDERS = (KEPT_HEADER, KEPT_DECODE, BEAM, LOOP, Q90, CODEC)
TWO_WORKERS = "--direct_num_workers=2"
_MB = 1_000_000


@dataclasses.dataclass(frozen=True)
class MemoryCase:
    """A command whose memory is measured; `limit` in bytes, 0 for none."""

    name: str
    arguments: Arguments
    source: Path
    limit: int = 0


def memory_cases(inputs: Inputs) -> list[MemoryCase]:
    """recordmill with two workers on each input with a limit; its alternatives on all images."""
    ways = (("kept, header", HEADER_FLAGS), ("kept, decode", ()), ("q90", Q90_FLAGS))
    cases = [
        MemoryCase(f"{name}, {size} JPEGs", convert(*flags, TWO_WORKERS), source, 350 * _MB)
        for name, flags in ways
        for size, source in (("a tenth of the", inputs.some_images), ("all", inputs.all_images))
    ]
    plain = convert(TWO_WORKERS)
    return [
        *cases,
        MemoryCase("digits (IDX)", plain, inputs.digits, 350 * _MB),
        MemoryCase("rows of a manifest, features alone", plain, inputs.all_rows, 1500 * _MB),
        *(MemoryCase(contender.name, contender.arguments, inputs.all_images) for contender in (BEAM, LOOP)),
    ]
