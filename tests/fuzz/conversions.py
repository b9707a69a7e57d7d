"""Damaged inputs, converted completely with one worker and with two.

A finding is a traceback, records that are neither written nor failed nor skipped, two different datasets, a
dataset that `verify` refuses, or an image that TensorFlow decodes to another shape than its record has.
"""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.driver import Case, Finding
from tests.fuzz.own_files import run_command, unclear
from tests.fuzz.parser_seeds import Seed
from tests.fuzz.parsers import Parsers, written
from tests.lazy import tf
from tests.pipelines.conversion import digests, examples, manifest

_DECODED = (b"jpeg", b"png", b"gif", b"bmp")


class Conversions(Parsers):
    """The fuzzer of complete conversions, of the inputs of the fuzzer of parsers."""

    name = "conversions"
    batch = 20

    def __init__(self) -> None:
        super().__init__(seconds=60)

    def examine(self, case: Case, folder: Path) -> Finding | None:
        seed = self.seeds[case.name]
        written(case.files, folder / "in")
        outputs = [folder / "one" / "out", folder / "two" / "out"]
        calls = [_call(seed, folder / "in", output, number) for number, output in enumerate(outputs, 1)]
        results = [run_command(*call) for call in calls]
        for status, errors in results:
            if finding := unclear(case.name, status, errors):
                return finding
        if results[0][0] != results[1][0]:
            return Finding(f"{case.name}: another status with two workers", f"{results}"[:2000])
        if results[0][0]:
            return None
        listings = [(output / "failures.jsonl").read_bytes() for output in outputs]
        if digests(outputs[0]) != digests(outputs[1]) or listings[0] != listings[1]:
            return Finding(f"{case.name}: another dataset with two workers", "")
        counts = manifest(outputs[0])["counts"]
        if counts["read"] != counts["written"] + counts["failed"] + counts["skipped"]:
            return Finding(f"{case.name}: records are lost", f"{counts}")
        status, errors = run_command("verify", outputs[0])
        if status:
            return Finding(f"{case.name}: verify refuses it", errors[-2000:])
        return _undecodable(case.name, outputs[0])


def _call(seed: Seed, root: Path, output: Path, workers: int) -> list[object]:
    place = str(root / seed.place).rstrip("/")
    call = ["convert", "--source", seed.kind, "--input", place, "--output", output, "--progress=none"]
    call += ["--max_failure_ratio=1", "--num_shards=2", f"--direct_num_workers={workers}"]
    call += [f"--annotations={root / path}" for path in seed.annotations]
    for name, value in seed.options.items():
        call.append(f"--{name}={value if isinstance(value, str) else ','.join(value)}")
    return call


def _undecodable(name: str, output: Path) -> Finding | None:
    """The first image that TensorFlow decodes to another shape than its record has."""
    for example in examples(output):
        if example.get("image/format", [b""])[0] not in _DECODED or "image/height" not in example:
            continue
        shape = [example["image/height"][0], example["image/width"][0]]
        pixels = tf.io.decode_image(example["image/encoded"][0], expand_animations=False)
        if list(pixels.shape[:2]) != shape:
            return Finding(f"{name}: an image of another shape", f"{pixels.shape} instead of {shape}")
    return None
