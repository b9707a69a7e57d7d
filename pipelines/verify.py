"""Reads a dataset back completely, and reports its faults.

recordmill verify out/
recordmill verify out/ --input photos/
python -m recordmill.pipelines.verify gs://bucket/out --report verified.json
recordmill verify gs://bucket/out --report gs://bucket/verified.json --runner DataflowRunner \\
    --project my-project --region europe-west4 --temp_location gs://bucket/tmp
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recordmill.pipelines.running import interruption

if __name__ == "__main__":
    interruption.install()  # the imports below take a while

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from recordmill.pipelines.options.runner import DIRECT_RUNNER
from recordmill.pipelines.options.verify import VerifyOptions, parse_verify
from recordmill.pipelines.running.beam_job import run_command
from recordmill.pipelines.running.job import Job, run_job
from recordmill.pipelines.terminal import plain_console
from recordmill.transforms.pages.text import counted, visible
from recordmill.transforms.shards import progress
from recordmill.transforms.storage.files import read_text
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.storage.scratch import scratch_folder

if TYPE_CHECKING:
    import apache_beam as beam

MOST_SHOWN = 20
"""How many faults of a kind are shown; the report has more."""

# The plural and the singular of everything that is checked.
_FIGURES = {
    "shards": "shard",
    "indexes": "index",
    "other files": "other file",
    "records": "record",
    "keys": "key",
    "images": "image",
    "masks": "mask",
    "compared": "compared",
}


def main(argv: Sequence[str] | None = None, prog: str = "python -m recordmill.pipelines.verify") -> int:
    """Verifies; returns the exit status (see `--help`)."""
    return run_command(parse_verify, lambda options: run(options, prog), argv, prog)


def run(options: VerifyOptions, prog: str) -> int:
    """Runs the checked call; returns 1 if it finds a fault."""
    progress.reset("verified")
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        report = options.report or os.path.join(folder, "report.json")
        if not run_job(options, _Verification(options, report)):
            return 0
        found: dict[str, Any] = json.loads(read_text(absolute(report)))
    if not options.quiet:
        # The program that reads the output may have ended.
        with contextlib.suppress(BrokenPipeError, SystemExit):  # rich makes a SystemExit of a broken pipe
            print_verified(found)
    elif not found["sound"]:
        faults = "; ".join(f"{kind}, {times:,}" for kind, times in found["faults"].items())
        print(f"{prog}: error: {visible(found['path'])} has faults: {faults}", file=sys.stderr)
    return 0 if found["sound"] else 1


class _Verification(Job):
    """The job that reads the dataset back, and writes its findings to the path `report`."""

    def __init__(self, options: VerifyOptions, report: str) -> None:
        super().__init__(options.workers, "the verification is incomplete")
        self._options = options
        self._report = report

    def assemble(self, pipeline: beam.Pipeline) -> None:
        from recordmill.transforms.verify import SourceAgain, VerifyShards

        options = self._options
        against = scratch = None
        if options.source is not None and options.dataset is not None:
            if options.runner != DIRECT_RUNNER:
                # The folder of the report is the only one that workers on other machines share.
                scratch = f"{absolute(self._report)}-{uuid.uuid4().hex}"
            against = SourceAgain(options.source, options.dataset, scratch, options.listing_parts)
        verify = VerifyShards(options.path, self._report, options.workers, against)
        _ = pipeline | "VerifyShards" >> verify


def print_verified(report: Mapping[str, Any], console: Console | None = None) -> None:
    """Prints the checks, the faults, and the checks that were impossible."""
    console = console or plain_console()
    wraps = not console.is_terminal
    faults: Mapping[str, int] = report["faults"]
    console.print(visible(report["path"]), style="bold", soft_wrap=wraps)
    for line in _summary(report):
        console.print(visible(line), soft_wrap=wraps)
    console.print()
    if not faults:
        console.print("nothing is wrong", style="bold green", soft_wrap=wraps)
        return
    console.print(counted(sum(faults.values()), "fault"), style="bold red", soft_wrap=wraps)
    table = Table(box=None, pad_edge=False, show_header=True)
    table.add_column("fault")
    table.add_column("times", justify="right")
    for kind, times in faults.items():
        table.add_row(kind, f"{times:,}")
    console.print(table)
    for kind, times in faults.items():
        named = [fault for fault in report["named"] if fault["kind"] == kind][:MOST_SHOWN]
        console.print(f"\n{kind}", style="bold", soft_wrap=wraps)
        for fault in named:
            console.print(f"  {_fault_line(fault)}", soft_wrap=True)
        if times > len(named):
            console.print(f"  … and {times - len(named):,} more", soft_wrap=wraps)


def _summary(report: Mapping[str, Any]) -> Iterator[str]:
    checked, likeness = Counter(report["checked"]), report["likeness"]
    parts = [counted(checked[names], one, names) for names, one in _FIGURES.items() if checked[names]]
    yield f"verified {', '.join(parts) or 'nothing'}; {decimal(checked['bytes'])} read"
    if checked["compared"]:
        ways = {"kept": "the same bytes", "lossless": "the same pixels", "lossy": "lossy"}
        images = {text: checked[f"images {way}"] for way, text in ways.items()}
        parts = [f"{count:,} {text}" for text, count in images.items() if count]
        yield f"against the source: {', '.join(parts)}"
    for name, unit in (("ssim", ""), ("psnr", " dB")):
        if figures := likeness[name]:
            values = ", ".join(f"{percent} {value:g}{unit}" for percent, value in figures.items())
            yield f"{name.upper()} of {likeness['images']:,} lossy images: {values}"
    for worst in likeness["worst"]:
        psnr = "" if worst["psnr"] is None else f", PSNR {worst['psnr']:.1f} dB"
        position = f"{worst['file']}, record {worst['record']:,}"
        yield f"  SSIM {worst['ssim']:.4f}{psnr}: {worst['key']} ({position})"
    for note in report["not_checked"]:
        yield f"not checked: {note}"


def _fault_line(fault: Mapping[str, Any]) -> str:
    line = str(fault["file"])
    if fault["record"] is not None:
        line += f", record {fault['record']:,}"
    if fault["offset"] is not None:
        line += f" at byte {fault['offset']:,}"
    if fault["key"]:
        line += f", {fault['key']}"
    return visible(f"{line}: {fault['what']}" if fault["what"] else line)


if __name__ == "__main__":
    sys.exit(main())
