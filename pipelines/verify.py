"""Reads a complete dataset back, and reports what is wrong with it.

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

if __package__ in (None, ""):
    # Run as a file: its own folder is first on the path, and holds no package.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from recordmill.pipelines.running import interruption

if __name__ == "__main__":
    interruption.install()  # what follows takes a while to import

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from recordmill.pipelines.options.runner import DIRECT_RUNNER, listing_parts
from recordmill.pipelines.options.verify import VerifyOptions, parse_verify
from recordmill.pipelines.running.beam_job import exit_status, set_up_logging
from recordmill.pipelines.running.job import Job, run_job
from recordmill.pipelines.terminal import plain_console
from recordmill.transforms.pages.text import counted, visible
from recordmill.transforms.shards import progress
from recordmill.transforms.storage.files import read_text
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.storage.scratch import scratch_folder
from recordmill.transforms.workers import own_process

if TYPE_CHECKING:
    import apache_beam as beam

MOST_SHOWN = 20
"""Faults of a kind that are shown; the report has more."""

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
    with interruption.stopping_at_once():
        own_process.set_up()
        set_up_logging(verbose=False)
        options = parse_verify(sys.argv[1:] if argv is None else argv, prog)
        set_up_logging(options.verbose)
        return exit_status(lambda: run(options, prog), prog, options.runner, options.verbose)


def run(options: VerifyOptions, prog: str) -> int:
    """Runs the checked call; 1 if something is wrong."""
    progress.reset("verified")
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        report = options.report or os.path.join(folder, "report.json")
        if not run_job(options, _Verification(options, report)):
            return 0
        found: dict[str, Any] = json.loads(read_text(absolute(report)))
    if not options.quiet:
        # The reader of the output may be gone.
        with contextlib.suppress(BrokenPipeError, SystemExit):  # rich makes a SystemExit of a broken pipe
            print_verified(found)
    elif not found["sound"]:
        faults = "; ".join(f"{kind}, {times:,}" for kind, times in found["faults"].items())
        print(f"{prog}: error: {visible(found['path'])} has faults: {faults}", file=sys.stderr)
    return 0 if found["sound"] else 1


class _Verification(Job):
    """The job that reads everything back, and writes its findings to the path `report`."""

    def __init__(self, options: VerifyOptions, report: str) -> None:
        super().__init__(options.workers, "it was not verified to its end")
        self._options = options
        self._report = report

    def assemble(self, pipeline: beam.Pipeline) -> None:
        from recordmill.transforms.verify import SourceAgain, VerifyShards

        options = self._options
        against = scratch = None
        if options.source is not None and options.dataset is not None:
            if options.runner != DIRECT_RUNNER:
                # Workers of other machines share only the folder of the report.
                scratch = f"{absolute(self._report)}-{uuid.uuid4().hex}"
            against = SourceAgain(options.source, options.dataset, scratch, listing_parts(options.runner))
        verify = VerifyShards(options.path, self._report, options.workers, against)
        _ = pipeline | "VerifyShards" >> verify


def print_verified(report: Mapping[str, Any], console: Console | None = None) -> None:
    """Prints what was checked, the faults, and what could not be checked."""
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
    table.add_column("what is wrong")
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
    """What was checked, how images compare with their source, and what could not be checked."""
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
